"""How long a launch would take: CTAs of one SM, then the whole grid.

A grid of CTAs that are alike comes in generations that fill all SMs, and a last one that may not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from ptxlab.errors import PtxlabError
from ptxlab.isa.gpus import Gpu
from ptxlab.isa.occupancy import Occupancy, occupancy
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.pictured import Readable
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.following.slow_paths import divides, prints
from ptxlab.prediction.following.waiting_loops import over_at_once
from ptxlab.prediction.grid import GridRun, of_alike, of_uneven
from ptxlab.prediction.lines import PredictedLine
from ptxlab.prediction.memory import atomics
from ptxlab.prediction.memory.dram_queue import DramQueue
from ptxlab.prediction.memory.l2 import Reuse
from ptxlab.prediction.resident import ResidentModel, Sampled
from ptxlab.prediction.sm.issues import PredictedIssues
from ptxlab.prediction.sm.requests import SECTOR
from ptxlab.prediction.sm.run import OF_SM, PARTITIONS, Run
from ptxlab.prediction.sm.timing import multiplying
from ptxlab.prediction.sm.work import operations
from ptxlab.prediction.survey import Survey, survey
from ptxlab.prediction.uneven import Uneven
from ptxlab.prediction.what_if import NOTHING, WhatIf

MOSTLY = 0.6
"""What is used for less of the time does not bound it: waiting does."""

BOUNDS = ("issue", "lsu", "l2", "stores", "dram", "atomics", "ctas")
"""What bounds a launch that is no pipe: ``stores`` on their way to L2, and how fast ``ctas`` begin among it."""

MODELLED = 0.09
"""The mean error of the model on published kernels, see docs/predict.md; the range says so."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a launch would take with a ``change``: ``seconds``, and what it would be bound by."""

    change: str
    seconds: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class Prediction(Readable):
    """A launch on a GPU that is not here.

    ``seconds`` at the stated ``clock_mhz``, with an L2 cache that is ``cold`` or has what a launch before left, between ``low`` and ``high`` by the error the model has shown;
    ``cycles`` of an SM's clock for the whole grid. ``bound`` is one of ``BOUNDS``, pipe, or latency where
    none of them is used for most of the time, and ``bound_by`` what it is, of ``used``, the parts of the time. ``stalls`` is the
    part of the warps' time by reason, in Nsight Compute's words, ``by_instruction`` and ``lines`` have the same for each.
    ``generations`` are how many times all SMs fill, ``tail`` the CTAs left over, ``uneven`` how CTAs differ, None
    where they do not, ``sampled`` what of all was looked at. ``tflops`` counts what machine code computes, tensor cores and FMA pipes together, of all lanes; None
    with tcgen05, whose sizes are in descriptors; ``peak_tflops`` are those of the pipe that most of them are on.
    ``dram_bytes`` are loaded and stored, of ``peak_bandwidth`` GB/s at most. ``hits`` are the parts of the sectors that loads
    ask of L1 and of L2 which are there, by cache, of those that are asked. ``what_if`` are the changes that were asked about, first those that save most time.
    """

    gpu: str
    arch: str
    clock_mhz: int
    cold: bool
    cycles: float
    seconds: float
    low: float
    high: float
    bound: str
    bound_by: str
    used: dict[str, float]
    stalls: dict[str, float]
    by_instruction: dict[int, dict[str, float]]
    occupancy: Occupancy
    generations: int
    tail: int
    uneven: Uneven | None
    sampled: Sampled
    not_modelled: tuple[str, ...]
    tflops: float | None
    peak_tflops: float | None
    dram_bytes: float
    peak_bandwidth: float
    hits: dict[str, float]
    kernel: str = ""
    lines: tuple[PredictedLine, ...] = ()
    what_if: tuple[Changed, ...] = ()

    def __repr__(self) -> str:
        where = f"{self.gpu} at {self.clock_mhz:,} MHz"
        return f"<prediction: {self.seconds:.3g} s on {where}, bound by {self.bound_by}>"


