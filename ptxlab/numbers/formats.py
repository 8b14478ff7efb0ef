"""The number formats tensor cores read and write: raw words to values and exponents, and back.

Sources: PTX ISA, "Alternate Floating-Point Data Formats" (fields); OCP Microscaling Formats (MX)
specification (special values of 8, 6 and 4 bits); MMA-Sim, arXiv 2511.10909 (exponents of
subnormals, rounding and canonical NaN of results).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SPECIAL_EXPONENT = 8000
"""Stands for the exponent of an infinity or NaN; plus any other exponent it is still above all."""
ZERO_EXPONENT = -2000
"""Stands for the exponent of a zero factor; plus any finite exponent it is still below all."""


@dataclass(frozen=True, slots=True)
class _Fields:
    """A sign, ``exponent_bits`` and ``fraction_bits``; an exponent field of zero holds subnormals."""

    name: str
    exponent_bits: int
    fraction_bits: int

    @property
    def bias(self) -> int:
        """The exponent field of numbers from 1 to 2."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def lowest_exponent(self) -> int:
        """The exponent of the smallest normal number, which subnormals share."""
        return 1 - self.bias


@dataclass(frozen=True, slots=True)
class Format(_Fields):
    """A sign, ``exponent_bits`` and ``fraction_bits``, at the top of a word of ``word_bits``.

    Bits of the word below the fraction are ignored (tf32). An exponent field of all zeros holds
    zero and the subnormals, one of all ones infinities and NaNs.
    """

    word_bits: int

    @property
    def word(self) -> np.dtype[Any]:
        """The dtype of raw words."""
        return np.dtype(f"u{self.word_bits // 8}")

    @property
    def signed_word(self) -> np.dtype[Any]:
        """The signed integer of a word's size."""
        return np.dtype(f"i{self.word_bits // 8}")

    @property
    def exponent_shift(self) -> int:
        """The position in the word of the exponent field's lowest bit."""
        return self.word_bits - 1 - self.exponent_bits

    @property
    def special_field(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << self.exponent_bits) - 1

    @property
    def magnitude_mask(self) -> int:
        """The word's exponent and fraction: all but the sign and the ignored bits."""
        return (1 << (self.word_bits - 1)) - (1 << (self.exponent_shift - self.fraction_bits))

    def values(self, words: Array, out: Array) -> None:
        """Decode finite ``words`` into ``out`` (float32), exactly; for the others it is undefined.

        The fields are moved to where float32 has them. Multiplying by the difference between the
        two exponent biases then gives the value, and normalises subnormals on the way.
        """
        shift = 23 - self.exponent_shift
        moved = out.view(np.int32)
        np.copyto(moved, words.view(self.signed_word))
        if shift:
            np.left_shift(moved, shift, out=moved)
        keep = (self.magnitude_mask << shift) - (1 << 31)
        if keep != -(1 << shift):
            np.bitwise_and(moved, keep, out=moved)
        if self.bias != 127:
            np.multiply(out, np.float32(2.0 ** (127 - self.bias)), out=out)

    def exponents(self, words: Array, out: Array, zero: int, scratch: Array) -> None:
        """Write the unbiased exponents of ``words`` into ``out`` (int16); ``zero`` for zeros.

        Subnormals have ``lowest_exponent``, infinities and NaNs ``SPECIAL_EXPONENT``. ``scratch``
        is three arrays like ``words``. Comparisons are written as arithmetic, ``(x - 1) >> sign``
        being -1 for zero and 0 for x > 0, because masked and mixed operations are many times slower.
        """
        sign = self.word_bits - 1
        magnitude, field, flag = scratch.view(self.signed_word)
        np.bitwise_and(words.view(self.signed_word), self.magnitude_mask, out=magnitude)
        np.right_shift(magnitude, self.exponent_shift, out=field)
        special = field == self.special_field if field.max() == self.special_field else None
        np.subtract(field, 1, out=flag)
        np.right_shift(flag, sign, out=flag)
        np.subtract(field, flag, out=field)
        np.subtract(field, self.bias, out=field)
        if not magnitude.min():
            np.subtract(magnitude, 1, out=flag)
            np.right_shift(flag, sign, out=flag)
            np.bitwise_and(flag, zero - self.lowest_exponent, out=flag)
            np.add(field, flag, out=field)
        if special is not None:
            np.copyto(field, SPECIAL_EXPONENT, where=special)
        np.copyto(out, field, casting="unsafe")

    def decode(self, words: Array) -> tuple[Array, Array]:
        """Decode any ``words`` to float64 values, infinities and NaNs included, and exponents."""
        narrow = np.empty(words.shape, np.float32)
        exponents = np.empty(words.shape, np.int16)
        self.values(words, narrow)
        self.exponents(words, exponents, ZERO_EXPONENT, np.empty((3, *words.shape), self.word))
        values = narrow.astype(np.float64)
        special = exponents == SPECIAL_EXPONENT
        fraction = words & ((1 << self.exponent_shift) - 1) & self.magnitude_mask
        values[special] = np.copysign(np.inf, values[special])
        values[special & (fraction != 0)] = np.nan
        return values, exponents


