"""Tensor Memory of Blackwell: products and copies that one thread has done, columns, loads and stores.

What an instruction does is read off what ptxas makes of each form of PTX's. One opcode is several kinds of
PTX: of these the descriptor of the product tells which, so all are there, each where its bits say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptxlab.machine.lift.banks import RESERVED_NAME
from ptxlab.machine.lift.rule import rules
from ptxlab.machine.lift.writer import Writer, is_zero
from ptxlab.machine.operands import Immediate, Operand, Predicate, SassAddress, SassRegister

# ---- products -------------------------------------------------------------------------------

_KINDS = {
    "UTCHMMA": ("f16", "tf32"),
    "UTCQMMA": ("f8f6f4",),
    "UTCIMMA": ("i8",),
}
_SCALED = {
    ("UTCQMMA", ""): ("mxf8f6f4.block_scale.scale_vec::1X",),
    ("UTCOMMA", ""): ("mxf4.block_scale.scale_vec::2X",),
    ("UTCOMMA", "4X"): ("mxf4nvf4.block_scale.scale_vec::4X",),
}
_SPARSE_BIT, _TYPE_OF_A, _TF32 = 2, 7, 2
"""Of the descriptor of a product: PTX ISA, "Instruction descriptor"."""

_COLLECTORS = {
    (): "",
    ("A_KEEP",): ".collector::a::fill",
    ("A_REUSE", "A_KEEP"): ".collector::a::use",
    ("A_REUSE",): ".collector::a::lastuse",
}


def _group(w: Writer) -> str:
    return f"cta_group::{2 if w.modifiers.has('2CTA') else 1}"


def _marks(w: Writer, number: int) -> tuple[str, ...]:
    return tuple(w.i.sass.operands[number].rpartition("]")[2].split(".")[1:])


def _uniform(w: Writer, operand: Operand, what: str) -> SassRegister:
    """Return the register that an operand in brackets is."""
    if (
        not isinstance(operand, SassAddress)
        or operand.what != what
        or operand.uniform is None
        or operand.base is not None
    ):
        raise w.refused("this operand is not modelled")
    return operand.uniform


def _cells(w: Writer, operand: Operand) -> str:
    """Return an address in Tensor Memory: ``[UR4+16]``."""
    name = w.bare(_uniform(w, operand, "tmem"))
    assert isinstance(operand, SassAddress)
    return f"[{w.made('mov.b32', name) if name == '0' else name}+{operand.offset}]"


def _pair(w: Writer, operand: Operand, what: str) -> str:
    uniform = _uniform(w, operand, what)
    return w.made("mov.b64", f"{{{', '.join(w.words(uniform, 2))}}}", kind="d")


def _product(w: Writer) -> None:
    i, m = w.i, w.modifiers
    group, shifted = _group(w), ".ashift" * m.has("ASHIFT")
    stationary = m.has("WS")
    a, b, d, metadata, described, *rest = i.operands
    collector = _collector_of_b(w) if stationary else _COLLECTORS.get(_marks(w, 0))
    if collector is None or _marks(w, not stationary):
        raise w.refused("what is kept of its operands is not modelled")
    scales = [o for o in rest if isinstance(o, SassAddress)]
    adds = next((o for o in rest if isinstance(o, Predicate)), None)
    others = [o for o in rest if o not in scales and o is not adds]
    if adds is None or len(scales) > 1:
        raise w.refused("its operands are not modelled")
    assert isinstance(a, SassAddress)
    first = _cells(w, a) if a.what == "tmem" else _pair(w, a, "gdesc")
    what = w.bare(_uniform(w, described, "idesc"))
    behind = [w.straight(w.given(adds))]
    for other in others:
        if isinstance(other, Immediate):
            behind.append(str(other.value))
        elif isinstance(other, SassRegister) and stationary:
            behind.append(w.pair(other))
        elif isinstance(other, SassRegister) and not scales:
            lanes = w.words(other, 8 if group.endswith("2") else 4)
            behind.insert(0, f"{{{', '.join(w.stored(lanes))}}}")
        else:
            raise w.refused("its operands are not modelled")
    second = _pair(w, b, "gdesc")
    for kind, sparse, holds in _variants(w, what, bool(scales)):
        name = f"tcgen05.mma{'.ws' * stationary}{'.sp' * sparse}.{group}.kind::{kind}{shifted}{collector}"
        parts = [_cells(w, d), first, second]
        parts += [_cells(w, metadata)] * sparse + [what]
        for scale in scales:
            low, high = w.words(_uniform(w, scale, "tmem"), 2)
            parts += [f"[{low}]", f"[{high}]"]
        with w.once(holds):
            w.emit(f"{name} {', '.join([*parts, *behind])}")


_COLLECTED = {(): "", ("B_KEEP",): "fill", ("B_REUSE", "B_KEEP"): "use", ("B_REUSE",): "lastuse"}


def _collector_of_b(w: Writer) -> str | None:
    """Return which buffer of B is filled or used, and how."""
    marks = _marks(w, 1)
    buffers = [mark for mark in marks if mark.startswith("BUFFER")]
    what = _COLLECTED.get(tuple(mark for mark in marks if mark not in buffers))
    number = buffers[0].removeprefix("BUFFER") if buffers else "0"
    if what is None:
        return None
    return f".collector::b{number}::{what or 'discard'}" if marks else ""


def _variants(w: Writer, what: str, scaled: bool) -> Iterator[tuple[str, bool, str]]:
    """Yield kinds of products, whether they are sparse, and the predicate that says that it is this one."""
    opcode, m = w.i.sass.opcode, w.modifiers
    key = (opcode, "4X" if m.has("4X") else "")
    kinds = _SCALED.get(key, ()) if scaled else _KINDS.get(opcode, ())
    if not kinds:
        raise w.refused("no product of PTX is this one")
    bit = w.made("and.b32", what, str(1 << _SPARSE_BIT))
    types = w.made("bfe.u32", what, str(_TYPE_OF_A), "3")
    for sparse in (False, True):
        told = w.made(f"setp.{'ne' if sparse else 'eq'}.u32", bit, "0", kind="q")
        for kind in kinds:
            if len(kinds) == 1:
                yield kind, sparse, told
                continue
            compare = "eq" if kind == "tf32" else "ne"
            of_type = w.made(f"setp.{compare}.u32", types, str(_TF32), kind="q")
            yield kind, sparse, w.made("and.pred", told, of_type, kind="q")


# ---- copies, and when all is done -----------------------------------------------------------

_COPIES = {
    "4dp256bit": "4x256b",
    "128dp128bit": "128x128b",
    "2x64dp128bit_lw02_lw13": "64x128b.warpx2::02_13",
    "2x64dp128bit_lw01_lw23": "64x128b.warpx2::01_23",
    "4x32dp128bit": "32x128b.warpx4",
}
_PACKED = {"U6x16P32": ".b8x16.b6x16_p32", "U4x16P64": ".b8x16.b4x16_p64"}


def _copy(w: Writer) -> None:
    m = w.modifiers
    m.ignore("T", "S")
    group, shape, packed = _group(w), m.choose(_COPIES, "128x256b"), m.choose(_PACKED, "")
    to, source = w.i.operands
    parts = _cells(w, to), _pair(w, source, "gdesc")
    with w.once():
        w.emit(f"tcgen05.cp.{group}.{shape}{packed} {', '.join(parts)}")


def _shift(w: Writer) -> None:
    group = _group(w)
    w.modifiers.ignore("DOWN")
    with w.once():
        w.emit(f"tcgen05.shift.{group}.down {_cells(w, w.i.operands[0])}")


def _commit(w: Writer) -> None:
    """UTCBAR: an mbarrier is told, or those of several CTAs."""
    group, (at, other, *more) = _group(w), w.i.operands
    barrier = w.bare(_uniform(w, at, ""))
    if not is_zero(other):
        raise w.refused("its operands are not modelled")
    name = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
    text = f"[{barrier}]"
    if w.modifiers.has("MULTICAST"):
        mask = w.made("cvt.u16.u32", w.bare(more[0]), kind="h")
        name, text = f"{name}.multicast::cluster", f"{text}, {mask}"
    with w.once():
        w.emit(f"{name}.b64 {text}")


# ---- columns --------------------------------------------------------------------------------


_PAIR = (
    "mov.u32 rest, %tid.x;",
    "setp.eq.u32 begins, rest, 0;",
    f"@begins mbarrier.init.shared::cta.b64 [{RESERVED_NAME}+0x48], 1;",
    "mov.u32 rest, %cluster_ctarank;",
    "not.b32 rest, rest;",
    "and.b32 rest, rest, 1;",
    f"@begins st.shared.b32 [{RESERVED_NAME}+0x50], rest;",
)
"""What the CTAs of a pair find in the shared memory that is reserved: an mbarrier that tells of columns that were taken.

