"""What two rungs of the ladder are compared by: numbers of each, and how a change of one is told.

A number is for a FLOP, for a byte, or of one thread, so that tiles and edges do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ptxlab.gemm.bounds import ARITHMETIC, GLOBAL, ISSUE, SHARED
from ptxlab.gemm.facts import KernelFacts
from ptxlab.gemm.problem import element_bits

KernelNumber = Callable[[KernelFacts], float]
Reason = Callable[[KernelFacts, KernelFacts], str]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of which less is better, and the bounds that it is a part of.

    ``told`` is a change in words, with places for ``times`` (how often), ``fewer`` or ``less`` (or
    more), and the ``reason``. ``gone`` is told instead where nothing is left, and ``new`` where there
    was nothing before; what has no words is not told.
    """

    name: str
    of: KernelNumber
    relieves: tuple[str, ...]
    reason: Reason
    told: str
    gone: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """A measure that changed by ``factor``, above 1 where the rung is better, and how it is told.

    ``factor`` is infinite where nothing is left, and 0 where there was nothing before.
    """

    measure: Measure
    before: float
    after: float
    factor: float
    text: str


def changes(before: KernelFacts, after: KernelFacts) -> Iterator[MeasuredChange]:
    for measure in MEASURES:
        old, new = measure.of(before), measure.of(after)
        if old == new:
            continue
        factor = old / new if new else math.inf
        form = measure.told if old and new else (measure.new if new else measure.gone)
        if form:
            better = factor > 1
            text = form.format(
                times=f"{brief(factor if better else 1 / factor)} times" if factor else "",
                fewer="fewer" if better else "more",
                less="less" if better else "more",
                reason=measure.reason(before, after),
            )
            yield MeasuredChange(measure, old, new, factor, text)


def _inverse(number: KernelNumber) -> KernelNumber:
    def of(facts: KernelFacts) -> float:
        value = number(facts)
        return 1 / value if value else 0.0

    return of


# ---- numbers in a sentence ----------------------------------------------------------------------


