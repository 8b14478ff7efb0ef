"""What brings a value into a register, and predicates: comparisons, choices, logic, bits of a word."""

from __future__ import annotations

from ptxlab.machine.launch import WINDOW
from ptxlab.machine.lift.rule import rules
from ptxlab.machine.lift.writer import FALSE, TRUE, Writer, is_true, predicate_name
from ptxlab.machine.operands import (
    TRUE_PREDICATE,
    UNIFORM_PREDICATE,
    Immediate,
    Operand,
    Predicate,
    SassConstant,
    SassName,
    SassRegister,
)

_COMPARISONS = {name: name.lower() for name in ("LT", "EQ", "LE", "GT", "NE", "GE")}
CERTAIN = {"F": FALSE, "T": TRUE}
HOW = {"AND": "and", "OR": "or", "XOR": "xor"}

_SPECIAL = {
    **{f"SR_TID.{axis}": f"%tid.{axis.lower()}" for axis in "XYZ"},
    **{f"SR_CTAID.{axis}": f"%ctaid.{axis.lower()}" for axis in "XYZ"},
    **{f"SR_{name}MASK": f"%lanemask_{name.lower()}" for name in ("EQ", "LT", "LE", "GT", "GE")},
    "SR_LANEID": "%laneid",
    "SR_CgaCtaId": "%cluster_ctarank",
    "SR_CLOCKLO": "%clock",
    "SR_CLOCKHI": "%clock_hi",
    "SR_GLOBALTIMERLO": "%globaltimer_lo",
    "SR_GLOBALTIMERHI": "%globaltimer_hi",
    "SR_VIRTUALSMID": "%smid",
    "SR_VIRTID": "%smid",
}


def _move(w: Writer) -> None:
    source = w.i.sources[0]
    if w.modifiers.has("64"):
        value = w.pair(source, signed=True)
        w.write_pair(value if value[0] == "d" else w.made("mov.b64", value, kind="d"))
        return
    if len(w.i.sources) > 1 and w.i.sources[1] != Immediate(15, 15.0):
        raise w.refused("a move of some lanes is not modelled")
    w.modifiers.ignore("SPILL")
    w.emit(f"mov.b32 {w.dest()}, {w.word(source)}")


def _special(w: Writer) -> None:
    source = w.i.sources[0]
    name = source.text if isinstance(source, SassName) else ""
    count = 1 if w.modifiers.has("32") or w.i.sass.opcode in ("S2R", "S2UR") else 2
    if name in (
        "SRZ",
        "SR_CgaSize",
    ):  # of the latter only how it leads to a word of bank 0 is known
        for to in w.row(w.i.dest, count):
            w.emit(f"mov.b32 {to}, 0")
    elif name in ("SR_CLOCKLO", "SR_GLOBALTIMERLO") and count == 2:
        whole = {"SR_CLOCKLO": "%clock64", "SR_GLOBALTIMERLO": "%globaltimer"}[name]
        w.write_pair(w.made("mov.u64", whole, kind="d"))
    elif name == "SR_SWINHI":
        w.emit(f"mov.b32 {w.dest()}, {w.constant(SassConstant(0, WINDOW + 4))}")
    elif name == "SR_CgaCtaId" and not w.target.runs("sm_90"):
        w.emit(f"mov.b32 {w.dest()}, 0")
    elif name in _SPECIAL and count == 1:
        w.emit(f"mov.u32 {w.dest()}, {_SPECIAL[name]}")
    else:
        raise w.refused(f"special register {name} is not modelled")


def _kept(w: Writer) -> None:
    """RPCMOV: to a half of the register that keeps where a program counter is, and from there."""
    w.modifiers.ignore("32")
    w.emit(f"mov.b32 {w.dest()}, {w.word(w.i.sources[0])}")


def _load_constant(w: Writer) -> None:
    """LDC and its kin."""
    source = w.i.sources[0]
    if not isinstance(source, SassConstant):
        raise w.refused("what it loads is not modelled")
    part = w.modifiers.choose(
        {"U8": ("u", 8), "S8": ("s", 8), "U16": ("u", 16), "S16": ("s", 16)}, ("", 32)
    )
    count = w.modifiers.choose({"64": 2, "128": 4}, 1)
    w.modifiers.ignore("U", "IL", "IS", "ISL")
    if part[1] < 32 and source.register is not None:
        index = w.bare(source.register)
        kind = f"{part[0]}{part[1]}"
        w.emit(f"mov.b32 {w.dest()}, {w.banks.indexed(w, source.bank, source.offset, index, kind)}")
        return
    if part[1] < 32:
        offset = source.offset & 3
        word = w.constant(source, -offset)
        w.emit(f"bfe.{part[0]}32 {w.dest()}, {word}, {8 * offset}, {part[1]}")
        return
    words = [w.constant(source, 4 * n) for n in range(count)]
    for to, word in zip(w.row(w.i.dest, count), words, strict=True):
        w.emit(f"mov.b32 {to}, {word}")


