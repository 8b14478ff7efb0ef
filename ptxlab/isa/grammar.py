"""What may stand behind each register-to-register opcode, slot by slot in the order of the PTX ISA.

A slot lists alternatives, "" where it may be empty. Not every combination is an instruction: which
are is known to the operations that compute them, and certified by assembling every one.
Source: the syntax blocks of the PTX ISA, chapter "Instruction Set".
"""

from __future__ import annotations

Slots = tuple[tuple[str, ...], ...]

_ROUND = ("", "rn", "rz", "rm", "rp")
_ROUND_INTEGER = ("rni", "rzi", "rmi", "rpi")
_INTEGERS = tuple(f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64))
_INTEGERS_8 = ("u8", "s8", *_INTEGERS)
_WORDS = ("b16", "b32", "b64")
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_PAIRS = ("u16x2", "s16x2", "f32x2")
_NUMBERS = (*_INTEGERS, *_WORDS, *_HALVES, *_PAIRS, "f32", "f64")
_ANY = (*_NUMBERS, "pred")
_FLOATS = ("f16", "bf16", "f32", "f64")
_SCALARS = (*_INTEGERS_8, *_FLOATS)
_TINY = ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2", "ue8m0x2")
_TINY_FOUR = ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4")
_INTEGER_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs")
_COMPARE = (*_INTEGER_COMPARE, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
_FTZ, _SAT, _CC, _RELU = ("", "ftz"), ("", "sat"), ("", "cc"), ("", "relu")
_MODE = ("", "lo", "hi", "wide")
_APPROX = ("", "approx", "full", *_ROUND[1:])
_BOOLEAN = ("", "and", "or", "xor")
_LIMIT = ("", "clamp", "wrap")
_SIGNS = ("u32", "s32")
_SHORT = ("f16", "bf16")

_EXTREMUM: tuple[Slots, ...] = ((_FTZ, _RELU, ("", "NaN"), ("", "xorsign"), ("", "abs"), _NUMBERS),)
_SUM: tuple[Slots, ...] = (
    (_ROUND, _FTZ, _SAT, _CC, _NUMBERS),
    (_ROUND, _FTZ, _SAT, ("f32",), _SHORT),
)
_VIDEO: tuple[Slots, ...] = ((_SIGNS, _SIGNS, _SIGNS, _SAT, ("", "add", "min", "max")),)
_VIDEO_SHIFT: tuple[Slots, ...] = (
    (_SIGNS, _SIGNS, ("u32",), _SAT, _LIMIT, ("", "add", "min", "max")),
)
_VIDEO_SIMD: tuple[Slots, ...] = ((_SIGNS, _SIGNS, _SIGNS, _SAT, ("", "add")),)
_VIDEO_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")

GRAMMAR: dict[str, tuple[Slots, ...]] = {
    "cvt": (
        ((*_ROUND, *_ROUND_INTEGER), _FTZ, _SAT, _SCALARS, _SCALARS),
        (("rn", "rz"), ("", "satfinite"), _RELU, _SHORT, ("f32",)),
        (("rna", *_ROUND), ("", "satfinite"), _RELU, ("tf32",), _FLOATS),
        (
            ("", "rn", "rz", "rp", "rs"),
            ("", "satfinite"),
            _RELU,
            ("f16x2", "bf16x2", *_TINY, *_TINY_FOUR),
            ("f32", "f16x2", "bf16x2", *_TINY),
        ),
        (
            ("pack",),
            _SAT,
            ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"),
            ("s32",),
            ("", "b32"),
        ),
    ),
}
