"""The machine code of a recorded kernel, where the toolchain is there to make it."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any

from ptxlab.device.loading import load_assembled
from ptxlab.errors import PtxlabError
from ptxlab.instrument.sites import instructions
from ptxlab.isa.targets import Target
from ptxlab.toolchain.assembly import Assembly
from ptxlab.verbs.launching.launch import Asked


def machine_code(asked: Asked, target: Target, kernel: str) -> list[dict[str, Any]] | str:
    """Return the SASS of a kernel and of what it calls, by lines of PTX, or why there is none.

    ptxas names the last line of an instruction; here it is the first one, 0 where there is none.
    """
    try:
        assembly = Assembly(*load_assembled(Path(asked.file), target, asked.options))
        functions = assembly.functions
    except PtxlabError as error:
        return error.message
    begins = sorted(
        site.instruction.position.line
        for function in assembly.module.functions
        for site in instructions(function)
    )
    names = [kernel, *(name for name, one in functions.items() if not one.kernel)]
    return [
        {
            "address": one.address,
            "text": one.text,
            "line": begins[bisect_right(begins, one.line) - 1] if one.line else 0,
        }
        for name in names
        if name in functions
        for one in functions[name].instructions
    ]
