"""Numbers of f32 and f64, and the halves among their operands.

What MUFU approximates is what PTX's ``.approx`` is here: a GPU's last bits are not public.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxlab.machine.lift.operations.moves import CERTAIN, HOW, compared, settle
from ptxlab.machine.lift.rule import Rule, rules
from ptxlab.machine.lift.writer import FALSE, TRUE, Writer
from ptxlab.machine.operands import Immediate, Operand, SassConstant, SassRegister

ROUNDINGS = {"RN": "rn", "RZ": "rz", "RM": "rm", "RP": "rp"}
COMPARISONS = {
    name: name.lower()
    for name in (
        "LT", "EQ", "LE", "GT", "NE", "GE", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "NUM", "NAN",
    )
}  # fmt: skip


def rounding_of(w: Writer) -> str:
    return w.modifiers.choose(ROUNDINGS, "rn")


def ftz_of(w: Writer) -> str:
    return ".ftz" if w.modifiers.has("FTZ") else ""


def _rounded(operation: str) -> Rule:
    """FADD, FMUL, FFMA."""

    def lift(w: Writer) -> None:
        sat = ".sat" if w.modifiers.has("SAT") else ""
        name = f"{operation}.{rounding_of(w)}{ftz_of(w)}{sat}.f32"
        sources = [w.real(source) for source in w.i.sources]
        scale = w.modifiers.choose(_SCALES, 1.0)
        if scale != 1.0:  # rounded twice, as the products of PTX are that ptxas makes one of
            sources = [w.made(f"{name.replace('.sat', '')}", *sources), w.real(Immediate(0, scale))]
        w.emit(f"{name} {w.dest()}, {', '.join(sources)}")

    return lift


_SCALES = {f"{way}{n}": float(n) if way == "M" else 1 / n for way in "MD" for n in (2, 4, 8)}


def _of_pairs(operation: str) -> Rule:
    """FADD2, FMUL2, FFMA2: two f32 in two registers each."""

    def lift(w: Writer) -> None:
        name = f"{operation}.{rounding_of(w)}{ftz_of(w)}"
        halves = [_halves(w, source) for source in w.i.sources]
        sums = [w.made(f"{name}.f32", *parts) for parts in zip(*halves, strict=True)]
        for to, value in zip(w.row(w.i.dest, 2), sums, strict=True):
            w.emit(f"mov.b32 {to}, {value}")

    return lift


def _halves(w: Writer, source: Operand) -> list[str]:
    """Return the two f32 of an operand, as its marks choose them."""
    if isinstance(source, Immediate):
        return [w.real(source)] * 2
    if not isinstance(source, SassRegister | SassConstant):
        raise w.refused("this operand is not modelled")
    low, high = w.words(source, 2)
    marks = set(source.marks) - {"F32x2"}
    chosen = {"HI_LO": (low, high), "LO_HI": (high, low), "F32": (low, low)}
    if marks - {*chosen}:
        raise w.refused("the part of an operand is not modelled")
    parts = chosen[next(iter(marks))] if marks else (low, high)
    return [_signed(w, source, part) for part in parts]


def _signed(w: Writer, source: SassRegister | SassConstant, word: str) -> str:
    if source.absolute:
        word = w.made("and.b32", word, str(0x7FFFFFFF))
    return w.made("xor.b32", word, str(0x80000000)) if source.negated else word


def without_absolute(w: Writer, source: Operand) -> Operand:
    """Return a source of which PTX takes the absolute value by itself."""
    if not isinstance(source, SassRegister | SassConstant) or not source.absolute:
        raise w.refused("the sign of a product of signs is not modelled")
    return replace(source, absolute=False)


def _of_halves(operation: str, halves: int) -> Rule:
    """FHADD, FHFMA: the first sources are halves, what is added and the result are f32."""

    def lift(w: Writer) -> None:
        m = w.modifiers
        kind = "bf16" if m.has("BF16") else "f16"
        sat = ".sat" if m.has("SAT") else ""
        name = f"{operation}.{rounding_of(w)}{sat}.f32"
        factors = [
            w.made(f"cvt.f32.{kind}", half_source(w, source, kind))
            for source in w.i.sources[:halves]
        ]
        rest = [w.real(source) for source in w.i.sources[halves:]]
        w.emit(f"{name} {w.dest()}, {', '.join([*factors, *rest])}")

    return lift


def _extremum(w: Writer) -> None:
    """FMNMX and FMNMX3: the least where the predicate holds."""
    m = w.modifiers
    form = f"{ftz_of(w)}{'.NaN' if m.has('NAN') else ''}"
    given = w.i.sources
    if m.has("XORSIGN"):
        form += ".xorsign.abs"
        given = tuple(without_absolute(w, source) for source in given)
    *sources, last = [w.real(source) for source in given]
    least = w.given(w.i.ins[-1])

    def joined(name: str) -> str:
        value = sources[0]
        for other in (*sources[1:], last):
            value = w.made(f"{name}{form}.f32", value, other)
        return value

    if least in (TRUE, FALSE):
        value = joined("min" if least == TRUE else "max")
    else:
        value = w.selected(joined("min"), joined("max"), least)
    w.emit(f"mov.b32 {w.dest()}, {value}")


def _select(w: Writer) -> None:
    chosen = w.given(w.i.ins[0])
    for source in w.i.sources:
        if isinstance(source, Immediate) and np.isnan(source.real):
            raise w.refused("which NaN this is nvdisasm does not say")
    a, b = (w.real(source) for source in w.i.sources)
    if w.modifiers.has("FTZ"):
        raise w.refused("a choice that flushes is not modelled")
    w.emit(f"mov.b32 {w.dest()}, {w.selected(a, b, chosen, 'selp.f32')}")


def _compare(double: bool) -> Rule:
    def lift(w: Writer) -> None:
        m = w.modifiers
        name, how = m.choose(COMPARISONS, ""), m.choose(HOW, "and")
        certain = m.choose(CERTAIN, "")
        extremum = m.choose({"MIN": "min", "MAX": "max"}, "") if double else ""
        if extremum:
            _which_double(w, extremum)
            return
        other = w.given(w.i.ins[0]) if w.i.ins else TRUE
        if certain:
            compared(w, certain, other, how)
            return
        if not name:
            raise w.refused("what it compares is not modelled")
        kind = f"{ftz_of(w).lstrip('.')}.{'f64' if double else 'f32'}".lstrip(".")
        a, b = ((w.double if double else w.real)(source) for source in w.i.sources)
        settle(w, f"setp.{name}", kind, a, b, other, how)

    return lift


def _set(w: Writer) -> None:
    """FSET: what a comparison found as a word: 1.0, or all bits."""
    m = w.modifiers
    ones = str(0x3F800000 if m.has("BF") else 0xFFFFFFFF)
    name, how = m.choose(COMPARISONS, ""), m.choose(HOW, "and")
    if not name:
        raise w.refused("what it compares is not modelled")
    a, b = (w.real(source) for source in w.i.sources)
    holds = w.made(f"setp.{name}{ftz_of(w)}.f32", a, b, kind="q")
    other = w.given(w.i.ins[0]) if w.i.ins else TRUE
    w.emit(f"selp.b32 {w.dest()}, {ones}, 0, {w.straight(w.combined(holds, other, how))}")


def _which_double(w: Writer, name: str) -> None:
    """DSETP.MIN and MAX: whether it is the first, and whether both are no number."""
    a, b = (w.made("mov.b64", w.double(source), kind="d") for source in w.i.sources)
    nothing = w.both(*(w.made("setp.nan.f64", value, value, kind="q") for value in (a, b)))
    taken = w.made(f"{name}.f64", a, b, kind="d")
    first = w.both(w.made("setp.eq.b64", taken, a, kind="q"), w.negation(nothing))
    if w.given(w.i.ins[0]) != TRUE:
        raise w.refused("a predicate beside it is not modelled")
    for out, value in zip(w.i.outs, (first, nothing), strict=False):
        w.tell(out, value)


# ---- halves and bytes among operands --------------------------------------------------------


def part_of(w: Writer, source: Operand, bits: int) -> str:
    """Return a word, of which the marks choose a part of some bits, at the bottom."""
    marks = getattr(source, "marks", ())
    word = w.bare(source)
    for mark in marks:
        if mark[0] == "B" and bits == 8 and mark[1:].isdigit():
            return w.made("shr.u32", word, str(8 * int(mark[1:]))) if mark != "B0" else word
        if mark in ("H0", "H0_H0", "H1", "H1_H1") and bits == 16:
            return w.made("shr.u32", word, "16") if mark[1] == "1" else word
        raise w.refused("the part of an operand is not modelled")
    return word


def float_source(w: Writer, kind: str) -> str:
    """Return the source of a conversion, of a type."""
    [source] = w.i.sources
    if kind == "f64":
        return w.double(source)
    if kind == "f32":
        return w.real(source)
    return half_source(w, source, kind)


def half_source(w: Writer, source: Operand, kind: str) -> str:
    """Return a half that the marks of an operand choose, with the signs before it."""
    if isinstance(source, Immediate):
        raise w.refused(f"a number of {kind} is not modelled here")
    part = part_of(w, source, 16)
    if isinstance(source, SassRegister | SassConstant):
        if source.absolute:
            part = w.made("and.b32", part, str(0x7FFF))
        if source.negated:
            part = w.made("xor.b32", part, str(0x8000))
    half, rest = w.temporary("h"), w.temporary("h")
    w.emit(f"mov.b32 {{{half}, {rest}}}, {part if part[0].isalpha() else w.made('mov.b32', part)}")
    return half


# ---- approximations -------------------------------------------------------------------------

_APPROXIMATE = {
    "RCP": "rcp.approx.ftz.f32",
    "RSQ": "rsqrt.approx.ftz.f32",
    "SQRT": "sqrt.approx.ftz.f32",
    "EX2": "ex2.approx.ftz.f32",
    "LG2": "lg2.approx.ftz.f32",
    "TANH": "tanh.approx.f32",
}
_OF_UPPER_HALF = {"RCP64H": "rcp.approx.ftz.f64", "RSQ64H": "rsqrt.approx.ftz.f64"}
_TURN = 0x40C90FDB  # 2 pi
_HALVES = {"F16": "f16", "F16_V2": "f16x2", "BF16_V2": "bf16x2", "BF16": "bf16"}


def _approximated(w: Writer) -> None:
    m = w.modifiers
    [source] = w.i.sources
    upper = m.choose(_OF_UPPER_HALF, "")
    if upper:
        result = w.made(upper, _upper(w, source), kind="d")
        w.emit(f"mov.b64 {{{w.temporary('w')}, {w.dest()}}}, {result}")
        return
    wave = m.choose({"SIN": "sin", "COS": "cos"}, "")
    if wave:
        # In turns of a circle; PTX takes radians.
        angle = w.made("mul.rn.f32", w.real(source), f"0f{_TURN:08x}")
        w.emit(f"{wave}.approx.ftz.f32 {w.dest()}, {angle}")
        return
    operation = m.choose(_APPROXIMATE, "")
    kind = m.choose(_HALVES, "")
    if kind:
        _approximated_half(w, operation.split(".")[0], kind)
        return
    if not operation:
        raise w.refused("this approximation is not modelled")
    w.emit(f"{operation} {w.dest()}, {w.real(source)}")


def _approximated_half(w: Writer, name: str, kind: str) -> None:
    operations = {
        ("ex2", "f16"): "ex2.approx.f16",
        ("tanh", "f16"): "tanh.approx.f16",
        ("ex2", "bf16"): "ex2.approx.ftz.bf16",
        ("tanh", "bf16"): "tanh.approx.bf16",
    }
    if (name, kind) not in operations:
        raise w.refused("this approximation is not modelled")
    half = w.made(operations[name, kind], float_source(w, kind), kind="h")
    w.emit(f"cvt.u32.u16 {w.dest()}, {half}")


def _upper(w: Writer, source: Operand) -> str:
    """Return a double of its upper half."""
    zero = w.made("mov.b32", "0")
    high = w.made("mov.b32", w.real(source))
    return w.made("mov.b64", f"{{{zero}, {high}}}", kind="d")


_SAFE = 24, 230


def _needs_care(w: Writer) -> None:
    """FCHK: whether a division needs the long way: where exponents are far from those that need it, it does not.

    The long way is right for all numbers, so it may be taken more often than a GPU does.
    """
    exponents = [
        w.made("bfe.u32", w.made("mov.b32", w.real(source)), "23", "8") for source in w.i.sources
    ]
    least, most = _SAFE
    inside = TRUE
    for exponent in exponents:
        inside = w.both(inside, w.made("setp.ge.u32", exponent, str(least), kind="q"))
        inside = w.both(inside, w.made("setp.le.u32", exponent, str(most), kind="q"))
    apart = w.made("sub.s32", *exponents)
    inside = w.both(inside, w.made("setp.lt.s32", w.made("abs.s32", apart), "100", kind="q"))
    for out in w.i.outs:
        w.tell(out, w.negation(inside))


# ---- f64 ------------------------------------------------------------------------------------


def _double(operation: str) -> Rule:
    def lift(w: Writer) -> None:
        sources = [w.double(source) for source in w.i.sources]
        w.write_pair(w.made(f"{operation}.{rounding_of(w)}.f64", *sources, kind="d"))

    return lift


RULES = {
    **rules("FADD", _rounded("add"), uniform=True),
    **rules("FMUL", _rounded("mul"), uniform=True),
    **rules("FFMA", _rounded("fma"), uniform=True),
    **rules("FHADD", _of_halves("add", 1)),
    **rules("FHFMA", _of_halves("fma", 2)),
    **rules("FADD2", _of_pairs("add")),
    **rules("FMUL2", _of_pairs("mul")),
    **rules("FFMA2", _of_pairs("fma")),
    **rules("FMNMX FMNMX3", _extremum, uniform=True),
    **rules("FSEL", _select, uniform=True),
    **rules("FSETP", _compare(False), uniform=True),
    **rules("FSET", _set),
    **rules("DSETP", _compare(True)),
    **rules("MUFU", _approximated, uniform=True),
    **rules("FCHK", _needs_care),
    **rules("DADD", _double("add")),
    **rules("DMUL", _double("mul")),
    **rules("DFMA", _double("fma")),
}
