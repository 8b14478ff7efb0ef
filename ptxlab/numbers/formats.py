"""The floating-point formats of PTX, one row each, and what their words stand for.

Sources: PTX ISA, "Alternate Floating-Point Data Formats" (fields); OCP Microscaling Formats (MX)
specification (special values of 8, 6 and 4 bits); MMA-Sim, arXiv 2511.10909 (exponents of subnormals).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array

SPECIAL_EXPONENT = 8000
"""Stands for the exponent of an infinity or NaN; plus any other exponent it is still above all."""
ZERO_EXPONENT = -2000
"""Stands for the exponent of a zero factor; plus any finite exponent it is still below all."""


@cache
def alone(value: float, dtype: npt.DTypeLike) -> Array:
    """Return a number as an array without dimensions: the operand that numpy makes least ado about."""
    return np.array(value, dtype)


@dataclass(frozen=True, eq=False)
class Format:
    """A binary format: a sign unless it is not ``signed``, ``exponent_bits`` and ``fraction_bits``.

    ``specials`` says what is no plain number: "ieee" infinities and NaNs where the exponent field is
    all ones, "nan" a NaN where all bits but the sign are, "none" nothing. An exponent field of all
    zeros holds zero and the subnormals, where there are ``subnormals``.

    A word, of the size of numpy's ``dtype`` for it, holds one number from ``low_bit`` on; its other
    bits are ignored. A number's bits alone are its code. Codes without the sign follow each other as
    the values do.
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    specials: Literal["ieee", "nan", "none"]
    dtype: np.dtype[Any]
    low_bit: int = 0
    signed: bool = True
    subnormals: bool = True

    @cached_property
    def bits(self) -> int:
        return self.sign_bit + self.signed

    @cached_property
    def sign_bit(self) -> int:
        """The position of the sign in a code."""
        return self.exponent_bits + self.fraction_bits

    @cached_property
    def word(self) -> np.dtype[Any]:
        """The dtype of raw words."""
        return np.dtype(f"u{self.dtype.itemsize}")

    @cached_property
    def word_bits(self) -> int:
        return 8 * self.dtype.itemsize

    @cached_property
    def bias(self) -> int:
        """The exponent field of numbers from 1 to 2."""
        return (1 << (self.exponent_bits - 1)) - 1

    @cached_property
    def lowest_exponent(self) -> int:
        """The exponent of the smallest normal number, which subnormals share."""
        return int(self.subnormals) - self.bias

    @cached_property
    def nan(self) -> int:
        """The code of the NaN that operations return: all bits set but the sign.

        Where a format has no NaN this is its largest number, which conversions give in its place.
        """
        return (1 << self.sign_bit) - 1

    @cached_property
    def infinity(self) -> int | None:
        """The code of infinity, None where there is none."""
        if self.specials != "ieee":
            return None
        return self.nan >> self.fraction_bits << self.fraction_bits

    @cached_property
    def largest(self) -> int:
        """The code of the largest finite number."""
        if self.infinity is not None:
            return self.infinity - 1
        return self.nan - (self.specials == "nan")

    @cached_property
    def max_finite(self) -> float:
        field, fraction = divmod(self.largest, 1 << self.fraction_bits)
        return (1 + fraction * self.unit) * 2.0 ** (field - self.bias)

    @cached_property
    def min_normal(self) -> float:
        return 2.0**self.lowest_exponent

    @cached_property
    def unit(self) -> float:
        """The unit in the last place of numbers from 1 to 2."""
        return 2.0**-self.fraction_bits

    @cached_property
    def nan_word(self) -> int:
        """The word of the NaN that operations return: all bits below the sign are set."""
        return ((self.nan + 1) << self.low_bit) - 1

    @cached_property
    def nan_value(self) -> Any:
        """The NaN that operations return, as a scalar of ``dtype``."""
        return np.array([self.nan_word], self.word).view(self.dtype)[0]

    def values(self, words: Array, out: Array) -> None:
        """Decode finite ``words``, of at most 32 bits, into ``out`` (float32); for others it is undefined.

        The fields of wider words are moved to where float32 has them. Multiplying by the difference
        between the two exponent biases then gives the value, and normalises subnormals on the way.
        """
        if self.word_bits == 8:
            np.take(self._bytes[0], words, out=out, mode="clip")
            return
        shift = F32.fraction_bits - self.exponent_shift
        moved = out.view(np.int32)
        np.copyto(moved, words.view(self._signed_word))
        if shift:
            np.left_shift(moved, alone(shift, np.int32), out=moved)
        keep = (self._magnitude_mask << shift) - (1 << 31)
        if keep != -(1 << shift):
            np.bitwise_and(moved, alone(keep, np.int32), out=moved)
        if self.bias != F32.bias:
            np.multiply(out, alone(2.0 ** (F32.bias - self.bias), np.float32), out=out)

    def exponents(self, words: Array, out: Array, zero: int, scratch: Array) -> None:
        """Write the unbiased exponents of ``words`` into ``out`` (int16); ``zero`` for zeros.

        Subnormals have ``lowest_exponent``, infinities and NaNs ``SPECIAL_EXPONENT``. ``scratch``
        is three arrays like ``words``. Comparisons are written as arithmetic, ``(x - 1) >> sign``
        being -1 for zero and 0 for x > 0: masked and mixed operations, and a maximum with one number,
        are many times slower.
        """
        if self.word_bits == 8:
            values, exponents = self._bytes
            of_bytes = np.where(values == 0, zero, exponents).astype(np.int16)
            np.take(of_bytes, words, out=out, mode="clip")
            return
        number = partial(alone, dtype=self._signed_word)
        magnitude, field, flag = scratch.view(self._signed_word)
        np.bitwise_and(words.view(self._signed_word), number(self._magnitude_mask), out=magnitude)
        np.right_shift(magnitude, number(self.exponent_shift), out=field)
        highest = self.nan >> self.fraction_bits
        special = field == highest if field.item(field.argmax()) == highest else None
        sign = number(self.word_bits - 1)
        np.subtract(field, number(1), out=flag)
        np.right_shift(flag, sign, out=flag)
        np.subtract(field, flag, out=field)
        np.subtract(field, number(self.bias), out=field)
        if not magnitude.item(magnitude.argmin()):
            np.subtract(magnitude, number(1), out=flag)
            np.right_shift(flag, sign, out=flag)
            np.bitwise_and(flag, number(zero - self.lowest_exponent), out=flag)
            np.add(field, flag, out=field)
        if special is not None:
            np.copyto(field, SPECIAL_EXPONENT, where=special)
        np.copyto(out, field, casting="unsafe")

    def decode(self, words: Array) -> tuple[Array, Array]:
        """Decode ``words`` to float64 values, infinities and NaNs included, and exponents (int16)."""
        if self.word_bits == 8:
            values, exponents = self._bytes
            return values[words].astype(np.float64), exponents[words]
        narrow = np.empty(words.shape, np.float32)
        exponents = np.empty(words.shape, np.int16)
        self.values(words, narrow)
        self.exponents(words, exponents, ZERO_EXPONENT, np.empty((3, *words.shape), self.word))
        values = narrow.astype(np.float64)
        special = exponents == SPECIAL_EXPONENT
        fraction = words & ((1 << self.exponent_shift) - 1) & self._magnitude_mask
        values[special] = np.copysign(np.inf, values[special])
        values[special & (fraction != 0)] = np.nan
        return values, exponents

    @cached_property
    def exponent_shift(self) -> int:
        """The position in a word of the exponent field."""
        return self.low_bit + self.fraction_bits

    @cached_property
    def _signed_word(self) -> np.dtype[Any]:
        return np.dtype(f"i{self.dtype.itemsize}")

    @cached_property
    def _magnitude_mask(self) -> int:
        return self.nan << self.low_bit

    @cached_property
    def _bytes(self) -> tuple[Array, Array]:
        """The value (float32) and the exponent (int16) of each of the 256 bytes."""
        code = np.arange(256) >> self.low_bit
        fraction = code & ((1 << self.fraction_bits) - 1)
        field = (code >> self.fraction_bits) & ((1 << self.exponent_bits) - 1)
        normal = field >= int(self.subnormals)
        exponents = np.where(normal, field - self.bias, self.lowest_exponent)
        significand = fraction + np.where(normal, 1 << self.fraction_bits, 0)
        values = np.ldexp(significand.astype(np.float64), exponents - self.fraction_bits)
        size = code & self.nan
        values[size > self.largest] = np.nan
        values[size == self.infinity] = np.inf
        exponents = np.where(np.isfinite(values), exponents, SPECIAL_EXPONENT)
        exponents = np.where(values == 0, ZERO_EXPONENT, exponents)
        negative = (code >> self.sign_bit) & self.signed
        signed = np.copysign(values, np.where(negative, -1.0, 1.0))
        return signed.astype(np.float32), exponents.astype(np.int16)


