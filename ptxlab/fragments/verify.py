"""Looking at an instruction on a device: launch, dump, compare, report."""

from __future__ import annotations

from os import PathLike

from ptxlab.device.protocol import Device
from ptxlab.errors import Unsupported
from ptxlab.fragments import receipts
from ptxlab.fragments.dump import run_generated, run_handwritten
from ptxlab.fragments.handwritten import handwritten, mismatches, verifiable
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.report import FragmentReport, Mismatch, Run
from ptxlab.fragments.specimen import module
from ptxlab.fragments.trials import Trial, trials
from ptxlab.fragments.trials.trial import launch
from ptxlab.matrix.form import Form


def verify(
    device: Device,
    instruction: Form,
    fill: Fill = "numbered",
    ptx: str | PathLike[str] | None = None,
) -> FragmentReport:
    """Run ``instruction`` on ``device`` and compare registers and result with the prediction.

    ``fill`` is what the report shows. Of an instruction with a handwritten program, that is run:
    launches with numbered A and B and with an addressed C and D follow, because only they tell every
    element from every other. ``ptx`` is another such program, with the same parameters (file or text).
    Of all others a generated program shows the fill, and one-hot probes tell the elements. Raises
    Unsupported when the device's target has no such instruction, or ptxlab no program for it.
    """
    if not instruction.runs_on(device.target):
        raise Unsupported(
            f"{instruction.name} needs {instruction.minimum_target}, "
            f"the device is {device.target.name}",
            hint="--device emulator plays any target" if device.kind != "emulator" else None,
        )
    if ptx is not None or instruction in verifiable():
        runs, found = _handwritten(device, instruction, fill, ptx)
        probes, own_layout = 0, False
    else:
        runs = (run_generated(device, instruction, fill),)
        probes, found, own_layout = _probed(device, instruction)
    proven = device.kind == "cuda" and not any(m.where != "memory" for m in found)
    return FragmentReport(
        instruction=instruction,
        device_kind=device.kind,
        device_name=device.name,
        target=device.target,
        runs=runs,
        probes=probes,
        mismatches=found,
        hardware=device.name if proven else receipts.hardware(instruction),
        own_layout=own_layout,
    )


def leaves_open(device: Device) -> bool:
    """Say whether the device's own choices, where PTX promises nothing, are unknown.

    The layouts of ``wmma`` are those of ptxlab's emulator alone.
    """
    return device.kind != "emulator"


def _handwritten(
    device: Device, instruction: Form, fill: Fill, ptx: str | PathLike[str] | None
) -> tuple[tuple[Run, ...], tuple[Mismatch, ...]]:
    known, own = handwritten(instruction)
    fills: tuple[Fill, ...] = (fill, "numbered", "addressing")
    runs = run_handwritten(device, known, own if ptx is None else ptx, dict.fromkeys(fills))
    return runs, mismatches(known, runs)


def _probed(device: Device, form: Form) -> tuple[int, tuple[Mismatch, ...], bool]:
    """Return how many probes ran, what is wrong, and whether what PTX leaves open is other than here."""
    every: list[Trial] = list(trials(form))
    bodies = [(form, trial.body) for trial in every]
    loaded = device.load(module(bodies, device.target.name))
    found: list[Mismatch] = []
    other = False
    for trial, kernel in zip(every, loaded.kernels.values(), strict=True):
        words = launch(device, kernel, trial)
        wrong = trial.wrong(words, leaves_open(device))
        found += trial.mismatches(words, wrong)
        other |= len(trial.wrong(words, promised_only=False)) > len(wrong)
    return sum(trial.count for trial in every), tuple(found), other
