"""A candidate judged, or many of them: ``ptxlab.evaluate`` and ``ptxlab.evaluate_many``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from time import monotonic
from typing import Any

import numpy as np

from ptxlab.device.loading import find_file
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS
from ptxlab.judge.arguments import Arguments
from ptxlab.judge.candidate import error_of, report_of
from ptxlab.judge.comparison import compare, is_poison
from ptxlab.judge.contained import Contained, Ended, zygote
from ptxlab.judge.judgement import Judgement, Speed, TrialOutcome, Writer
from ptxlab.judge.limits import Limits
from ptxlab.judge.task import Case, KernelTask, Size
from ptxlab.judge.tricks import tricks
from ptxlab.observe.check_report import CheckReport
from ptxlab.prediction.chip import find
from ptxlab.prediction.predict import target_of
from ptxlab.workers import cores

Candidate = str | os.PathLike[str]
"""A .cu or .ptx file, machine code, or PTX text."""

_ADVICE = {
    "dram": "move fewer bytes: reuse what is loaded, or a narrower type",
    "l2": "reuse more in shared memory or registers, so that less comes from L2",
    "lsu": "wider loads, fewer bank conflicts, and accesses that lie together",
    "issue": "fewer instructions: wider ones, more work a thread, tensor cores",
    "pipe": "the pipe is used: other instructions, or tensor cores, do the same with fewer",
    "latency": "more warps or more independent work in each, so that waiting overlaps",
}
"""What would help most, by what bounds a kernel."""


def evaluate(
    candidate: Candidate,
    reference: Any,
    *,
    arguments: Arguments,
    grid: Any,
    block: Any,
    shared: Any = 0,
    cluster: Any = None,
    sizes: Mapping[str, Size] | None = None,
    kernel: str | None = None,
    options: Sequence[str] = (),
    baseline: Candidate | None = None,
    gpus: Sequence[str] = ("a100",),
    arch: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
) -> Judgement:
    """Say whether a kernel is right, safe and deterministic, and how fast it would be.

    ``candidate`` is a .cu or .ptx file, or PTX text. ``reference`` is a function in NumPy of the arguments by name, or a file
    in Python that has it; see ``ptxlab.judge.references``. ``arguments`` are arrays to be drawn and numbers by name
    (``ptxlab.judge.arguments``), which like ``grid``, ``block`` and ``shared`` (bytes) may be functions of ``sizes``: a size is a
    number, or that and what it has to be a multiple of. Sizes too large to be emulated are made smaller, and the time is
    predicted for the full ones on ``gpus``, if any, beside that of a ``baseline`` kernel. ``arch`` is what the emulator is,
    by default the first GPU. ``options`` go to NVRTC. The same ``seed`` gives the same judgement.

    Raises PtxlabError for arguments that do not fit the reference, Unsupported where no bound follows from it, and
    DeviceUnavailable on a system where a candidate has no process of its own.
    """
    task = _task(
        reference, arguments, sizes, grid, block, shared, cluster, gpus, arch, limits, seed
    )
    return _judge(task, candidate, kernel, options, baseline, gpus)


def evaluate_many(
    candidates: Iterable[Candidate],
    reference: Any,
    *,
    arguments: Arguments,
    grid: Any,
    block: Any,
    shared: Any = 0,
    cluster: Any = None,
    sizes: Mapping[str, Size] | None = None,
    kernel: str | None = None,
    options: Sequence[str] = (),
    baseline: Candidate | None = None,
    gpus: Sequence[str] = ("a100",),
    arch: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
) -> Iterator[Judgement]:
    """Judge candidates of one task on all processors, and yield judgements as they come.

    The parameters are those of ``evaluate``, and so are the errors: it raises PtxlabError before the first candidate.
    """
    task = _task(
        reference, arguments, sizes, grid, block, shared, cluster, gpus, arch, limits, seed
    )
    task.cases()
    zygote()  # once, before several want it
    with ThreadPoolExecutor(cores()) as pool:
        jobs = [
            pool.submit(_judge, task, each, kernel, options, baseline, gpus) for each in candidates
        ]
        for job in as_completed(jobs):
            yield job.result()


def _task(
    reference: Any, arguments: Arguments, sizes: Mapping[str, Size] | None, grid: Any, block: Any, shared: Any,
    cluster: Any, gpus: Sequence[str], arch: str | None, limits: Limits | None, seed: int,
) -> KernelTask:  # fmt: skip
    if arch is not None and arch not in TARGETS:
        raise PtxlabError(f"there is no target {arch!r}", hint=f"targets are {', '.join(TARGETS)}")
    for gpu in gpus:
        find(gpu)  # or say now that there is none
    played = arch or (target_of(find(gpus[0])).name if gpus else DEFAULT_TARGET)
    launch = {"grid": grid, "block": block, "shared": shared, "cluster": cluster}
    return KernelTask(reference, arguments, sizes or {}, launch, played, limits or Limits(), seed)


def _judge(
    task: KernelTask, candidate: Candidate, kernel: str | None, options: Sequence[str], baseline: Candidate | None,
    gpus: Sequence[str],
) -> Judgement:  # fmt: skip
    began = monotonic()
    judge = _KernelJudge(task, candidate, kernel, options)
    judge.run(baseline, gpus)
    return judge.judgement(monotonic() - began)


class _KernelJudge:
    """Asks the process of one candidate, and keeps what it says."""

    def __init__(
        self, task: KernelTask, candidate: Candidate, kernel: str | None, options: Sequence[str]
    ) -> None:
        self._task, self._options = task, options
        source = os.fspath(candidate)
        text = "\n" in source
        self._name = "<ptx>" if text else source
        file = None if text else find_file(source).absolute()
        self._job = {
            "kind": "kernel", "arch": task.target.name, "kernel": kernel, "options": list(options),
            "source": source if text else str(file), "readable": [str(file.parent)] if file else [],
        }  # fmt: skip
        self._stages: dict[str, bool] = {}
        self._said: dict[str, Any] = {"contained": []}
        self._error: PtxlabError | None = None
        self._report: CheckReport | None = None
        self._outcomes: list[TrialOutcome] = []
        self._left: dict[str, Any] = {}
        self._schedules: list[str] = []
        self._speeds: list[Speed] = []

    def run(self, baseline: Candidate | None, gpus: Sequence[str]) -> None:
        cases = self._task.cases()
        with Contained(self._job, self._task.limits) as process:
            try:
                if self._compile(process):
                    self._launch(process, cases)
                    self._speeds = [self._predicted(process, gpu) for gpu in gpus]
            except Ended as error:
                self._error = PtxlabError(str(error))
                self._stages.setdefault("compiled", False)
                self._stages["launched"] = False
        if baseline is not None and self._speeds:
            self._compare_with(baseline)

    def _compile(self, process: Contained) -> bool:
        try:
            self._said = process.ask("load")
        except PtxlabError as error:
            self._error = error
        self._stages["compiled"] = self._error is None
        return self._error is None

    def _launch(self, process: Contained, cases: Sequence[Case]) -> None:
        given = cases[0]
        checked = self._asked(process, given, checked=True)
        self._report = report_of(checked["report"])
        self._stages["safe"] = not self._report.failed()
        self._stages["launched"] = checked["fault"] is None
        if checked["fault"] is not None:
            self._error = error_of(checked["fault"])
            return
        self._outcomes = [self._tried(process, case) for case in cases]
        self._stages["right"] = all(outcome.right for outcome in self._outcomes if not outcome.hard)
        bits = self._bits(self._left.get(given.trial.name, {}), given)
        for schedule in ("early", f"random:{self._task.seed}"):
            reply = self._asked(process, given, schedule=schedule)
            if reply["fault"] is not None or self._bits(reply["arrays"], given) != bits:
                self._schedules.append(schedule)
        self._stages["deterministic"] = not self._schedules

    def _asked(self, process: Contained, case: Case, **more: Any) -> Any:
        trial = case.trial
        reply = process.ask(
            "launch",
            arguments=case.given,
            config=case.config,
            aliases=trial.aliases,
            shifted=trial.shifted,
            **more,
        )
        for name, array in reply["arrays"].items():
            reply["arrays"][name] = array.reshape(case.given[name].shape)
        return reply

    @staticmethod
    def _bits(arrays: Mapping[str, Any], case: Case) -> list[bytes]:
        return [arrays[name].tobytes() for name in case.expected if name in arrays]

    def _tried(self, process: Contained, case: Case) -> TrialOutcome:
        trial, writer = case.trial, None
        try:
            reply = self._asked(process, case)
        except PtxlabError as error:
            return TrialOutcome(trial.name, trial.sizes, trial.hard, (), str(error))
        self._left[trial.name] = arrays = reply["arrays"]
        fault = reply["fault"] and str(error_of(reply["fault"]))
        compared = tuple(
            compare(
                name, arrays[name], expected, was_poisoned=bool(is_poison(case.given[name]).all())
            )
            for name, expected in case.expected.items()
        )
        wrong = next((each for each in compared if each.wrong), None)
        if wrong is not None and fault is None and all(o.right or o.hard for o in self._outcomes):
            index = (
                int(np.ravel_multi_index(wrong.index or (), arrays[wrong.name].shape))
                if wrong.index
                else 0
            )
            told = process.ask("written_by", name=wrong.name, index=index)
            writer = Writer(**told) if told else None
        return TrialOutcome(trial.name, trial.sizes, trial.hard, compared, fault, writer)

    def _predicted(self, process: Contained, gpu: str) -> Speed:
        config = self._task.config(self._task.full_sizes)
        try:
            told = process.ask("predict", gpu=gpu, arguments=self._task.shapes(), config=config)
        except PtxlabError as error:
            return Speed(gpu, unknown=str(error).splitlines()[0])
        names = ("seconds", "low", "high", "bound", "bound_by")
        return Speed(gpu, **{name: told[name] for name in names}, advice=_ADVICE.get(told["bound"]))

    def _compare_with(self, baseline: Candidate) -> None:
        other = _KernelJudge(self._task, baseline, None, self._options)
        with Contained(other._job, self._task.limits) as process:
            for at, speed in enumerate(self._speeds):
                predicted = other._predicted(process, speed.gpu)
                if predicted.seconds is not None:
                    told = {name: getattr(speed, name) for name in Speed.__slots__}
                    self._speeds[at] = Speed(**{**told, "baseline": predicted.seconds})

    def judgement(self, seconds: float) -> Judgement:
        seen = (
            tuple(tricks(self._task.cases(), self._outcomes, self._left)) if self._outcomes else ()
        )
        if self._outcomes:
            self._stages["honest"] = not seen
        return Judgement(
            candidate=self._name, kernel=self._said.get("called"), arch=self._task.target.name, seed=self._task.seed,
            sizes=self._task.sizes, full_sizes=self._task.full_sizes, stages=self._stages, error=self._error,
            trials=tuple(self._outcomes), report=self._report, schedules=tuple(self._schedules), tricks=seen,
            speeds=tuple(self._speeds), contained=tuple(self._said["contained"]), seconds=seconds,
        )  # fmt: skip
