"""How long a launch would take: CTAs of one SM clock by clock, then the whole grid.

The turns of a hot loop are alike: a few are run, and again as many more, and the difference is what
each of the rest costs. A grid comes in generations of CTAs that fill all SMs, and a last one that may
not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.errors import PtxlabError
from ptxlab.isa.occupancy import Occupancy, occupancy
from ptxlab.prediction import machine, trace
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.code import Instruction
from ptxlab.prediction.l2 import Reuse, reuse
from ptxlab.prediction.launch import Launch
from ptxlab.prediction.pipes import ATOMICS
from ptxlab.prediction.requests import Request
from ptxlab.prediction.sm import PARTITIONS, Run, Served, Sm, Warp
from ptxlab.prediction.timing import timings

LAUNCH_SECONDS = 3e-6
"""What a launch costs before the first CTA begins: 2 to 5 microseconds."""

MOSTLY = 0.6
"""What is used for less of the time does not bound it: waiting does."""

MODELLED = 0.11
"""The mean error of the model on published kernels, see docs/predict.md; the range says so."""


@dataclass(frozen=True, slots=True)
class Resident:
    """What ``ctas`` CTAs take that share an SM; ``run`` has only some turns of their hottest loop."""

    ctas: int
    cycles: float
    run: Run


@dataclass(frozen=True, slots=True)
class Prediction:
    """A launch on a GPU that is not here.

    ``seconds`` at the stated ``clock_mhz``, between ``low`` and ``high`` by the error the model has shown;
    ``cycles`` of an SM's clock for the whole grid. ``bound`` is issue, pipe, lsu, l2 or dram, or latency where
    none of them is used for most of the time, and ``bound_by`` what it is, of ``used``, the parts of the time. ``stalls`` is the
    part of the warps' time by reason, in Nsight Compute's words, and ``lines`` the same by instruction.
    ``generations`` are how many times all SMs fill, ``tail`` the CTAs left over.
    """

    gpu: str
    arch: str
    clock_mhz: int
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
    not_modelled: tuple[str, ...]

    def __repr__(self) -> str:
        where = f"{self.gpu} at {self.clock_mhz:,} MHz"
        return f"<prediction: {self.seconds:.3g} s on {where}, bound by {self.bound_by}>"


def modelled(
    code: Sequence[Instruction],
    launch: Launch,
    chip: Chip,
    *,
    registers: int,
    shared: int,
    clock: int | None = None,
) -> Prediction:
    """Predict how long a kernel takes on a chip.

    ``registers`` and ``shared``, static and dynamic, are those ptxas told. Raises Unsupported where
    something decides that is not computed, or is not modelled.
    """
    clock = clock or chip.gpu.clock
    chip = chip.at(clock)
    x, y, z = launch.config.block
    fits = occupancy(launch.target, x * y * z, registers=registers, shared=shared)
    if not fits.ctas:
        raise PtxlabError("no CTA of this kernel fits into an SM", hint="see ptxlab sass --summary")
    ctas = int(np.prod(launch.config.grid))
    sms = chip.gpu.sms
    generations, tail = divmod(ctas, sms * fits.ctas)
    model = _Model(code, launch, chip, shared)
    first = model.resident(min(fits.ctas, -(-ctas // sms)))
    cycles = first.cycles * generations
    if tail:
        left = -(-tail // sms)
        cycles += (first if left == first.ctas else model.resident(left)).cycles
    memory_seconds = model.reuse.nbytes / (chip.gpu.bandwidth * 1e9)
    seconds = max(cycles / (clock * 1e6), memory_seconds)
    used = _used(first.run, chip) | {"dram": memory_seconds / seconds}
    seconds += LAUNCH_SECONDS
    stalls, by_instruction = _shares(first.run)
    return Prediction(
        chip.gpu.name, launch.target.name, clock, cycles, seconds,
        seconds * (1 - MODELLED), seconds * (1 + MODELLED),
        _bound(used), max(used, key=lambda name: used[name]), used, stalls, by_instruction, fits,
        generations, tail,
        _not_modelled(code),
    )  # fmt: skip


def _not_modelled(code: Sequence[Instruction]) -> tuple[str, ...]:
    """Say what takes time on a GPU and none in the model."""
    atomics = any(one.sass.opcode in ATOMICS for one in code)
    meeting = ("atomics that meet at an address",) if atomics else ()
    return ("power and the clock it leaves", "instruction cache", *meeting)


class _Model:
    def __init__(
        self, code: Sequence[Instruction], launch: Launch, chip: Chip, shared: int
    ) -> None:
        self._code, self._launch, self._chip, self._shared = code, launch, chip, shared
        self.reuse = Reuse()

    def resident(self, ctas: int) -> Resident:
        """Run CTAs that lie as far apart as there are SMs."""
        launch, chip = self._launch, self._chip
        every = int(np.prod(launch.config.grid))
        chosen = [min(chip.gpu.sms * n, every - 1) for n in range(ctas)]
        steps = machine.run(self._code, launch, chosen)
        warps = launch.warps * ctas
        of_warps = trace.of_warps(steps, warps)
        numbers = steps.numbers
        returns = np.array([i.number for i in self._code if i.sass.opcode == "RET"], int)
        loop = trace.hottest(numbers[of_warps[0]], returns)
        if not self.reuse.nbytes:
            size = chip.memory.l2_mib << 20
            together = ctas * chip.gpu.sms
            self.reuse = reuse(self._code, launch, of_warps[0], numbers, loop, together, size)
        few = trace.kept_turns(loop, warps)
        more = {id(issued): trace.cut(issued, loop, 2 * few) for issued in of_warps}
        asked = np.concatenate([cut.steps for cut in more.values()])
        requests = machine.requests(self._code, launch, chosen, asked)
        timed = timings(self._code, np.unique(numbers).tolist(), chip, self.reuse.hits)

        def run(cuts: dict[int, trace.Trace]) -> Run:
            """Run the steps that are left of each warp."""
            cut_warps = []
            for number, issued in enumerate(of_warps):
                steps = cuts[id(issued)].steps
                asks = [_asked(requests.get(step), number) for step in steps.tolist()]
                cut_warps.append(Warp(number // launch.warps, numbers[steps].tolist(), asks))
            sm = Sm(chip, timed, cut_warps, self._shared * ctas)
            return sm.run()

        many, left_now = run(more), more[id(of_warps[0])].left_out
        fewer = {id(issued): trace.cut(issued, loop, few) for issued in of_warps}
        left = fewer[id(of_warps[0])].left_out
        if left == left_now:
            return Resident(ctas, many.cycles, many)
        slope = (many.cycles - run(fewer).cycles) / (left - left_now)
        return Resident(ctas, many.cycles + slope * left_now, many)


def _asked(request: Request | None, warp: int) -> Served | None:
    if request is None:
        return None
    lines = 0 if request.lines is None else int(request.lines[warp])
    return int(request.passes[warp]), lines, request.sectors[warp] if request.sectors else ()


def _used(run: Run, chip: Chip) -> dict[str, float]:
    """Return which part of the time each pipe is held, of all that there are of it."""
    used: dict[str, float] = {
        name: run.busy[name] / run.cycles / (1 if name in ("lsu", "l2") else PARTITIONS)
        for name in ("lsu", "l2", "tensor", "alu", "xu", "fp64")
        if name in run.busy
    }
    halves = [name for name in ("fmaheavy", "fmalite") if name in chip.holds]
    used["fma"] = (
        sum(run.busy.get(name, 0) for name in halves) / run.cycles / PARTITIONS / len(halves)
    )
    used["issue"] = run.issued / run.cycles / PARTITIONS
    return used


def _bound(used: dict[str, float]) -> str:
    most = max(used, key=lambda name: used[name])
    if used[most] < MOSTLY:
        return "latency"
    return most if most in ("issue", "lsu", "l2", "dram") else "pipe"


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
