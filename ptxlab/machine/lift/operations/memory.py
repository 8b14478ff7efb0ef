"""Loads, stores and atomics of all spaces, matrices of shared memory, copies, and what orders them."""

from __future__ import annotations

import re

from ptxlab.machine.control import scoreboards
from ptxlab.machine.lift.rule import Rule, rules
from ptxlab.machine.lift.writer import TRUE, Writer, is_zero, register
from ptxlab.machine.operands import ZERO_REGISTER, Operand, Predicate, SassAddress, SassRegister

_HINTS = (
    "E", "EL", "EF", "EU", "LU", "EN", "EFL2", "ELL2", "ENL2", "NA", "CONSTANT", "PRIVATE", "WEAK", "MMIO", "LTC64B", "LTC128B",
    "LTC256B", "U", "DEFER_BLOCKING", "SPARSE",
)  # fmt: skip
"""What changes nothing about a value: widths of addresses, what caches keep."""

_SCOPES = {"CTA": "cta", "SM": "cta", "VC": "cta", "GPU": "gpu", "SYS": "sys"}
_PARTS = {"U8": "u8", "S8": "s8", "U16": "u16", "S16": "s16"}
_WORDS = {"64": 2, "128": 4}


def address(w: Writer, operand: Operand, *, wide: bool) -> str:
    """Return an address as PTX writes it: ``[d0+16]``."""
    if not isinstance(operand, SassAddress) or operand.what:
        raise w.refused("this address is not modelled")
    parts: list[str] = []
    base, uniform = operand.base, operand.uniform
    if base is not None and not is_zero(base):
        parts.append(_base(w, operand, wide=wide))
    if uniform is not None and not is_zero(uniform):
        alone = base is None or not base.wide or is_zero(base)
        if wide and (uniform.wide or alone or not w.target.runs("sm_80")):
            parts.append(w.pair(uniform))
        elif wide:
            raise w.refused("a distance in a uniform register is not modelled")
        else:
            parts.append(w.bare(uniform))
    kind, operation = ("d", "add.u64") if wide else ("w", "add.u32")
    if not parts:
        return f"[{w.made('mov.b64' if wide else 'mov.b32', '0', kind=kind)}+{operand.offset}]"
    total = parts[0]
    for part in parts[1:]:
        total = w.made(operation, total, part, kind=kind)
    return f"[{total}+{operand.offset}]"


def _base(w: Writer, operand: SassAddress, *, wide: bool) -> str:
    """Return the register of an address, scaled: a pair, or 32 bits beside a uniform pointer."""
    base = operand.base
    assert base is not None
    if not wide:
        word = w.bare(base)
        return w.made("mul.lo.u32", word, str(operand.scale)) if operand.scale > 1 else word
    if operand.scale > 1:
        raise w.refused("a scaled register in a wide address is not modelled")
    if base.wide or operand.uniform is None:
        return w.pair(base)
    sign = "s" if "S32" in base.marks else "u"
    return w.made(f"cvt.{sign}64.{sign}32", w.bare(base), kind="d")


def _order(w: Writer) -> str:
    m = w.modifiers
    if m.has("STRONG"):
        return f".relaxed.{m.choose(_SCOPES, 'gpu')}"
    return ""


def _access_order(w: Writer) -> str:
    """Return the order of a load or a store. sm_75 names a scope where there is none, as in LDG.E.SYS."""
    order = _order(w)
    if not order:
        w.modifiers.ignore(*_SCOPES)
    return order


def _space(w: Writer, space: str) -> tuple[str, bool]:
    """Return how PTX names a space, and whether its addresses have 64 bits."""
    return ("" if space == "generic" else f".{space}"), space in ("global", "generic")


def _load(space: str) -> Rule:
    def lift(w: Writer) -> None:
        m = w.modifiers
        m.ignore(*_HINTS)
        name, wide = _space(w, space)
        if w.outs:
            raise w.refused("whether it loads is not modelled")
        sources = [s for s in w.i.sources if isinstance(s, SassAddress)]
        if len(sources) != 1 or any(w.given(p) != TRUE for p in w.i.ins):
            raise w.refused("its operands are not modelled")
        order = _access_order(w)
        at = address(w, sources[0], wide=wide)
        if m.has("256"):
            w.emit(f"ld{order}{name}.v8.b32 {{{', '.join(_both_rows(w))}}}, {at}")
            return
        part, count = m.choose(_PARTS, "b32"), m.choose(_WORDS, 1)
        registers = w.row(w.i.dest, count)
        vector = "" if count == 1 else f".v{count}"
        data = registers[0] if count == 1 else f"{{{', '.join(registers)}}}"
        w.emit(f"ld{order}{name}{vector}.{part} {data}, {at}")

    return lift