And the parity that each waits for first, which nobody documents: with no other does their exchange begin.
"""


def _columns(w: Writer) -> None:
    """UTCATOMSWS: columns are looked for and taken, or given back."""
    m, group = w.modifiers, _group(w)
    if m.has("FIND_AND_SET"):
        m.ignore("ALIGN")
        success, to, count = w.i.operands
        assert isinstance(success, Predicate)
        if group.endswith("2"):
            w.first |= dict.fromkeys(_PAIR)
        asked, taken = w.bare(count), w.temporary("q")
        at = w.temporary("w")
        w.emit(f"columns.find.{group} {at}|{taken}, {asked}")
        w.emit(f"mov.b32 {w.dest(to)}, {at}")
        w.tell(success, taken)
    elif m.has("AND") and is_zero(w.i.operands[0]):
        w.emit(f"columns.give {w.bare(w.i.operands[1])}")
    else:
        raise w.refused("what it does to columns is not modelled")


# ---- loads and stores -----------------------------------------------------------------------

_SHAPE = re.compile(r"(?P<lanes>\d+)dp(?P<bits>\d+)bit(?P<half>_t0_t15|_t16_t31)?$")


def _moved(w: Writer) -> tuple[str, int, str]:
    """Return what PTX calls the shape with its repetitions, how many registers that is, and which half of the lanes."""
    m = w.modifiers
    times = next((name for name in m.names if re.fullmatch(r"x\d+", name)), "x1")
    match = next(filter(None, map(_SHAPE.match, m.names)), None)
    m.ignore(times, match[0] if match else "")
    count = int(times[1:])
    if match is None:
        return f"32x32b.{times}", count, ""
    lanes, bits = int(match["lanes"]), int(match["bits"])
    if match["half"]:
        return f"16x32bx2.{times}", count, match["half"]
    return f"{lanes}x{bits}b.{times}", count * lanes * bits // 1024, ""


def _load(w: Writer) -> None:
    """LDTM, of which what only half of the lanes load is chosen behind it."""
    shape, count, half = _moved(w)
    at = _cells(w, w.i.operands[1])
    registers = w.row(w.i.operands[0], count)
    if not half:
        w.emit(f"tcgen05.ld.sync.aligned.{shape}.b32 {{{', '.join(registers)}}}, {at}")
        return
    loaded = [w.temporary("w") for _ in registers]
    w.emit(f"tcgen05.ld.sync.aligned.{shape}.b32 {{{', '.join(loaded)}}}, {at}, 0")
    compare = "lt" if half == "_t0_t15" else "ge"
    lane = w.made("mov.u32", "%laneid")
    mine = w.made(f"setp.{compare}.u32", lane, "16", kind="q")
    for name, value in zip(registers, loaded, strict=True):
        w.emit(f"selp.b32 {name}, {value}, {name}, {mine}")


def _store(w: Writer) -> None:
    """STTM: where only half of the lanes store, each of the others stores the same at the same place."""
    shape, count, half = _moved(w)
    at, source = _cells(w, w.i.operands[0]), w.i.operands[1]
    words, split = w.stored(w.words(source, count)), ""
    if half:
        lane = w.made("and.b32", w.made("mov.u32", "%laneid"), "15")
        if half == "_t16_t31":
            lane = w.made("add.u32", lane, "16")
        words, split = (
            [w.made("shfl.sync.idx.b32", word, lane, "31", "-1") for word in words],
            "0, ",
        )
    w.emit(f"tcgen05.st.sync.aligned.{shape}.b32 {at}, {split}{{{', '.join(words)}}}")


# ---- the work of other CTAs ------------------------------------------------------------------


def _next_work(w: Writer) -> None:
    """UGETNEXTWORKID."""
    to, barrier = (w.bare(_uniform(w, operand, "")) for operand in w.i.operands)
    every = ".multicast::cluster::all" * w.modifiers.has("BROADCAST")
    w.modifiers.ignore("SELFCAST")
    name = f"clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{every}"
    with w.once():
        w.emit(f"{name}.b128 [{to}], [{barrier}]")


RULES = {
    **rules("UTCHMMA UTCQMMA UTCIMMA UTCOMMA", _product),
    **rules("UTCCP", _copy),
    **rules("UTCSHIFT", _shift),
    **rules("UTCBAR", _commit),
    **rules("UTCATOMSWS", _columns),
    **rules("UVIRTCOUNT", lambda w: w.modifiers.ignore(*w.modifiers.names)),
    **rules("LDTM", _load),
    **rules("STTM", _store),
    **rules("UGETNEXTWORKID", _next_work),
}
