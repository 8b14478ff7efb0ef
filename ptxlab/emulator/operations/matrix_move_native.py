"""ldmatrix as machine code: rows of 16 bytes of shared memory to the registers of warps.

It is a task in a dispatch loop, of so many warps; outside of one it is no machine code. Before an address that is
none, or of no row, the function says that it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ptxlab.emulator.native.addresses import WINDOW, Window, window_words
from ptxlab.emulator.native.warp_operation import NAME, by_warps, per_lane, with_task
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import Destination
from ptxlab.emulator.run.code import Step
from ptxlab.isa.targets import WARP
from ptxlab.matrix.ldmatrix import LdMatrix
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.cores import HEADER

SHARED, OFFSET, REGISTERS = (HEADER + at for at in (0, WINDOW, WINDOW + 1))
"""The words of the task: the window of shared memory, what is added to an address, registers."""

ROW, ROWS = 16, 8


def natively(
    form: LdMatrix,
    step: Step,
    access: Access,
    destinations: Sequence[Destination],
    order: Sequence[int],
    *,
    all_addresses: bool,
) -> Step:
    """Return the step that is a task too, where the form and its address allow it."""
    narrow = form.bits == form.packed_bits == 16 and access.space == "shared"
    if not (narrow and access.base.dtype.itemsize == 4):
        return step
    checked = WARP if all_addresses else form.matrices * form.rows
    make = by_warps(
        _text(form.matrices, checked, tuple(order)),
        lambda wave: (*window_words(wave.regions["shared"]), access.offset),
    )
    return with_task("ldmatrix", step, [access.base], per_lane(destinations), make)


@cache
def _text(matrices: int, checked: int, order: Sequence[int]) -> str:
    """Return the function for so many matrices of 8 x 8 numbers of 16 bits.

    Addresses of the first ``checked`` lanes must be good. ``order`` is the number of each element of a
    register as it lies in a matrix.
    """
    f = FunctionBuilder()
    task, first, end = f.task()
    window, offset = Window.of(f, task, SHARED), task.word(OFFSET)
    addresses, results = task.array(REGISTERS), task.at(REGISTERS + 1, 8)
    rows, starts = f.buffer(ROWS * ROW), f.buffer(8 * checked)
    with f.for_range(first, end) as warp:
        lane = warp * WARP
        address = addresses.at(lane, 4).load("i32", checked, align=4).to("zext", "i64")
        moved = address + offset
        good = window.holds(address, offset, ROW) & (moved & ROW - 1).is_("eq", 0)
        with f.when(good.all().is_("eq", 0)):
            f.ret(1)
        shared = window.data.at(window.start.word(lane), 1)
        starts.store(moved, align=64)
        with f.loop(matrices) as matrix:
            for row in range(ROWS):
                line = shared.at(starts.word(matrix * ROWS + row), 1).load("i8", ROW, align=1)
                rows.at(row, ROW).store(line, align=ROW)
            loaded = rows.load("i16", len(order), align=ROW).shuffle(order)
            results.array(matrix).at(lane, 4).store(loaded, align=4)
    return f.function(NAME).text
