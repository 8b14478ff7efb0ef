"""Conversions between whole numbers, f64, f32, halves and bytes."""

from __future__ import annotations

from ptxlab.machine.lift.operations.floating import (
    ROUNDINGS,
    float_source,
    ftz_of,
    part_of,
    rounding_of,
)
from ptxlab.machine.lift.rule import rules
from ptxlab.machine.lift.writer import Writer

_TO_WHOLE = {"TRUNC": "rzi", "FLOOR": "rmi", "CEIL": "rpi"}
_WHOLE = {name: name.lower() for name in ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")}
_REAL = {"F16": "f16", "BF16": "bf16", "F64": "f64", "F32": "f32"}


def _from_whole(w: Writer) -> None:
    """I2F, I2FP."""
    m = w.modifiers
    kind, to = m.choose(_WHOLE, "s32"), m.choose(_REAL, "f32")
    rounding = rounding_of(w)
    [source] = w.i.sources
    bits = int(kind[1:])
    if bits == 64:
        value = w.pair(source)
    elif bits == 32:
        value = w.word(source)
    else:
        part = part_of(w, source, bits)
        if w.is_negated(source) or getattr(source, "inverted", False):
            raise w.refused("a negated part of a word is not modelled")
        value = w.made(f"bfe.{kind[0]}32", part, "0", str(bits))
        kind = f"{kind[0]}32"
    _write_real(w, to, f"cvt.{rounding}.{to}.{kind}", value, halves=2)


def _to_whole(w: Writer) -> None:
    """F2I: without a number it is zero where it says so, or as PTX has it."""
    m = w.modifiers
    kind, of = m.choose(_WHOLE, "s32"), m.choose(_REAL, "f32")
    m.ignore("NTZ")
    ftz = ftz_of(w) if of == "f32" else ""
    rounding = m.choose(_TO_WHOLE, "rni")
    name = f"cvt.{rounding}{ftz}.{kind}.{of}"
    value = float_source(w, of)
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
    ftz = ftz_of(w) if "f32" in (to, of) else ""
    if not rounding and to != of and sizes[to] <= sizes[of]:
        rounding = rounding_of(w)
    m.ignore(*ROUNDINGS)
    if to == of and not rounding:
        raise w.refused("a conversion to the same type is not modelled")
    name = f"cvt{'.' + rounding if rounding else ''}{ftz}{sat}.{to}.{of}"
    _write_real(w, to, name, float_source(w, of))


def _whole_number(w: Writer) -> None:
    """FRND: rounded to a number that is whole."""
    m = w.modifiers
    kind = m.choose(_REAL, "f32")
    rounding = m.choose(_TO_WHOLE, "rni")
    ftz = ftz_of(w) if kind == "f32" else ""
    _write_real(w, kind, f"cvt.{rounding}{ftz}.{kind}.{kind}", float_source(w, kind))


def _write_real(w: Writer, kind: str, name: str, value: str, *, halves: int = 1) -> None:
    """Write the ``kind`` of real number that an instruction makes; a half alone, or the same one twice."""
    if kind == "f64":
        w.write_pair(w.made(name, value, kind="d"))
    elif kind == "f32":
        w.emit(f"{name} {w.dest()}, {value}")
    else:
        half = w.made(name, value, kind="h")
        to = w.dest()
        w.emit(f"mov.b32 {to}, {{{half}, {half}}}" if halves == 2 else f"cvt.u32.u16 {to}, {half}")


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
        name = f"cvt.{rounding_of(w)}{'.satfinite' if finite else ''}{relu}.tf32.f32"
        w.emit(f"{name} {w.dest()}, {w.real(w.i.sources[-1])}")
        return
    merges = m.has("MERGE_C", "PACK_AB_MERGE_C")
    if m.has("UNPACK_B", "UNPACK_B_MERGE_C"):
        _unpacked(w, bytes_, relu, finite)
        return
    to = m.choose({"F16": "f16", "BF16": "bf16"}, "" if bytes_ else "f16")
    m.ignore("F32", "PACK_AB")
    rounding = rounding_of(w)
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
    part = part_of(w, source, 16)
    w.emit(f"mov.b32 {{{half}, {rest}}}, {part if part[0].isalpha() else w.made('mov.b32', part)}")
    w.emit(f"cvt.rn{relu}.{to}.{bytes_} {w.dest()}, {half}")


RULES = {
    **rules("I2F I2FP", _from_whole, uniform=True),
    **rules("F2I", _to_whole, uniform=True),
    **rules("F2F", _changed, uniform=True),
    **rules("FRND", _whole_number, uniform=True),
    **rules("F2FP", _packed),
}
