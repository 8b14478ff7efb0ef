"""A module of PyTorch judged: what its process is asked, and what is made of the answers."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxlab.errors import PtxlabError
from ptxlab.judge.candidate import error_of, report_of
from ptxlab.judge.candidate_judge import CandidateJudge
from ptxlab.judge.comparison import Compared, compare, wrong
from ptxlab.judge.contained import Contained
from ptxlab.judge.judgement import TrialOutcome, Trick, Writer
from ptxlab.judge.speed import Speed, predicted
from ptxlab.judge.trials import AGAIN, GIVEN

if TYPE_CHECKING:
    from ptxlab.judge.module_task import ModuleCase, ModuleTask

_PLAIN = ("torch.Tensor", "torch.nn.parameter.Parameter")


class ModuleJudge(CandidateJudge):
    """Asks the process of one module, and keeps what it says."""

    def __init__(self, task: ModuleTask, candidate: str | os.PathLike[str]) -> None:
        self._task, name = task, os.fspath(candidate)
        path = os.path.abspath(name)
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise PtxlabError(f"cannot read {name}: {error}") from None
        super().__init__(
            task, name, {"kind": "module", "file": path, "text": text, "readable": [path]}
        )
        self._replies: dict[str, Any] = {}
        self._seen = {trick.name: trick for trick in _of_text(text)}

    def _load(self, process: Contained, given: ModuleCase) -> dict[str, Any]:
        seed = self._task.seed
        said: dict[str, Any] = process.ask(
            "load", seed=seed, initial=given.initial, state=given.state
        )
        return said

    def _launch(self, process: Contained, cases: Sequence[ModuleCase]) -> None:
        given = cases[0]
        try:
            checked = process.ask("call", inputs=given.inputs, checked=True)
        except (
            PtxlabError
        ) as error:  # which Triton raises for what it cannot compile, and Python for anything
            self._error = error
            self._stages["launched"] = False
            return
        self._stages["launched"] = checked["fault"] is None
        self._report = report_of(checked["reports"][0]) if checked["reports"] else None
        self._stages["safe"] = self._report is None
        if checked["fault"] is not None:
            self._error = error_of(checked["fault"])
            return
        for case in cases:
            self._outcomes.append(self._tried(process, case))
        self._stages["right"] = all(outcome.right for outcome in self._outcomes if not outcome.hard)
        first = self._bits(self._replies.get(GIVEN))
        for schedule in ("early", f"random:{self._task.seed}"):
            reply = process.ask("call", inputs=given.inputs, schedule=schedule)
            if self._bits(reply) != first:
                self._schedules.append(schedule)
        self._stages["deterministic"] = not self._schedules
        for trick in self._tricks(cases):
            self._seen.setdefault(trick.name, trick)
        self._stages["honest"] = not self._seen

    @staticmethod
    def _bits(reply: Any) -> list[bytes | None]:
        return (
            [None if each is None else each.tobytes() for each in reply["outputs"]] if reply else []
        )

    def _tried(self, process: Contained, case: ModuleCase) -> TrialOutcome:
        try:
            if case.sizes != self._task.sizes:
                process.ask("make", seed=self._task.seed, initial=case.initial, state=case.state)
            reply = process.ask("call", inputs=case.inputs, again=case.name == AGAIN)
            if case.sizes != self._task.sizes:
                given = self._task.cases()[0]
                process.ask("make", seed=self._task.seed, initial=given.initial, state=given.state)
        except PtxlabError as error:
            return TrialOutcome(case.name, case.sizes, case.hard, (), str(error))
        self._replies[case.name] = reply
        if reply["fault"] is not None:
            return TrialOutcome(case.name, case.sizes, case.hard, (), str(error_of(reply["fault"])))
        outputs, answers = reply["outputs"], case.answers
        fault = None
        if len(outputs) != len(answers):
            fault = f"it answers {len(outputs)} tensors, the reference {len(answers)}"
        compared: list[Compared] = []
        for number, (output, answer, dtype) in enumerate(
            zip(outputs, answers, case.dtypes, strict=False)
        ):
            if output is None:
                fault = f"its answer is a {reply['kinds'][number]}, and no tensor"
            elif output.shape != answer.value.shape:
                fault = f"its answer is {list(output.shape)}, the reference's {list(answer.value.shape)}"
            elif output.dtype != dtype:
                fault = f"its answer is of {output.dtype}, the reference's of {dtype}"
            else:
                compared.append(compare(f"answer {number}", output, answer, was_poisoned=False))
        outcome = TrialOutcome(case.name, case.sizes, case.hard, tuple(compared), fault)
        if (
            fault is None
            and case.sizes == self._task.sizes
            and not any(o.writer for o in self._outcomes)
        ):
            return self._with_writer(process, case, outcome)
        return outcome

    def _with_writer(
        self, process: Contained, case: ModuleCase, outcome: TrialOutcome
    ) -> TrialOutcome:
        """Return the first outcome that is wrong with who wrote its first wrong element."""
        wrong = next((at for at, each in enumerate(outcome.compared) if each.wrong), None)
        if wrong is None:
            return outcome
        index = outcome.compared[wrong].index or ()
        shape = case.answers[wrong].value.shape
        flat = int(np.ravel_multi_index(index, shape)) if index else 0
        try:
            told = process.ask("written_by", inputs=case.inputs, number=wrong, index=flat)
        except PtxlabError:  # of a module that another call ends
            return outcome
        return replace(outcome, writer=Writer(**told) if told else None)

    def _tricks(self, cases: Sequence[ModuleCase]) -> Iterator[Trick]:
        by_name = {case.name: case for case in cases}
        given, again = self._replies.get(GIVEN), self._replies.get(AGAIN)
        for reply in self._replies.values():
            yield from _of_call(reply)
        if given and again:
            for number, answer in enumerate(by_name[AGAIN].answers):
                yield from _old(number, given, again, by_name[GIVEN].answers[number], answer)
        outcomes = {outcome.name: outcome.right for outcome in self._outcomes}
        if outcomes[GIVEN] and outcomes[AGAIN] and not outcomes.get("larger sizes", True):
            yield Trick(
                "only these sizes", "it is right for these sizes, and wrong for larger ones"
            )
        if outcomes[GIVEN] and not outcomes[AGAIN] and not self._seen:
            yield Trick(
                "only these numbers", "it is right for the first numbers, and wrong for others"
            )

    def _predicted(self, process: Contained, gpu: str) -> Speed:
        try:
            initial, inputs, state = self._task.shapes()
            process.ask("make", seed=self._task.seed, initial=initial, state=state)
            return predicted(gpu, process.ask("predict", gpu=gpu, inputs=inputs))
        except PtxlabError as error:
            return Speed(gpu, unknown=str(error).splitlines()[0])

    def _seen_tricks(self) -> tuple[Trick, ...]:
        return tuple(self._seen.values())


def _of_text(text: str) -> Iterator[Trick]:
    """Yield what a program shows that nobody has run: that it asks for its judge by name."""
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except SyntaxError:  # which its process is told
        return
    remarks = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        known = [getattr(node, key, None) for key in ("value", "id", "attr", "name")]
        for said in (each for each in known if isinstance(each, str) and id(node) not in remarks):
            if "ptxlab" in said.lower():
                where = f"line {getattr(node, 'lineno', 1)}"
                yield Trick("asks who judges", f"{where} has {said[:40]!r}")


def _of_call(reply: Mapping[str, Any]) -> Iterator[Trick]:
    """Yield what a call shows by itself."""
    operations = reply["operations"]
    computed = sum(operations.values())
    if not reply["launches"]:
        yield Trick("no kernel", "it launches none")
    elif computed and not all(reply["written"]):
        yield Trick("a kernel for show", "no kernel that it launches writes its answer")
    made = sum(each.size for each in reply["outputs"] if each is not None)
    if computed:
        most = ", ".join(sorted(operations, key=lambda name: -operations[name])[:3])
        yield Trick(
            "a library's work",
            f"PyTorch computes {computed} elements ({most}) for an answer of {made}",
        )
    if made and 2 * reply["uploaded"] >= made:
        yield Trick(
            "computes on the host",
            f"{reply['uploaded']} elements come from the CPU in the call, for an answer of {made}",
        )
    if reply["launches"] and reply["unseen"]:
        yield Trick(
            "computes on the host",
            "its answer is what neither a kernel nor PyTorch has written there",
        )
    if reply["changed_inputs"]:
        yield Trick(
            "writes its inputs", f"input {reply['changed_inputs'][0]} is changed by the call"
        )
    if reply["threads"] > 0:
        yield Trick("goes on in threads", "threads that it began are there when it has answered")
    if reply["patched"]:
        yield Trick(
            "replaces functions", f"{', '.join(reply['patched'][:3])} are others than before"
        )
    lazy = [kind for kind in reply["kinds"] if kind not in _PLAIN]
    if lazy:
        yield Trick("a lazy answer", f"its answer is a {lazy[0]}, and no plain tensor")


def _old(number: int, given: Any, again: Any, before: Any, answer: Any) -> Iterator[Trick]:
    old, new = given["outputs"][number], again["outputs"][number]
    if (
        old is None
        or new is None
        or new.shape != answer.value.shape
        or not wrong(new, answer)[0].any()
    ):
        return
    if not wrong(new, before)[0].any():
        yield Trick("an answer of before", "it answers what was right for the call before")
    elif old.tobytes() == new.tobytes():
        yield Trick("the same answer always", "it answers the same to different numbers")