def _uniform(w: Writer) -> None:
    """R2UR: what the first of the lanes holds; a predicate says of each whether it holds something else.

    That it is so follows from the loops that ptxas makes: lanes of which it holds go round again. Without a guard
    it is asked of the mask of a vote or shuffle, and holds those back of whom BRA.DIV asks whether they are all.
    """
    i, guard = w.i, w.i.guard
    *outs, to, source = i.operands
    w.modifiers.ignore("BROADCAST", "FILL")
    joined = w.modifiers.has("OR")
    value, held = w.word(source), w.dest(to)
    if not outs and (guard is None or is_true(guard)):
        w.emit(f"mov.b32 {held}, {value}")
        return
    with w.for_all():
        _of_first(w, held, value, w.source(w.given(guard) if guard else TRUE))
    for out in outs:
        assert isinstance(out, Predicate)
        other = w.made("setp.ne.b32", value, held, kind="q")
        w.tell(out, w.either(other, w.given(out)) if joined else other)
        w.strangers.add(out.number)


def _of_first(w: Writer, to: str, value: str, condition: str) -> None:
    """Have all lanes that are here hold what the first one has of those for which a condition holds."""
    here = w.made("activemask.b32")
    lanes = w.made("vote.sync.ballot.b32", condition, here)
    first = w.made("clz.b32", w.made("brev.b32", lanes))
    told = w.made("shfl.sync.idx.b32", *w.stored([value]), first, "31", here)
    some = w.made("setp.ne.u32", lanes, "0", kind="q")
    w.unguarded(f"@{some} mov.b32 {to}, {told}")


# ---- comparisons ----------------------------------------------------------------------------


def compared(w: Writer, holds: str, other: str, how: str) -> None:
    """Write what a comparison found, and its opposite, combined with a predicate."""
    values = [w.combined(value, other, how) for value in (holds, w.negation(holds))]
    for out, value in zip(w.i.outs, values, strict=False):
        w.tell(out, value)


def _compare(w: Writer) -> None:
    i, m = w.i, w.modifiers
    kind = m.choose({"U32": "u32", "U64": "u64", "S64": "s64", "64": "s64"}, "s32")
    m.ignore("S32")
    name, how = m.choose(_COMPARISONS, ""), m.choose(HOW, "and")
    certain = m.choose(CERTAIN, "")
    ins = [w.given(predicate) for predicate in i.ins]
    other = ins[0] if ins else TRUE
    if certain:
        compared(w, certain, other, how)
        return
    if not name:
        raise w.refused("what it compares is not modelled")
    if kind.endswith("64"):
        a, b = (w.pair(source, signed=True) for source in i.sources)
    else:
        a, b = (w.word(source) for source in i.sources)
    if m.has("EX"):
        equal = w.made(f"setp.eq.{kind}", a, b, kind="q")
        lower = ins[1] if len(ins) > 1 else TRUE
        if name in ("eq", "ne"):
            holds = w.both(equal, lower) if name == "eq" else w.either(w.negation(equal), lower)
        else:
            strict = w.made(f"setp.{name[0]}t.{kind}", a, b, kind="q")
            holds = w.either(strict, w.both(equal, lower))
        compared(w, holds, other, how)
        return
    settle(w, f"setp.{name}", kind, a, b, other, how)


def settle(w: Writer, operation: str, kind: str, a: str, b: str, other: str, how: str) -> None:
    """Compare with one instruction of PTX, if the combination is one."""
    neutral = {"and": TRUE, "or": FALSE, "xor": FALSE}[how]
    targets = [w.out(out) for out in w.i.outs]
    spare = [is_true(out) for out in w.i.outs]
    to = targets[0] if len(targets) < 2 or spare[1] else "|".join(targets)
    if other == neutral:
        w.emit(f"{operation}.{kind} {to}, {a}, {b}")
    else:
        w.emit(f"{operation}.{how}.{kind} {to}, {a}, {b}, {w.source(other)}")


def _select(w: Writer) -> None:
    i = w.i
    chosen = w.given(i.ins[0])
    wide = w.modifiers.has("64")
    a, b = (w.pair(s, signed=True) if wide else w.word(s) for s in i.sources[:2])
    value = w.selected(a, b, chosen, *(("selp.b64", "d") if wide else ()))
    if wide:
        w.write_pair(value if value[0] == "d" else w.made("mov.b64", value, kind="d"))
    else:
        w.emit(f"mov.b32 {w.dest()}, {value}")


