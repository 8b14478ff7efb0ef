"""Products of a warpgroup: which wgmma of PTX one is, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ptxlab.machine.lift.operations.products import factors_and_sums
from ptxlab.machine.lift.rule import Rule, rules
from ptxlab.machine.lift.writer import FALSE, TRUE, Writer, is_zero, register
from ptxlab.machine.operands import (
    Immediate,
    Operand,
    Predicate,
    SassAddress,
    SassName,
    SassRegister,
)
from ptxlab.machine.products import OF_WARPGROUP, REGISTERS_OF_A, sums_of_warpgroup

_MARKS = {"tnspA", "tnspB", "negA", "negB"}


def _order(w: Writer) -> None:
    """WARPGROUP."""
    m = w.modifiers
    if m.has("ARRIVE"):
        w.emit("wgmma.fence.sync.aligned")
    elif m.has("DEPBAR"):
        m.ignore("LE")
        w.emit(f"wgmma.wait_group.sync.aligned {int(w.i.sass.operands[-1], 0)}")
    else:
        raise w.refused("what it does is not modelled")


def _product(factors: str) -> Rule:
    return partial(_lift, factors)


def _lift(factors: str, w: Writer) -> None:
    """HGMMA and its kin: A, if it is in registers, descriptors, sums, whether these are added to, metadata."""
    m = w.modifiers
    shape = next(filter(None, map(OF_WARPGROUP.match, m.names)))
    m.ignore(shape[0])
    n, sparse, bits = int(shape["n"]), m.has("SP"), factors == "b1"
    sums, a, b = ("s32", "b1", "b1") if bits else factors_and_sums(w, factors)
    saturated = ".satfinite" if m.has("SAT") else ""
    operation = ".and.popc" if bits and m.has("AND") and m.has("POPC") else ""
    d, *operands = w.i.operands
    at = next(number for number, o in enumerate(operands) if isinstance(o, SassAddress))
    marks = _marks(w, at + 1)
    into = w.row(d, sums_of_warpgroup(m.names))
    first, second, negated = _factors(w, operands[:at], operands[at])
    adds = _adds(w, operands[at + 1], operands[at + 2 :], into)
    parts = [f"{{{', '.join(into)}}}", first, second]
    parts += _metadata(w, operands[at + 2 :]) if sparse else []
    parts.append(w.straight(adds))
    if not (bits or factors == "s32"):
        parts += ["-1" if there else "1" for there in (negated or "negA" in marks, "negB" in marks)]
    if a in ("f16", "bf16"):
        parts += [str(int("tnspA" in marks))] if not at else []
        parts.append(str(int("tnspB" in marks)))
    name = f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m64n{n}k{shape['k']}"
    w.emit(f"{name}{saturated}.{sums}.{a}.{b}{operation} {', '.join(parts)}")
    if any(isinstance(o, SassName) and o.text.startswith("gsb") for o in operands):
        w.emit("wgmma.commit_group.sync.aligned")


def _marks(w: Writer, number: int) -> set[str]:
    """Return what is said of the matrices in shared memory behind the register of their descriptors."""
    marks = set(w.i.sass.operands[number].rpartition("]")[2].split(".")[1:])
    if marks - _MARKS:
        raise w.refused("how its matrices lie is not modelled")
    return marks


def _factors(w: Writer, held: list[Operand], described: Operand) -> tuple[str, str, bool]:
    """Return A and B, and whether the registers of A are negated.

    Two descriptors follow each other, of which the first is not looked at where A is in registers.
    """
    if not isinstance(described, SassAddress) or described.uniform is None:
        raise w.refused("where its matrices are is not modelled")
    first = described.uniform.number
    if held:
        words = w.stored(w.words(held[0], REGISTERS_OF_A))
        return f"{{{', '.join(words)}}}", _descriptor(w, first + 2), w.is_negated(held[0])
    return _descriptor(w, first), _descriptor(w, first + 2), False


def _descriptor(w: Writer, number: int) -> str:
    low, high = (w.name(register(number + n)) for n in range(2))
    return w.made("mov.b64", f"{{{low}, {high}}}", kind="d")


def _adds(w: Writer, source: Operand, behind: list[Operand], into: list[str]) -> str:
    """Return the predicate that says whether the product is added to the sums."""
    told = [o for o in behind if isinstance(o, Predicate)]
    adds = w.given(told[0]) if told else TRUE
    if isinstance(source, SassRegister) and not is_zero(source):
        if w.words(source, len(into)) != into:
            raise w.refused("sums that are not where they were are not modelled")
    elif adds != FALSE:
        raise w.refused("sums that begin with nothing are told otherwise")
    return adds


def _metadata(w: Writer, behind: list[Operand]) -> Iterator[str]:
    """Yield the register of the metadata, and which lanes have it, 0 where that is not told."""
    held = next((o for o in behind if isinstance(o, SassRegister)), None)
    if held is None:
        raise w.refused("its metadata are not told")
    yield from w.stored([w.bare(held)])
    yield str(next((o.value for o in behind if isinstance(o, Immediate)), 0))


RULES = {
    **rules("WARPGROUP", _order),
    **rules("HGMMA", _product("f16")),
    **rules("QGMMA", _product("e4m3")),
    **rules("IGMMA", _product("s32")),
    **rules("BGMMA", _product("b1")),
}
