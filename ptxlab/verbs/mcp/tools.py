"""What agents can ask: verbs as they are at the command line, and a page of the answer at a time."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import lru_cache

from ptxlab.cli.isolation import command
from ptxlab.errors import PtxlabError

TOOLS = {
    "judge": "Judge a kernel: compiled, right, safe, deterministic, honest, predicted time. Arguments: FILE --reference "
    "'d=a@b' or ref.py, --grid X,Y --block X,Y --arg 'a=randn(64x64,f32)' --arg n=64 --gpu h100.",
    "check": "Find races, missing waits, bad barriers, bounds, uninitialised reads of a launch. Arguments: FILE --grid X "
    "--block X --arg 'x=zeros(64,f32)'.",
    "predict": "Predict a launch's time on a GPU that is not here, what bounds it and which lines wait. Arguments: FILE --gpu "
    "a100 --grid X --block X --arg n=64.",
    "explain": "Explain a matrix instruction: operands, targets, arithmetic. Arguments: mma.m16n8k16.bf16, or a line of PTX.",
    "fragments": "Tell which lane and register hold which element of a matrix instruction. Arguments: --op m16n8k16 --dtype bf16 "
    "--element 'D[5,6]', or --lane 6.",
    "sass": "Show the machine code of a kernel beside its PTX, with registers, spills and occupancy. Arguments: FILE --arch "
    "sm_90a --summary.",
}
"""The verbs that an agent may call, and what it is told of each."""

PAGE = 6000
"""Characters of an answer that are given at a time."""

SECONDS = 300.0
"""How long a call may take."""


def answer(verb: str, arguments: Sequence[str], source: str = "", page: int = 1) -> str:
    """Return a page, counted from 1, of what a verb says; ``source`` is a program in place of a file called ``-``.

    Raises PtxlabError for an argument that would write a file.
    """
    if any(map(_means_output, arguments)):
        raise PtxlabError("a tool writes no files", hint="the answer has what --output would write")
    text = _said(verb, tuple(arguments), source)
    pages = max(1, -(-len(text) // PAGE))
    number = min(max(page, 1), pages)
    part = text[PAGE * (number - 1) : PAGE * number]
    more = f"; page={number + 1} has more" if number < pages else ""
    return part if pages == 1 else f"{part}\n[page {number} of {pages}{more}]"


def _means_output(argument: str) -> bool:
    name = argument.partition("=")[0]
    return argument.startswith("-o") or (len(name) > 2 and "--output".startswith(name))


@lru_cache(16)  # the same call asks for the next page
def _said(verb: str, arguments: tuple[str, ...], source: str) -> str:
    try:
        done = subprocess.run(
            [*command(), verb, *arguments],
            input=source.encode(errors="replace"), capture_output=True, timeout=SECONDS,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, ValueError, OSError) as error:
        return f"not done: {error}"
    said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    return f"{said.rstrip()}\n[exit status {done.returncode}]"
