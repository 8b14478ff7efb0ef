"""Numbers of f32 and f64, and conversions.

What MUFU approximates is what PTX's ``.approx`` is here: a GPU's last bits are not public.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxlab.machine.lift.operations.moves import CERTAIN, HOW, compared, settle
from ptxlab.machine.lift.rule import Rule, rules
from ptxlab.machine.lift.writer import FALSE, TRUE, Writer, is_true
from ptxlab.machine.operands import (
    Immediate,
    Operand,
    SassConstant,
    SassRegister,
)

_ROUNDINGS = {"RN": "rn", "RZ": "rz", "RM": "rm", "RP": "rp"}
COMPARISONS = {
    name: name.lower()
    for name in (
        "LT", "EQ", "LE", "GT", "NE", "GE", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "NUM", "NAN",
    )
}  # fmt: skip


def _rounding(w: Writer) -> str:
    return w.modifiers.choose(_ROUNDINGS, "rn")


def _ftz(w: Writer) -> str:
    return ".ftz" if w.modifiers.has("FTZ") else ""


def _rounded(operation: str) -> Rule:
    """FADD, FMUL, FFMA."""

    def lift(w: Writer) -> None:
        sat = ".sat" if w.modifiers.has("SAT") else ""
        name = f"{operation}.{_rounding(w)}{_ftz(w)}{sat}.f32"
        sources = [w.real(source) for source in w.i.sources]
        w.emit(f"{name} {w.dest()}, {', '.join(sources)}")

    return lift


def _of_pairs(operation: str) -> Rule:
    """FADD2, FMUL2, FFMA2: two f32 in two registers each."""

    def lift(w: Writer) -> None:
        name = f"{operation}.{_rounding(w)}{_ftz(w)}"
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
        name = f"{operation}.{_rounding(w)}{sat}.f32"
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
    form = f"{_ftz(w)}{'.NaN' if m.has('NAN') else ''}"
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
        kind = f"{_ftz(w).lstrip('.')}.{'f64' if double else 'f32'}".lstrip(".")
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
    holds = w.made(f"setp.{name}{_ftz(w)}.f32", a, b, kind="q")
    other = w.given(w.i.ins[0]) if w.i.ins else TRUE
    w.emit(f"selp.b32 {w.dest()}, {ones}, 0, {w.straight(w.combined(holds, other, how))}")


def _which_double(w: Writer, name: str) -> None:
    """DSETP.MIN and MAX: whether it is the first, and whether both are no number."""
    a, b = (w.made("mov.b64", w.double(source), kind="d") for source in w.i.sources)
    nothing = w.both(*(w.made("setp.nan.f64", value, value, kind="q") for value in (a, b)))
    taken = w.made(f"{name}.f64", a, b, kind="d")
    first = w.both(w.made("setp.eq.b64", taken, a, kind="q"), w.negation(nothing))
    if not is_true(w.i.ins[0]) or w.i.ins[0].negated:
        raise w.refused("a predicate beside it is not modelled")
    for out, value in zip(w.i.outs, (first, nothing), strict=False):
        w.tell(out, value)


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
    half = w.made(operations[name, kind], _float_source(w, kind), kind="h")
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
        w.write_pair(w.made(f"{operation}.{_rounding(w)}.f64", *sources, kind="d"))

    return lift


# ---- conversions ----------------------------------------------------------------------------

_TO_WHOLE = {"TRUNC": "rzi", "FLOOR": "rmi", "CEIL": "rpi"}
_WHOLE = {name: name.lower() for name in ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")}
_REAL = {"F16": "f16", "BF16": "bf16", "F64": "f64", "F32": "f32"}


def _part(w: Writer, source: Operand, bits: int) -> str:
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


def _from_whole(w: Writer) -> None:
    """I2F, I2FP."""
    m = w.modifiers
    kind, to = m.choose(_WHOLE, "s32"), m.choose(_REAL, "f32")
    rounding = _rounding(w)
    [source] = w.i.sources
    bits = int(kind[1:])
    if bits == 64:
        value = w.pair(source)
    elif bits == 32:
        value = w.word(source)
    else:
        part = _part(w, source, bits)
        if w.is_negated(source) or getattr(source, "inverted", False):
            raise w.refused("a negated part of a word is not modelled")
        value = w.made(f"bfe.{kind[0]}32", part, "0", str(bits))
        kind = f"{kind[0]}32"
    name = f"cvt.{rounding}.{to}.{kind}"
    if to == "f64":
        w.write_pair(w.made(name, value, kind="d"))
    elif to == "f32":
        w.emit(f"{name} {w.dest()}, {value}")
    else:
        half = w.made(name, value, kind="h")
        w.emit(f"mov.b32 {w.dest()}, {{{half}, {half}}}")


def _float_source(w: Writer, kind: str) -> str:
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
    part = _part(w, source, 16)
    if isinstance(source, SassRegister | SassConstant):
        if source.absolute:
            part = w.made("and.b32", part, str(0x7FFF))
        if source.negated:
            part = w.made("xor.b32", part, str(0x8000))
    half, rest = w.temporary("h"), w.temporary("h")
    w.emit(f"mov.b32 {{{half}, {rest}}}, {part if part[0].isalpha() else w.made('mov.b32', part)}")
    return half


def _to_whole(w: Writer) -> None:
    """F2I: without a number it is zero where it says so, or as PTX has it."""
    m = w.modifiers
    kind, of = m.choose(_WHOLE, "s32"), m.choose(_REAL, "f32")
    m.ignore("NTZ")
    ftz = _ftz(w) if of == "f32" else ""
    rounding = m.choose(_TO_WHOLE, "rni")
    name = f"cvt.{rounding}{ftz}.{kind}.{of}"
    value = _float_source(w, of)
    if kind.endswith("64"):
        w.write_pair(w.made(name, value, kind="d"))
    elif kind.endswith("16") and of in ("f16", "bf16"):
        w.emit(f"cvt.{kind[0]}32.{kind} {w.dest()}, {w.made(name, value, kind='h')}")
    else:
        w.emit(f"{name} {w.dest()}, {value}")


def _changed(w: Writer) -> None:
    """F2F: the type that it makes is named first."""
    m = w.modifiers
    kinds = [_REAL[name] for name in m.names if name in _REAL]
    m.ignore(*_REAL)
    to, of = ([*kinds, "f32", "f32"])[:2]
    rounding = m.choose(_TO_WHOLE, "")
    sat = ".sat" if m.has("SAT") else ""
    sizes = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
    ftz = _ftz(w) if "f32" in (to, of) else ""
    if not rounding and to != of and sizes[to] <= sizes[of]:
        rounding = _rounding(w)
    m.ignore(*_ROUNDINGS)
    if to == of and not rounding:
        raise w.refused("a conversion to the same type is not modelled")
    name = f"cvt{'.' + rounding if rounding else ''}{ftz}{sat}.{to}.{of}"
    value = _float_source(w, of)
    if to == "f64":
        w.write_pair(w.made(name, value, kind="d"))
    elif to == "f32":
        w.emit(f"{name} {w.dest()}, {value}")
    else:
        half = w.made(name, value, kind="h")
        w.emit(f"cvt.u32.u16 {w.dest()}, {half}")


def _whole_number(w: Writer) -> None:
    """FRND: rounded to a number that is whole."""
    m = w.modifiers
    kind = m.choose(_REAL, "f32")
    rounding = m.choose(_TO_WHOLE, "rni")
    ftz = _ftz(w) if kind == "f32" else ""
    name = f"cvt.{rounding}{ftz}.{kind}.{kind}"
    value = _float_source(w, kind)
    if kind == "f64":
        w.write_pair(w.made(name, value, kind="d"))
    elif kind == "f32":
        w.emit(f"{name} {w.dest()}, {value}")
    else:
        w.emit(f"cvt.u32.u16 {w.dest()}, {w.made(name, value, kind='h')}")


# ---- packing --------------------------------------------------------------------------------

_BYTES = {"E4M3": "e4m3x2", "E5M2": "e5m2x2"}


def _packed(w: Writer) -> None:
    """F2FP: two f32 to two halves, or to two bytes; bytes to halves."""
    m = w.modifiers
    bytes_ = m.choose(_BYTES, "")
    relu = ".relu" if m.has("RELU") else ""
    finite = m.has("SATFINITE")
    if m.has("TF32"):
        m.ignore("F32", "PACK_B")
        name = f"cvt.{_rounding(w)}{'.satfinite' if finite else ''}{relu}.tf32.f32"
        w.emit(f"{name} {w.dest()}, {w.real(w.i.sources[-1])}")
        return
    merges = m.has("MERGE_C", "PACK_AB_MERGE_C")
    if m.has("UNPACK_B", "UNPACK_B_MERGE_C"):
        _unpacked(w, bytes_, relu, finite)
        return
    to = m.choose({"F16": "f16", "BF16": "bf16"}, "" if bytes_ else "f16")
    m.ignore("F32", "PACK_AB")
    rounding = _rounding(w)
    if bytes_ and not to:
        a, b = (w.real(source) for source in w.i.sources[:2])
        name = f"cvt.rn.satfinite{relu}.{bytes_}.f32"
        half = w.made(name, a, b, kind="h")
        upper = w.word(w.i.sources[2]) if merges and len(w.i.sources) > 2 else "0"
        _with_lower_half(w, half, upper)
        return
    if bytes_ or not to:
        raise w.refused("what it packs is not modelled")
    saturated = ".satfinite" if finite else ""
    if merges:
        first, last = w.i.sources[0], w.i.sources[-1]
        half = w.made(f"cvt.{rounding}{relu}{saturated}.{to}.f32", w.real(first), kind="h")
        _with_lower_half(w, half, w.word(last))
        return
    a, b = (w.real(source) for source in w.i.sources[:2])
    w.emit(f"cvt.{rounding}{relu}{saturated}.{to}x2.f32 {w.dest()}, {a}, {b}")


def _with_lower_half(w: Writer, half: str, upper: str) -> None:
    """Write a half, and above it that of a word."""
    if upper == "0":
        w.emit(f"cvt.u32.u16 {w.dest()}, {half}")
        return
    low, high = w.temporary("h"), w.temporary("h")
    w.emit(f"mov.b32 {{{low}, {high}}}, {upper}")
    w.emit(f"mov.b32 {w.dest()}, {{{half}, {high}}}")


def _unpacked(w: Writer, bytes_: str, relu: str, finite: bool) -> None:
    """F2FP of halves: two bytes to halves, or halves to bytes where bytes are named first."""
    m = w.modifiers
    to = m.choose({"F16": "f16x2"}, "")
    if not bytes_ or not to:
        raise w.refused("what it unpacks is not modelled")
    if m.names.index("F16") > max(m.names.index(name) for name in _BYTES if name in m.names):
        word = w.word(w.i.sources[0])
        half = w.made(f"cvt.rn.satfinite{relu}.{bytes_}.f16x2", word, kind="h")
        if not finite or len(w.i.sources) != 2:
            raise w.refused("what it packs is not modelled")
        _with_lower_half(w, half, w.word(w.i.sources[1]))
        return
    source = w.i.sources[-1]
    half, rest = w.temporary("h"), w.temporary("h")
    part = _part(w, source, 16)
    w.emit(f"mov.b32 {{{half}, {rest}}}, {part if part[0].isalpha() else w.made('mov.b32', part)}")
    w.emit(f"cvt.rn{relu}.{to}.{bytes_} {w.dest()}, {half}")


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
    **rules("I2F I2FP", _from_whole, uniform=True),
    **rules("F2I", _to_whole, uniform=True),
    **rules("F2F", _changed, uniform=True),
    **rules("FRND", _whole_number, uniform=True),
    **rules("F2FP", _packed),
}
