"""ldmatrix as machine code: rows of 16 bytes of shared memory to the registers of warps.

The function is that of a task of ``ptxlab.native.cores`` of so many warps. Its words are the objects of shared
memory's bytes and of where each thread's begins, its size and first address, what is added to an address, and
the objects that hold registers: the addresses, and the results. Before an address that is none, or of no row, it says that it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ptxlab.isa.targets import WARP
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.cores import HEADER

NAME = "ldmatrix"
BYTES, START, SIZE, LOWEST, OFFSET, REGISTERS = (HEADER + at for at in range(6))
ROW, ROWS = 16, 8


@cache
def text(matrices: int, checked: int, order: Sequence[int]) -> str:
    """Return the function for so many matrices of 8 x 8 numbers of 16 bits.

    Addresses of the first ``checked`` lanes must be good. ``order`` is the number of each element of a
    register as it lies in a matrix.
    """
    f = FunctionBuilder()
    task, first, end = f.task()
    data, start, *registers = (
        task.array(at) for at in (BYTES, START, *range(REGISTERS, REGISTERS + 1 + matrices))
    )
    size, lowest, offset = (task.word(at) for at in (SIZE, LOWEST, OFFSET))
    room = f.call("usub.sat", size - lowest, f.number("i64", ROW - 1))
    most, begin, added = (x.splat(checked) for x in (room, lowest - offset, offset))
    rows = f.buffer(ROWS * ROW)
    with f.for_range(first, end) as warp:
        lane = warp * WARP
        address = registers[0].at(lane, 4).load("i32", checked, align=4).to("zext", "i64")
        moved = address + added
        good = (address - begin).is_("ult", most) & (moved & ROW - 1).is_("eq", 0)
        with f.when(good.all().is_("eq", 0)):
            f.ret(1)
        shared = data.at(start.word(lane), 1)
        for matrix in range(matrices):
            for row in range(ROWS):
                line = shared.at(moved.pick(ROWS * matrix + row), 1).load("i8", ROW, align=1)
                rows.at(row, ROW).store(line, align=ROW)
            found = rows.load("i16", len(order), align=ROW).shuffle(order)
            registers[1 + matrix].at(lane, 4).store(found, align=4)
    return f.function(NAME).text
