"""PTX beside its SASS, in the order of either, with the control bits of each instruction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Literal

from ptxlab.instrument.places import matches
from ptxlab.machine.assembly import PtxLine
from ptxlab.machine.control import Control
from ptxlab.machine.decode import control_bits
from ptxlab.machine.sass import SassInstruction
from ptxlab.syntax.functions import SourceLine, SourcePlace
from ptxlab.syntax.names import brief
from ptxlab.verbs.sass.programs import AssembledProgram
from ptxlab.view.colour import Paint, plain
from ptxlab.view.sources import Sources, at_line, source_text
from ptxlab.view.text import aligned

Order = Literal["ptx", "machine"]

_WIDEST = 72  # what is longer stands in a line of its own, so that SASS is not far from the rest
_WIDEST_SASS = (
    44  # behind an instruction of at most so many characters the control bits are in one column
)
_CELL = re.compile(r"^(?P<blank> *)(?P<number>\d+)(?=  )|(?<=  )(?P<address>[0-9a-f]{4,})(?=  )")
"""What is coloured: the number of a line of PTX, and addresses of machine code."""

CONTROL = "behind each instruction: scoreboards it waits for, held until read (r), until written (w); stall"


def ptx_of(program: AssembledProgram) -> str:
    """Return the PTX of a program, "" where only its machine code is at hand."""
    module = program.assembly.module
    return "" if module is None else module.source.text


def control_text(bits: Control) -> str:
    """Write the control bits of an instruction in 15 columns: ``0----5 r- w2  4``."""
    waits = "".join(str(board) if board in bits.waits else "-" for board in range(6))
    reads, writes = ("-" if board is None else board for board in (bits.reads, bits.writes))
    return f"{waits} r{reads} w{writes} {bits.stall:2}"


@dataclass(frozen=True)
class Listing:
    """How code is shown: in which ``order``, what of it (``at``), and in the colours of where it comes from.

    ``at`` is a line of a source, as FILE:LINE, a line of the PTX, an opcode of either or an address of machine code.
    Where ``width`` is too small for PTX and SASS side by side, SASS stands below its line.
    """

    sources: Sources
    order: Order = "ptx"
    at: str | None = None
    width: int | None = None
    paint: Paint = plain
    _colours: dict[SourceLine | int, int] = field(default_factory=dict)

    def of(self, programs: Sequence[AssembledProgram], name: str) -> list[str]:
        """Return the lines about one function of programs that have the same PTX; none where ``at`` is elsewhere."""
        if self.order == "machine" or not ptx_of(programs[0]):
            with_it = [program for program in programs if name in program.assembly.functions]
            return [line for program in with_it for line in self._in_machine_order(program, name)]
        return self._in_ptx_order(programs, name)

    def _lines(self, program: AssembledProgram, name: str) -> dict[int, PtxLine]:
        """Return the lines of PTX of a function by number, as far as they are asked for."""
        if name not in program.assembly.functions:
            return {}
        chosen = (self._asked(line) for line in program.assembly.lines(name))
        return {line.number: line for line in chosen if line is not None}

    @cached_property
    def _place(self) -> SourcePlace | None:
        return None if self.at is None else SourcePlace.read(self.at)

    def _asked(self, line: PtxLine) -> PtxLine | None:
        """Return what of a line is asked for: all of it by its number or source, else the instructions named."""
        if self.at is None or self.at == str(line.number):
            return line
        if self._place is not None:
            origins = (line.source, *line.calls)
            return line if any(self._place.is_line(origin) for origin in origins) else None
        if matches(line.text.partition(" ")[0].rstrip(";"), self.at):
            return line
        sass = tuple(each for each in line.sass if self._names(each))
        return replace(line, sass=sass) if sass else None

    def _names(self, instruction: SassInstruction) -> bool:
        assert self.at is not None
        if self.at.startswith("0x"):
            return instruction.address == int(self.at, 16)
        return matches(instruction.name, self.at)

    def _painted(self, text: str, line: PtxLine | None) -> str:
        """Colour the number and addresses of a row as where it comes from, where it is not to be folded."""
        if line is None or not (line.source or line.number):
            return text
        if self.width is not None and len(text) > self.width:
            return text
        colour = self._colours.setdefault(line.source or line.number, 5 * len(self._colours) % 32)
        return _CELL.sub(
            lambda cell: (
                (cell["blank"] or "") + self.paint(cell["number"] or cell["address"], colour)
            ),
            text,
        )

    # ---- in the order of the PTX ----

    def _in_ptx_order(self, programs: Sequence[AssembledProgram], name: str) -> list[str]:
        by_line = [self._lines(program, name) for program in programs]
        if not any(by_line):
            return []
        cells = [_Cells.of(program, name) for program in programs]
        rows: list[tuple[str, ...]] = [
            (brief(name), *(f"SASS for {program.arch}" for program in programs))
        ]
        origins: list[PtxLine | None] = [None]
        here: SourceLine | None = None
        headings: list[tuple[int, str]] = []  # lines across all columns, each above a row
        for number in sorted(set().union(*by_line)):
            lines = [lines_of.get(number) for lines_of in by_line]
            line = next(line for line in lines if line is not None)
            if line.source is not None and line.source != here:
                here = line.source
                shown = source_text(self.sources, here.path, here.line)
                headings.append((len(rows), f"{here.path}:{here.line}  {shown}".rstrip()))
            columns = [
                [write(instruction) for instruction in line.sass] if line else []
                for line, write in zip(lines, cells, strict=True)
            ]
            left = f"{number:>5}  {line.text}" if number else "       (no line)"
            if len(left) > _WIDEST:
                headings.append((len(rows), left))
                left = ""
            for index, row in enumerate(
                zip_longest(*columns, fillvalue="") if any(columns) else [()]
            ):
                rows.append((left if index == 0 else "", *(row or ("",) * len(programs))))
                origins.append(line)
        table = aligned(rows, "<")
        if self.width is not None and max(map(len, table)) > self.width:
            table = [_below(row, programs) for row in rows]
        table = [
            "\n".join(self._painted(each, line) for each in text.split("\n"))
            for text, line in zip(table, origins, strict=True)
        ]
        for index, heading in reversed(headings):
            table.insert(index, heading)
        return [table[0], CONTROL, *table[1:]]

    # ---- in the order of the machine ----

    def _in_machine_order(self, program: AssembledProgram, name: str) -> Iterator[str]:
        """Yield the instructions by address, each with the line of the source or of PTX it comes from."""
        write, function = _Cells.of(program, name), program.assembly.functions[name]
        by_line = self._lines(program, name)
        code = [
            (instruction, by_line.get(instruction.line or 0))
            for instruction in function.instructions
            if self._is_asked(program, instruction, by_line)
        ]
        if not code:
            return
        yield f"{brief(name)}  SASS for {program.arch}"
        yield CONTROL
        for instruction, line in code:
            text = f"  {write(instruction)}"
            origin = "" if line is None else _origin(line)
            yield self._painted(f"{text}  {origin}".rstrip(), line)

    def _is_asked(
        self,
        program: AssembledProgram,
        instruction: SassInstruction,
        by_line: Mapping[int, PtxLine],
    ) -> bool:
        if self.at is None:
            return True
        if not ptx_of(program):
            return self._place is None and self._names(instruction)
        line = by_line.get(instruction.line or 0)
        return line is not None and instruction in line.sass


def _origin(line: PtxLine) -> str:
    if line.source is not None:
        return at_line(*line.source)
    return f"PTX {line.number}" if line.number else ""


@dataclass(frozen=True)
class _Cells:
    """Writes an instruction of a function with its address and its control bits."""

    bits: Mapping[int, Control]
    widest: int

    @classmethod
    def of(cls, program: AssembledProgram, name: str) -> Callable[[SassInstruction], str]:
        function = program.assembly.functions.get(name)
        if function is None:
            return cls({}, 0)
        lengths = [len(each.text) for each in function.instructions]
        widest = max((length for length in lengths if length <= _WIDEST_SASS), default=0)
        return cls(control_bits(program.assembly.cubin, function), widest)

    def __call__(self, instruction: SassInstruction) -> str:
        bits = control_text(self.bits[instruction.address])
        return f"{instruction.address:04x}  {instruction.text:{self.widest}}  {bits}"


def _below(row: Sequence[str], programs: Sequence[AssembledProgram]) -> str:
    """Return a line of PTX with its SASS below it, for each of several targets with its name."""
    left, *cells = row
    several = len(programs) > 1
    rows = [
        f"{'':7}{program.arch + '  ' if several else ''}{cell}"
        for program, cell in zip(programs, cells, strict=True)
        if cell
    ]
    return "\n".join([*([left] if left else []), *rows])
