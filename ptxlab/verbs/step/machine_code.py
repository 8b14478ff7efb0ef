"""The machine code of a recorded kernel, where the toolchain is there to make it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.instrument.sites import instructions
from ptxlab.machine.sass import SassInstruction, sass
from ptxlab.observe.timeline import Timeline
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import Function
from ptxlab.toolchain import link_ptx

_PRODUCT = "GMMA."


def machine_code(timeline: Timeline) -> list[dict[str, Any]] | str:
    """Return the SASS of a kernel and of what it calls, by lines of PTX, or why there is none.

    ptxas names the last line of an instruction; here it is the first one, 0 where there is none.
    """
    if timeline.machine_code:
        return "what is stepped through is the machine code"
    text = "\n".join(timeline.text)
    try:
        functions = sass(link_ptx(text, arch=timeline.target, path=timeline.path))
    except PtxlabError as error:
        return error.message
    kernel, module = timeline.kernel, parse(text, timeline.path)
    names = [kernel, *(name for name, function in functions.items() if not function.kernel)]
    parsed = {function.name: function for function in module.functions}
    begins = sorted(
        site.instruction.position.line
        for function in parsed.values()
        for site in instructions(function)
    )
    return [
        {"address": instruction.address, "text": instruction.text, "line": line}
        for name in names
        if name in functions
        for instruction, line in _placed(functions[name].instructions, parsed.get(name), begins)
    ]


def _placed(
    code: Sequence[SassInstruction], function: Function | None, begins: Sequence[int]
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
        if in_order and _PRODUCT in instruction.text:
            yield instruction, next(left)
        else:
            yield (
                instruction,
                begins[bisect_right(begins, instruction.line) - 1] if instruction.line else 0,
            )
