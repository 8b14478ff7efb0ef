"""What judging a candidate is whatever it is: its process is asked stage by stage, and what it says is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import Target
from ptxlab.judge.contained import Contained, Ended
from ptxlab.judge.judgement import Judgement, TrialOutcome, Trick
from ptxlab.judge.limits import Limits
from ptxlab.judge.speed import Speed
from ptxlab.observe.check_report import CheckReport


class Task(Protocol):
    """What is asked of candidates, of whichever kind they are."""

    @property
    def target(self) -> Target: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def seed(self) -> int: ...
    @property
    def sizes(self) -> Mapping[str, int]: ...
    @property
    def full_sizes(self) -> Mapping[str, int]: ...
    def cases(self) -> Sequence[Any]: ...


class CandidateJudge(ABC):
    """Asks the process of one candidate, and keeps what it says."""

    def __init__(self, task: Task, name: str, job: Mapping[str, Any]) -> None:
        self._judged, self._name = task, name
        self._job = {"arch": task.target.name, **job}
        self._stages: dict[str, bool] = {}
        self._said: dict[str, Any] = {"contained": []}
        self._error: PtxlabError | None = None
        self._report: CheckReport | None = None
        self._outcomes: list[TrialOutcome] = []
        self._schedules: list[str] = []
        self._speeds: list[Speed] = []

    def run(self, gpus: Sequence[str]) -> None:
        """Ask for all stages, as far as the candidate comes, and for the time on some GPUs."""
        cases = self._judged.cases()
        try:
            with Contained(self._job, self._judged.limits) as process:
                if self._compile(process, cases[0]):
                    self._launch(process, cases)
                    self._speeds = [self._predicted(process, gpu) for gpu in gpus]
        except (Ended, PtxlabError) as error:
            self._error = error if isinstance(error, PtxlabError) else PtxlabError(str(error))
            self._stages.setdefault("compiled", False)
            self._stages["launched"] = False

    def _compile(self, process: Contained, given: Any) -> bool:
        try:
            self._said = self._load(process, given)
        except PtxlabError as error:
            self._error = error
        self._stages["compiled"] = self._error is None
        return self._error is None

    @abstractmethod
    def _load(self, process: Contained, given: Any) -> dict[str, Any]:
        """Have the candidate compiled; return what its process says of it."""

    @abstractmethod
    def _launch(self, process: Contained, cases: Sequence[Any]) -> None:
        """Have it launched with all cases, and keep what comes of it."""

    @abstractmethod
    def _predicted(self, process: Contained, gpu: str) -> Speed:
        """Return how fast it would be on a GPU, at the full sizes."""

    @abstractmethod
    def _seen_tricks(self) -> tuple[Trick, ...]:
        """Return what it does to seem right that it is not."""

    def judgement(self, seconds: float) -> Judgement:
        """Return what is said of the candidate, of which ``seconds`` are told that all took."""
        seen = self._seen_tricks()
        task = self._judged
        return Judgement(
            candidate=self._name, kernel=self._said.get("called"), arch=task.target.name, seed=task.seed,
            sizes=task.sizes, full_sizes=task.full_sizes, stages=self._stages, error=self._error,
            trials=tuple(self._outcomes), report=self._report, schedules=tuple(self._schedules), tricks=seen,
            speeds=tuple(self._speeds), contained=tuple(self._said["contained"]), seconds=seconds,
        )  # fmt: skip
