"""Sums, products, logic and shifts of integers."""

from __future__ import annotations

from dataclasses import replace

from ptxlab.machine.lift.rule import Rule, rules
from ptxlab.machine.lift.writer import FALSE, TRUE, Writer, is_true, is_zero
from ptxlab.machine.operands import Immediate, Operand, Predicate, SassConstant, SassRegister


def _add_up(w: Writer, words: list[str], to: str) -> None:
    """Emit the sum of words, without those that are zero."""
    words = [word for word in words if word != "0"]
    if len(words) < 2:
        w.emit(f"mov.b32 {to}, {words[0] if words else 0}")
        return
    total = words[0]
    for word in words[1:-1]:
        total = w.made("add.s32", total, word)
    w.emit(f"add.s32 {to}, {total}, {words[-1]}")


def _counted(w: Writer, carry: str) -> str:
    """Return a carry as a word."""
    return w.selected("1", "0", carry)


def _sum(w: Writer) -> None:
    """IADD, IADD3, VIADD: three words and carries; a negated one counts as its complement and one."""
    i, m = w.i, w.modifiers
    if m.has("64"):
        _sum_of_pairs(w)
        return
    if m.has("16x2"):
        a, b = (_held(w, w.word(source)) for source in i.sources)
        w.emit(f"add.u16x2 {w.dest()}, {a}, {b}")
        return
    if m.has("ISAT"):
        m.ignore("S32")
        _saturated_sum(w)
        return
    carries = [w.given(p) for p in i.ins] if m.has("X") else []
    m.ignore("S32", "U32")
    if not w.outs:
        parts = [w.word(source) for source in i.sources] + [_counted(w, c) for c in carries]
        _add_up(w, parts, w.dest())
        return
    # As 64 bits: what is above 32 of them are the carries.
    ones = sum(w.is_negated(source) for source in i.sources)
    parts = [_unsigned(w, source) for source in i.sources]
    parts += [_counted(w, carry) for carry in carries] + [str(ones)]
    total = "0"
    for part in parts:
        if part != "0":
            wide = part if part.isdigit() else w.made("cvt.u64.u32", part, kind="d")
            total = wide if total == "0" else w.made("add.u64", total, wide, kind="d")
    if total.isdigit():
        total = w.made("mov.b64", total, kind="d")
    over = w.temporary("w")
    w.emit(f"mov.b64 {{{w.dest()}, {over}}}, {total}")
    for least, out in enumerate(i.outs, 1):
        if not is_true(out):
            w.emit(f"setp.ge.u32 {w.out(out)}, {over}, {least}")


def _saturated_sum(w: Writer) -> None:
    """A negated one is subtracted: that of the least number is none of 32 bits, and ptxas makes this of sub.sat."""
    kept, *taken = sorted(w.i.sources, key=w.is_negated)
    if w.is_negated(kept):
        raise w.refused("the sum of two negated numbers is not modelled")
    [other] = taken
    name = "add"
    if isinstance(other, SassRegister | SassConstant) and other.negated:
        name, other = "sub", replace(other, negated=False)
    w.emit(f"{name}.sat.s32 {w.dest()}, {w.word(kept)}, {w.word(other)}")


def _unsigned(w: Writer, source: Operand) -> str:
    word = w.inverse(source) if w.is_negated(source) else w.word(source)
    return str(int(word, 0)) if word[0].isdigit() else word


def _sum_of_pairs(w: Writer) -> None:
    total = "0"
    if w.outs or w.modifiers.has("X"):
        raise w.refused("carries of 64 bits are not modelled")
    for source in w.i.sources:
        pair = w.pair(source, signed=True)
        if pair != "0":
            total = pair if total == "0" else w.made("add.s64", total, pair, kind="d")
    w.write_pair(total if total[0] == "d" else w.made("mov.b64", total, kind="d"))


