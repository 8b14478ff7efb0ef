"""Matrices in memory as native code: words with neighbouring rows of A or columns of B, by what k they hold.

A matrix is in lines along its major direction, one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptxlab.matrix.form import SharedOperand
from ptxlab.native.value import VectorValue


def lines(
    operand: SharedOperand,
    major: str,
    matrix: VectorValue,
    first: VectorValue,
    order: Sequence[int],
) -> Iterator[tuple[Sequence[int], VectorValue]]:
    """Yield the words of rows of A or columns of B, those from ``first`` on in this ``order``.

    Where the matrix is contiguous along k a word holds several numbers, otherwise one in its low bits.
    """
    outer, depth = operand.rows, operand.cols
    if operand.operand == "B":
        outer, depth = depth, outer
    if major == "k":
        nbytes, in_word = depth * operand.bits // 8, 32 // operand.bits
        rows = [matrix.at(first, nbytes).at(number, nbytes) for number in order]
        for word in range(nbytes // 4):
            values = [row.at(word, 4).load("i32", align=4) for row in rows]
            yield range(word * in_word, (word + 1) * in_word), matrix.code.vector(values)
        return
    nbytes = operand.bits // 8
    for k in range(depth):
        line = matrix.at(k * outer, nbytes).at(first, nbytes)
        words = line.load(f"i{operand.bits}", len(order), align=nbytes).shuffle(order)
        yield (k,), words.to("zext", "i32")
