"""Whole products as native code: functions of tasks of ``ptxlab.native.cores``, of the words behind their header.

A register is an array of numpy, one word for each thread, and named by its object. Where C is added a mask is all
ones, and zeros where not. Matrices in memory are four words each, as in ``operands``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from ptxlab.isa.targets import WARP, WARPGROUP, Target
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import ROWS, Metadata
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.native.cores import HEADER
from ptxlab.native.tensor_core.matrices import NAME, Matrices
from ptxlab.native.tensor_core.operands import BLOCK, WORDS, UnitMatrix, fragment, lines, order
from ptxlab.native.tensor_core.steps import depth, steps, transposed
from ptxlab.native.tensor_core.terms import Index, Kept
from ptxlab.native.text import ModuleFunction
from ptxlab.native.value import VectorValue, numbers

PRODUCT = 2 * WORDS + 1
"""The words of a product of wgmma."""

_COLUMNS = 8
"""Columns of B, C and D that wgmma takes together."""

# ---- mma and wmma: all operands in registers ----


def mma(
    form: MatrixInstruction, target: Target, selector: int = 0, ids: Sequence[int] = ()
) -> ModuleFunction | None:
    """Return the function of so many warps for ``form`` on ``target``, None where it has no native one.

    Its words are where the numbers of the warps that take part are, or null for all, and the registers of A, B, C,
    the metadata of a sparse A, the scales of A and B, and D one after the other. Before metadata that is not defined
    it says that it cannot. ``selector`` is that of a sparse A, ``ids`` byte-id and thread-id of A's scales and B's.
    """
    arithmetic = steps(form, target)
    layouts = [form.operand(name) for name in "ABCD"] if arithmetic else []
    if arithmetic is None or not all(lines(layout) for layout in layouts):
        return None
    metadata, scales = form.metadata, form.scales
    blocks = scales[0].blocks if scales else 1
    matrices = Matrices(arithmetic, form.m, form.n, depth(form), metadata=metadata, blocks=blocks)
    code = matrices.code
    task, start, end = code.task()
    warps, objects = task.address(HEADER), task.at(HEADER + 1, 8)
    number = itertools.count()
    counts = [layout.registers_per_lane for layout in layouts]
    counts[3:3] = [bool(metadata), len(scales)]
    a_held, b_held, c_held, which, factors, d_held = (
        [objects.array(next(number)) for _ in range(count)] for count in counts
    )
    everyone = warps.is_("eq", 0)
    with code.for_range(start, end) as index:
        # Where there is no list, what is read in its place does not count.
        listed = everyone.choose(objects, warps.at(index, 8)).word(0)
        warp = everyone.choose(index, listed)

        def at(held: Sequence[VectorValue], layout: FragmentLayout) -> list[VectorValue]:
            return [address.at(warp, WARP * layout.register_bits // 8) for address in held]

        a, b, c, d = map(at, (a_held, b_held, c_held, d_held), layouts)
        if metadata:
            [word] = (register(address, warp) for address in which)
            keep_metadata(matrices, metadata, selector, word)
        for side, (scale, address) in enumerate(zip(scales, factors, strict=True)):
            _keep_scales(matrices, side, scale, ids[2 * side :][:2], register(address, warp))
        for side, held in enumerate((a, b)):
            for line, words in fragment(layouts[side], held):
                matrices.keep(side, words, layouts[side].bits, line.inner, line.block)
        matrices.begin(layouts[2], c)
        matrices.add()
        matrices.end(layouts[3], d)
    return code.function(NAME)


def register(address: VectorValue, warp: VectorValue) -> VectorValue:
    """Return what the lanes of a warp have in a register."""
    return address.at(warp, WARP * 4).load("i32", WARP, align=4)


def _keep_scales(
    matrices: Matrices, side: int, scale: Scale, ids: Sequence[int], word: VectorValue
) -> None:
    for block in range(scale.blocks):
        places = [scale.place(line, block, *ids) for line in order(scale.lines)]
        moved = word >> 8 * places[0][1]
        matrices.keep_scales(side, moved.shuffle([lane for lane, _ in places]), block)


def keep_metadata(
    matrices: Matrices,
    metadata: Metadata,
    selector: int,
    word: VectorValue,
    product: Index = 0,
) -> None:
    """Keep what a warp's register of metadata says of its rows; return from the function where that is undefined."""
    code = matrices.code
    allowed = numbers(code, "i32", [sum(1 << value for value in metadata.allowed)] * ROWS)
    good = None
    for chunk in range(metadata.chunks):
        places = [metadata.place(row, chunk, selector) for row in order(ROWS)]
        shifts = numbers(code, "i32", [shift for _, shift in places])
        value = (word.shuffle([lane for lane, _ in places]) >> shifts) & 15
        known = allowed >> value
        good = known if good is None else good & known
        matrices.keep_units(value, chunk, product=product)
    assert good is not None
    with code.when((good & 1).is_("ne", 0).all().is_("eq", 0)):
        code.ret(1)