def _both_rows(w: Writer) -> list[str]:
    """Return the eight registers of a load, of which a mask may leave words out."""
    return [
        w.temporary("w") if number == ZERO_REGISTER else w.name(register(number))
        for number in w.i.loaded
    ]


def _store(space: str) -> Rule:
    def lift(w: Writer) -> None:
        m = w.modifiers
        m.ignore(*_HINTS)
        name, wide = _space(w, space)
        to, value, *rest = w.i.operands
        halves = m.has("256")
        if len(rest) != halves:
            raise w.refused("its operands are not modelled")
        order = _access_order(w)
        at = address(w, to, wide=wide)
        if halves:
            both = w.stored([word for half in (value, *rest) for word in w.words(half, 4)])
            w.emit(f"st{order}{name}.v8.b32 {at}, {{{', '.join(both)}}}")
            return
        part, count = m.choose(_PARTS, "b32"), m.choose(_WORDS, 1)
        part = part.replace("s", "u")
        words = w.stored(w.words(value, count))
        vector = "" if count == 1 else f".v{count}"
        data = words[0] if count == 1 else f"{{{', '.join(words)}}}"
        w.emit(f"st{order}{name}{vector}.{part} {at}, {data}")

    return lift


# ---- atomics --------------------------------------------------------------------------------

_OPERATIONS = {
    "ADD": "add", "MIN": "min", "MAX": "max", "INC": "inc", "DEC": "dec", "AND": "and", "OR": "or",
    "XOR": "xor", "EXCH": "exch", "CAS": "cas",
}  # fmt: skip
_KINDS = {
    "U32": "u32", "S32": "s32", "U64": "u64", "S64": "s64", "64": "b64", "F32": "f32", "F64": "f64",
    "F16x2": "f16x2", "BF16x2": "bf16x2", "BF16_V2": "bf16x2", "32": "b32", "128": "b128",
    "F32x2": "v2.f32", "F32x4": "v4.f32", "F16x4": "v2.f16x2", "F16x8": "v4.f16x2",
    "BF16x4": "v2.bf16x2", "BF16x8": "v4.bf16x2",
}  # fmt: skip
_VECTOR = re.compile(r"v(?P<count>[24])\.")


def _kind(w: Writer, operation: str) -> str:
    """Return the type of an atomic operation as PTX names it."""
    usual = "u32" if operation in ("add", "min", "max", "inc", "dec") else "b32"
    kind = w.modifiers.choose(_KINDS, usual)
    if operation in ("and", "or", "xor", "exch", "cas"):
        return f"b{32 * _registers(kind)}"
    return {"b64": "u64", "b32": "u32", "s64": "u64" if operation == "add" else "s64"}.get(
        kind, kind
    )


def _registers(kind: str) -> int:
    """Return how many registers a type takes, or a vector."""
    if vector := _VECTOR.match(kind):
        return int(vector["count"])
    return {"64": 2, "28": 4}.get(kind[-2:], 1)


def _noftz(kind: str) -> str:
    return ".noftz" if kind.endswith("f16x2") else ""