@dataclass(frozen=True, slots=True)
class ByteFormat(_Fields):
    """A number of 4 to 8 bits in a byte, its lowest bit at ``low_bit``; the byte's other bits are ignored.

    An exponent field of all zeros holds zero and the subnormals. ``specials`` says what else is not
    a plain number: "ieee" infinities and NaNs where the exponent field is all ones, "nan" a NaN
    where all bits but the sign are, "none" nothing.
    """

    low_bit: int = 0
    specials: Literal["ieee", "nan", "none"] = "none"
    word_bits: int = 8

    @property
    def word(self) -> np.dtype[Any]:
        """The dtype of raw words."""
        return np.dtype(np.uint8)

    def values(self, words: Array, out: Array) -> None:
        """Decode ``words`` into ``out`` (float32), exactly."""
        np.take(_decode_bytes(self)[0], words, out=out, mode="clip")

    def exponents(self, words: Array, out: Array, zero: int, scratch: Array) -> None:
        """Write the unbiased exponents of ``words`` into ``out`` (int16), as ``Format.exponents``."""
        values, exponents = _decode_bytes(self)
        np.take(
            np.where(values == 0, zero, exponents).astype(np.int16), words, out=out, mode="clip"
        )

    def decode(self, words: Array) -> tuple[Array, Array]:
        """Decode ``words`` to float64 values, infinities and NaNs included, and exponents."""
        values, exponents = _decode_bytes(self)
        return values[words].astype(np.float64), exponents[words]


@cache
def _decode_bytes(form: ByteFormat) -> tuple[Array, Array]:
    """Return the value (float32) and the exponent (int16) of each of the 256 bytes."""
    code = np.arange(256) >> form.low_bit
    fraction = code & ((1 << form.fraction_bits) - 1)
    field = (code >> form.fraction_bits) & ((1 << form.exponent_bits) - 1)
    negative = (code >> (form.fraction_bits + form.exponent_bits)) & 1
    exponents = np.maximum(field, 1) - form.bias
    significand = fraction + np.where(field > 0, 1 << form.fraction_bits, 0)
    values = np.ldexp(significand.astype(np.float32), exponents - form.fraction_bits)
    top = field == (1 << form.exponent_bits) - 1
    full = fraction == (1 << form.fraction_bits) - 1
    if form.specials == "ieee":
        values = np.where(top, np.where(fraction > 0, np.nan, np.inf), values)
    elif form.specials == "nan":
        values = np.where(top & full, np.nan, values)
    exponents = np.where(np.isfinite(values), exponents, SPECIAL_EXPONENT)
    exponents = np.where(values == 0, ZERO_EXPONENT, exponents)
    signed = np.copysign(values, np.where(negative, -1.0, 1.0))
    return signed.astype(np.float32), exponents.astype(np.int16)


F16 = Format("f16", 5, 10, 16)
BF16 = Format("bf16", 8, 7, 16)
TF32 = Format("tf32", 8, 10, 32)
F32 = Format("f32", 8, 23, 32)
E4M3 = ByteFormat("e4m3", 4, 3, specials="nan")
E5M2 = ByteFormat("e5m2", 5, 2, specials="ieee")
E3M2 = ByteFormat("e3m2", 3, 2)
E2M3 = ByteFormat("e2m3", 2, 3)
E2M1 = ByteFormat("e2m1", 2, 1, low_bit=2)
E2M1_PACKED = ByteFormat("e2m1", 2, 1)
"""e2m1 without the container of ``E2M1``: in the low four bits, as kind::mxf4 has it."""


def store(values: Array, result: Format, out: Array) -> None:
    """Round finite float64 ``values`` to words of ``result``; ``values`` may be overwritten.

    float32 rounds toward zero and float16 to the nearest even, as tensor cores do. Overflow gives
    infinity, but what truncates to the largest float32 stays finite. Zero is positive. ``result``
    may have fewer fraction bits than float32, in a word of its size. There the values must be
    multiples of its smallest number, 2**-149 for float32.
    """
    if result.word_bits == F32.word_bits:
        bits = values.view(np.int64)
        np.bitwise_and(bits, -1 << (52 - result.fraction_bits), out=bits)
        np.copyto(out.view(np.float32), values, casting="unsafe")
        return
    np.copyto(out.view(np.float16), values, casting="unsafe")
    negative_zero = out == 0x8000
    if negative_zero.any():
        np.copyto(out, 0, where=negative_zero)


def round_any(values: Array, result: Format) -> Array:
    """Round any float64 ``values`` to words of ``result`` as ``store`` does.

    NaN gives the canonical one: all bits set but the sign.
    """
    words = np.empty(values.shape, result.word)
    if result.word_bits == F32.word_bits:
        subnormal = np.abs(values) < 2.0**F32.lowest_exponent
        least = 2.0 ** (F32.lowest_exponent - result.fraction_bits)
        values = np.where(subnormal, np.trunc(values / least) * least + 0.0, values)
    nan = np.isnan(values)
    store(values, result, words)
    words[nan] = (1 << (result.word_bits - 1)) - 1
    return words
