"""Packed numbers of 16 bits: sums, products, comparisons, extremes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from ptxlab.machine.lift.operations.floating import COMPARISONS, without_absolute
from ptxlab.machine.lift.operations.moves import HOW
from ptxlab.machine.lift.rule import Rule, rules
from ptxlab.machine.lift.writer import FALSE, TRUE, Writer, is_zero
from ptxlab.machine.operands import Immediate, Operand, SassConstant, SassRegister

_SELECTORS = {"H0_H0": "0x1010", "H1_H1": "0x3232", "H0_H1": "0x1032", "H1_H0": ""}
_ONE = {"f16": 0x3C00, "bf16": 0x3F80}


def _kind(w: Writer) -> str:
    return "bf16" if w.modifiers.has("BF16_V2", "BF16") else "f16"


_NAN = 0x7FFF
"""What arithmetic of halves makes of any NaN: ptxas has a number of these bits be made so."""


def _bits(value: Immediate, kind: str) -> int:
    if np.isnan(value.real):
        return _NAN
    dtype = np.dtype(ml_dtypes.bfloat16 if kind == "bf16" else np.float16)
    with np.errstate(over="ignore"):
        return int(np.array(value.real, np.float64).astype(dtype).view(np.uint16))


def _packed_sources(w: Writer, kind: str, given: Sequence[Operand] | None = None) -> list[str]:
    """Return the sources as words of two halves; two numbers that follow each other are one."""
    values, waiting = [], list(w.i.sources if given is None else given)
    while waiting:
        source = waiting.pop(0)
        if isinstance(source, Immediate):
            if not waiting or not isinstance(waiting[0], Immediate):
                raise w.refused("a number here has two halves")
            lower = waiting.pop(0)
            assert isinstance(lower, Immediate)
            values.append(str(_bits(source, kind) << 16 | _bits(lower, kind)))
        else:
            values.append(_halves(w, source))
    return values


def _halves(w: Writer, source: Operand) -> str:
    """Return a word of two halves as its marks choose them, with the signs before it."""
    if not isinstance(source, SassRegister | SassConstant):
        raise w.refused("this operand is not modelled")
    word = w.bare(source)
    for mark in source.marks:
        if mark not in _SELECTORS:
            raise w.refused("the part of an operand is not modelled")
        if word != "0" and _SELECTORS[mark]:
            word = w.made("prmt.b32", word, "0", _SELECTORS[mark])
    if source.absolute and word != "0":
        word = w.made("and.b32", word, str(0x7FFF7FFF))
    if source.negated:
        word = str(0x80008000) if word == "0" else w.made("xor.b32", word, str(0x80008000))
    return word


def _joined(operation: str) -> Rule:
    """HADD2, HMUL2, HFMA2."""

    def lift(w: Writer) -> None:
        m, kind = w.modifiers, _kind(w)
        m.ignore("MMA")
        if m.has("F32"):
            _widened(w)
            return
        alone = _beside_zero(w) if operation == "add" else None
        if alone is not None and alone.marks == ("F32",):
            _narrowed(w, alone)
            return
        relu, sat = m.has("RELU"), m.has("SAT")
        ftz = ".ftz" if m.has("FTZ") and kind == "f16" else ""
        m.ignore("FTZ")
        sources = _packed_sources(w, kind)
        if all(source.isdigit() for source in sources[:2]) and operation == "fma":
            factors = [int(source) for source in sources[:2]]
            if all(factor & 0x7FFF7FFF == 0 for factor in factors) and sources[2].isdigit():
                # Zeros times zeros, and a number: that is how halves are moved.
                sign = (factors[0] ^ factors[1]) & 0x80008000
                if sign == 0x80008000 or all(int(sources[2]) >> n & 0xFFFF for n in (0, 16)):
                    w.emit(f"mov.b32 {w.dest()}, {sources[2]}")
                    return
        held = [source if source[0].isalpha() else w.made("mov.b32", source) for source in sources]
        form = f".rn{ftz}{'.sat' if sat else ''}{'.relu' if relu else ''}"
        name = operation
        if relu and operation != "fma":
            ones = w.made("mov.b32", str(_ONE[kind] * 0x10001))
            zero = w.made("mov.b32", str(0x80008000))
            held = [held[0], ones, held[1]] if operation == "add" else [*held, zero]
            name = "fma"
        w.emit(f"{name}{form}.{kind}x2 {w.dest()}, {', '.join(held)}")

    return lift


def _beside_zero(w: Writer) -> SassRegister | SassConstant | None:
    """Return the operand that is added to minus zero, and so stays as it is; None where two are added."""
    if len(w.i.sources) != 2:
        return None  # the halves of a number stand apart
    for source, zero in (w.i.sources[::-1], w.i.sources):
        if isinstance(zero, SassRegister) and zero.negated and is_zero(zero):
            return source if isinstance(source, SassRegister | SassConstant) else None
    return None


def _widened(w: Writer) -> None:
    """HADD2.F32: a half as f32, added to zero."""
    m, kind, source = w.modifiers, _kind(w), _beside_zero(w)
    if source is None:
        raise w.refused("a sum of halves as f32 is not modelled")
    word = _halves(w, source)
    half, rest = w.temporary("h"), w.temporary("h")
    word = word if word[0].isalpha() else w.made("mov.b32", word)
    w.emit(f"mov.b32 {{{half}, {rest}}}, {word}")
    form = f"{'.ftz' if m.has('FTZ') and kind == 'bf16' else ''}{'.sat' if m.has('SAT') else ''}"
    w.emit(f"cvt{form}.f32.{kind} {w.dest()}, {half}")


def _narrowed(w: Writer, source: SassRegister | SassConstant) -> None:
    """HADD2 of what is marked F32, which sm_75 cuts off to a half: both halves are the same number."""
    half = w.temporary("h")
    sat = ".sat" if w.modifiers.has("SAT") else ""
    w.emit(f"cvt.rz{sat}.f16.f32 {half}, {w.real(replace(source, marks=()))}")
    w.emit(f"mov.b32 {w.dest()}, {{{half}, {half}}}")


def _extremum(w: Writer) -> None:
    m, kind = w.modifiers, _kind(w)
    form = f"{'.NaN' if m.has('NAN') else ''}"
    if m.has("FTZ") and kind == "f16":
        form = ".ftz" + form
    given = w.i.sources
    if m.has("XORSIGN"):
        form += ".xorsign.abs"
        given = tuple(without_absolute(w, source) for source in given)
    sources = [
        word if word[0].isalpha() else w.made("mov.b32", word)
        for word in _packed_sources(w, kind, given)
    ]
    least = w.given(w.i.ins[-1])
    if least not in (TRUE, FALSE):
        low, high = (w.made(f"{name}{form}.{kind}x2", *sources) for name in ("min", "max"))
        if least[0] == "!":
            low, high = high, low
        w.emit(f"selp.b32 {w.dest()}, {low}, {high}, {least.lstrip('!')}")
        return
    name = "min" if least == TRUE else "max"
    w.emit(f"{name}{form}.{kind}x2 {w.dest()}, {', '.join(sources)}")


def _comparison(w: Writer) -> tuple[str, str, str, str]:
    """Return predicates of both halves, the predicate they are combined with, and how."""
    m, kind = w.modifiers, _kind(w)
    name, how = m.choose(COMPARISONS, ""), m.choose(HOW, "and")
    if not name:
        raise w.refused("what it compares is not modelled")
    ftz = ".ftz" if m.has("FTZ") and kind == "f16" else ""
    a, b = (
        word if word[0].isalpha() else w.made("mov.b32", word) for word in _packed_sources(w, kind)
    )
    low, high = w.temporary("q"), w.temporary("q")
    w.emit(f"setp.{name}{ftz}.{kind}x2 {low}|{high}, {a}, {b}")
    return low, high, w.given(w.i.ins[0]) if w.i.ins else TRUE, how


def _compare(w: Writer) -> None:
    """HSETP2: of the lower halves and of the upper ones."""
    both = w.modifiers.has("H_AND")
    low, high, other, how = _comparison(w)
    if both:
        holds = w.both(low, high)
        values = [holds, w.negation(holds)]
    else:
        values = [low, high]
    told = [w.straight(w.combined(value, other, how)) for value in values]
    for out, value in zip(w.i.outs, told, strict=False):
        w.tell(out, value)


def _set(w: Writer) -> None:
    """HSET2: what a comparison found as halves: 1.0, or all bits."""
    numbers = w.modifiers.has("BF")
    low, high, other, how = _comparison(w)
    ones = _ONE[_kind(w)] if numbers else 0xFFFF
    parts = []
    for value, shift in ((low, 0), (high, 16)):
        holds = w.straight(w.combined(value, other, how))
        parts.append(w.made("selp.b32", str(ones << shift), "0", holds))
    w.emit(f"or.b32 {w.dest()}, {parts[0]}, {parts[1]}")


RULES = {
    **rules("HADD2", _joined("add")),
    **rules("HMUL2", _joined("mul")),
    **rules("HFMA2", _joined("fma")),
    **rules("HMNMX2", _extremum),
    **rules("HSETP2", _compare),
    **rules("HSET2", _set),
}
