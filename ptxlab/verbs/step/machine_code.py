"""The machine code of a recorded kernel, where the toolchain is there to make it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.instrument.sites import instructions
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.sass import SassInstruction
from ptxlab.observe.timeline import Timeline
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import Function
from ptxlab.toolchain import link_ptx

_PRODUCT = "GMMA."


def machine_code(timeline: Timeline) -> list[dict[str, Any]] | str:
    """Return the SASS of a kernel and of what it calls, by lines of PTX, or why there is none.

    A line is 0 where there is none.
    """
    if timeline.machine_code:
        return "what is stepped through is the machine code"
    text = "\n".join(timeline.text)
    module = parse(text, timeline.path)
    try:
        cubin = link_ptx(text, arch=timeline.target, path=timeline.path)
        functions = Assembly(module, cubin).functions
    except PtxlabError as error:
        return error.message
    kernel = timeline.kernel
    names = [kernel, *(name for name, function in functions.items() if not function.kernel)]
    parsed = {function.name: function for function in module.functions}
    return [
        {"address": instruction.address, "text": instruction.text, "line": line}
        for name in names
        if name in functions
        for instruction, line in _placed(functions[name].instructions, parsed.get(name))
    ]


def _placed(
    code: Sequence[SassInstruction], function: Function | None
) -> Iterator[tuple[SassInstruction, int]]:
    """Yield instructions with their lines.

    To the products of a warpgroup ptxas gives the lines of others. They are taken in their order, where PTX
    has as many of them.
    """
    products = [
        site.instruction.position.line
        for site in (() if function is None else instructions(function))
        if site.instruction.opcode == "wgmma" and "mma_async" in site.instruction.modifiers
    ]
    in_order = sum(_PRODUCT in instruction.text for instruction in code) == len(products)
    left = iter(products)
    for instruction in code:
        product = in_order and _PRODUCT in instruction.text
        yield instruction, next(left) if product else instruction.line or 0
