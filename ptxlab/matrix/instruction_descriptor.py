"""Instruction descriptors of ``tcgen05.mma``: the 32 bits that say what it multiplies.

Three records, by kind; the fields of types differ further. The sparsity version, which CUTLASS's
``Tcgen05MxOmmaInstrDesc`` sets, changes nothing on sm_100. What a kind does not have (saturation but for
integers, negation of integers, transposition of packed e2m1) has no value but the default here.

Source: PTX ISA, "Instruction descriptor" and "Matrix Shape" of tcgen05; CUTLASS,
``mma_sm100_desc.hpp``, agrees but for M of block-scaled kinds, which it writes from bit 24 on with four
bits less left out: the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ptxlab.matrix.bit_record import BitField, BitRecord, FieldValue, choice

SECTION = "Instruction descriptor"
LONG_K = 96
"""The k that numbers of four bits have on some chips, beside that of their form."""
_NO_YES = {"no": 0, "yes": 1}
_MAJOR = {"k": 0, "mn": 1}
_FLOAT8 = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_SHIFT = {"none": 0, "8": 1, "16": 2, "32": 3}


def _only(field: BitField) -> BitField:
    return replace(field, fixed=True)


_SPARSE = choice("sparse", 2, _NO_YES)
_NEGATE = (choice("negate a", 13, _NO_YES), choice("negate b", 14, _NO_YES))
_MAJORS = (choice("major of a", 15, _MAJOR), choice("major of b", 16, _MAJOR))
_N = BitField("n", 17, 6, unit=8, default=8, least=8)


def _plain(
    kind: str, d: Mapping[str, int], inputs: Mapping[str, int], *, integer: bool = False
) -> BitRecord:
    saturate = choice("saturate", 3, _NO_YES)
    fields = (
        BitField("sparsity selector", 0, 2),
        _SPARSE,
        saturate if integer else _only(saturate),
        choice("d type", 4, d, 2),
        choice("a type", 7, inputs, 3),
        choice("b type", 10, inputs, 3),
        *(map(_only, _NEGATE) if integer else _NEGATE),
        *_MAJORS,
        _N,
        BitField("m", 24, 5, unit=16, default=64, least=32),
        choice("largest shift of b", 30, _SHIFT, 2),
    )
    return BitRecord(f"kind::{kind}", 32, SECTION, fields)


def _scaled(
    kind: str, inputs: Mapping[str, int], scales: Mapping[str, int], *more: BitField
) -> BitRecord:
    packed = kind != "mxf8f6f4"
    fields = (
        _SPARSE,
        BitField("scale id of b", 4, 2),
        choice("a type", 7, inputs, 3),
        choice("b type", 10, inputs, 2 if packed else 3),
        *([BitField("sparsity version", 12, 1)] if packed else []),
        *_NEGATE,
        *(map(_only, _MAJORS) if packed else _MAJORS),
        _N,
        choice("scale type", 23, scales),
        BitField("m", 27, 2, unit=128, default=128, least=128),
        BitField("scale id of a", 29, 2),
        *more,
    )
    return BitRecord(f"kind::{kind}", 32, SECTION, fields)


_K = choice("k", 31, {"64 (sparse 128)": 0, str(LONG_K): 1})

INSTRUCTION_DESCRIPTORS: dict[str, BitRecord] = {
    "f16": _plain("f16", {"f32": 1, "f16": 0}, {"bf16": 1, "f16": 0}),
    "tf32": _plain("tf32", {"f32": 1}, {"tf32": 2}),
    "f8f6f4": _plain("f8f6f4", {"f32": 1, "f16": 0}, _FLOAT8),
    "i8": _plain("i8", {"s32": 2}, {"s8": 1, "u8": 0}, integer=True),
    "mxf8f6f4": _scaled("mxf8f6f4", _FLOAT8, {"ue8m0": 1}),
    "mxf4": _scaled("mxf4", {"e2m1": 1}, {"ue8m0": 1}, _K),
    "mxf4nvf4": _scaled("mxf4nvf4", {"e2m1": 1}, {"ue4m3": 0, "ue8m0": 1}, _K),
}
"""The records by kind."""


def encode(kind: str, values: Mapping[str, FieldValue]) -> int:
    """Return the instruction descriptor of ``kind``; fields left out have the first value they may have.

    Raises ValueError for an unknown kind, field or value, and for fields that do not go together.
    """
    return checked(kind, record(kind).encode(values))


def record(kind: str) -> BitRecord:
    """Return the record of a kind. Raises ValueError when there is none."""
    if kind not in INSTRUCTION_DESCRIPTORS:
        known = ", ".join(INSTRUCTION_DESCRIPTORS)
        raise ValueError(f"no kind {kind}, there are {known}")
    return INSTRUCTION_DESCRIPTORS[kind]


class Shape(NamedTuple):
    """What an instruction descriptor says in all kinds alike."""

    m: int
    n: int
    sparse: bool


def shape(word: int) -> Shape:
    """Return the shape in an instruction descriptor: its bits are the same in all kinds."""
    plain = record("f16")
    m, n = (plain.field(name).stored(word) * plain.field(name).unit for name in ("m", "n"))
    return Shape(m, n, bool(plain.field("sparse").stored(word)))


def checked(kind: str, word: int) -> int:
    """Return ``word`` if its fields go together. Raises ValueError when they do not."""
    values = record(kind).decode(word)
    if values.get("d type") == "f16" and "bf16" in (values["a type"], values["b type"]):
        raise ValueError("D of f16 goes with A and B of f16")
    for name in ("scale id of a", "scale id of b"):
        if values.get("k") == "64 (sparse 128)" and int(values[name]) % 2:
            raise ValueError(f"{name} is 0 or 2 with k of {values['k']}, not {values[name]}")
    if values["m"] not in (32, 64, 128, 256):
        raise ValueError(f"m is 32 (.ws alone), 64, 128 or 256, not {values['m']}")
    if int(values["n"]) > 256:
        raise ValueError(f"n is at most 256, not {values['n']}")
    return word
