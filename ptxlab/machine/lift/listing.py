"""The text that lifted instructions stand in: the machine code of some kernels, a line an instruction."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ptxlab.machine.image import KernelImage
from ptxlab.machine.sass import SassInstruction
from ptxlab.syntax.functions import SourceLine

_ADDRESS = re.compile(r"\s*/\*(?P<address>[0-9a-f]+)\*/")


class Listing:
    """Lines of machine code, called by the ``path`` of what it was read from.

    ``ptx`` says of the lines of PTX where they come from, ``sources`` of those of the listing.
    """

    def __init__(self, path: str, ptx: Mapping[int, SourceLine]) -> None:
        self.path = path
        self.lines: list[str] = []
        self.sources: dict[int, SourceLine] = {}
        self._ptx = ptx

    def add(self, kernel: KernelImage) -> Mapping[int, int]:
        """Add a kernel with what it calls; return the line of each instruction by its number."""
        placed: dict[int, int] = {}
        entered = {number: name for name, number in kernel.functions.items()}
        functions = kernel.assembly.functions
        labels: dict[int, str] = {}
        for i in kernel.code:
            name = entered.get(i.number)
            if name is not None:
                self.lines.append(f"{name}:")
                labels = {address: name for name, address in functions[name].labels.items()}
            if label := labels.get(i.sass.address):
                self.lines.append(f"{label}:")
            self.lines.append(line_of(i.sass))
            placed[i.number] = len(self.lines)
            source = self._ptx.get(i.sass.line or 0)
            if source is not None:
                self.sources[len(self.lines)] = source
        return placed

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def line_of(sass: SassInstruction) -> str:
    return f"    /*{sass.address:04x}*/ {sass.text};"


def origins(kernel: KernelImage, text: str) -> Mapping[int, int]:
    """Return the line of PTX that each line of a listing was made from, where the cubin says it."""
    functions = kernel.assembly.functions
    known: dict[int, int] = {}
    lines: dict[int, int | None] = {}
    for number, row in enumerate(text.splitlines(), 1):
        if match := _ADDRESS.match(row):
            line = lines.get(int(match["address"], 16))
            if line is not None:
                known[number] = line
        elif row[:-1] in functions:
            lines = {i.address: i.line for i in functions[row[:-1]].instructions}
    return known