def _product(w: Writer) -> None:
    """IMAD in all its forms."""
    i, m = w.i, w.modifiers
    sign = "u32" if m.has("U32") else "s32"
    a, b, c = i.sources[:3]
    if m.has("WIDE"):
        _wide_product(w, sign)
        return
    carries = [w.given(p) for p in i.ins] if m.has("X") else []
    if m.has("HI"):
        if carries:
            raise w.refused("the upper half of a product with a carry is not modelled")
        total = _product_of_pair(w, sign)
        over = _carry_of_product(w, total)
        w.emit(f"mov.b64 {{{w.temporary('w')}, {w.dest()}}}, {total}")
        for out in i.outs:
            w.tell(out, over)
        return
    m.ignore("MOV", "IADD", "SHL")
    if w.outs:
        raise w.refused("the carry of a product is not modelled")
    words = [_counted(w, carry) for carry in carries]
    if is_zero(a) or is_zero(b):
        _add_up(w, [w.word(c), *words], w.dest())
        return
    third = w.word(c)
    if b == Immediate(1, 1.0):
        _add_up(w, [w.word(a), third, *words], w.dest())
        return
    words = [word for word in words if word != "0"]
    to = w.temporary("w") if words else w.dest()
    operation = "mul.lo.s32" if third == "0" else "mad.lo.s32"
    factors = [w.word(a), w.word(b), *([third] if third != "0" else [])]
    w.emit(f"{operation} {to}, {', '.join(factors)}")
    if words:
        _add_up(w, [to, *words], w.dest())


def _product_of_pair(w: Writer, sign: str) -> str:
    """Return 64 bits: a product and what is added."""
    a, b, c = w.i.sources[:3]
    third = w.pair(c, signed=sign == "s32")
    first, second = w.word(a), w.word(b)
    if "0" in (first, second):
        return w.made("mov.b64", third, kind="d")
    if third == "0":
        return w.made(f"mul.wide.{sign}", first, second, kind="d")
    return w.made(f"mad.wide.{sign}", first, second, third, kind="d")


def _carry_of_product(w: Writer, total: str) -> str:
    """Return the predicate that the 64 bits of a product and what is added carry, where it is asked for."""
    if all(map(is_true, w.i.outs)):
        return FALSE
    return w.made("setp.lt.u64", total, w.pair(w.i.sources[2]), kind="q")


def _wide_product(w: Writer, sign: str) -> None:
    i = w.i
    total = _product_of_pair(w, sign)
    over = _carry_of_product(w, total)
    if w.modifiers.has("X"):
        carry = _counted(w, w.given(i.ins[0]))
        wide = w.made("cvt.u64.u32", carry, kind="d") if carry[0] == "w" else carry
        before, total = total, w.made("add.u64", total, wide, kind="d")
        if w.outs:
            more = w.made("setp.lt.u64", total, before, kind="q")
            over = w.either(over, more)
    w.write_pair(total)
    for out in i.outs:
        w.tell(out, over)


def _scaled(w: Writer) -> None:
    """LEA: a word, or the upper half of a pair, shifted left, and another one added."""
    i, m = w.i, w.modifiers
    *sources, last = i.sources
    if not isinstance(last, Immediate):
        raise w.refused("the count of a shift is a number here")
    shift = last.value
    a, b = sources[0], sources[1]
    extended = m.has("SX32")
    carry = _counted(w, w.given(i.ins[0])) if m.has("X") else "0"
    if m.has("HI"):
        upper = "0"
        if len(sources) > 2 and not extended:
            upper = w.word(sources[2])
        elif extended:
            upper = w.made("shr.s32", w.word(a), "31")
        part = w.made("shf.l.wrap.b32", w.word(a), upper, str(shift)) if shift else upper
    else:
        part = w.made("shl.b32", w.word(a), str(shift)) if shift else w.word(a)
    if not w.outs:
        _add_up(w, [part, w.word(b), carry], w.dest())
        return
    total = w.made("cvt.u64.u32", _held(w, part), kind="d")
    ones = "1" if w.is_negated(b) else "0"
    for word in (_unsigned(w, b), carry, ones):
        if word != "0":
            wide = word if word.isdigit() else w.made("cvt.u64.u32", word, kind="d")
            total = w.made("add.u64", total, wide, kind="d")
    over = w.temporary("w")
    w.emit(f"mov.b64 {{{w.dest()}, {over}}}, {total}")
    w.emit(f"setp.ne.u32 {w.out(w.outs[0])}, {over}, 0")


def _held(w: Writer, word: str) -> str:
    """Return a word in a register."""
    return w.made("mov.b32", word) if word[0].isdigit() else word


def _logic(w: Writer) -> None:
    """LOP3: a table of eight bits for every bit of three words."""
    i, m = w.i, w.modifiers
    m.ignore("LUT")
    a, b, c, table = i.sources[:4]
    if not isinstance(table, Immediate):
        raise w.refused("the table is a number here")
    to = w.dest()
    words = [w.word(source) for source in (a, b, c)]
    w.emit(f"lop3.b32 {to}, {', '.join(words)}, {table.value}")
    both = m.has("PAND")
    for out in w.outs:
        some = w.made("setp.ne.b32", to, "0", kind="q")
        other = w.given(i.ins[0]) if i.ins else (TRUE if both else FALSE)
        w.tell(out, w.combined(some, other, "and" if both else "or"))