F16 = Format("f16", 5, 10, "ieee", np.dtype(np.float16))
BF16 = Format("bf16", 8, 7, "ieee", np.dtype(ml_dtypes.bfloat16))
TF32 = Format("tf32", 8, 10, "ieee", np.dtype(np.float32), low_bit=13)
F32 = Format("f32", 8, 23, "ieee", np.dtype(np.float32))
F64 = Format("f64", 11, 52, "ieee", np.dtype(np.float64))
E4M3 = Format("e4m3", 4, 3, "nan", np.dtype(ml_dtypes.float8_e4m3fn))
E5M2 = Format("e5m2", 5, 2, "ieee", np.dtype(ml_dtypes.float8_e5m2))
E3M2 = Format("e3m2", 3, 2, "none", np.dtype(ml_dtypes.float6_e3m2fn))
E2M3 = Format("e2m3", 2, 3, "none", np.dtype(ml_dtypes.float6_e2m3fn))
E2M1 = Format("e2m1", 2, 1, "none", np.dtype(ml_dtypes.float4_e2m1fn))
UE4M3 = Format("ue4m3", 4, 3, "nan", np.dtype(ml_dtypes.float8_e4m3fn), signed=False)
UE5M3 = Format("ue5m3", 5, 3, "nan", np.dtype(np.uint8), signed=False)
UE8M0 = Format(
    "ue8m0", 8, 0, "nan", np.dtype(ml_dtypes.float8_e8m0fnu), signed=False, subnormals=False
)

FORMATS: dict[str, Format] = {
    row.name: row for row in tuple(globals().values()) if isinstance(row, Format)
}
"""The formats by their PTX names."""

CONTAINED: dict[str, Format] = FORMATS | {"e2m1": replace(E2M1, low_bit=2)}
"""The same as tensor cores take them one to a container: four bits begin at bit 2 of a byte."""
