"""What a rung does better than the one before, at what price, and what holds it back: in sentences.

All of it follows from numbers. What changed is found by comparing the facts of both rungs, measure by
measure; what holds one back is the least of its bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.gemm.explain_bounds import ARITHMETIC, ISSUE, SHARED, Bounds, l1_bytes
from ptxlab.gemm.explain_measures import Change, changes
from ptxlab.gemm.explain_numbers import brief, flops_of_a_product, percent
from ptxlab.gemm.facts import KernelFacts
from ptxlab.isa.gpus import ISSUED

NOTABLE = 1.15
"""A change by less than this factor is none to speak of."""

MOST = 3
"""How many improvements, and how many prices, are told of a rung."""


@dataclass(frozen=True, slots=True)
class Story:
    """What held back the rung ``before``, what is ``better`` and ``worse`` now, and the ``limit``.

    Changes are in the order of their weight; of the first rung there are none. ``caches`` says what
    the limit takes for granted, "" where it is nothing.
    """

    before: str
    better: tuple[Change, ...]
    worse: tuple[Change, ...]
    limit: str
    caches: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """The story from the beginning."""
        told = [
            self.before,
            *(f"It {change.text}." for change in self.better),
            *(f"In return it {change.text}." for change in self.worse),
            self.limit,
            self.caches,
        ]
        return tuple(sentence for sentence in told if sentence)


def first_story(facts: KernelFacts, bounds: Bounds) -> Story:
    """Tell of a rung that nothing comes before."""
    return Story("", (), (), _limit(facts, bounds), _caches(bounds))


def story(facts: KernelFacts, bounds: Bounds, before: KernelFacts, was: Bounds) -> Story:
    """Tell what became of the rung ``before``, whose bounds were ``was``.

    Of improvements those come first that relieve what held it back.
    """
    found = list(changes(before, facts))
    better = [change for change in found if change.factor >= NOTABLE]
    better.sort(key=lambda change: (was.by not in change.measure.relieves, -change.factor))
    worse = [change for change in found if change.factor <= 1 / NOTABLE]
    worse.sort(key=lambda change: change.factor)
    return Story(
        f"{before.algorithm} was held back by {held(before, was)}.",
        tuple(better[:MOST]),
        tuple(worse[:MOST]),
        _limit(facts, bounds),
        _caches(bounds),
    )


def held(facts: KernelFacts, bounds: Bounds) -> str:
    """Say what allows no more."""
    op = facts.opcode
    if bounds.by == ARITHMETIC:
        alone = bounds.limits[ARITHMETIC] / bounds.peak
        return f"nothing but its arithmetic, which can have {percent(alone)} of the {op} units"
    if bounds.by == ISSUE:
        others = percent(1 - (facts.share or 0))
        return f"what is not {op}, {others} of its main loop: an SM issues {ISSUED} instructions a clock"
    busy = l1_bytes(facts) / bounds.gpu.l1 / facts.products
    needed = flops_of_a_product(facts) / bounds.limits[ARITHMETIC]
    takes = "which is busy" if bounds.by == SHARED else "which take the L1 cache"
    return f"{bounds.by}, {takes} {brief(busy)} clocks for an {op} that takes an SM {brief(needed)}"


def _limit(facts: KernelFacts, bounds: Bounds) -> str:
    return (
        f"Its counts allow {brief(bounds.tflops)} TFLOP/s at most on the {bounds.gpu.name}, "
        f"{percent(bounds.most / bounds.peak)} of the peak, because of {held(facts, bounds)}."
    )


def _caches(bounds: Bounds) -> str:
    if not bounds.from_caches:
        return ""
    return (
        f"At that rate caches answer {percent(bounds.from_caches)} of its sectors, or "
        f"{bounds.gpu.memory} is the limit."
    )
