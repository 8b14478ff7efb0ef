"""shfl as machine code: each thread of a warp reads a register of another, by numbers that all lanes give.

It is a task in a dispatch loop, of warps in all of which all lanes are there; outside of one it is no machine code.
Where a membermask leaves lanes out the function says that it cannot.
Source: PTX ISA, "shfl.sync".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from ptxlab.emulator.native.warp_operation import NAME, by_warps, per_lane, with_task
from ptxlab.emulator.operations.warp import lane_read
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.run.code import Step
from ptxlab.isa.targets import WARP
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.cores import HEADER
from ptxlab.native.tracing.trace import trace
from ptxlab.native.value import numbers


def natively(
    step: Step,
    mode: str,
    sources: Sequence[Source],
    given: Sequence[int | None],
    destinations: Sequence[Destination],
) -> Step:
    """Return the step that is a task too; ``given`` are b, c and the membermask where they are constants.

    The second result is a predicate.
    """
    if any(destination.widen for destination in destinations):
        return step
    value, *numbers = sources
    read = [number for number, constant in zip(numbers, given, strict=True) if constant is None]
    text = _text(mode, tuple(given), tells=len(destinations) == 2)
    outputs = per_lane(destinations[:1])
    outputs += [(destination.slot, np.dtype(bool), True) for destination in destinations[1:]]
    return with_task("shfl", step, [value, *read], outputs, by_warps(text, lambda wave: ()))


@cache
def _text(mode: str, given: Sequence[int | None], *, tells: bool) -> str:
    """Return the function of a mode, whose words are the objects of the registers that it reads and of the results.

    The second result ``tells`` whether each thread has read another lane's place.
    """
    f = FunctionBuilder()
    task, first, end = f.task()
    count = 2 + given.count(None) + tells
    source, *named = (task.array(at) for at in range(HEADER, HEADER + count))
    lanes, lane = f.buffer(4 * WARP), numbers(f, "i32", range(WARP))
    with f.for_range(first, end) as warp:
        line = warp * WARP
        left = iter(named)
        b, c, members = (
            numbers(f, "i32", [x] * WARP)
            if x is not None
            else next(left).at(line, 4).load("i32", WARP, align=4)
            for x in given
        )
        read = trace(partial(lane_read, mode), [np.dtype(np.int32)] * 3, f, lane, b, c)
        assert read is not None
        which, inside = read
        lanes.store(which, align=64)
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
