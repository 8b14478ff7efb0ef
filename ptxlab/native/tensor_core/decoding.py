"""Raw words to numbers in native code, as ``ptxlab.numbers.formats`` has them."""

from __future__ import annotations

from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import F32, F64, SPECIAL_EXPONENT, ZERO_EXPONENT, Format


def values(words: VectorValue, form: Format, low: int = 0) -> VectorValue:
    """Return as float32 the numbers whose containers begin at bit ``low`` of int32.

    Infinities and NaNs of formats with a smaller exponent come out as numbers: see ``special``.
    """
    top = low + form.low_bit + form.bits
    moved = words << (32 - top) if top < 32 else words
    narrower = F32.exponent_bits - form.exponent_bits
    if narrower:
        moved = moved.signed_shift(narrower)
    keep = (form.nan << (F32.fraction_bits - form.fraction_bits)) - (1 << 31)
    if keep != -1:
        moved = moved & keep
    number = moved.bits("float")
    return number * 2.0 ** (F32.bias - form.bias) if form.bias != F32.bias else number


def exponents(
    words: VectorValue, form: Format, offset: int, zero: int = ZERO_EXPONENT
) -> VectorValue:
    """Return the exponent fields of words plus ``offset``; a subnormal has that of the smallest normal.

    A zero has the exponent ``zero`` and an infinity or NaN ``SPECIAL_EXPONENT``.
    """
    magnitude = words & (form.nan << form.low_bit)
    field = magnitude >> form.exponent_shift
    exponent = field.is_("ugt", 1).choose(field, 1)
    return _marked(exponent + offset if offset else exponent, magnitude, form, zero)


def widened(
    words: VectorValue, form: Format, wider: Format, bits: int, offset: int
) -> list[tuple[VectorValue, ...]]:
    """Return values and exponents as ``elements`` does, but those of the numbers as ``wider`` ones.

    The exponents are fields of float32 plus ``offset``.
    """
    pairs: list[tuple[VectorValue, ...]] = []
    lowest = F32.bias + wider.lowest_exponent
    for low in range(0, 32, bits):
        value = values(words, form, low)
        field = (value.bits("i32") >> F32.fraction_bits) & ((1 << F32.exponent_bits) - 1)
        field = field.is_("ugt", lowest).choose(field, lowest)
        size = (words >> low) & (form.nan << form.low_bit)
        exponent = _marked(field, size, form, ZERO_EXPONENT).to("trunc", "i16")
        pairs.append((value, exponent + offset if offset else exponent))
    return pairs


def _marked(exponent: VectorValue, magnitude: VectorValue, form: Format, zero: int) -> VectorValue:
    """Mark the exponents of what has none."""
    exponent = magnitude.is_("eq", 0).choose(zero, exponent)
    if form.infinity is not None:
        special = magnitude.is_("uge", form.infinity << form.low_bit)
    elif form.specials == "nan":
        special = magnitude.is_("eq", form.nan << form.low_bit)
    else:
        return exponent
    return special.choose(SPECIAL_EXPONENT, exponent)


def elements(
    words: VectorValue, form: Format, bits: int, offset: int
) -> list[tuple[VectorValue, ...]]:
    """Return values (float32) and ``exponents`` (int16) of what int32 words hold, by ``bits`` each."""
    if bits == 32:
        return [(values(words, form), exponents(words, form, offset).to("trunc", "i16"))]
    halves = words.bits("i16", 2 * words.lanes)
    in_half = 16 // bits
    pairs = [
        exponents(halves >> (bits * i) if i else halves, form, offset).bits("i32", words.lanes)
        for i in range(in_half)
    ]
    parts: list[tuple[VectorValue, ...]] = []
    for i in range(32 // bits):
        high, part = divmod(i, in_half)
        exponent = pairs[part] >> 16 if high else pairs[part]
        parts.append((values(words, form, bits * i), exponent.to("trunc", "i16")))
    return parts


def special(value: VectorValue, exponent: VectorValue, form: Format) -> VectorValue:
    """Return float64 of what ``values`` and ``exponents`` found, with infinities and NaNs in their place."""
    wide = value.to("fpext", "double")
    if form.specials == "none" or (form.specials == "ieee" and form.bias == F32.bias):
        return wide
    infinity = 2.0 ** ((form.nan >> form.fraction_bits) - form.bias)
    marked = magnitude(wide).is_("oeq", infinity).choose(wide * float("inf"), float("nan"))
    return exponent.is_("sgt", SPECIAL_EXPONENT // 2).choose(
        marked if form.specials == "ieee" else float("nan"), wide
    )


def significands(words: VectorValue, form: Format) -> tuple[VectorValue, VectorValue]:
    """Return of scales, whose sign does not count, exponents and significands as integers (int16).

    Of a subnormal the exponent is that of the smallest normal; a NaN has ``SPECIAL_EXPONENT``.
    """
    code = words & form.nan
    field, fraction = code >> form.fraction_bits, code & ((1 << form.fraction_bits) - 1)
    significand = fraction | (1 << form.fraction_bits)
    if form.subnormals:
        is_small = field.is_("eq", 0)
        significand, field = is_small.choose(fraction, significand), is_small.choose(1, field)
    exponent = code.is_("eq", form.nan).choose(SPECIAL_EXPONENT, field - form.bias)
    return exponent.to("trunc", "i16"), significand.to("trunc", "i16")


def power_of_two(exponents: VectorValue) -> VectorValue:
    """Return float64 powers of two, for exponents that normal numbers have."""
    field = exponents.to("sext", "i64") + F64.bias
    return (field << F64.fraction_bits).bits("double")


def magnitude(values: VectorValue) -> VectorValue:
    """Return float64 without its sign."""
    return (values.bits("i64") & ((1 << 63) - 1)).bits("double")