class LaunchModel:
    """A launch of a kernel on a chip, at a ``clock`` in MHz: if None the highest that its limit of power leaves.

    ``registers`` of a thread and ``shared``, bytes static and dynamic, are those ptxas told. Raises PtxlabError where no
    CTA fits into an SM.
    """

    def __init__(
        self,
        code: Sequence[DecodedInstruction],
        launch: Launch,
        chip: Chip,
        *,
        registers: int,
        shared: int,
        clock: int | None = None,
    ) -> None:
        x, y, z = launch.config.block
        self.fits = occupancy(launch.target, x * y * z, registers=registers, shared=shared)
        if not self.fits.ctas:
            raise PtxlabError(
                "no CTA of this kernel fits into an SM", hint="see ptxlab sass --summary"
            )
        self._told, self._base = clock, chip
        self._clock = clock or chip.gpu.clock
        self._chip = chip.at(self._clock)
        self._ctas = int(np.prod(launch.config.grid))
        if any(instruction.does == "next cluster" for instruction in code):
            at_once = chip.gpu.sms // launch.cluster * launch.cluster * self.fits.ctas
            self._ctas = min(self._ctas, at_once)
            launch = replace(launch, running=self._ctas)
        self._code, self._launch = code, launch
        self._model = ResidentModel(code, launch, self._chip, shared)

    @cached_property
    def _survey(self) -> Survey:
        return survey(self._code, self._launch)

    def issues(self, most: int) -> PredictedIssues:
        """Predict when the warps of the first CTA issue what, ``most`` instructions of it.

        Raises Unsupported as ``predict`` does.
        """
        chip, model, sms = self._chip, self._model, self._chip.gpu.sms
        together = min(self.fits.ctas, -(-self._ctas // sms))
        followed = model.followed(model.apart(together))
        issues, left_out = model.issues(followed, model.reuse(followed), min(self._ctas, sms))
        return PredictedIssues(
            chip.gpu.name,
            self._launch.target.name,
            self._clock,
            together,
            tuple(instruction.sass for instruction in self._code),
            tuple(issues[:most]),
            left_out + max(0, len(issues) - most),
        )

    def predict(self, what_if: WhatIf = NOTHING) -> Prediction:
        """Predict how long the launch takes if something were otherwise.

        Raises Unsupported where something decides that is not computed, or is not modelled.
        """
        products = [i for i in self._code if i.multiplies_matrices]
        multiplied = max((multiplying(i, self._base) for i in products), default=0.0)
        gpu = self._base.gpu
        if self._told or gpu.clock_at(multiplied, 1.0) >= self._clock:
            return self._predict(what_if)
        rough = self._ran(self._model.changed(what_if), what_if, roughly=True)
        used = self._told_of(what_if, self._model, rough).used
        clock = gpu.clock_at(used.get("tensor", 0.0) * multiplied, used["fma"])
        model = self._at(clock) if clock < self._clock else self
        return model._predict(what_if, rough)

    def _predict(self, what_if: WhatIf, rough: GridRun | None = None) -> Prediction:
        """Predict it at this clock, beginning from a ``rough`` run at another if there is one."""
        model = self._model.changed(what_if)
        queued = cache(lambda wait: self._ran(model.queued(wait), what_if))
        begun, hertz = rough or queued(0.0), self._clock * 1e6
        queue = DramQueue.of(self._chip, begun.reuse)
        wait = queue.settled(lambda wait: queued(wait).cycles / hertz, begun.cycles / hertz)
        return self._told_of(what_if, model, queued(wait))

    def _ran(self, model: ResidentModel, what_if: WhatIf, roughly: bool = False) -> GridRun:
        sms, survey, fit = self._chip.gpu.sms, self._survey, what_if.fits(self.fits).ctas
        if survey.alike:
            return of_alike(model, survey, self._ctas, fit, sms, roughly)
        return of_uneven(model, survey, self._ctas, fit, sms)

    def _at(self, clock: int) -> LaunchModel:
        other = copy(self)
        other._clock, other._chip = clock, self._base.at(clock)
        other._model = self._model.on(other._chip)
        return other

    def _told_of(self, what_if: WhatIf, model: ResidentModel, ran: GridRun) -> Prediction:
        """Say what comes of a grid that a model has run."""
        chip, fits, code = self._chip, what_if.fits(self.fits), self._code
        ctas, sms, hertz = self._ctas, chip.gpu.sms, self._clock * 1e6
        run, cycles, reuse = ran.run, ran.cycles, ran.reuse
        outside = {
            "dram": chip.dram_seconds(reuse.loaded, reuse.stored, reuse.pieces),
            "ctas": ctas * what_if.chip(chip).cta / hertz,
        }
        if self._survey.atomic_cycles:
            outside["atomics"] = self._survey.atomic_cycles / hertz
        seconds = max(cycles / hertz, *outside.values())
        running = cycles / hertz / seconds
        used = {name: part * running for name, part in _used(run, chip).items()}
        used |= {name: each / seconds for name, each in outside.items()}
        seconds += 0 if "launch=0" in what_if.changes else chip.launch_seconds
        stalls, by_instruction = _shares(run)
        flop, peak = operations(code, run.stalls, chip) or (None, None)
        return Prediction(
            chip.gpu.name, self._launch.target.name, self._clock, chip.cold, cycles, seconds,
            seconds * (1 - MODELLED), seconds * (1 + MODELLED),
            _bound(used), max(used, key=lambda name: used[name]), used, stalls, by_instruction, fits,
            *divmod(ctas, sms * fits.ctas), ran.uneven, model.sampled(self._survey),
            _not_modelled(code, self._base.gpu), None if flop is None else flop * ran.runs / seconds / 1e12,
            peak and chip.gpu.tflops(peak), reuse.loaded + reuse.stored, chip.gpu.bandwidth, _hits(run, ran.runs, reuse),
        )  # fmt: skip


def _not_modelled(code: Sequence[DecodedInstruction], gpu: Gpu) -> tuple[str, ...]:
    """Say what takes time on a GPU and none in the model."""
    everywhere = [i for i in code if i.row is not None and i.row.atomic]
    meeting = ["atomics that lie apart"] if any(map(atomics.meets, everywhere)) else []
    if not all(map(atomics.meets, everywhere)):
        meeting.append("atomics of shared memory that meet at an address")
    told = {
        "divisions and roots of numbers at the edges of the format": divides(code),
        "how long loops wait for other threads: each asks once": bool(over_at_once(code)),
        "what printf takes": any(map(prints, code)),
    }
    other = (what for what, there in told.items() if there)
    power = "power and the clock it leaves"
    if gpu.draw:
        power = f"power that memory takes{'' if gpu.draw.fma else ', and FMA pipes'}"
    return (power, "instruction cache", *meeting, *other)


def _used(run: Run, chip: Chip) -> dict[str, float]:
    """Return which part of the time each pipe is held, of all that there are of it."""
    used: dict[str, float] = {
        name: run.held(name) / run.cycles
        for name in (*OF_SM, "tensor", "alu", "xu", "fp64", "tmem")
        if name in run.busy
    }
    halves = [name for name in ("fmaheavy", "fmalite") if name in chip.holds]
    used["fma"] = (
        sum(run.busy.get(name, 0) for name in halves) / run.cycles / PARTITIONS / len(halves)
    )
    used["issue"] = run.issued / run.cycles / PARTITIONS
    return used


def _hits(run: Run, runs: float, reuse: Reuse) -> dict[str, float]:
    """Return what part of the sectors that are loaded L1 has, and of those that it has not L2."""
    asked, missed, loaded = (run.sectors.get(name, 0.0) for name in ("asked", "missed", "loaded"))
    of_l1 = {"L1": max(0.0, 1 - missed / asked)} if asked else {}
    of_l2 = {"L2": max(0.0, 1 - reuse.loaded / (loaded * SECTOR * runs))} if loaded else {}
    return of_l1 | of_l2


def _bound(used: dict[str, float]) -> str:
    most = max(used, key=lambda name: used[name])
    if used[most] < MOSTLY:
        return "latency"
    return most if most in BOUNDS else "pipe"


def _shares(run: Run) -> tuple[dict[str, float], dict[int, dict[str, float]]]:
    """Return the part of all warps' time by reason, and by instruction and reason."""
    total = sum(run.stalls.values()) or 1.0
    reasons: dict[str, float] = defaultdict(float)
    by_instruction: dict[int, dict[str, float]] = defaultdict(dict)
    for (number, reason), cycles in run.stalls.items():
        reasons[reason] += cycles / total
        by_instruction[number][reason] = cycles / total
    ordered = dict(sorted(reasons.items(), key=lambda entry: -entry[1]))
    return ordered, dict(by_instruction)