def brief(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 1 else f"{value:.3g}"


def percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.01 or not part else f"{100 * part:.1g} %"


def several(value: float, noun: str) -> str:
    return f"{brief(value)} {noun}" + "s" * (value != 1)


# ---- reasons ------------------------------------------------------------------------------------


def _why_sectors(before: KernelFacts, after: KernelFacts) -> str:
    """Say which of two it is: the pattern of addresses, or how much is done with what is read."""
    asked = [facts.asked_bytes / facts.problem.flops for facts in (before, after)]
    sectors = [facts.sectors / facts.asked_bytes for facts in (before, after)]
    reuse, pattern = math.log(asked[0] / asked[1]), math.log(sectors[0] / sectors[1])
    if abs(pattern) > abs(reuse):
        old, new = before.sectors_of_a_request, after.sectors_of_a_request
        return f"a warp touches {brief(new)} in a request, not {brief(old)}"
    because = _sources(before, after, better=reuse > 0)
    return f"a byte asked for serves {brief(1 / asked[1])} FLOP, not {brief(1 / asked[0])}{because}"


def _sources(before: KernelFacts, after: KernelFacts, *, better: bool) -> str:
    """Say where numbers come from instead, or no more, leaving out what points the other way."""
    parts = []
    old, new = (facts.counts.shared_read / facts.asked_bytes for facts in (before, after))
    if (new > old) == better and old != new:
        again = f"is read {brief(new)} times from" if new else "is not kept in"
        parts.append(f"it {again} shared memory")
    old, new = before.results, after.results
    if (new > old) == better and old != new:
        parts.append(f"a thread has {several(new, 'result')}, not {brief(old)}")
    old, new = (element_bits(facts.problem.dtype) / 8 for facts in (before, after))
    if (new < old) == better and old != new:
        parts.append(f"an element has {brief(new)} bytes, not {brief(old)}")
    return f"; {' and '.join(parts)}" if parts else ""


def _why_wavefronts(before: KernelFacts, after: KernelFacts) -> str:
    """Say how many there are now, and if it is for how much a thread keeps in registers."""
    text = f"{brief(after.wavefronts_of_a_product)} for an {after.opcode} of a warp"
    if not before.shared_wavefronts:
        lost = after.conflicts / after.shared_wavefronts
        return f"{text}, {percent(lost) if lost else 'none'} of them for bank conflicts"
    if before.opcode == after.opcode:
        text += f", not {brief(before.wavefronts_of_a_product)}"
    fewer = after.wavefronts_of_a_product < before.wavefronts_of_a_product
    old, new = before.results, after.results
    if old != new and (new > old) == fewer:
        text += f": a thread has {several(new, 'result')}, not {brief(old)}"
    return text


def _both(number: KernelNumber, unit: str = "") -> Reason:
    """Say the number after, and the one before if there was any."""

    def reason(before: KernelFacts, after: KernelFacts) -> str:
        old = number(before)
        return f"{brief(number(after))}{unit}" + (f", not {brief(old)}" if old else "")

    return reason


def _why_products(before: KernelFacts, after: KernelFacts) -> str:
    new, old = brief(after.flops_of_a_product), brief(before.flops_of_a_product)
    return f"an {after.opcode} of a warp is {new} FLOP, an {before.opcode} was {old}"


def _why_beside(before: KernelFacts, after: KernelFacts) -> str:
    other = "" if before.opcode == after.opcode else f" {before.opcode}"
    return f"{percent(after.share or 0)} {after.opcode}, not {percent(before.share or 0)}{other}"


def _why_barriers(before: KernelFacts, after: KernelFacts) -> str:
    new, old = (
        f"{brief(facts.barriers / facts.ctas)} in each of {several(facts.ctas, 'CTA')}"
        for facts in (after, before)
    )
    return f"{new}, not {old}" if before.barriers else new


def _why_warps(before: KernelFacts, after: KernelFacts) -> str:
    by = " and ".join(after.occupancy.limited_by)
    return (
        f"{after.occupancy.warps} warps, not {before.occupancy.warps}, as {by} allow no more "
        f"({after.resources.registers} registers a thread)"
    )


MEASURES: tuple[Measure, ...] = (
    Measure(
        "sectors of global memory",
        lambda facts: facts.sectors / facts.problem.flops,
        (GLOBAL,),
        _why_sectors,
        "touches {times} {fewer} sectors of global memory, because {reason}",
    ),
    Measure(
        "requests of global memory",
        _inverse(lambda facts: facts.bytes_of_a_request),
        (GLOBAL, ISSUE),
        _both(lambda facts: facts.bytes_of_a_request, " bytes"),
        "asks global memory {times} {less} often for the same bytes: a request of a warp is {reason}",
    ),
    Measure(
        "loads that are waited for",
        lambda facts: (facts.counts.global_read - facts.copies.global_read) / facts.problem.flops,
        (),
        lambda _, after: percent(after.copies.global_read / (after.counts.global_read or 1)),
        "",
        gone="waits for no load of global memory itself: {reason} of what it reads is copied to "
        "shared memory while it computes",
        new="waits for loads of global memory: {reason} of what it reads is copied to shared memory "
        "while it computes",
    ),
    Measure(
        "wavefronts of shared memory",
        lambda facts: facts.shared_wavefronts / facts.problem.flops,
        (SHARED,),
        _why_wavefronts,
        "takes {times} {fewer} wavefronts of shared memory, {reason}",
        gone="needs no shared memory",
        new="takes wavefronts of shared memory, {reason}",
    ),
    Measure(
        "bank conflicts",
        lambda facts: facts.conflicts,
        (SHARED,),
        _both(lambda facts: facts.conflicts, " wavefronts"),
        "loses {times} {fewer} wavefronts to bank conflicts, {reason}",
        gone="has no bank conflicts",
        new="has bank conflicts, which cost {reason}",
    ),
    Measure(
        "requests of shared memory",
        _inverse(lambda facts: facts.bytes_of_a_shared_request),
        (ISSUE,),
        _both(lambda facts: facts.bytes_of_a_shared_request, " bytes"),
        "asks shared memory {times} {less} often for the same bytes: a request of a warp is {reason}",
    ),
    Measure(
        "products",
        _inverse(lambda facts: facts.flops_of_a_product),
        (ARITHMETIC, ISSUE),
        _why_products,
        "multiplies with {times} {fewer} instructions: {reason}",
    ),
    Measure(
        "instructions beside the arithmetic",
        lambda facts: facts.beside,
        (ISSUE,),
        _why_beside,
        "has {times} {fewer} other instructions for each that computes: its main loop is {reason}",
    ),
    Measure(
        "barriers",
        lambda facts: facts.barriers / facts.problem.flops,
        (),
        _why_barriers,
        "waits at {times} {fewer} barriers: {reason}",
        gone="has no barriers",
        new="has barriers to wait at: {reason}",
    ),
    Measure(
        "occupancy",
        _inverse(lambda facts: float(facts.occupancy.warps)),
        (),
        _why_warps,
        "leaves room in an SM for {reason}",
    ),
    Measure(
        "spills",
        lambda facts: facts.spilled,
        (),
        _both(lambda facts: facts.spilled, " bytes a thread"),
        "spills {times} {less} to memory, {reason}",
        gone="spills no registers",
        new="spills registers to memory, {reason}",
    ),
)
"""In the order in which changes of equal weight are told."""
