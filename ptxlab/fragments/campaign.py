"""Every instruction verified by running it: the trials of all of them, a module for many at a time.

What runs is also assembled for the target it runs on, and what nothing here can run is assembled for
each of its targets, by ptxas in another thread. So is a warpgroup's multiplication of most n: of each
line of the table a few are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal, TypeVar

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device, Kernel
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.fragments import receipts
from ptxlab.fragments.numbers import Array
from ptxlab.fragments.report import Mismatch
from ptxlab.fragments.specimen import collection, module
from ptxlab.fragments.support import emulated, in_parts
from ptxlab.fragments.trials import Trial, trials, tried
from ptxlab.fragments.trials.trial import launch
from ptxlab.fragments.verify import leaves_open
from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.toolchain import link_ptx

Status = Literal["hardware", "emulator", "assembled", "failed", "absent"]
Progress = Callable[[int, int], None]
Keep = Callable[[Trial, Array], None]
Item = TypeVar("Item")

NAMED = 4
"""Mismatches of an operand that are kept; a layout that is wrong has hundreds."""
SAMPLED = (8, 24)
"""The n of a warpgroup's multiplication that are run of each line of the table: one group of columns, and several."""
_RUN_TOGETHER, _ASSEMBLED_TOGETHER = 24, 256
"""Instructions a module."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one instruction on ``targets``.

    "hardware" and "emulator": ``probes`` gave what was predicted, also on the GPU ``hardware``, just now
    or as a receipt says, or on the emulator alone. "assembled": nothing here runs it, and ptxas takes
    it. "absent": no target that was asked for has it. "failed": ``wrong`` words differ, in
    ``mismatches`` first of all, or else ``note`` says what is the matter.
    """

    form: Form
    status: Status
    targets: tuple[str, ...]
    probes: int = 0
    wrong: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    hardware: str | None = None
    note: str = ""


def campaign(
    device: Device,
    forms: Sequence[Form],
    *,
    everywhere: bool,
    every_n: bool = False,
    progress: Progress = lambda done, total: None,
    keep: Keep = lambda trial, found: None,
) -> tuple[Outcome, ...]:
    """Verify ``forms`` and return what came of each, in their order.

    They run on ``device``, and what it has not is absent; ``everywhere``, on an emulator of the lowest
    target that has each. ``every_n`` runs a warpgroup's multiplications of all n, not of a few of each
    line. ``progress`` is called with instructions done and their total, ``keep`` with
    what each trial gave. Raises ToolAbsent without nvJitLink.
    """
    found: dict[str, Outcome] = {}
    assembler = ThreadPoolExecutor(1)
    work = _Campaign(device, everywhere, every_n, keep, assembler)
    try:
        for outcome in work.outcomes(forms):
            found[outcome.form.key] = outcome
            progress(len(found), len(forms))
        for key, message in work.rejected():
            found[key] = replace(found[key], status="failed", hardware=None, note=message)
    finally:
        assembler.shutdown(cancel_futures=True)  # after an interrupt there are some left
    return tuple(found[form.key] for form in forms)


