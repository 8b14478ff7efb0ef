"""Bytes in a row that are copied, reduced or cleared beside the threads, words that are stored later, or for another CTA."""

from __future__ import annotations

from ptxlab.machine.lift.operations.memory import address
from ptxlab.machine.lift.rule import rules
from ptxlab.machine.lift.writer import Writer, is_zero, register
from ptxlab.machine.operands import Operand, SassAddress, SassRegister

_OPERATIONS = {
    name: name.lower() for name in ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR")
}
_KINDS = {
    "U64": "u64",
    "S64": "s64",
    "S32": "s32",
    "64": "u64",
    "F16": "f16",
    "BF16": "bf16",
    "F32": "f32",
    "F64": "f64",
}


def operation_of(w: Writer) -> str:
    """Return what a reduction does, as PTX names it."""
    operation = w.modifiers.choose(_OPERATIONS, "")
    if not operation:
        raise w.refused("this reduction is not modelled")
    return operation


def _reduction(w: Writer) -> str:
    """Return what a reduction does and of which type: ``add.noftz.f16``."""
    operation, kind = operation_of(w), w.modifiers.choose(_KINDS, "u32")
    w.modifiers.ignore("RN")
    if operation in ("and", "or", "xor"):
        kind = f"b{kind[1:]}"
    return f"{operation}{'.noftz' * (operation == 'add' and kind.endswith('f16'))}.{kind}"


def _uniform(w: Writer, operand: Operand) -> SassRegister:
    if not isinstance(operand, SassAddress) or operand.uniform is None or operand.what:
        raise w.refused("this operand is not modelled")
    return operand.uniform


def _move_bytes(w: Writer, reduction: str = "") -> None:
    """UBLKCP, UBLKRED: sizes are in units of 16 bytes, below the mask of the CTAs, or bytes, that get them."""
    m = w.modifiers
    m.ignore("STRONG", "SM", "GPU", "SYS")
    to, source, size, *_policy = w.i.operands
    word = w.bare(size)
    nbytes = w.made("shl.b32", w.made("and.b32", word, "0xffff"), "4")
    directions = tuple(name for name in m.names if name in ("S", "G"))
    m.ignore("S", "G")
    target, opcode = _uniform(w, to), "cp.reduce.async.bulk" if reduction else "cp.async.bulk"
    if directions == ("G", "S"):
        text = f"[{w.pair(target)}], [{w.bare(_uniform(w, source))}], {nbytes}"
        name = f"{opcode}.global.shared::cta.bulk_group"
    else:
        near, barrier = w.words(target, 2)
        origin, space = _uniform(w, source), "global"
        if directions == ("S", "S"):
            space, address = "shared::cta", w.bare(origin)
        else:
            address = w.pair(origin)
        text = f"[{near}], [{address}], {nbytes}, [{barrier}]"
        name = f"{opcode}.shared::cluster.{space}.mbarrier::complete_tx::bytes"
    for modifier, form in (("MULTICAST", "multicast::cluster"), ("DST_G_BYTE_MASK", "cp_mask")):
        if m.has(modifier):
            mask = w.made("cvt.u16.u32", w.made("shr.u32", word, "16"), kind="h")
            name, text = f"{name}.{form}", f"{text}, {mask}"
    with w.once():
        w.emit(f"{name}{reduction} {text}")


def _reduce_bytes(w: Writer) -> None:
    _move_bytes(w, f".{_reduction(w)}")


# ---- a word for another CTA -----------------------------------------------------------------

_VECTORS = {"64": 2, "128": 4}


def _tell(w: Writer, name: str, values: str) -> None:
    """Write to the shared memory of another CTA, whose mbarrier, in the next register, is told."""
    at = w.i.operands[0]
    if not isinstance(at, SassAddress) or at.base is None or at.offset:
        raise w.refused("this address is not modelled")
    near, barrier = (w.name(register(at.base.number + n)) for n in range(2))
    w.emit(f"{name} [{near}], {values}, [{barrier}]")


def _store(w: Writer) -> None:
    """STAS."""
    count = w.modifiers.choose(_VECTORS, 1)
    words = w.stored(w.words(w.i.operands[1], count))
    name = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
    if count == 1:
        _tell(w, f"{name}.b32", words[0])
    else:
        _tell(w, f"{name}.v{count}.b32", f"{{{', '.join(words)}}}")


def _reduce(w: Writer) -> None:
    """REDAS."""
    reduction = _reduction(w)
    given = _value(w, wide=reduction.endswith("64"))
    name = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
    _tell(w, f"{name}.{reduction}", given)


# ---- what is done some time later, and here at once ------------------------------------------

_SIZES = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64}
_NARROW = {8: "b", 16: "h"}


def _later(w: Writer) -> tuple[str, str, str]:
    """Return how far an access of global memory is told, the modifiers of its kind, and its address."""
    m = w.modifiers
    m.ignore("E", "NA", "STRONG")
    mmio, scope = m.has("MMIO"), m.choose({"GPU": "gpu", "SYS": "sys"}, "gpu")
    return scope, ".mmio" * mmio, address(w, w.i.operands[0], wide=True)


def _value(w: Writer, *, wide: bool) -> str:
    value = w.i.operands[1]
    return w.pair(value) if wide else w.stored([w.bare(value)])[0]


def _store_later(w: Writer) -> None:
    """USTGR."""
    scope, mmio, at = _later(w)
    bits = w.modifiers.choose(_SIZES, 32)
    value = _value(w, wide=bits == 64)
    if bits in _NARROW:
        value = w.made(f"cvt.u{bits}.u32", value, kind=_NARROW[bits])
    with w.once():
        w.emit(f"st.async{mmio}.release.{scope}.global.b{bits} {at}, {value}")


def _reduce_later(w: Writer) -> None:
    """UREDGR."""
    scope, mmio, at = _later(w)
    reduction = _reduction(w)
    value = _value(w, wide=reduction.endswith("64"))
    with w.once():
        w.emit(f"red.async{mmio}.release.{scope}.global.{reduction} {at}, {value}")


def _clear(w: Writer) -> None:
    """UMEMSETS: so many times eight bytes of shared memory become zero."""
    at, value, count = w.i.operands
    if not w.modifiers.has("64") or not is_zero(value):
        raise w.refused("what it writes is not modelled")
    nbytes = w.made("mul.wide.u32", w.bare(count), "8", kind="d")
    where = address(w, at, wide=False)
    with w.once():
        w.emit(f"st.bulk.weak.shared::cta {where}, {nbytes}, 0")


RULES = {
    **rules("UBLKCP", _move_bytes),
    **rules("UBLKRED", _reduce_bytes),
    **rules("STAS", _store),
    **rules("REDAS", _reduce),
    **rules("USTGR", _store_later),
    **rules("UREDGR", _reduce_later),
    **rules("UMEMSETS", _clear),
}
