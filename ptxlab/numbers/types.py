"""The fundamental PTX types, their widths, and the numpy dtype that holds one value of each.

Source: PTX ISA, "Types" and "Alternate Floating-Point Data Formats".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ptxlab.arrays import Array
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
    for name in ("f16x2", "bf16x2", "u16x2", "s16x2"):
        yield ScalarType(name, 32, "packed", np.dtype(np.uint32))
    yield ScalarType("f32x2", 64, "packed", np.dtype(np.uint64))


TYPES: dict[str, ScalarType] = {kind.name: kind for kind in _types()}

INSTRUCTION_TYPES = frozenset({"bf16", "tf32", "bf16x2", "u16x2", "s16x2", "f32x2"})
"""The types that instructions have, and nothing is declared with."""

STORED: dict[str, ScalarType] = {fmt.name: _of_format(fmt) for fmt in (E4M3, E5M2)}
"""The formats that are no fundamental type, but whose numbers lie one to a byte in memory."""


_TYPE = re.compile(r"pred|tf32|[busf]\d+(x\d+(_p\d+)?)?|bf16(x2)?|e\dm\d(x\d)?|ue\dm\d(x\d)?")


def is_type(name: str) -> bool:
    """Say whether a modifier is a type, of numbers in registers or of those packed into them."""
    return _TYPE.fullmatch(name) is not None


def parts(T: str, *words: Array) -> list[Array]:
    """Return the numbers in words of a packed type, one after another, the lower of a word first.

    Of words alike in all lanes there are as many numbers as of the others.
    """
    lanes, dtype = max(map(len, words)), TYPES[T.removesuffix("x2")].dtype
    alike = (x if len(x) == lanes else np.repeat(x, lanes) for x in words)
    return [np.ascontiguousarray(x).view(dtype) for x in alike]


def packed(compute: Callable[..., Array], T: str) -> Callable[..., Array]:
    """Return ``compute``, a function of single numbers, for the packed type ``T``."""
    dtype = TYPES[T].dtype
    return lambda *words: compute(*parts(T, *words)).view(dtype)
