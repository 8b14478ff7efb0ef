"""wgmma.mma_async as native code: B, and maybe A, as it was in shared memory, C and D in registers.

The function is that of a task of ``ptxlab.native.cores`` of so many warpgroups. Its words are where the
matrices A (null in registers) and B of all warpgroups are, one behind the other; the numbers of the
warpgroups' first warps; by warpgroup, all ones where C is added and zeros where not; the bits of A's words
to change; and the objects that hold registers, of A where it is in registers, C and D one after the other.
A matrix is in lines along its major direction.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from ptxlab.isa.targets import WARP, WARPGROUP, Target
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.native.cores import HEADER
from ptxlab.native.tensor_core.fragments import BLOCK, order
from ptxlab.native.tensor_core.lines import lines
from ptxlab.native.tensor_core.matrices import NAME, Matrices, fragment
from ptxlab.native.tensor_core.steps import steps
from ptxlab.native.value import ModuleFunction, VectorValue

WARPS = WARPGROUP // WARP
_COLUMNS = 8
"""Columns of B, C and D taken together."""


@cache
def function(
    form: MatrixInstruction, target: Target, majors: tuple[str, ...]
) -> ModuleFunction | None:
    """Return the function of ``form`` on ``target``, None where it has no native one.

    ``majors`` are the directions, ``k`` or ``mn``, in which A and B are contiguous.
    """
    arithmetic = steps(form, target)
    if arithmetic is None:
        return None
    depth = form.k // 32 if form.a_type == "b1" else form.k
    matrices = Matrices(arithmetic, BLOCK, form.n, depth)
    code = matrices.code
    task, start, end = code.task()
    a_lines, b_lines, firsts, adds = (task.address(HEADER + i) for i in range(4))
    flips = task.word(HEADER + 4).to("trunc", "i32").splat(BLOCK)
    objects = task.at(HEADER + 5, 8)
    a, b = form.held("A"), form.held("B")
    assert isinstance(b, SharedOperand)
    tile = replace(form.operand("D"), rows=BLOCK, cols=_COLUMNS, threads=WARP)
    in_tile, tiles = tile.registers_per_lane, form.n // _COLUMNS
    held = []
    if isinstance(a, FragmentLayout):
        held = [objects.array(i) for i in range(a.registers_per_lane)]
    sums = [objects.at(len(held) + i * in_tile * tiles, 8) for i in range(2)]
    with code.for_range(start, end) as group:
        first = firsts.word(group)
        mask = adds.at(group, 4).load("i32", align=4).splat(BLOCK)
        matrix = b_lines.at(group, b.rows * b.cols * b.bits // 8)
        with code.loop(tiles) as number:
            column = number * _COLUMNS
            for inner, words in lines(b, majors[1], matrix, column, order(_COLUMNS)):
                matrices.keep_right(words, b.bits, inner, column)
        with code.loop(WARPS) as position:
            warp = first + position
            if isinstance(a, SharedOperand):
                matrix = a_lines.at(group, a.rows * a.cols * a.bits // 8)
                found = lines(a, majors[0], matrix, position * BLOCK, order(BLOCK))
            else:
                one = replace(a, rows=BLOCK, threads=WARP)
                addresses = [address.at(warp, WARP * 4) for address in held]
                found = ((line.inner, words) for line, words in fragment(one, addresses))
            for inner, words in found:
                matrices.keep_left(words ^ flips, a.bits, inner)

            def registers(which: int, number: VectorValue) -> list[VectorValue]:
                start = number * in_tile
                places = (sums[which].at(i, 8) for i in range(in_tile))
                return [place.array(start).at(warp, WARP * 4) for place in places]

            with code.loop(tiles) as number:
                matrices.begin(tile, registers(0, number), number * _COLUMNS, mask)
            matrices.add()
            with code.loop(tiles) as number:
                matrices.end(tile, registers(1, number), number * _COLUMNS)
    return code.function(NAME)
