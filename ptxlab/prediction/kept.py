"""Predictions kept on disk, found again by all that they follow from: machine code, launch and chip."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ptxlab.isa.occupancy import Occupancy
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.launch import Launch
from ptxlab.prediction.model import Prediction
from ptxlab.toolchain.cache import cached


def kept(
    image: bytes,
    kernel: str,
    launch: Launch,
    chip: Chip,
    clock: int | None,
    make: Callable[[], Prediction],
) -> Prediction:
    """Return the prediction of a launch of a kernel in a cubin, made by ``make`` if there is none."""
    regions = [part for region in launch.regions for part in (region.base, region.nbytes)]
    told = (kernel, launch.config, launch.parameters, regions, chip, clock)
    data = [
        np.ascontiguousarray(one.data).tobytes() for one in launch.regions if one.data is not None
    ]
    key: Iterable[str | bytes] = (_model(), image, repr(told), *data)
    return _read(cached("prediction", key, lambda: json.dumps(asdict(make())).encode()))


@cache
def _model() -> bytes:
    """Return what the model is: the digest of its own text."""
    digest = hashlib.sha256()
    for room in ("ptxlab.prediction", "ptxlab.isa"):
        for file in sorted(files(room).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.digest()


def _read(stored: bytes) -> Prediction:
    found: dict[str, Any] = json.loads(stored)
    found["occupancy"] = Occupancy(**found["occupancy"])
    found["not_modelled"] = tuple(found["not_modelled"])
    found["by_instruction"] = {int(n): part for n, part in found["by_instruction"].items()}
    return Prediction(**found)