# ---- wgmma: B, and maybe A, in shared memory ----


def wgmma(
    form: MatrixInstruction, target: Target, majors: tuple[str, ...], most: int, selector: int = 0
) -> ModuleFunction | None:
    """Return the function of so many warpgroups for ``form`` on ``target``, None where it has no native one.

    Each adds up a chain of several products with the same D. Its words are how many warpgroups a chain has, and for
    each chain how many products; where of each the matrices A (zeros in registers) and B are, and the words of the
    threads with the metadata of a sparse A; the numbers of the warpgroups' first warps; by warpgroup a mask; the bits
    of A's words to change; and the registers of A where it is in these, C and D one after the other.

    ``majors`` are the directions, ``k`` or ``mn``, in which A and B are contiguous. It takes ``most`` products
    with one D at once, and where A is in registers just one. ``selector`` is that of a sparse A.
    """
    arithmetic = steps(form, target)
    if arithmetic is None:
        return None
    metadata = form.metadata and replace(form.metadata, rows=BLOCK)
    matrices = Matrices(arithmetic, BLOCK, form.n, depth(form), many=most, metadata=metadata)
    code = matrices.code
    task, start, end = code.task()
    a, b = form.held("A"), form.held("B")
    assert isinstance(b, SharedOperand)
    tile = replace(form.operand("D"), rows=BLOCK, cols=_COLUMNS, threads=WARP)
    in_tile, tiles = tile.registers_per_lane, form.n // _COLUMNS
    in_a = a.registers_per_lane if isinstance(a, FragmentLayout) else 0
    groups = task.word(HEADER)
    with code.for_range(start, end) as item:
        number = item // groups
        group = item - number * groups
        chain = task.at(HEADER + 1, 8).at(number, 8 * (5 + in_a + 2 * in_tile * tiles))
        count, flips = chain.word(0), chain.word(4).to("trunc", "i32").splat(BLOCK)
        products, firsts, adds = (chain.address(i) for i in (1, 2, 3))
        objects = chain.at(5, 8)
        held = [objects.array(i) for i in range(in_a)]
        sums = [objects.at(in_a + i * in_tile * tiles, 8) for i in range(2)]
        first = firsts.word(group)
        mask = adds.at(group, 4).load("i32", align=4).splat(BLOCK)
        with code.loop(count) as product:
            words = products.at(product, 8 * PRODUCT).at(WORDS, 8)
            matrix = UnitMatrix.of(b, majors[1], words, group)
            with code.loop(tiles) as number:
                for inner, elements in matrix.words(number * _COLUMNS, order(_COLUMNS)):
                    matrices.keep(1, elements, b.bits, inner, number, product)
        with code.loop(WARPGROUP // WARP) as position:
            warp = first + position
            if isinstance(a, SharedOperand):
                with code.loop(count) as product:
                    words = products.at(product, 8 * PRODUCT)
                    matrix = UnitMatrix.of(a, majors[0], words, group)
                    for inner, elements in matrix.words(position * BLOCK, order(BLOCK)):
                        matrices.keep(0, elements ^ flips, a.bits, inner, product=product)
            else:
                of_warp = replace(a, rows=BLOCK, threads=WARP)
                for line, elements in fragment(of_warp, [each.at(warp, WARP * 4) for each in held]):
                    matrices.keep(0, elements ^ flips, a.bits, line.inner)
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


# ---- tcgen05: D in the cells of Tensor Memory ----


def tcgen05(
    problem: TensorCoreProblem, target: Target, a_by_part: bool, most: int
) -> ModuleFunction | None:
    """Return the function of the parts of D of so many CTAs, None where ``problem`` has no native one on ``target``.

    Those of a CTA are one after the other. Each adds up several products with the same D. Its words are how many;
    where of each the matrices A of all CTAs are, of all parts if they come from Tensor Memory, and the matrices B; the
    cells of Tensor Memory; for each CTA the number of the first cell of D, and a mask; for each row of each part how
    many cells it lies behind that first one; the bits of A's words to change; the scales of A and B of each CTA,
    [blocks, rows] and [blocks, n] bytes; and of a sparse A, for each part, the k of its numbers, [k / 2, rows] words.

    It takes ``most`` products at once. The vectors are rows of D, as they lie in Tensor Memory: its columns are what the
    rows of other products are.
    """
    arithmetic = transposed(problem, target)
    if arithmetic is None:
        return None
    path, width = problem.path, arithmetic.rows
    blocks = problem.blocks
    matrices = Matrices(
        arithmetic, width, path.rows, problem.a.cols, many=most, depth=problem.k, blocks=blocks
    )
    code = matrices.code
    task, start, end = code.task()
    count, products = task.word(HEADER), task.address(HEADER + 1)
    cells, firsts, adds, row_cells = (task.address(HEADER + i) for i in (2, 3, 4, 5))
    flips = task.word(HEADER + 6).to("trunc", "i32").splat(BLOCK)
    a_scales, b_scales, chosen = (task.address(HEADER + i) for i in (7, 8, 9))
    a, b = problem.a, replace(problem.b, cols=problem.n)
    a_major = "k" if a_by_part else problem.majors[0]
    with code.for_range(start, end) as item:
        cta = item // path.parts
        part = item - cta * path.parts
        with code.loop(count) as product, code.loop(path.rows // BLOCK) as number:
            of_a = products.at(product, 8 * 2 * WORDS)
            matrix = UnitMatrix.of(a, a_major, of_a, item if a_by_part else cta)
            for inner, words in matrix.words(number * BLOCK, range(BLOCK)):
                matrices.keep(1, words ^ flips, a.bits, inner, number, product)
            for block in range(blocks):
                scales = a_scales.at(cta * blocks + block, path.rows).at(number * BLOCK, 1)
                words = scales.load("i8", BLOCK, align=1).to("zext", "i32")
                matrices.keep_scales(1, words, block, number * BLOCK)
        d = cells.at(firsts.word(cta), 4)
        mask = adds.at(cta, 4).load("i32", align=4).splat(width)
        rows = row_cells.at(part, path.rows * 8)
        places = None
        if problem.form.sparse:
            places = Kept(chosen, "i64", a.cols, path.rows).at(0, 0, item)
        with code.loop(path.columns // width) as number:
            column = number * width
            with code.loop(count) as product:
                of_b = products.at(product, 8 * 2 * WORDS).at(WORDS, 8)
                matrix = UnitMatrix.of(b, problem.majors[1], of_b, cta)
                for inner, words in matrix.words(part * path.columns + column, range(width)):
                    matrices.keep(0, words, b.bits, inner, product=product)
            for block in range(blocks):
                scales = b_scales.at(cta * blocks + block, problem.n)
                scales = scales.at(part * path.columns + column, 1)
                words = scales.load("i8", width, align=1).to("zext", "i32")
                matrices.keep_scales(0, words, block)
            with code.loop(path.rows) as row:
                c = d.at(rows.word(row), 4).at(column, 4).load("i32", width, align=4)
                matrices.sums(row).store(c & mask)
            with code.loop(count) as product:
                matrices.add(product, places)
            with code.loop(path.rows) as row:
                total = matrices.sums(row).load(width)
                d.at(rows.word(row), 4).at(column, 4).store(total, align=4)
    return code.function(NAME)
