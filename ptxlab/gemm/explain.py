"""The ladder's story: every rung beside the one that it improves on, told by counted facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import ALGORITHMS
from ptxlab.gemm.explain_bounds import Bounds, bounds
from ptxlab.gemm.explain_story import Story, first_story, story
from ptxlab.gemm.facts import KernelFacts, facts
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.run import AS_IT_IS, Sizes
from ptxlab.isa.gpus import Gpu


@dataclass(frozen=True, slots=True)
class Step:
    """One rung: its facts and bounds, the algorithm it is ``after``, "" for none, and its story."""

    facts: KernelFacts
    bounds: Bounds
    after: str
    story: Story


@dataclass(frozen=True, slots=True)
class Explanation:
    """The steps in the order of the ladder, under the roofline of ``gpu``."""

    gpu: Gpu
    steps: tuple[Step, ...]

    @property
    def passed(self) -> bool:
        """Whether all of them computed what they should."""
        return all(step.facts.verdict.passed for step in self.steps)


def explain(
    device: Device,
    problems: Sequence[tuple[str, Problem]],
    gpu: Gpu,
    sizes: Sizes = AS_IT_IS,
) -> Explanation:
    """Count every algorithm named on its problem, and compare each with the one it follows.

    Raises PtxlabError where ``gpu`` has no tensor cores for a problem's types, and what ``facts``
    raises.
    """
    return tell([facts(device, problem, name, sizes) for name, problem in problems], gpu)


def tell(counted: Sequence[KernelFacts], gpu: Gpu) -> Explanation:
    """Tell the story of facts that are there already, in the order of the ladder."""
    rungs = list(ALGORITHMS)
    ordered = sorted(counted, key=lambda each: rungs.index(each.algorithm))
    of = {each.algorithm: (each, _bounds(each, gpu)) for each in ordered}
    steps: list[Step] = []
    for name, (own, under) in of.items():
        after = _before(name, of, steps)
        told = story(own, under, *of[after]) if after else first_story(own, under)
        steps.append(Step(own, under, after, told))
    return Explanation(gpu, tuple(steps))


def _before(name: str, told: dict[str, tuple[KernelFacts, Bounds]], steps: Sequence[Step]) -> str:
    """Return the nearest rung among those told that this one follows, or else the one told before."""
    follows = ALGORITHMS[name].follows
    while follows and follows not in told:
        follows = ALGORITHMS[follows].follows
    return follows or (steps[-1].facts.algorithm if steps else "")


def _bounds(of: KernelFacts, gpu: Gpu) -> Bounds:
    found = bounds(of, gpu)
    if found is None:
        types = f"{of.problem.dtype} -> {of.problem.acc}"
        raise PtxlabError(f"the tensor cores of an {gpu.name} do not compute {types}")
    return found
