"""What the page has to offer: programs, a tour of them, targets and GPUs."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath
from typing import Any

import ptxlab
from ptxlab import resources
from ptxlab.isa.targets import TARGETS
from ptxlab.prediction.chip import names as gpu_names
from ptxlab.syntax.header import read_header
from ptxlab.verbs.lab.tour import STOPS

_RUN = (".ptx", ".cu")

FIRST = "ptx/mma_m16n8k16_bf16_f32.ptx"
"""The program that the page opens with."""

CHOSEN = ("a100", "h100", "rtx4090")
"""The GPUs whose time is predicted until others are chosen."""


@cache
def about() -> dict[str, Any]:
    """Return the version, all programs with what they show, the stops of the tour, targets, and GPUs that are timed."""
    return {
        "version": ptxlab.__version__,
        "examples": [
            {"name": name, "title": read_header(_text(name), name).title}
            for name in resources.names()
            if name.endswith(_RUN)
        ],
        "tour": STOPS,
        "targets": list(TARGETS),
        "gpus": list(gpu_names()),
        "first": FIRST,
        "chosen": CHOSEN,
    }


def example(name: str) -> dict[str, Any]:
    """Return a program of those that come with ptxlab. Raises PtxlabError where there is none of that name."""
    return {"name": PurePosixPath(name).name, "text": _text(name), "example": name}


def _text(name: str) -> str:
    return resources.path(name).read_text(encoding="utf-8")