# ---- logic of predicates --------------------------------------------------------------------


def logic(w: Writer, table: int, inputs: list[str]) -> str:
    """Return what a table of eight says of three predicates, of which some may be certain."""
    if not inputs:
        return TRUE if table & 1 else FALSE
    half = 1 << (len(inputs) - 1)
    first, *rest = inputs
    ones, zeros = table >> half, table & (1 << half) - 1
    if first in (TRUE, FALSE):
        return logic(w, ones if first == TRUE else zeros, rest)
    if ones == zeros:
        return logic(w, ones, rest)
    if ones == zeros ^ (1 << half) - 1:
        return w.differ(w.negation(first), logic(w, ones, rest))
    on, off = logic(w, ones, rest), logic(w, zeros, rest)
    if on == FALSE:
        return w.both(w.negation(first), off)
    if off == TRUE:
        return w.either(w.negation(first), on)
    if off == FALSE:
        return w.both(first, on)
    if on == TRUE:
        return w.either(first, off)
    return w.either(w.both(first, on), w.both(w.negation(first), off))


def _tables(w: Writer) -> None:
    """PLOP3: two tables of the same three predicates."""
    w.modifiers.ignore("LUT")
    outs, ins = list(w.i.sources[:2]), w.i.sources[2:5]
    tables = w.i.sources[5:]
    inputs = [_condition(w, operand) for operand in ins]
    told = []
    for out, table in zip(outs, tables, strict=False):
        if isinstance(out, Predicate) and isinstance(table, Immediate) and not is_true(out):
            value = w.straight(logic(w, table.value, inputs))
            told.append((out, w.made("mov.pred", value, kind="q")))
    for out, value in told:
        w.tell(out, value)


def _condition(w: Writer, operand: Operand) -> str:
    """Return a predicate, or the sign of a word."""
    if isinstance(operand, Predicate):
        return w.given(operand)
    if isinstance(operand, SassRegister | SassConstant) and operand.marks == ("SIGN",):
        sign = w.made("setp.lt.s32", w.bare(operand), "0", kind="q")
        return w.negation(sign) if operand.inverted else sign
    raise w.refused("its operands are not modelled")


def _mask(w: Writer) -> int:
    last, every = w.i.operands[-1], (1 << TRUE_PREDICATE) - 1
    if w.i.sass.opcode == "UR2UP":
        return every
    if not isinstance(last, Immediate):
        raise w.refused("the mask is a number here")
    return last.value & every


def _numbered(w: Writer, mask: int) -> list[tuple[int, str]]:
    first = UNIFORM_PREDICATE if w.i.sass.opcode.startswith("U") else 0
    return [(n, w.name(predicate_name(first + n))) for n in range(7) if mask >> n & 1]


def _to_register(w: Writer) -> None:
    """P2R: predicates as bits, the others from a register."""
    mask = _mask(w)
    shift = w.modifiers.choose({f"B{n}": 8 * n for n in range(4)}, 0)
    rest = w.bare(w.i.sources[-2])
    word = "0" if rest == "0" else w.made("and.b32", rest, str(~(mask << shift) & 0xFFFFFFFF))
    for number, predicate in _numbered(w, mask):
        bit = w.made("selp.b32", str(1 << number + shift), "0", predicate)
        word = bit if word == "0" else w.made("or.b32", word, bit)
    w.emit(f"mov.b32 {w.dest()}, {word}")


def _from_register(w: Writer) -> None:
    """R2P and UR2UP: bits to predicates."""
    source = w.i.operands[1]
    part = getattr(source, "marks", ())
    shift = 8 * int(part[0][1]) if part else 0
    word = w.bare(source)
    for number, predicate in _numbered(w, _mask(w)):
        bit = w.made("and.b32", word, str(1 << number + shift))
        w.emit(f"setp.ne.b32 {predicate}, {bit}, 0")


RULES = {
    **rules("MOV", _move, uniform=True),
    **rules("S2R S2UR CS2R CS2UR", _special),
    **rules("LDC LDCU ULDC", _load_constant),
    **rules("R2UR", _uniform),
    **rules("ISETP", _compare, uniform=True),
    **rules("SEL", _select, uniform=True),
    **rules("PLOP3", _tables, uniform=True),
    **rules("P2R UP2UR", _to_register),
    **rules("R2P UR2UP", _from_register),
    **rules("RPCMOV", _kept),
}