def _funnel(w: Writer) -> None:
    """SHF: a pair shifted, of which the lower or the upper half is taken."""
    i, m = w.i, w.modifiers
    low, count, high = i.sources
    left = m.has("L")
    m.ignore("R")
    kind = m.choose({"U32": "u32", "S32": "s32", "U64": "u64", "S64": "s64"}, "u32")
    upper, wraps = m.has("HI"), m.has("W")
    to = w.dest()
    of_words = kind.endswith("32")
    by = w.word(count)
    if of_words and not wraps and is_zero(high if left else low) and upper != left:
        # Of one word alone.
        name = "shl.b32" if left else f"shr.{kind}"
        w.emit(f"{name} {to}, {w.word(low if left else high)}, {by}")
        return
    if wraps:
        by = w.made("and.b32", by, "31" if of_words else "63")
    elif of_words:
        by = w.made("min.u32", by, "32")
    pair = w.made("mov.b64", f"{{{w.word(low)}, {w.word(high)}}}", kind="d")
    operation = "shl.b64" if left else f"shr.{kind[0]}64"
    moved = w.made(operation, pair, by, kind="d")
    halves = (w.temporary("w"), to) if upper else (to, w.temporary("w"))
    w.emit(f"mov.b64 {{{halves[0]}, {halves[1]}}}, {moved}")


def _permute(w: Writer) -> None:
    i = w.i
    mode = w.modifiers.choose(
        {name: f".{name.lower()}" for name in ("F4E", "B4E", "RC8", "ECL", "ECR", "RC16")}, ""
    )
    a, selector, b = (w.word(source) for source in i.sources)
    w.emit(f"prmt.b32{mode} {w.dest()}, {a}, {b}, {selector}")


def _absolute(w: Writer) -> None:
    w.emit(f"abs.s32 {w.dest()}, {w.word(w.i.sources[0])}")


def _least_or_most(w: Writer) -> None:
    """IMNMX, VIMNMX, VIADDMNMX and those of three: the least where the predicate holds."""
    i, m = w.i, w.modifiers
    if m.has("U64", "S64"):
        _least_or_most_pair(w, "u64" if m.has("U64") else "s64")
        return
    kind = m.choose({"U32": "u32", "S32": "s32", "U16x2": "u16x2", "S16x2": "s16x2"}, "s32")
    relu = ".relu" if m.has("RELU") else ""
    *first, a, b = (w.word(source) for source in i.sources)
    if kind.endswith("x2"):
        a, b = _held(w, a), _held(w, b)
    if w.outs:
        raise w.refused("which one it was is not modelled")
    if first and i.sass.opcode.startswith(("VIADD", "UVIADD")):
        if kind not in ("u32", "s32"):
            raise w.refused("sums of halves are not modelled")
        a = w.made("add.s32", first[0], a)
    elif first:
        a = _chosen(w, kind, "", first[0], a, w.given(i.ins[0]))
    w.emit(f"mov.b32 {w.dest()}, {_chosen(w, kind, relu, a, b, w.given(i.ins[-1]))}")


def _least_or_most_pair(w: Writer, kind: str) -> None:
    """IMNMX of 64 bits, before whose register stand predicates."""
    rest = [o for o in w.i.operands if not isinstance(o, Predicate)]
    told = [o for o in w.i.operands if isinstance(o, Predicate)]
    to, a, b = rest
    least = w.given(told[-2])
    if any(not is_true(p) for p in (*told[:-2], told[-1])) or least not in (TRUE, FALSE):
        raise w.refused("its predicates are not modelled")
    name = "min" if least == TRUE else "max"
    pairs = [w.pair(source, signed=True) for source in (a, b)]  # of U64 too
    w.write_pair(w.made(f"{name}.{kind}", *pairs, kind="d"), to)


def _chosen(w: Writer, kind: str, relu: str, a: str, b: str, least: str) -> str:
    if least in (TRUE, FALSE):
        name = "min" if least == TRUE else "max"
        return w.made(f"{name}.{kind}{relu}", a, b)
    low, high = (w.made(f"{name}.{kind}{relu}", a, b) for name in ("min", "max"))
    return w.selected(low, high, least)


