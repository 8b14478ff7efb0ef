"""The numbers elements are told apart by: bit patterns of every type, with what they mean; and fills.

All of them come out of a product with one, and of a sum with zeros, as they went in, whatever the
type of D and however many terms a tensor core adds at once.

A fill says what an operand is given: one's own numbers, or some of these. ``numbered`` and ``ones`` put a zero in C. ``addressing`` makes
A * B equal to 8 * m + n and numbers C too, so every element of C, and every element of D, is a
different small integer. Numbers start again at zero where a type has no more of them in a row.

Sources: PTX ISA, "Alternate Floating-Point Data Formats" and "Sub-byte"; values of the floating-point
types by NumPy and ``ml_dtypes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count as count_up
from typing import Literal

import numpy as np

from ptxlab.arrays import Array
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout, number_bits
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.types import TYPES


@dataclass(frozen=True, slots=True, eq=False)
class OwnFill:
    """One's own numbers by operand, [rows, cols], or of several matrices [matrices, rows, cols].

    What is not in it is as with ``numbered``. ``text`` is what the user wrote.
    """

    text: str
    contents: Mapping[str, Array]

    def __str__(self) -> str:
        return self.text


Fill = Literal["numbered", "ones", "addressing"] | OwnFill
OperandLayout = FragmentLayout | SharedOperand
"""An operand, in registers or in shared memory."""

_SMALL_FLOATS = {name: fmt for name, fmt in FORMATS.items() if fmt.word_bits == 8}
_SMALL_INTEGERS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
_LARGEST = 2048
"""No type needs more integers than those from 0 to this one."""


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Different numbers of one type: ``patterns`` as a register holds them, and their ``values``.

    Zero is the first. The integers 0, 1, 2 and so on, as far as all of them are there, are at
    ``counting``.
    """

    patterns: Array
    values: Array
    counting: Array

    @property
    def one(self) -> int:
        """The index of the number 1."""
        return int(self.counting[1])

    def indices(self, integers: Array) -> Array:
        """Return where integers, from 0 on, are among the numbers."""
        return np.asarray(self.counting[integers % len(self.counting)])


def numbers(layout: OperandLayout) -> Numbers:
    """Return the numbers of an operand's type, in its containers."""
    return _numbers(layout.dtype, layout.bits, number_bits(layout.dtype, layout.bits)[0])


def decode(layout: OperandLayout, patterns: Array) -> Array:
    """Return what containers hold, bit patterns of an operand, as values of NumPy's nearest type."""
    patterns = np.asarray(patterns, np.uint64)
    if layout.dtype in _SMALL_FLOATS:
        fmt = _SMALL_FLOATS[layout.dtype]
        kept = patterns >> np.uint64(number_bits(layout.dtype, layout.bits)[0]) & np.uint64(
            (1 << fmt.bits) - 1
        )
        return kept.astype(fmt.word).view(fmt.dtype)
    if layout.dtype in _SMALL_INTEGERS:
        return _integers(layout.dtype, patterns)
    dtype = TYPES[layout.dtype].dtype
    return patterns.astype(f"u{dtype.itemsize}").view(dtype)


def encode(layout: OperandLayout, values: Array) -> Array:
    """Return values as the containers of an operand hold them: the nearest of its type, integers modulo their bits."""
    if layout.dtype in _SMALL_FLOATS:
        fmt = _SMALL_FLOATS[layout.dtype]
        words = values.astype(fmt.dtype).view(fmt.word).astype(np.uint64)
        return words << np.uint64(number_bits(layout.dtype, layout.bits)[0])
    if layout.dtype in _SMALL_INTEGERS:
        mask = np.uint64((1 << _SMALL_INTEGERS[layout.dtype]) - 1)
        return values.astype(np.int64).astype(np.uint64) & mask
    dtype = TYPES[layout.dtype].dtype
    return values.astype(dtype).view(f"u{dtype.itemsize}").astype(np.uint64)


def contents(layout: OperandLayout, fill: Fill) -> tuple[Numbers, Array]:
    """Return numbers of an operand's type, and which of them its elements are with a fill."""
    own = fill.contents.get(layout.operand) if isinstance(fill, OwnFill) else None
    if own is None:
        known = numbers(layout)
        return known, known.indices(filled(layout, fill))
    with np.errstate(over="ignore", invalid="ignore"):  # an infinity, or a NaN, where a type ends
        patterns, which = np.unique(encode(layout, own), return_inverse=True)
    values = decode(layout, patterns).astype(np.float64)
    return Numbers(patterns, values, np.zeros(1, np.int64)), which.reshape(own.shape)


def shape_of(layout: OperandLayout) -> tuple[int, ...]:
    """Return [rows, cols] of an operand, of several matrices [matrices, rows, cols]."""
    several = (layout.matrices,) if layout.matrices > 1 else ()
    return (*several, layout.rows, layout.cols)


def filled(layout: OperandLayout, fill: Fill) -> Array:
    """Return an operand's elements as integers, [rows, cols], of several matrices [matrices, ...].

    Numbered is row * columns + column, of several matrices one after the other.
    """
    if isinstance(fill, OwnFill):
        if layout.operand in fill.contents:
            return fill.contents[layout.operand].astype(np.int64)
        fill = "numbered"
    shape = shape_of(layout)
    count = np.arange(np.prod(shape)).reshape(shape)
    if layout.operand in "CD":
        return count if fill == "addressing" else np.zeros_like(count)
    if fill == "numbered":
        return count
    values = np.ones_like(count)
    if fill == "addressing" and layout.operand == "A":  # [8m, 1, 0 ...] x [1 ...; n ...; 0 ...]
        values[..., 0], values[..., 2:] = 8 * np.arange(layout.rows), 0
    if fill == "addressing" and layout.operand == "B":
        values[..., 1, :], values[..., 2:, :] = np.arange(layout.cols), 0
    return values


@cache
def _numbers(dtype: str, bits: int, shift: int) -> Numbers:
    if dtype in _SMALL_FLOATS:
        fmt = _SMALL_FLOATS[dtype]
        words = np.arange(1 << fmt.bits, dtype=fmt.word)
        values = words.view(fmt.dtype).astype(np.float64)
        kept = np.isfinite(values) & ((values != 0) | (words == 0))
        return _counted(words[kept].astype(np.uint64) << np.uint64(shift), values[kept])
    if dtype in _SMALL_INTEGERS:
        patterns = np.arange(1 << _SMALL_INTEGERS[dtype], dtype=np.uint64)
        return _counted(patterns, _integers(dtype, patterns).astype(np.float64))
    held = TYPES[dtype].dtype
    exact = 2 << FORMATS[dtype].fraction_bits if dtype in FORMATS else _LARGEST
    values = np.arange(min(exact, _LARGEST) + 1, dtype=np.float64)
    return _counted(values.astype(held).view(f"u{held.itemsize}").astype(np.uint64), values)


def _counted(patterns: Array, values: Array) -> Numbers:
    index_of = {value: index for index, value in enumerate(values.tolist())}
    count = next(number for number in count_up() if number not in index_of)
    return Numbers(patterns, values, np.array([index_of[number] for number in range(count)]))


def _integers(dtype: str, patterns: Array) -> Array:
    integers = patterns.astype(np.int64)
    if dtype.startswith("s"):
        sign = 1 << (_SMALL_INTEGERS[dtype] - 1)
        return (integers ^ sign) - sign
    return integers
