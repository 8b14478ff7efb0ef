"""How fast a candidate would be on a GPU, and what would help it most: each change is a prediction, not a rule of thumb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptxlab.prediction.model import Prediction

ADVICE = {
    "occupancy": "fewer registers or less shared memory a CTA, so that one more shares an SM",
    "smem=conflict-free": "shared memory laid out so that no lanes meet in a bank: padding, or a swizzle",
    "dram=inf": "fewer bytes of DRAM: reuse what is loaded, or a narrower type",
    "l2=inf": "less from L2: reuse more in shared memory or registers",
    "stalls=0": "more independent work in each warp, so that instructions wait less for each other",
    "ports=inf": "fewer operands that are read at once: reuse registers from one instruction to the next",
    "lsu=inf": "fewer requests to shared memory and L1: wider loads, accesses that lie together, tiles in registers",
    "tensor=inf": "a narrower type, or fewer products: tensor cores are what it takes",
    "fma=inf": "tensor cores, packed types, or fewer operations: FP32 is what it takes",
    "alu=inf": "fewer integer instructions: addresses and indices outside of loops",
    "xu=inf": "fewer special functions and conversions",
    "ctas=inf": "more work in a CTA: several elements a thread, or CTAs that stay and take what comes next",
    "launch=0": "more work in a launch, which is what most of the time is for",
}
"""What to do, by the change of ``ptxlab.prediction.what_if`` that saves most."""

LEAST = 0.01
"""What a change saves at least of the time to be told."""


@dataclass(frozen=True, slots=True)
class Speed:
    """The predicted time on a GPU at the full sizes, or ``unknown`` why there is none.

    ``bound`` and ``bound_by`` are those of ``Prediction``. ``change`` is what would save most of all that a kernel can change,
    ``advice`` how that is done, and ``changed`` the seconds that it would take then. ``baseline`` is the predicted time in seconds
    of the kernel it is compared with.
    """

    gpu: str
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    bound: str | None = None
    bound_by: str | None = None
    change: str | None = None
    changed: float | None = None
    advice: str | None = None
    baseline: float | None = None
    unknown: str | None = None

    @property
    def speedup(self) -> float | None:
        return self.baseline / self.seconds if self.baseline and self.seconds else None


def plain(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Return what a candidate's process tells of its launches: their times together, the longest one's bound."""
    longest = max(predictions, key=lambda each: each.seconds)
    saved: dict[str, float] = {}
    for prediction in predictions:
        for each in prediction.what_if:
            name = "occupancy" if each.change.startswith("occupancy") else each.change
            saved[name] = saved.get(name, 0.0) + prediction.seconds - each.seconds
    times = ("seconds", "low", "high")
    return {
        **{name: sum(getattr(each, name) for each in predictions) for name in times},
        "bound": longest.bound,
        "bound_by": longest.bound_by,
        "saved": saved,
    }


def predicted(gpu: str, told: Mapping[str, Any]) -> Speed:
    """Return what a candidate's process told of a prediction, with the change that would save most.

    What a launch itself takes, which no kernel changes, is told where nothing else would save.
    """
    names = ("seconds", "low", "high", "bound", "bound_by")
    speed = Speed(gpu, **{name: told[name] for name in names})
    least = LEAST * told["seconds"]
    saved = {name: each for name, each in told["saved"].items() if each >= least}
    best = max(saved, key=lambda name: (name != "launch=0", saved[name]), default=None)
    if best is None:
        return speed
    return replace(speed, change=best, changed=told["seconds"] - saved[best], advice=ADVICE[best])
