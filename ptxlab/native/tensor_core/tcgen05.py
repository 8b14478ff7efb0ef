"""tcgen05.mma as native code: A and B in units of 16 bytes as they are, D in the cells of Tensor Memory.

The function is that of a task of ``ptxlab.native.cores`` of the parts of D of so many CTAs, those of a CTA one
after the other. Its words are where the matrices A of all CTAs are, of all parts if they come from Tensor
Memory, and the matrices B, four words each as in ``lines``; the cells of Tensor Memory; for each CTA the number
of the first cell of D, and all ones where C is added and zeros where not; for each row of each part how many
cells it lies behind that first one; the bits of A's words to change; the scales of A and B of each CTA, [blocks, rows]
and [blocks, n] bytes; and of a sparse A, for each part, the k of its numbers, [k / 2, rows] words.

The vectors are rows of D, as they lie in Tensor Memory: its columns are what the rows of other products are.
"""

from __future__ import annotations

from dataclasses import replace

from ptxlab.isa.targets import Target
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.native.cores import HEADER
from ptxlab.native.tensor_core.fragments import BLOCK
from ptxlab.native.tensor_core.lines import WORDS, UnitMatrix
from ptxlab.native.tensor_core.matrices import NAME, Matrices
from ptxlab.native.tensor_core.steps import transposed
from ptxlab.native.tensor_core.terms import Kept
from ptxlab.native.text import ModuleFunction


def function(problem: TensorCoreProblem, target: Target, a_by_part: bool) -> ModuleFunction | None:
    """Return the function of ``problem`` on ``target``, None where it has no native one."""
    arithmetic = transposed(problem, target)
    if arithmetic is None:
        return None
    path, width = problem.path, arithmetic.rows
    blocks = problem.blocks
    matrices = Matrices(
        arithmetic, width, path.rows, problem.a.cols, depth=problem.k, blocks=blocks
    )
    code = matrices.code
    task, start, end = code.task()
    a_words, b_words = task.at(HEADER, 8), task.at(HEADER + WORDS, 8)
    more = HEADER + 2 * WORDS
    cells, firsts, adds, row_cells = (task.address(more + i) for i in range(4))
    flips = task.word(more + 4).to("trunc", "i32").splat(BLOCK)
    a_scales, b_scales, chosen = (task.address(more + i) for i in (5, 6, 7))
    a, b = problem.a, replace(problem.b, cols=problem.n)
    a_major = "k" if a_by_part else problem.majors[0]
    with code.for_range(start, end) as item:
        cta = item // path.parts
        part = item - cta * path.parts
        matrix = UnitMatrix.of(a, a_major, a_words, item if a_by_part else cta)
        with code.loop(path.rows // BLOCK) as number:
            for inner, words in matrix.words(number * BLOCK, range(BLOCK)):
                matrices.keep_right(words ^ flips, a.bits, inner, number * BLOCK)
            for block in range(blocks):
                scales = a_scales.at(cta * blocks + block, path.rows).at(number * BLOCK, 1)
                words = scales.load("i8", BLOCK, align=1).to("zext", "i32")
                matrices.keep_scales(1, words, block, number * BLOCK)
        matrix = UnitMatrix.of(b, problem.majors[1], b_words, cta)
        d = cells.at(firsts.word(cta), 4)
        mask = adds.at(cta, 4).load("i32", align=4).splat(width)
        rows = row_cells.at(part, path.rows * 8)
        places = None
        if problem.form.sparse:
            places = Kept(chosen, "i64", a.cols, path.rows).at(0, 0, item)
        with code.loop(path.columns // width) as number:
            column = number * width
            for inner, words in matrix.words(part * path.columns + column, range(width)):
                matrices.keep_left(words, b.bits, inner)
            for block in range(blocks):
                scales = b_scales.at(cta * blocks + block, problem.n)
                scales = scales.at(part * path.columns + column, 1)
                words = scales.load("i8", width, align=1).to("zext", "i32")
                matrices.keep_scales(0, words, block)
            with code.loop(path.rows) as row:
                c = d.at(rows.word(row), 4).at(column, 4).load("i32", width, align=4)
                matrices.sums(row).store(c & mask)
            matrices.add(places=places)
            with code.loop(path.rows) as row:
                total = matrices.sums(row).load(width)
                d.at(rows.word(row), 4).at(column, 4).store(total, align=4)
    return code.function(NAME)