def _atomic(space: str) -> Rule:
    def lift(w: Writer) -> None:
        m, i = w.modifiers, w.i
        m.ignore(*_HINTS, "RN", "FTZ")
        name, wide = _space(w, space)
        if m.has("POPC"):
            _counted(w, name)
            return
        if m.has("ARRIVE"):
            _arrive(w, name)
            return
        if m.has("CAST"):
            _cast(w, name)
            return
        operation = m.choose(_OPERATIONS, "")
        if not operation:
            raise w.refused("this atomic operation is not modelled")
        kind = _kind(w, operation)
        count = _registers(kind)
        if w.outs and operation == "cas":
            raise w.refused("whether it exchanged is not modelled")
        order = _order(w)
        operands = [o for o in i.operands if not isinstance(o, Predicate)]
        result = w.row(operands[0], count)
        at = address(w, operands[1], wide=wide)
        given = [_given(w, operand, kind) for operand in operands[2:]]
        wanted = 2 if operation == "cas" else 1
        if operation == "cas" and len(given) == 1:
            given = _both_of(w, operands[2], count)
        if len(given) != wanted:
            raise w.refused("its operands are not modelled")
        text = f"atom{order}{name}.{operation}{_noftz(kind)}.{kind}"
        values = f"{at}, {', '.join(given)}"
        if _VECTOR.match(kind):
            w.emit(f"{text} {{{', '.join(result)}}}, {values}")
        elif count == 4:
            halves = [w.temporary("d") for _ in range(2)]
            w.emit(f"mov.b128 {{{', '.join(halves)}}}, {w.made(text, values, kind='x')}")
            for half, words in zip(halves, (result[:2], result[2:]), strict=True):
                w.emit(f"mov.b64 {{{', '.join(words)}}}, {half}")
        elif count == 2:
            w.write_pair(w.made(text, values, kind="d"), operands[0])
        else:
            w.emit(f"{text} {result[0]}, {values}")
        for out in w.outs:  # whether it was done: elsewhere than in global memory others do it behind, and here it is
            w.tell(out, TRUE)

    return lift


def _given(w: Writer, operand: Operand, kind: str) -> str:
    """Return what an atomic operation is given, as its type has it."""
    count = _registers(kind)
    if count > 2 or _VECTOR.match(kind):
        words = w.stored(w.words(operand, count))
        if _VECTOR.match(kind):
            return f"{{{', '.join(words)}}}"
        halves = [w.made("mov.b64", f"{{{words[n]}, {words[n + 1]}}}", kind="d") for n in (0, 2)]
        return w.made("mov.b128", f"{{{', '.join(halves)}}}", kind="x")
    if count == 2:
        pair = w.pair(operand)
        return pair if pair[0] == "d" else w.made("mov.b64", pair, kind="d")
    return w.bare(operand)


def _both_of(w: Writer, first: Operand, count: int) -> list[str]:
    """Return what a CAS compares with and puts there, which follow each other in registers."""
    if not isinstance(first, SassRegister):
        raise w.refused("its operands are not modelled")
    words = w.words(first, 2 * count)
    if count == 1:
        return words
    return [w.made("mov.b64", f"{{{words[n]}, {words[n + 1]}}}", kind="d") for n in (0, 2)]


def _counted(w: Writer, space: str) -> None:
    """ATOMS.POPC.INC.32: each lane adds one, and the result is not asked for."""
    m, i = w.modifiers, w.i
    m.ignore("INC", "32")
    if not is_zero(i.dest):
        raise w.refused("the result of a counted increment is not modelled")
    w.emit(f"red{space}.add.u32 {address(w, i.sources[0], wide=False)}, 1")


def _cast(w: Writer, space: str) -> None:
    """ATOMS.CAST.SPIN: compare and swap, of which the result is whether it swapped."""
    w.modifiers.ignore("SPIN")
    to, at, compared, value = w.i.operands
    count = w.modifiers.choose(_WORDS, 1)
    if count > 2:
        raise w.refused("its operands are not modelled")
    kind = f"b{32 * count}"
    wanted = _given(w, compared, kind)
    before = w.made(
        f"atom{space}.cas.{kind}",
        address(w, at, wide=False),
        wanted,
        _given(w, value, kind),
        kind="wd"[count - 1],
    )
    same = w.made(f"setp.eq.{kind}", before, wanted, kind="q")
    w.emit(f"selp.b32 {w.dest(to)}, 1, 0, {same}")


def _arrive(w: Writer, space: str) -> None:
    """ATOMS.ARRIVE.64: how an mbarrier is told before Hopper, where its state is a word of memory as any other."""
    w.modifiers.ignore("64")
    to, at = w.i.operands
    w.write_pair(w.made(f"atom{space}.arrive.b64", address(w, at, wide=False), "1", kind="d"), to)


def _arrive_behind_copies(w: Writer) -> None:
    """ARRIVES: an arrival when the copies of this thread have landed; on sm_80 they are waited for at once."""
    m = w.modifiers
    m.ignore("LDGSTSBAR", "64")
    at = address(w, w.i.operands[0], wide=False)
    if not w.target.runs("sm_90"):
        w.emit("cp.async.wait_all")
        w.made("atom.shared.arrive.b64", at, "1", kind="d")
    elif m.has("ARVCNT"):
        w.emit(f"cp.async.mbarrier.arrive.noinc.shared::cta.b64 {at}")
    elif not m.has("TRANSCNT"):  # which ends what SYNCS.ARRIVE.A0T1 began
        raise w.refused("what it does to an mbarrier is not modelled")


