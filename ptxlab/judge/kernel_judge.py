"""A kernel in CUDA C, PTX or machine code judged: what its process is asked, and what is made of the answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ptxlab.device.loading import find_file
from ptxlab.errors import PtxlabError
from ptxlab.judge.candidate import error_of, report_of
from ptxlab.judge.candidate_judge import CandidateJudge
from ptxlab.judge.comparison import compare, is_poison
from ptxlab.judge.contained import Contained, Ended
from ptxlab.judge.judgement import TrialOutcome, Trick, Writer
from ptxlab.judge.speed import Speed, predicted
from ptxlab.judge.task import Case, KernelTask
from ptxlab.judge.tricks import tricks
from ptxlab.judge.triton_function import TritonFunction, compiled, is_triton
from ptxlab.judge.trusted_kernel import TrustedKernel
from ptxlab.launch_config import LaunchConfig

Candidate = str | os.PathLike[str] | Any
"""A .cu or .ptx file, machine code, PTX text, or a function of Triton."""


class KernelJudge(CandidateJudge):
    """Asks the process of one candidate, and keeps what it says."""

    def __init__(
        self, task: KernelTask, candidate: Candidate, kernel: str | None, options: Sequence[str],
        trusted: TrustedKernel | None = None,
    ) -> None:  # fmt: skip
        self._task, self._options, self._trusted = task, options, trusted
        self._triton: TritonFunction | None = None
        self._rejected: PtxlabError | None = None
        if is_triton(candidate):
            function: Any = candidate
            name, source = function.__name__, self._of_triton(function)
        else:
            source = os.fspath(candidate)
            name = "<ptx>" if "\n" in source else source
        file = None if "\n" in source else find_file(source).absolute()
        job = {
            "kind": "kernel", "kernel": kernel, "options": list(options),
            "source": str(file) if file else source, "readable": [str(file.parent)] if file else [],
        }  # fmt: skip
        super().__init__(task, name, job)
        self._left: dict[str, Any] = {}

    def _of_triton(self, function: Any) -> str:
        """Return a function of Triton as PTX, a line for one that does not compile."""
        given = self._task.cases()[0]
        try:
            config: Mapping[str, Any] = given.config
            arguments = given.given
            if self._trusted is not None:
                config = self._trusted.config(given.trial.sizes)
                arguments = self._trusted.named(arguments)
            threads = LaunchConfig.of(**config).cta_threads
            self._triton = compiled(function, arguments, threads, self._task.target)
        except PtxlabError as error:
            self._rejected = error
            return "\n"
        return self._triton.text

    def run(self, gpus: Sequence[str], baseline: Candidate | None = None) -> None:
        """Ask for all stages, and for the time of a kernel to compare with, which by default is a trusted kernel."""
        super().run(gpus)
        reference = self._task.reference
        if baseline is None and isinstance(reference, TrustedKernel):
            other = KernelJudge(self._task, reference.kernel, None, self._options, reference)
            self._compare_with(other, reference.config(self._task.full_sizes))
        elif baseline is not None:
            other = KernelJudge(self._task, baseline, None, self._options)
            self._compare_with(other, self._task.config(self._task.full_sizes))

    def _load(self, process: Contained, given: Case) -> dict[str, Any]:
        if self._rejected is not None:
            raise self._rejected
        said: dict[str, Any] = process.ask("load")
        return said

    def _launch(self, process: Contained, cases: Sequence[Case]) -> None:
        given = cases[0]
        checked = self._asked(process, given, checked=True)
        self._report = report_of(checked["report"])
        self._stages["safe"] = not self._report.failed()
        self._stages["launched"] = checked["fault"] is None
        if checked["fault"] is not None:
            self._error = error_of(checked["fault"])
            return
        for case in cases:
            if self._triton is None or not case.trial.shifted:  # for which Triton compiles anew
                self._outcomes.append(self._tried(process, case))
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
            **self._passed(case.given, case.config),
            aliases=trial.aliases,
            shifted=trial.shifted,
            **more,
        )
        for name, array in reply["arrays"].items():
            reply["arrays"][name] = array.reshape(case.given[name].shape)
        return reply

    def _passed(self, arguments: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments and the configuration of a launch as the kernel itself wants them."""
        if self._triton is None:
            return {"arguments": arguments, "config": config}
        shared = max(config["shared"], self._triton.shared)
        return {
            "arguments": self._triton.passed(arguments),
            "config": {**config, "shared": shared},
        }

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
        if wrong is not None and fault is None and not any(o.writer for o in self._outcomes):
            index = (
                int(np.ravel_multi_index(wrong.index or (), arrays[wrong.name].shape))
                if wrong.index
                else 0
            )
            told = process.ask("written_by", name=wrong.name, index=index)
            writer = Writer(**told) if told else None
        return TrialOutcome(trial.name, trial.sizes, trial.hard, compared, fault, writer)

    def _predicted(self, process: Contained, gpu: str) -> Speed:
        return self._timed(process, gpu, self._task.config(self._task.full_sizes))

    def _timed(self, process: Contained, gpu: str, config: Mapping[str, Any]) -> Speed:
        shapes = self._task.shapes()
        arguments = self._trusted.named(shapes) if self._trusted else shapes
        try:
            told = process.ask("predict", gpu=gpu, **self._passed(arguments, config))
        except PtxlabError as error:
            return Speed(gpu, unknown=str(error).splitlines()[0])
        return predicted(gpu, told)

    def _compare_with(self, other: KernelJudge, config: Mapping[str, Any]) -> None:
        if not self._speeds:
            return
        with suppress(Ended), Contained(other._job, self._task.limits) as process:
            for at, speed in enumerate(self._speeds):
                seconds = other._timed(process, speed.gpu, config).seconds
                self._speeds[at] = replace(speed, baseline=seconds)

    def _seen_tricks(self) -> tuple[Trick, ...]:
        if not self._outcomes:
            return ()
        seen = tuple(tricks(self._task.cases(), self._outcomes, self._left))
        self._stages["honest"] = not seen
        return seen
