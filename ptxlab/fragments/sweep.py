"""Every instruction verified by running it: the probe kernels of all of them, a module for many at a time.

What runs is also assembled for the target it runs on, and what nothing here can run is assembled for
each of its targets: fences of ``wgmma``. So is a warpgroup's multiplication of most n: of each line of the table a few are
run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device, Kernel
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.fragments import receipts
from ptxlab.fragments.probe_kernel import collection, module
from ptxlab.fragments.probes import ProbeKernel, probe_kernels, tried
from ptxlab.fragments.probes.kernel import launch
from ptxlab.fragments.report import Mismatch
from ptxlab.fragments.support import emulated, in_parts
from ptxlab.fragments.verify import leaves_open
from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tcgen05 import TensorCoreProduct
from ptxlab.toolchain import link_ptx
from ptxlab.workers import Progress, results

Status = Literal["hardware", "emulator", "assembled", "failed", "absent"]
Keep = Callable[[ProbeKernel, Array], None]

NAMED = 4
"""Mismatches of an operand that are kept; a layout that is wrong has hundreds."""
SAMPLED = (8, 24)
"""The n of a warpgroup's multiplication that are run of each line of the table: one group of columns, and several."""
_RUN_TOGETHER, _ASSEMBLED_TOGETHER = 24, 256
"""Instructions a module."""


@dataclass(frozen=True, slots=True)
class FormOutcome:
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


@dataclass(frozen=True, slots=True)
class _Job:
    """Instructions that are run together on ``target``, or else only ``assembled`` for it."""

    target: str
    forms: tuple[Form, ...]
    assembled: bool


def sweep(
    device: Device,
    forms: Sequence[Form],
    *,
    everywhere: bool,
    every_n: bool = False,
    progress: Progress = lambda done, total: None,
    keep: Keep | None = None,
    executor: Executor | None = None,
) -> tuple[FormOutcome, ...]:
    """Verify ``forms`` and return what came of each, in their order.

    They run on ``device``, and what it has not is absent; ``everywhere``, on an emulator of the lowest
    target that has each. ``every_n`` runs a warpgroup's multiplications of all n, not of a few of each
    line. ``progress`` is called with instructions done and their total, where one that is assembled counts
    for each target, ``keep`` with what each probe kernel gave. An ``executor`` runs them on emulators, where
    ``device`` is one, and keeps nothing. Raises ToolAbsent without nvJitLink.
    """
    targets = {form.key: _targets(device, form, everywhere) for form in forms}
    jobs = list(_jobs(forms, targets, _able(device, forms, every_n)))
    here = partial(_outcomes, device=device, keep=keep)
    by_form = {form.key: FormOutcome(form, "absent", ()) for form in forms if not targets[form.key]}
    done, total = 0, sum(len(job.forms) for job in jobs)
    for outcomes in results(executor, _outcomes if executor else here, jobs):
        for outcome in outcomes:
            known = by_form.get(outcome.form.key)
            by_form[outcome.form.key] = _both(known, outcome) if known else outcome
        done += len(outcomes)
        progress(done, total)
    return tuple(by_form[form.key] for form in forms)


def _jobs(
    forms: Sequence[Form], targets: Mapping[str, tuple[str, ...]], able: Container[str]
) -> Iterator[_Job]:
    """Yield what there is to do: the able are run where there is something to try, the others assembled for all."""
    groups: dict[tuple[str, bool], list[Form]] = {}
    for form in forms:
        assembled = form.key not in able
        known = targets[form.key]
        for target in known if assembled else _tried_on(form, known):
            groups.setdefault((target, assembled), []).append(form)
    for (target, assembled), group in sorted(groups.items(), key=lambda item: item[0][1]):
        size = _ASSEMBLED_TOGETHER if assembled else _RUN_TOGETHER
        for first in range(0, len(group), size):
            yield _Job(target, tuple(group[first : first + size]), assembled)


