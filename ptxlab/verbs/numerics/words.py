"""Numbers on the command line as the raw words of a format.

1  -0.5  1/3  inf  nan  0x1p-14      a number, rounded to the nearest, ties to even
0x3c00                               a raw word
1,2,0x3c00                           several
@file.npy  @file.npy:b16             an array from a file, of numbers or of raw words
randn(16,f16)  ones(16,f16)          an array as ``ptxlab run`` takes it
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np

from ptxlab.errors import PtxlabError
from ptxlab.numbers.exact import encode, nearest
from ptxlab.numbers.formats import Format
from ptxlab.verbs.launching.arrays import ELEMENT_TYPES, ArrayValue
from ptxlab.verbs.launching.values import read

_HINT = (
    "numbers are such as -0.5, 1e-3, 1/3, inf, nan, 0x1p-14, or a raw word such as 0x3c00; "
    "with commas between, or @file.npy, or randn(16,f16)"
)


def words(option: str, text: str, form: Format, seed: tuple[int, ...]) -> list[int]:
    """Return the words that ``text`` stands for; ``option`` is for messages, ``seed`` for randn."""
    if text.startswith("@") or "(" in text:
        try:
            value = read(option, text, seed)
        except PtxlabError as error:
            raise PtxlabError(error.message, hint=_HINT) from None
        if not isinstance(value, ArrayValue) or value.array.ndim != 1:
            raise PtxlabError(f"{option} {text}: not an array of one dimension")
        return _from_array(option, text, value, form)
    return [word(option, part, form) for part in text.split(",")]


def word(option: str, text: str, form: Format) -> int:
    try:
        return _word(text.strip(), form)
    except (ValueError, ZeroDivisionError, OverflowError):
        reason = f"{text.strip()!r} is not a number"
    except PtxlabError as error:
        reason = error.message
    raise PtxlabError(f"{option} {text}: {reason}", hint=_HINT)


def _word(text: str, form: Format) -> int:
    if re.fullmatch(r"0x[0-9a-f]+", text, re.IGNORECASE):
        word = int(text, 16)
        if word >> form.word_bits:
            raise PtxlabError(f"{text} is more than the {form.word_bits} bits of {form.name}")
        return word
    if "/" in text:
        return nearest(Fraction(text), form)
    if "x" in text.lower():
        return nearest(float.fromhex(text), form)
    rough = float(text)
    # What float64 cannot hold is beyond every format; what it can is rounded from the text, once.
    return nearest(Fraction(text) if rough and math.isfinite(rough) else rough, form)


def _from_array(option: str, text: str, value: ArrayValue, form: Format) -> list[int]:
    """Take the bits of an array of ``form`` or of bare bits, and round the numbers of any other."""
    kind = ELEMENT_TYPES[value.dtype]
    if kind.name == form.name or (kind.kind == "bits" and kind.bits == form.word_bits):
        words = value.array.view(form.word)
    elif kind.kind == "bits":
        raise PtxlabError(
            f"{option} {text}: words of {kind.bits} bits are not those of {form.name}",
            hint=f"read the file as :b{form.word_bits}, or as the type of its numbers",
        )
    else:
        words = encode(value.array.astype(np.float64), form)
    return [int(word) for word in words]
