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
from ptxlab.machine.lift.writer import Writer, is_zero
from ptxlab.machine.operands import Immediate, Operand

_TO_WHOLE = {"TRUNC": "rzi", "FLOOR": "rmi", "CEIL": "rpi"}
_WHOLE = {name: name.lower() for name in ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")}
_REAL = {"F16": "f16", "BF16": "bf16", "F64": "f64", "F32": "f32"}


def _from_whole(w: Writer) -> None:
    """I2F, I2FP: of 64 bits a literal is the upper half."""
    m = w.modifiers
    kind, to = m.choose(_WHOLE, "s32"), m.choose(_REAL, "f32")
    rounding = rounding_of(w)
    [source] = w.i.sources
    bits = int(kind[1:])
    if bits == 64 and isinstance(source, Immediate):
        value = str(source.value << 32)
    elif bits == 64:
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

_NARROW = {
    "E4M3": "e4m3", "E5M2": "e5m2", "E2M3": "e2m3", "E3M2": "e3m2", "E2M1": "e2m1", "E8": "ue8m0",
}  # fmt: skip
_PACKED = {**_REAL, "TF32": "tf32", **_NARROW}
_HOW = ("PACK_AB", "PACK_AB_MERGE_C", "MERGE_C", "UNPACK_B", "UNPACK_B_MERGE_C", "PACK_B")


def _packed(w: Writer) -> None:
    """F2FP: two numbers of a register each to two of half of it, or less; two narrow ones to halves, and back."""
    m = w.modifiers
    kinds = [_PACKED[name] for name in m.names if name in _PACKED]
    m.ignore(*_PACKED)
    to, of = ([*kinds, "f32"] if len(kinds) == 1 else kinds or ["f16", "f32"])[:2]
    how = next((name for name in m.names if name in _HOW), "")
    m.ignore(how)
    narrow = to in _NARROW.values()
    rounding, noise = ("rs", []) if m.has("RS") else (rounding_of(w), [])
    form = f"cvt.{rounding}{'.satfinite' * m.has('SATFINITE')}{'.relu' * m.has('RELU')}"
    sources = w.i.sources
    if rounding == "rs":
        if narrow or how != "PACK_AB":
            raise w.refused("what it rounds by chance is not modelled")
        noise = w.stored([w.word(sources[2])])
    if to == "tf32":
        w.emit(f"{form}.tf32.f32 {w.dest()}, {w.real(sources[-1])}")
    elif how == "PACK_AB":
        values = [w.real(source) for source in sources[:2]]
        w.emit(f"{form}.{to}x2.f32 {w.dest()}, {', '.join([*values, *noise])}")
    elif how == "MERGE_C":
        _narrowed(w, f"{form}.{to}.f32", to, [w.real(sources[0])], sources[-1])
    elif how == "UNPACK_B" and of in _NARROW.values():
        _widened(w, f"{form}.{to}x2.{of}x2", of)
    elif narrow and how in ("PACK_AB_MERGE_C", "UNPACK_B_MERGE_C"):
        values = [w.real(source) for source in sources[:2]] if of == "f32" else [w.word(sources[0])]
        of = of if of == "f32" else f"{of}x2"
        _narrowed(w, f"{form}.{to}x2.{of}", to, w.stored(values), sources[-1])
    else:
        raise w.refused("what it packs is not modelled")


def _widened(w: Writer, form: str, of: str) -> None:
    """Make two halves of two narrow numbers."""
    part = w.stored([part_of(w, w.i.sources[-1], 16)])[0]
    if of == "e2m1":
        bytes_ = [w.temporary("b") for _ in range(4)]
        w.emit(f"mov.b32 {{{', '.join(bytes_)}}}, {part}")
        w.emit(f"{form} {w.dest()}, {bytes_[0]}")
    else:
        half, rest = w.temporary("h"), w.temporary("h")
        w.emit(f"mov.b32 {{{half}, {rest}}}, {part}")
        w.emit(f"{form} {w.dest()}, {half}")


def _narrowed(w: Writer, form: str, to: str, values: list[str], above: Operand) -> None:
    """Write a half or two narrow numbers, and above them the lower bits of a word, so that more of them come together."""
    if to == "e2m1":
        bits, low = 8, w.made("cvt.u32.u8", w.made(form, *values, kind="b"))
    else:
        bits, low = 16, w.made("cvt.u32.u16", w.made(form, *values, kind="h"))
    if is_zero(above):
        w.emit(f"mov.b32 {w.dest()}, {low}")
    else:
        w.emit(f"or.b32 {w.dest()}, {low}, {w.made('shl.b32', w.word(above), str(bits))}")


def _whole_byte(w: Writer) -> None:
    """F2IP: an f32 to a byte, in the lowest byte of a word that else is zero."""
    m, (first, source, last) = w.modifiers, w.i.sources
    m.ignore("F32", "NTZ")
    kind = m.choose({"U8": "u8", "S8": "s8"}, "")
    if not kind or not (is_zero(first) and is_zero(last)):
        raise w.refused("what it packs is not modelled")
    rounding = m.choose(_TO_WHOLE, "rni")
    w.emit(f"cvt.{rounding}{ftz_of(w)}.{kind}.f32 {w.dest()}, {w.real(source)}")


RULES = {
    **rules("I2F I2FP", _from_whole, uniform=True),
    **rules("F2I", _to_whole, uniform=True),
    **rules("F2F", _changed, uniform=True),
    **rules("FRND", _whole_number, uniform=True),
    **rules("F2FP", _packed),
    **rules("F2IP", _whole_byte),
}
