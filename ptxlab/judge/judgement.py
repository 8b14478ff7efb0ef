"""What a judge says of a candidate (schema ``ptxlab.judge/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

from ptxlab.errors import PtxlabError
from ptxlab.judge.comparison import Compared
from ptxlab.judge.speed import Speed
from ptxlab.observe.check_report import CheckReport
from ptxlab.pictured import Readable

STAGES = ("compiled", "launched", "right", "safe", "deterministic", "honest")
"""What a candidate has to be, in the order in which it is asked; only of what compiles and launches the rest is."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote a wrong element last: the thread in words, the file and line of its store."""

    thread: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A trial: whether all arrays ``compared`` are right, or the ``fault`` in words that ended it.

    A ``hard`` one is of numbers or addresses that a kernel may not be made for. ``writer`` is of the first wrong
    element of the first array that has some.
    """

    name: str
    sizes: Mapping[str, int]
    hard: bool
    compared: tuple[Compared, ...]
    fault: str | None = None
    writer: Writer | None = None

    @property
    def right(self) -> bool:
        return self.fault is None and not any(each.wrong for each in self.compared)


@dataclass(frozen=True, slots=True)
class Trick:
    """What a candidate does to seem right that it is not: its name, one of docs/judge.md, and what was seen."""

    name: str
    message: str


@dataclass(frozen=True)
class Judgement(Readable):
    """A candidate judged. Of ``STAGES``, ``stages`` has those that were reached and whether they were passed.

    ``error`` is why it did not compile or launch, ``report`` what the checks found, ``schedules`` which schedules of
    asynchronous work gave other bits than the first. ``full_sizes`` are those that were asked for and predicted, ``sizes``
    those that were launched. ``contained`` says by what the candidate was held, ``seconds`` how long all took.
    """

    candidate: str
    kernel: str | None
    arch: str
    seed: int
    sizes: Mapping[str, int]
    full_sizes: Mapping[str, int]
    stages: Mapping[str, bool]
    error: PtxlabError | None = None
    trials: tuple[TrialOutcome, ...] = ()
    report: CheckReport | None = None
    schedules: tuple[str, ...] = ()
    tricks: tuple[Trick, ...] = ()
    speeds: tuple[Speed, ...] = ()
    contained: tuple[str, ...] = ()
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"<judgement of {self.candidate}: {self.verdict}>"

    @property
    def passed(self) -> bool:
        """Whether it is all that a kernel has to be."""
        return all(self.stages.get(stage, False) for stage in STAGES)

    @property
    def verdict(self) -> str:
        """``passed``, or the first stage that was not."""
        return next(
            (f"not {stage}" for stage in STAGES if not self.stages.get(stage, False)), "passed"
        )

    @property
    def score(self) -> dict[str, float | None]:
        """Each stage as 1 or 0, but ``right`` and ``robust`` as the share of trials, and the ``speedup`` over the baseline.

        The speedup is the geometric mean over the GPUs, None where there is no baseline or no prediction.
        """
        score: dict[str, float | None] = {
            stage: float(self.stages.get(stage, False)) for stage in STAGES
        }
        for name, hard in (("right", False), ("robust", True)):
            outcomes = [trial.right for trial in self.trials if trial.hard is hard]
            score[name] = sum(outcomes) / len(outcomes) if outcomes else 0.0
        ratios = [speed.speedup for speed in self.speeds]
        known = [log(ratio) for ratio in ratios if ratio]
        score["speedup"] = (
            exp(sum(known) / len(known)) if known and len(known) == len(ratios) else None
        )
        return score
