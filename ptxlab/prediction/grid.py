"""What a grid takes that fills all SMs: CTAs that are alike come in generations, and a last one that may not fill them."""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.prediction.memory.l2 import Reuse
from ptxlab.prediction.resident import ResidentModel
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.survey import Survey
from ptxlab.prediction.uneven import Uneven, UnevenGrid

MANY_GENERATIONS = 20
"""Of so many the first, which finds less in the L2 cache, and what is left over count as the others."""


@dataclass(frozen=True, slots=True)
class GridRun:
    """What SMs do that are full of CTAs, the ``cycles`` of the whole grid, which is so many ``runs``, and what the L2 cache has.

    ``uneven`` is how CTAs differ, None where they do not.
    """

    run: Run
    cycles: float
    runs: float
    reuse: Reuse
    uneven: Uneven | None = None


def of_alike(
    model: ResidentModel, survey: Survey, ctas: int, fit: int, sms: int, roughly: bool = False
) -> GridRun:
    """Return what ``ctas`` take that are alike as a ``survey`` says, of which ``fit`` into an SM.

    All generations count as if they were alike where they are many, or ``roughly`` is enough.
    """
    generations, tail = divmod(ctas, sms * fit)
    together = min(fit, -(-ctas // sms))
    runs = ctas / together
    followed = model.followed(model.apart(together, survey.typical))
    reuse = model.reuse(followed)
    following = model.in_succession(followed, reuse.in_succession, sms) if generations > 1 else None
    every = -(-ctas // sms) / fit  # generations on the SM that has most
    if generations > 1 and (roughly or generations >= MANY_GENERATIONS):
        full = following or model.run(followed, reuse, sms)
        return GridRun(full, full.cycles * every, runs, reuse)
    first = model.run(followed, reuse.first, min(ctas, sms))
    if following:
        return GridRun(following, first.cycles + following.cycles * (every - 1), runs, reuse)
    full = model.run(followed, reuse, min(ctas, sms)) if generations > 1 else first
    cycles = first.cycles + full.cycles * (generations - 1) if generations else 0.0
    if tail:
        rest = model.followed(model.apart(-(-tail // sms), survey.typical))
        cycles += model.run(rest, reuse if generations else reuse.first, min(tail, sms)).cycles
    return GridRun(full, cycles, runs, reuse)


def of_uneven(model: ResidentModel, survey: Survey, ctas: int, fit: int, sms: int) -> GridRun:
    """Return what ``ctas`` take that differ as a ``survey`` says, of which ``fit`` into an SM."""
    together = min(fit, -(-ctas // sms))
    grid = UnevenGrid(model, survey, together, sms)
    if survey.mostly_alike and not model.waits:  # as persistent kernels do, each in its own order
        reuse = model.reuse(model.followed(model.apart(together, survey.typical)), grid.touched)
    else:
        reuse = model.reuse_of_uneven(grid.touched, together)
    run, uneven = grid.run(reuse)
    return GridRun(run, run.cycles, sms, reuse, uneven)