def _mask(w: Writer) -> None:
    mode = "wrap" if w.modifiers.has("W") else "clamp"
    w.modifiers.ignore("C")
    first, count = (w.word(source) for source in w.i.sources)
    w.emit(f"bmsk.{mode}.b32 {w.dest()}, {first}, {count}")


def _extended(w: Writer) -> None:
    m = w.modifiers
    kind, mode = "u32" if m.has("U32") else "s32", "wrap" if m.has("W") else "clamp"
    word, bits = (w.word(source) for source in w.i.sources)
    w.emit(f"szext.{mode}.{kind} {w.dest()}, {word}, {bits}")


def _of_one(operation: str) -> Rule:
    def lift(w: Writer) -> None:
        w.emit(f"{operation} {w.dest()}, {w.word(w.i.sources[0])}")

    return lift


def _first_one(w: Writer) -> None:
    m = w.modifiers
    kind, shift = "u32" if m.has("U32") else "s32", ".shiftamt" if m.has("SH") else ""
    w.emit(f"bfind{shift}.{kind} {w.dest()}, {w.word(w.i.sources[0])}")
    if w.outs:
        raise w.refused("whether there is a bit is not modelled")


def _dot(w: Writer) -> None:
    m = w.modifiers
    names = [name for name in m.names if name in ("U8", "S8", "U16", "S16")]
    m.ignore("U8", "S8", "U16", "S16", "2A", "4A")
    signs = [f"{name[0].lower()}32" for name in names]
    a, b, c = (w.word(source) for source in w.i.sources)
    half = ".hi" if m.has("HI") else ".lo" if m.has("LO") else ""
    operation = "dp4a" if m.has("4A") else f"dp2a{half}"
    w.emit(f"{operation}.{'.'.join(signs)} {w.dest()}, {a}, {b}, {c}")


def _distance(w: Writer) -> None:
    kind = "u32" if w.modifiers.has("U32") else "s32"
    a, b, c = (w.word(source) for source in w.i.sources)
    w.emit(f"sad.{kind} {w.dest()}, {a}, {b}, {c}")


def _distances(w: Writer) -> None:
    """VABSDIFF4: of four bytes each, or the sum of these with a word."""
    m = w.modifiers
    if not m.has("U8"):
        raise w.refused("distances of what is not modelled")
    joined = ".add" if m.has("ACC") else ""
    words = ", ".join(w.word(source) for source in w.i.sources)
    w.emit(f"vabsdiff4.u32.u32.u32{joined} {w.dest()}, {words}")


def _converted(w: Writer) -> None:
    """I2I: to fewer bits, at whose limits it ends."""
    m = w.modifiers
    kinds = [name.lower() for name in m.names if name in ("U8", "S8", "U16", "S16", "U32", "S32")]
    m.ignore("U8", "S8", "U16", "S16", "U32", "S32")
    to, of = ([*kinds, "s32", "s32"])[:2]
    if not m.has("SAT") or not of.endswith("32"):
        raise w.refused("this conversion is not modelled")
    least, most = (0, (1 << int(to[1:])) - 1)
    if to[0] == "s":
        least, most = -(most + 1) // 2, most // 2
    word = w.word(w.i.sources[0])
    low = w.made(f"max.{of}", word, str(least)) if of == "s32" else word
    w.emit(f"min.{of} {w.dest()}, {low}, {most}")


RULES = {
    **rules("IADD IADD3", _sum, uniform=True),
    **rules("VIADD", _sum),
    **rules("IMAD", _product, uniform=True),
    **rules("LEA", _scaled, uniform=True),
    **rules("LOP3", _logic, uniform=True),
    **rules("SHF", _funnel, uniform=True),
    **rules("PRMT", _permute, uniform=True),
    **rules("IABS", _absolute, uniform=True),
    **rules("IMNMX VIMNMX VIMNMX3 VIADDMNMX", _least_or_most, uniform=True),
    **rules("BMSK", _mask, uniform=True),
    **rules("SGXT", _extended, uniform=True),
    **rules("POPC", _of_one("popc.b32"), uniform=True),
    **rules("BREV", _of_one("brev.b32"), uniform=True),
    **rules("FLO", _first_one, uniform=True),
    **rules("I2I", _converted),
    **rules("IDP", _dot),
    **rules("VABSDIFF", _distance),
    **rules("VABSDIFF4", _distances),
}
