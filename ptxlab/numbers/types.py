"""The fundamental PTX types, their widths, and the numpy dtype that holds one value of each.

Source: PTX ISA, "Types" and "Alternate Floating-Point Data Formats".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array, Symbolic, intrinsic
from ptxlab.numbers.formats import BF16, E4M3, E5M2, F16, F32, F64, TF32, Format

TypeKind = Literal["bits", "unsigned", "signed", "float", "predicate", "packed"]


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A PTX type: ``name`` as after the dot, ``bits`` wide, held in numpy as ``dtype``.

    Packed types (f16x2, u16x2, f32x2, ...) are held as raw words of their whole width.
    """

    name: str
    bits: int
    kind: TypeKind
    dtype: np.dtype[np.generic]

    @property
    def bytes(self) -> int:
        return (self.bits + 7) // 8

    @property
    def is_integer(self) -> bool:
        """Whether integers are written to it: it is signed, unsigned or plain bits."""
        return self.kind in ("bits", "unsigned", "signed")


def _of_format(fmt: Format) -> ScalarType:
    return ScalarType(fmt.name, fmt.word_bits, "float", fmt.dtype)


def _types() -> Iterator[ScalarType]:
    yield ScalarType("pred", 1, "predicate", np.dtype(np.bool_))
    for bits in (8, 16, 32, 64):
        unsigned = np.dtype(f"u{bits // 8}")
        yield ScalarType(f"b{bits}", bits, "bits", unsigned)
        yield ScalarType(f"u{bits}", bits, "unsigned", unsigned)
        yield ScalarType(f"s{bits}", bits, "signed", np.dtype(f"i{bits // 8}"))
    yield ScalarType("b128", 128, "bits", np.dtype("V16"))
    yield from map(_of_format, (F16, BF16, F32, TF32, F64))
    for name in ("f16x2", "bf16x2", "u16x2", "s16x2", "u8x4", "s8x4"):
        yield ScalarType(name, 32, "packed", np.dtype(np.uint32))
    yield ScalarType("f32x2", 64, "packed", np.dtype(np.uint64))


TYPES: dict[str, ScalarType] = {kind.name: kind for kind in _types()}

INSTRUCTION_TYPES = frozenset({"bf16", "tf32", "bf16x2", "u16x2", "s16x2", "u8x4", "s8x4", "f32x2"})
"""The types that instructions have, and nothing is declared with."""

STORED: dict[str, ScalarType] = {fmt.name: _of_format(fmt) for fmt in (E4M3, E5M2)}
"""The formats that are no fundamental type, but whose numbers lie one to a byte in memory."""


_TYPE = re.compile(r"pred|tf32|[busf]\d+(x\d+(_p\d+)?)?|bf16(x2)?|e\dm\d(p\d)?(x\d)?|ue\dm\d(x\d)?")


def is_type(name: str) -> bool:
    """Say whether a modifier is a type, of numbers in registers or of those packed into them."""
    return _TYPE.fullmatch(name) is not None


@intrinsic
def split(words: Array, dtype: npt.DTypeLike, count: int) -> list[Array]:
    """Return the ``count`` parts of each word, an array a part; the first is the low bits."""
    if count == 1:
        return [words.view(dtype)]
    table = words.view(dtype).reshape(-1, count)
    return [np.ascontiguousarray(table[:, i]) for i in range(count)]


@intrinsic
def joined(first: Array, *others: Array, dtype: npt.DTypeLike) -> Array:
    """Return the words made of parts; what all threads share is repeated beside other parts."""
    if not others:
        return np.ascontiguousarray(first).view(dtype)
    parts = first, *others
    table = np.empty((max(part.shape[0] for part in parts), len(parts)), first.dtype)
    for i, part in enumerate(parts):
        table[:, i] = part
    return table.reshape(-1).view(dtype)


def limits(T: str) -> tuple[int, int]:
    """Return the smallest and largest number of an integer type."""
    bits = int(T[1:])
    return (0, (1 << bits) - 1) if T[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def packing(T: str) -> tuple[str, int]:
    """Return of a packed type what is packed and how many: of f16x2 that is f16 and 2, of f32 it is f32 and 1."""
    single, _, count = T.partition("x")
    return single, int(count or 1)


def unpacked(T: str, *words: Array) -> list[list[Array]]:
    """Return the numbers in words of a packed type: the lowest of each word, the next ones, and so on."""
    single, count = packing(T)
    columns = [split(word, TYPES[single].dtype, count) for word in words]
    return [list(each) for each in zip(*columns, strict=True)]


def packed(compute: Callable[..., Array], T: str) -> Callable[..., Array]:
    """Return ``compute``, a function of single numbers, for the packed type ``T``."""
    dtype = TYPES[T].dtype

    def both(*words: Array) -> Array:
        if isinstance(words[0], Symbolic):
            return joined(*(compute(*each) for each in unpacked(T, *words)), dtype=dtype)
        return compute(*_in_a_row(T, *words)).view(dtype)

    return both


def _in_a_row(T: str, *words: Array) -> Iterator[Array]:
    """Yield the numbers in words, one after another: of words alike in all lanes as many as of the others."""
    lanes, dtype = max(map(len, words)), TYPES[packing(T)[0]].dtype
    alike = (x if len(x) == lanes else np.repeat(x, lanes) for x in words)
    return (np.ascontiguousarray(x).view(dtype) for x in alike)
