"""Trials on a device: one module for many, a launch for each."""

from __future__ import annotations

from collections.abc import Sequence

from ptxlab.device.protocol import Device, Kernel
from ptxlab.fragments.numbers import Array
from ptxlab.fragments.specimen import header
from ptxlab.fragments.trials.trial import Body, Trial
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import Form

KERNEL = "trial"


def module(kernels: Sequence[tuple[Form, Body]], target: str) -> str:
    """Return the PTX of one kernel each, ``trial0`` and so on."""
    texts = (body.kernel(f"{KERNEL}{i}") for i, (_, body) in enumerate(kernels))
    return "\n".join([*header(target, [form for form, _ in kernels]), *texts]) + "\n"


def launch(device: Device, kernel: Kernel, trial: Trial, *more: object) -> Array:
    """Run all probes of a trial and return the records they wrote; ``more`` are further arguments."""
    with (
        device.upload(trial.given) as given,
        device.zeros(trial.expected.shape, "u64") as found,
    ):
        kernel.launch(trial.count, WARP, [given, found, *more])
        return found.numpy()
