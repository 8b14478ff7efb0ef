"""wgmma.mma_async as native code: B, and maybe A, as it is in shared memory, C and D in registers.

The function is that of a task of ``ptxlab.native.cores`` of so many warpgroups. Each adds up several products
with the same D. Its words are how many; where the matrices A (zeros in registers) and B of each are, eight words
as in ``lines``, and where the words of the threads with the metadata of a sparse A are; the numbers of the warpgroups' first warps; by warpgroup, all ones where C is added and zeros
where not; the bits of A's words to change; and the objects that hold registers, of A where it is in registers,
C and D one after the other.
"""

from __future__ import annotations

from dataclasses import replace

from ptxlab.isa.targets import WARP, WARPGROUP, Target
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.native.cores import HEADER
from ptxlab.native.tensor_core.fragments import BLOCK, order
from ptxlab.native.tensor_core.lines import WORDS, UnitMatrix
from ptxlab.native.tensor_core.matrices import NAME, Matrices, fragment
from ptxlab.native.tensor_core.mma import keep_metadata, register
from ptxlab.native.tensor_core.steps import depth, steps
from ptxlab.native.tensor_core.terms import Chunks
from ptxlab.native.text import ModuleFunction
from ptxlab.native.value import VectorValue

PRODUCT = 2 * WORDS + 1
"""The words of a product."""

WARPS = WARPGROUP // WARP
_COLUMNS = 8
"""Columns of B, C and D taken together."""


def function(
    form: MatrixInstruction, target: Target, majors: tuple[str, ...], most: int, selector: int = 0
) -> ModuleFunction | None:
    """Return the function of ``form`` on ``target``, None where it has no native one.

    ``majors`` are the directions, ``k`` or ``mn``, in which A and B are contiguous. It takes ``most`` products
    with one D at once, and where A is in registers just one. ``selector`` is that of a sparse A.
    """
    arithmetic = steps(form, target)
    if arithmetic is None:
        return None
    metadata = form.metadata and replace(form.metadata, rows=BLOCK)
    chunks = Chunks.of_metadata(metadata) if metadata else None
    matrices = Matrices(arithmetic, BLOCK, form.n, depth(form), many=most, chunks=chunks)
    code = matrices.code
    task, start, end = code.task()
    count = task.word(HEADER)
    products, firsts, adds = (task.address(HEADER + i) for i in (1, 2, 3))
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
        with code.loop(count) as product:
            words = products.at(product, 8 * PRODUCT).at(WORDS, 8)
            matrix = UnitMatrix.of(b, majors[1], words, group)
            with code.loop(tiles) as number:
                column = number * _COLUMNS
                for inner, elements in matrix.words(column, order(_COLUMNS)):
                    matrices.keep_right(elements, b.bits, inner, column, product)
        with code.loop(WARPS) as position:
            warp = first + position
            if isinstance(a, SharedOperand):
                with code.loop(count) as product:
                    words = products.at(product, 8 * PRODUCT)
                    matrix = UnitMatrix.of(a, majors[0], words, group)
                    for inner, elements in matrix.words(position * BLOCK, order(BLOCK)):
                        matrices.keep_left(elements ^ flips, a.bits, inner, product=product)
            else:
                of_warp = replace(a, rows=BLOCK, threads=WARP)
                for line, elements in fragment(of_warp, [each.at(warp, WARP * 4) for each in held]):
                    matrices.keep_left(elements ^ flips, a.bits, line.inner)
            if metadata:
                with code.loop(count) as product:
                    held_by = products.at(product, 8 * PRODUCT).address(2 * WORDS)
                    word = register(held_by, warp)
                    keep_metadata(matrices, metadata, selector, word, product)

            def registers(which: int, number: VectorValue) -> list[VectorValue]:
                start = number * in_tile
                places = (sums[which].at(i, 8) for i in range(in_tile))
                return [word.array(start).at(warp, WARP * 4) for word in places]

            with code.loop(tiles) as number:
                matrices.begin(tile, registers(0, number), number * _COLUMNS, mask)
            with code.loop(count) as product:
                matrices.add(product)
            with code.loop(tiles) as number:
                matrices.end(tile, registers(1, number), number * _COLUMNS)
    return code.function(NAME)