class _Campaign:
    """One round of verification. ``jobs`` give, by key, why ptxas rejects an instruction."""

    def __init__(
        self,
        device: Device,
        everywhere: bool,
        every_n: bool,
        keep: Keep,
        assembler: ThreadPoolExecutor,
    ) -> None:
        self.device = device
        self.everywhere = everywhere
        self.every_n = every_n
        self.keep = keep
        self.assembler = assembler
        self.jobs: list[Future[dict[str, str]]] = []
        self.proven = receipts.proven()

    def outcomes(self, forms: Sequence[Form]) -> Iterator[Outcome]:
        """Yield what comes of each, as if all of it assembled."""
        running: dict[str, list[Form]] = {}
        others: dict[str, list[Form]] = {}
        able = self._able(forms)
        for form in forms:
            targets = self._targets(form)
            if not targets:
                yield Outcome(form, "absent", ())
            elif form.key in able:
                running.setdefault(targets[0], []).append(form)
            else:
                for target in targets:
                    others.setdefault(target, []).append(form)
        assembling = [
            (some, self._assemble(some, target, partial(collection, target=target)))
            for target, group in others.items()
            for some in _chunks(group, _ASSEMBLED_TOGETHER)
        ]
        for target, group in running.items():
            with self._runner(target) as runner:
                for some in _chunks(group, _RUN_TOGETHER):
                    yield from self._run(runner, some)
        for some, job in assembling:
            wait([job])
            yield from (Outcome(form, "assembled", self._targets(form)) for form in some)

    def rejected(self) -> Iterator[tuple[str, str]]:
        """Yield the keys of what ptxas rejects, each with what it says."""
        for job in self.jobs:
            yield from job.result().items()

    def _able(self, forms: Sequence[Form]) -> set[str]:
        """Return the keys of what the device, or one of its kind, can run, and is to."""
        some = [form for form in forms if tried(form) and (self.every_n or _sampled(form))]
        if self.device.kind == "emulator":
            names = emulated(some)
            some = [form for form in some if form.name in names]
        return {form.key for form in some}

    def _targets(self, form: Form) -> tuple[str, ...]:
        if self.everywhere:
            return form.targets
        target = self.device.target
        return (target.name,) if form.runs_on(target) else ()

    def _runner(self, target: str) -> AbstractContextManager[Device]:
        """Return the device, or else an emulator that is closed after use."""
        if self.device.target.name == target:
            return nullcontext(self.device)
        return closing(open_device("emulator", arch=target))

    def _run(self, runner: Device, forms: Sequence[Form]) -> Iterator[Outcome]:
        """Run the trials of a few instructions, in one module if that loads."""
        target = runner.target.name
        own = {form.key: list(trials(form)) for form in forms}

        def text(some: Sequence[Form]) -> str:
            return module([(form, t.body) for form in some for t in own[form.key]], target)

        for some, loaded in in_parts(forms, lambda some: runner.load(text(some))):
            if isinstance(loaded, PtxlabError):
                yield Outcome(some[0], "failed", (target,), note=loaded.message)
                continue
            if runner.kind == "emulator":  # elsewhere loading has assembled it
                self._assemble(some, target, text)
            kernels = iter(loaded.kernels.values())
            for form in some:
                those = list(islice(kernels, len(own[form.key])))
                yield self._tried(runner, form, own[form.key], those)

    def _tried(
        self, runner: Device, form: Form, own: Sequence[Trial], kernels: Sequence[Kernel]
    ) -> Outcome:
        gpu = self.proven.get(form.key) if runner.kind == "emulator" else runner.name
        status: Status = "hardware" if gpu else "emulator"
        probes = sum(trial.count for trial in own)
        outcome = Outcome(form, status, (runner.target.name,), probes, hardware=gpu)
        count = 0
        named: dict[str, list[Mismatch]] = {}
        for trial, kernel in zip(own, kernels, strict=True):
            try:
                found = launch(runner, kernel, trial)
            except LaunchError as error:
                return replace(outcome, status="failed", hardware=None, note=error.message)
            self.keep(trial, found)
            wrong = trial.wrong(found, leaves_open(runner))
            count += len(wrong)
            for mismatch in trial.mismatches(found, wrong):
                named.setdefault(mismatch.operand, []).append(mismatch)
        if not count:
            return outcome
        first = tuple(m for of_operand in named.values() for m in of_operand[:NAMED])
        return replace(outcome, status="failed", hardware=None, wrong=count, mismatches=first)

    def _assemble(
        self, forms: Sequence[Form], target: str, text: Callable[[Sequence[Form]], str]
    ) -> Future[dict[str, str]]:
        self.jobs.append(self.assembler.submit(_rejected, forms, target, text))
        return self.jobs[-1]


def _sampled(form: Form) -> bool:
    """Say whether a form is run: the n of a line, which one layout and one formula serve, are many."""
    return not (isinstance(form, MatrixInstruction) and form.shared) or form.n in SAMPLED


def _rejected(
    forms: Sequence[Form], target: str, text: Callable[[Sequence[Form]], str]
) -> dict[str, str]:
    """Return what ptxas says of those it rejects, by key."""
    linked = in_parts(forms, lambda some: link_ptx(text(some), arch=target))
    return {
        some[0].key: f"on {target}: {made.message}"
        for some, made in linked
        if isinstance(made, PtxlabError)
    }


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
