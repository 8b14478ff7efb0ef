"""The ladder's story: every rung beside the one that it improves on, told by counted facts.

What it does better, at what price, and what holds it back follows from numbers. What changed is found
by comparing the facts of both rungs, measure by measure; what holds one back is the least of its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from ptxlab.device.protocol import Device
from ptxlab.gemm.algorithms import ALGORITHMS, Algorithm
from ptxlab.gemm.bounds import ARITHMETIC, ISSUE, SHARED, Bounds, bounds, l1_bytes
from ptxlab.gemm.facts import KernelFacts, facts_of
from ptxlab.gemm.ladder import Baseline
from ptxlab.gemm.measures import MeasuredChange, brief, changes, percent
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.side_by_side import Absent, RungJob, each
from ptxlab.gemm.tile import AS_IT_IS, Sizes
from ptxlab.isa.gpus import ISSUED, Gpu
from ptxlab.workers import Progress

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
    better: tuple[MeasuredChange, ...]
    worse: tuple[MeasuredChange, ...]
    limit: str
    caches: str

    @property
    def sentences(self) -> tuple[str, ...]:
        told = [
            self.before,
            *(f"It {change.text}." for change in self.better),
            *(f"In return it {change.text}." for change in self.worse),
            self.limit,
            self.caches,
        ]
        return tuple(sentence for sentence in told if sentence)


@dataclass(frozen=True, slots=True)
class ExplainedRung:
    """One rung: its facts and bounds, the algorithm it is ``after``, "" for none, and its story."""

    facts: KernelFacts
    bounds: Bounds
    after: str
    story: Story


@dataclass(frozen=True, slots=True)
class LadderExplanation:
    """The steps in the order of the ladder, under the roofline of ``gpu``.

    ``absent`` are the rungs with an instruction that the target lacks.
    """

    gpu: Gpu
    steps: tuple[ExplainedRung, ...]
    absent: tuple[Absent, ...] = ()

    @property
    def passed(self) -> bool:
        return all(step.facts.verdict.passed for step in self.steps)


def explain(
    device: Device,
    problems: Sequence[tuple[Algorithm | Baseline, Problem]],
    gpu: Gpu,
    sizes: Sizes = AS_IT_IS,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> LadderExplanation:
    """Count every rung on its problem, and compare each with the one it follows.

    With an ``executor`` they are counted side by side, and ``progress`` is told how many are done. Raises PtxlabError where ``gpu`` has no tensor cores for a problem's types, and what ``facts``
    raises.
    """
    jobs = [RungJob(rung, problem, dict(sizes)) for rung, problem in problems]
    facts = list(each(device, facts_of, jobs, executor, progress=progress))
    counted = [known for known in facts if not isinstance(known, Absent)]
    absent = tuple(known for known in facts if isinstance(known, Absent))
    return replace(tell(counted, gpu), absent=absent)


def tell(counted: Sequence[KernelFacts], gpu: Gpu) -> LadderExplanation:
    """Tell the story of facts that are there already, in the order of the ladder."""
    rungs = list(ALGORITHMS)
    ordered = sorted(counted, key=lambda each: rungs.index(each.algorithm.name))
    of = {each.algorithm.name: (each, bounds(each, gpu)) for each in ordered}
    steps: list[ExplainedRung] = []
    for own, under in of.values():
        after = _before(own.algorithm, of, steps)
        steps.append(ExplainedRung(own, under, after, story(own, under, of.get(after))))
    return LadderExplanation(gpu, tuple(steps))


def _before(
    algorithm: Algorithm,
    told: dict[str, tuple[KernelFacts, Bounds]],
    steps: Sequence[ExplainedRung],
) -> str:
    """Return the nearest rung among those told that this one follows, or else the one told before."""
    follows = algorithm.follows
    while follows and follows not in told:
        follows = ALGORITHMS[follows].follows
    return follows or (steps[-1].facts.algorithm.name if steps else "")


def story(
    facts: KernelFacts, bounds: Bounds, before: tuple[KernelFacts, Bounds] | None = None
) -> Story:
    """Tell what became of the rung ``before`` with its bounds; of the first rung only what holds it back.

    Of improvements those come first that relieve what held the one before back.
    """
    limit, caches = _limit(facts, bounds), _caches(bounds)
    if before is None:
        return Story("", (), (), limit, caches)
    earlier, was = before
    changed = list(changes(earlier, facts))
    better = [change for change in changed if change.factor >= NOTABLE]
    better.sort(key=lambda change: (was.by not in change.measure.relieves, -change.factor))
    worse = [change for change in changed if change.factor <= 1 / NOTABLE]
    worse.sort(key=lambda change: change.factor)
    held_back = f"{earlier.algorithm.name} was held back by {held(earlier, was)}."
    return Story(held_back, tuple(better[:MOST]), tuple(worse[:MOST]), limit, caches)


def held(facts: KernelFacts, bounds: Bounds) -> str:
    op = facts.opcode
    if bounds.by == ARITHMETIC:
        alone = bounds.limits[ARITHMETIC] / bounds.peak
        return f"nothing but its arithmetic, which can have {percent(alone)} of the {op} units"
    if bounds.by == ISSUE:
        others = percent(1 - (facts.share or 0))
        return f"what is not {op}, {others} of its main loop: an SM issues {ISSUED} instructions a clock"
    busy = l1_bytes(facts) / bounds.gpu.l1 / facts.products
    needed = facts.flops_of_a_product / bounds.limits[ARITHMETIC]
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