def _reduce(space: str) -> Rule:
    def lift(w: Writer) -> None:
        m, i = w.modifiers, w.i
        m.ignore(*_HINTS, "RN", "FTZ")
        name, wide = _space(w, space)
        operation = m.choose(_OPERATIONS, "")
        if not operation:
            raise w.refused("this reduction is not modelled")
        kind = _kind(w, operation)
        order = _order(w)
        at = address(w, i.operands[0], wide=wide)
        text = f"red{order}{name}.{operation}{_noftz(kind)}.{kind}"
        w.emit(f"{text} {at}, {_given(w, i.operands[1], kind)}")

    return lift


# ---- matrices and copies --------------------------------------------------------------------


_SHAPES = {"M88": "m8n8", "MT88": "m8n8", "M816": "m8n16", "MT1616": "m16n16", "MT168": "m16n8"}
_PACKED = {
    "U6x16P32TO8": "b8x16.b6x16_p32",
    "U4x16P64TO8": "b8x16.b4x16_p64",
    "8": "b8",
    "16": "b16",
}


def _matrices(w: Writer) -> tuple[str, int]:
    """Return what PTX calls the matrices that are meant, and how many registers they are."""
    m = w.modifiers
    count = m.choose({"4": 4, "2": 2, "1": 1}, 1)
    name, kind = next((n for n in m.names if n in _SHAPES), ""), m.choose(_PACKED, "")
    m.ignore(name)
    if not name or not kind:
        raise w.refused("this shape of matrix is not modelled")
    trans = ".trans" * name.startswith("MT")
    halves = 2 if name == "MT1616" else 1
    return f"sync.aligned.{_SHAPES[name]}.x{count}{trans}.shared.{kind}", count * halves


def _load_matrices(w: Writer) -> None:
    name, count = _matrices(w)
    at = address(w, w.i.sources[0], wide=False)
    w.emit(f"ldmatrix.{name} {{{', '.join(w.row(w.i.dest, count))}}}, {at}")


def _store_matrices(w: Writer) -> None:
    name, count = _matrices(w)
    at = address(w, w.i.operands[0], wide=False)
    words = w.stored(w.words(w.i.operands[1], count))
    w.emit(f"stmatrix.{name} {at}, {{{', '.join(words)}}}")


def _transpose(w: Writer) -> None:
    m = w.modifiers
    m.ignore("16")
    [word] = w.stored([w.word(w.i.sources[0])])
    if m.has("U4TO8") and m.has("M832"):
        _widen(w, word)
        return
    if not m.has("MT88"):
        raise w.refused("this shape of matrix is not modelled")
    w.emit(f"movmatrix.sync.aligned.m8n8.trans.b16 {w.dest()}, {word}")


def _widen(w: Writer, word: str) -> None:
    """MOVM.U4TO8: eight rows of 32 numbers of 4 bits become bytes, each where a product of bytes has it.

    A lane has eight numbers of a row, of which four lanes have 32; of bytes it has four of each half of the row.
    That it is these is read off what ptxas makes of products of bits, which any order of the columns leaves right.
    """
    lane = w.made("mov.u32", "%laneid")
    row = w.made("and.b32", lane, "28")
    other = w.made("and.b32", w.made("shr.u32", lane, "1"), "1")
    upper = w.made("shl.b32", w.made("and.b32", lane, "1"), "4")
    bytes_ = []
    for half in range(2):
        origin = w.made("add.u32", w.made("or.b32", row, other), str(2 * half))
        four = w.made("shr.u32", w.made("shfl.sync.idx.b32", word, origin, "31", "-1"), upper)
        even = w.made("prmt.b32", w.made("and.b32", four, "0x0f0f"), "0", "0x4140")
        odd = w.made("prmt.b32", w.made("and.b32", four, "0xf0f0"), "0", "0x4140")
        bytes_.append(w.made("mad.lo.u32", odd, "16", even))
    for to, value in zip(w.row(w.i.dest, 2), bytes_, strict=True):
        w.emit(f"mov.b32 {to}, {value}")