def _tried_on(form: Form, targets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first of the targets, and those on which it has more than there."""
    more = form.long_k_targets if isinstance(form, TensorCoreProduct) else ()
    return (*targets[:1], *(target for target in targets[1:] if target in more))


def _able(device: Device, forms: Sequence[Form], every_n: bool) -> set[str]:
    """Return the keys of what the device, or one of its kind, can run, and is to."""
    some = [form for form in forms if tried(form) and (every_n or _sampled(form))]
    if device.kind == "emulator":
        names = emulated(some)
        some = [form for form in some if form.name in names]
    return {form.key for form in some}


def _targets(device: Device, form: Form, everywhere: bool) -> tuple[str, ...]:
    if everywhere:
        return form.targets
    target = device.target
    return (target.name,) if form.runs_on(target) else ()


def _both(known: FormOutcome, other: FormOutcome) -> FormOutcome:
    """Return what came of an instruction that was assembled for one more target, or run there."""
    worse = other if other.status == "failed" else known
    targets = (*known.targets, *other.targets)
    return replace(worse, targets=targets, probes=known.probes + other.probes)


def _outcomes(
    job: _Job, device: Device | None = None, keep: Keep | None = None
) -> list[FormOutcome]:
    """Do a job, on ``device`` where that is its target."""
    if job.assembled:
        outcomes = [FormOutcome(form, "assembled", (job.target,)) for form in job.forms]
        rejected = _rejected(job.forms, job.target, partial(collection, target=job.target))
    else:
        own = {form.key: list(probe_kernels(form, target=job.target)) for form in job.forms}

        def text(some: Sequence[Form]) -> str:
            return module([(form, t.body) for form in some for t in own[form.key]], job.target)

        with _runner(job.target, device) as runner:
            outcomes = list(_run(runner, job.forms, own, text, keep))
            # Elsewhere loading has assembled it.
            rejected = _rejected(job.forms, job.target, text) if runner.kind == "emulator" else {}
    return [
        replace(outcome, status="failed", hardware=None, note=rejected[outcome.form.key])
        if outcome.form.key in rejected
        else outcome
        for outcome in outcomes
    ]


def _runner(target: str, device: Device | None) -> AbstractContextManager[Device]:
    """Return the device, or else an emulator that is closed after use."""
    if device is not None and device.target.name == target:
        return nullcontext(device)
    return closing(open_device("emulator", arch=target))


def _run(
    runner: Device,
    forms: Sequence[Form],
    own: Mapping[str, Sequence[ProbeKernel]],
    text: Callable[[Sequence[Form]], str],
    keep: Keep | None,
) -> Iterator[FormOutcome]:
    """Run the probe kernels of a few instructions, in one module if that loads."""
    proven = receipts.proven() if runner.kind == "emulator" else None
    for some, loaded in in_parts(forms, lambda some: runner.load(text(some))):
        if isinstance(loaded, PtxlabError):
            yield FormOutcome(some[0], "failed", (runner.target.name,), note=loaded.message)
            continue
        kernels = iter(loaded.kernels.values())
        for form in some:
            those = list(islice(kernels, len(own[form.key])))
            gpu = runner.name if proven is None else proven.get(form.key)
            yield _tried(runner, form, gpu, list(zip(own[form.key], those, strict=True)), keep)


def _tried(
    runner: Device,
    form: Form,
    gpu: str | None,
    own: Sequence[tuple[ProbeKernel, Kernel]],
    keep: Keep | None,
) -> FormOutcome:
    status: Status = "hardware" if gpu else "emulator"
    probes = sum(probe_kernel.count for probe_kernel, _ in own)
    outcome = FormOutcome(form, status, (runner.target.name,), probes, hardware=gpu)
    count = 0
    named: dict[str, list[Mismatch]] = {}
    for probe_kernel, kernel in own:
        try:
            words = launch(runner, kernel, probe_kernel)
        except LaunchError as error:
            return replace(outcome, status="failed", hardware=None, note=error.message)
        if keep:
            keep(probe_kernel, words)
        wrong = probe_kernel.wrong(words, leaves_open(runner))
        count += len(wrong)
        for mismatch in probe_kernel.mismatches(words, wrong):
            named.setdefault(mismatch.operand, []).append(mismatch)
    if not count:
        return outcome
    first = tuple(m for of_operand in named.values() for m in of_operand[:NAMED])
    return replace(outcome, status="failed", hardware=None, wrong=count, mismatches=first)


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
