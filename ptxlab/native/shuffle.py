"""shfl as machine code: each thread of a warp reads a register of another, by numbers that all lanes give.

The function is that of a task of ``ptxlab.native.cores`` of so many warps, in all of which all lanes are there. Its
words are the objects of the registers that it reads and of the results. Where a membermask leaves lanes out it
says that it cannot.
Source: PTX ISA, "shfl.sync".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ptxlab.isa.targets import WARP
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.cores import HEADER

NAME = "shuffle"
REGISTERS = HEADER


@cache
def text(mode: str, given: Sequence[int | None], *, tells: bool) -> str:
    """Return the function of a mode; ``given`` are b, c and the membermask, None where a register has them.

    It may have a second result, a predicate: whether each thread has read another lane's place.
    """
    f = FunctionBuilder()
    task, first, end = f.task()
    count = 2 + given.count(None) + tells
    source, *named = (task.array(at) for at in range(REGISTERS, REGISTERS + count))
    lanes, lane = f.buffer(4 * WARP), f.numbers("i32", range(WARP))
    with f.for_range(first, end) as warp:
        line = warp * WARP
        left = iter(named)
        b, c, members = (
            f.numbers("i32", [x] * WARP)
            if x is not None
            else next(left).at(line, 4).load("i32", WARP, align=4)
            for x in given
        )
        by, clamp, segment = b & WARP - 1, c & WARP - 1, (c >> 8) & WARP - 1
        inner, low = segment ^ -1, lane & segment
        other = {
            "idx": lambda: low | (by & inner), "up": lambda: lane - by,
            "down": lambda: lane + by, "bfly": lambda: lane ^ by,
        }[mode]()  # fmt: skip
        inside = other.is_("sge" if mode == "up" else "sle", low | (clamp & inner))
        lanes.store(inside.choose(other, lane), align=64)
        target = next(left)
        if tells:
            next(left).at(line, 1).store(inside.to("zext", "i8"), align=1)
        with f.loop(WARP) as k:
            which = lanes.at(k, 4).load("i32", align=4).to("zext", "i64")
            item = source.at(line + which, 4).load("i32", align=4)
            target.at(line + k, 4).store(item, align=4)
        with f.when(members.all().is_("ne", -1)):
            f.ret(1)
    return f.function(NAME).text
