"""Predictions kept on disk, found again by all that they follow from: machine code, launch and chip."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

import numpy as np

from ptxlab.cache import cached, source
from ptxlab.isa.occupancy import Occupancy
from ptxlab.machine.launch import Launch
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.resident import Sampled
from ptxlab.prediction.uneven import Uneven
from ptxlab.prediction.what_if import WhatIf

ROOMS = (
    *("isa", "numbers", "layouts", "matrix", "tensormap", "syntax", "toolchain"),
    *("emulator", "machine", "prediction"),
)
"""The rooms whose source says what is predicted: machine code is followed by the emulator's operations."""


def kept(
    image: bytes,
    kernel: str,
    launch: Launch,
    chip: Chip,
    clock: int | None,
    what_if: WhatIf,
    make: Callable[[], Prediction],
) -> Prediction:
    """Return the prediction of a launch of a kernel in a cubin, with changes, made by ``make`` if there is none."""
    regions = [part for region in launch.regions for part in (region.base, region.nbytes)]
    told = (
        kernel,
        launch.config,
        launch.parameters,
        regions,
        launch.banks,
        launch.floats,
        dict(launch.assumed),
        chip,
        clock,
        str(what_if),
    )
    data = [
        blake2b(np.ascontiguousarray(region.data).view(np.uint8).data).digest()
        for region in launch.regions
        if region.data is not None
    ]
    key: Iterable[str | bytes] = (source(*ROOMS), image, repr(told), *data)
    return _read(cached("prediction", key, lambda: json.dumps(asdict(make())).encode()))


def _read(stored: bytes) -> Prediction:
    fields: dict[str, Any] = json.loads(stored)
    fields["occupancy"] = Occupancy(**fields["occupancy"])
    fields["uneven"] = fields["uneven"] and Uneven(**fields["uneven"])
    fields["sampled"] = Sampled(**fields["sampled"])
    fields |= {name: tuple(fields[name]) for name in ("not_modelled", "lines", "what_if")}
    fields["by_instruction"] = {int(n): part for n, part in fields["by_instruction"].items()}
    return Prediction(**fields)