def _copy(w: Writer) -> None:
    """LDGSTS: copied to shared memory, where a predicate does not hold as zeros."""
    m = w.modifiers
    m.ignore(*_HINTS, "ZFILL")
    bypasses = m.has("BYPASS")
    size = m.choose({"64": 8, "128": 16}, 4)
    addresses = [o for o in w.i.operands if isinstance(o, SassAddress)]
    predicates = [o for o in w.i.operands if isinstance(o, Predicate)]
    if len(addresses) != 2 or len(predicates) > 1 or m.has("U8", "U16"):
        raise w.refused("its operands are not modelled")
    to, source = address(w, addresses[0], wide=False), address(w, addresses[1], wide=True)
    level = "cg" if bypasses and size == 16 else "ca"
    text = f"cp.async.{level}.shared.global {to}, {source}, {size}"
    if predicates and w.given(predicates[0]) != TRUE:
        copied = w.source(w.given(predicates[0]))
        ones = ("0", str(size)) if copied[0] == "!" else (str(size), "0")
        text += f", {w.made('selp.b32', *ones, copied.lstrip('!'))}"
    w.emit(text)


def _close_group(w: Writer) -> None:
    w.emit("cp.async.commit_group")


def _await_group(w: Writer) -> None:
    """DEPBAR: scoreboard 0 counts groups of copies; the others are those of registers."""
    m, operands = w.modifiers, w.i.sass.operands
    m.ignore("LE")
    left = int(operands[1], 0) if operands[0] == "SB0" else None
    if any(0 in scoreboards(operand) for operand in operands):
        left = 0
    if left is not None:
        w.emit(f"cp.async.wait_group {left}")
        if w.target.runs("sm_90"):  # bulk copies are counted there too
            w.emit(f"cp.async.bulk.wait_group {left}")


# ---- order ----------------------------------------------------------------------------------


def _fence(w: Writer) -> None:
    m = w.modifiers
    scope = m.choose(_SCOPES, "gpu")
    strength = "sc" if m.has("SC") else "acq_rel"
    m.ignore("ALL")
    w.emit(f"fence.{strength}.{scope}")


def _async_fence(w: Writer) -> None:
    m = w.modifiers
    m.ignore("VIEW", "ASYNC", "S", "G")
    if not w.target.runs("sm_90"):
        raise w.refused("there are no proxies before sm_90")
    # Before Tensor Memory is read again: what is stored there has come.
    w.emit("tcgen05.wait::st.sync.aligned" if m.has("T") else "fence.proxy.async")


_SPACES = {"L": "local", "S": "shared", "G": "global", "D": "shared::cluster"}


def _space_of(w: Writer) -> None:
    """QSPC: whether a generic address is of a space."""
    m, i = w.modifiers, w.i
    m.ignore("E")
    space = m.choose(_SPACES, "")
    at = i.operands[-1]
    if not space or not isinstance(at, SassAddress):
        raise w.refused("which space it asks for is not modelled")
    total = str(at.offset)
    if at.base is not None and not is_zero(at.base):
        total = w.made("add.u64", _base(w, at, wide=True), total, kind="d")
    if at.uniform is not None and not is_zero(at.uniform):
        total = w.made("add.u64", w.pair(at.uniform), total, kind="d")
    w.tell(i.outs[0], w.made(f"isspacep.{space}", *w.stored([total]), kind="q"))


def _nothing(w: Writer) -> None:
    """What changes nothing here: all see the same memory at all times."""
    w.modifiers.ignore(*w.modifiers.names)


RULES = {
    **rules("LDG", _load("global")),
    **rules("STG", _store("global")),
    **rules("LDS", _load("shared")),
    **rules("STS", _store("shared")),
    **rules("LDL", _load("local")),
    **rules("STL", _store("local")),
    **rules("LD", _load("generic")),
    **rules("ST", _store("generic")),
    **rules("ATOMG", _atomic("global")),
    **rules("ATOM", _atomic("generic")),
    **rules("ATOMS", _atomic("shared")),
    **rules("ARRIVES", _arrive_behind_copies),
    **rules("RED", _reduce("generic")),
    **rules("REDG", _reduce("global")),
    **rules("LDSM", _load_matrices),
    **rules("STSM", _store_matrices),
    **rules("MOVM", _transpose),
    **rules("LDGSTS", _copy),
    **rules("LDGDEPBAR", _close_group),
    **rules("DEPBAR", _await_group),
    **rules("MEMBAR", _fence),
    **rules("FENCE", _async_fence),
    **rules("QSPC", _space_of),
    **rules("ERRBAR CGAERRBAR CCTL", _nothing),
}
