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
from ptxlab.prediction.asynchronous import Asked
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.code import DecodedInstruction
from ptxlab.prediction.l2 import Reuse, reuse
from ptxlab.prediction.launch import Launch
from ptxlab.prediction.pipes import ATOMICS
from ptxlab.prediction.requests import Request
from ptxlab.prediction.slow_paths import passed_by
from ptxlab.prediction.sm import Run, Sm
from ptxlab.prediction.timing import timings
from ptxlab.prediction.values import Array
from ptxlab.prediction.warps import PARTITIONS, Served, Warp

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
    code: Sequence[DecodedInstruction],
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
    first = model.resident(min(fits.ctas, -(-ctas // sms)), min(ctas, sms))
    cycles = first.cycles * generations
    if tail:
        left = -(-tail // sms)
        same = left == first.ctas and (tail >= sms or not generations)
        cycles += (first if same else model.resident(left, min(tail, sms))).cycles
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


def _not_modelled(code: Sequence[DecodedInstruction]) -> tuple[str, ...]:
    """Say what takes time on a GPU and none in the model."""
    atomics = any(one.sass.opcode in ATOMICS for one in code)
    meeting = ("atomics that meet at an address",) if atomics else ()
    slow = ("divisions and roots of numbers at the edges of the format",) if passed_by(code) else ()
    return ("power and the clock it leaves", "instruction cache", *meeting, *slow)


class _Model:
    def __init__(
        self, code: Sequence[DecodedInstruction], launch: Launch, chip: Chip, shared: int
    ) -> None:
        self._code, self._launch, self._chip, self._shared = code, launch, chip, shared
        self.reuse = Reuse()

    def resident(self, ctas: int, sms: int) -> Resident:
        """Run CTAs that lie as far apart as there are SMs, of which ``sms`` have some."""
        launch, chip = self._launch, self._chip
        every = int(np.prod(launch.config.grid))
        apart = chip.gpu.sms // launch.cluster * launch.cluster
        chosen = [min(apart * n, every - 1) // launch.cluster * launch.cluster for n in range(ctas)]
        steps = machine.run(self._code, launch, chosen)
        of_warps = trace.of_warps(steps, launch.warps * ctas)
        numbers = steps.numbers
        returns = np.array([i.number for i in self._code if i.sass.opcode == "RET"], int)
        loop = trace.hottest(numbers[of_warps[0]], returns)
        if not self.reuse.nbytes:
            size = chip.memory.l2_mib << 20
            together = ctas * chip.gpu.sms
            self.reuse = reuse(self._code, launch, of_warps[0], numbers, loop, together, size)
        work = _Work(self, numbers, of_warps, chosen, chip.used_by(sms))
        if any(i.sass.opcode == "SYNCS" for i in self._code):
            return work.tiled(trace.tiles(of_warps, numbers, returns))
        return work.turned(loop)

    def requests(self, chosen: Sequence[int], asked: Array) -> dict[int, Request | Asked]:
        """Return what the steps ``asked`` about of some CTAs ask memory for."""
        return machine.requests(self._code, self._launch, chosen, asked)

    def run(self, numbers: Array, warps: Sequence[Warp], ctas: int, chip: Chip) -> Run:
        """Run warps on an SM; ``numbers`` are the instructions of all steps."""
        timed = timings(self._code, np.unique(numbers).tolist(), chip, self.reuse.hits)
        return Sm(chip, timed, warps, self._shared * ctas).run()

    @property
    def warps(self) -> int:
        return self._launch.warps


class _Work:
    """What the warps of CTAs that share an SM issue, to be run in part."""

    def __init__(
        self,
        model: _Model,
        numbers: Array,
        of_warps: Sequence[Array],
        chosen: Sequence[int],
        chip: Chip,
    ) -> None:
        self._model, self._numbers, self._of_warps = model, numbers, of_warps
        self._chosen, self._chip = chosen, chip
        self._requests: dict[int, Request | Asked] = {}

    def turned(self, loop: trace.Loop | None) -> Resident:
        """Run some turns of a loop, and as many more."""
        few = trace.kept_turns(loop, len(self._of_warps))
        more = {id(issued): trace.cut(issued, loop, 2 * few) for issued in self._of_warps}
        self._ask([one.steps for one in more.values()])
        first = id(self._of_warps[0])
        many, left_now = (
            self._run({key: one.steps for key, one in more.items()}),
            more[first].left_out,
        )
        fewer = {id(issued): trace.cut(issued, loop, few) for issued in self._of_warps}
        left = fewer[first].left_out
        if left == left_now:
            return Resident(len(self._chosen), many.cycles, many)
        slope = many.cycles - self._run({key: one.steps for key, one in fewer.items()}).cycles
        return Resident(len(self._chosen), many.cycles + slope / (left - left_now) * left_now, many)

    def tiled(self, tiles: dict[int, list[int]] | None) -> Resident:
        """Run all, or of a persistent kernel some tiles: warps that wait for each other lose no turn."""
        kept = {id(issued): issued for issued in self._of_warps}
        if tiles is None:
            self._ask(list(kept.values()))
            whole = self._run(kept)
            return Resident(len(self._chosen), whole.cycles, whole)
        few = trace.FEW_TILES
        for key, begun in tiles.items():
            kept[key] = kept[key][: begun[few + 1]]
        self._ask(list(kept.values()))
        longest = max(tiles, key=lambda key: len(kept[key]))
        begun = tiles[longest]
        passed: list[float] = []
        run = self._run(kept, longest, [begun[1], begun[few]], passed)
        each = (passed[1] - passed[0]) / (few - 1)
        return Resident(len(self._chosen), passed[1] + each * (len(begun) - few), run)

    def _ask(self, steps: Sequence[Array]) -> None:
        self._requests = self._model.requests(self._chosen, np.concatenate(steps))

    def _run(
        self,
        kept: dict[int, Array],
        marked: int = 0,
        marks: Sequence[int] = (),
        passed: list[float] | None = None,
    ) -> Run:
        """Run the steps that are left of each warp; ``passed`` are told when a ``marked`` one is there."""
        warps = []
        for number, issued in enumerate(self._of_warps):
            steps = kept[id(issued)]
            asked = [self._requests.get(step) for step in steps.tolist()]
            asks = [_asked(one, number) for one in asked]
            orders = {at: one[number] for at, one in enumerate(asked) if isinstance(one, tuple)}
            cta, instructions = number // self._model.warps, self._numbers[steps].tolist()
            warps.append(Warp(cta, instructions, asks, orders))
        if passed is not None:
            first = next(n for n, issued in enumerate(self._of_warps) if id(issued) == marked)
            warps[first].marks, warps[first].passed = list(marks), passed
        return self._model.run(self._numbers, warps, len(self._chosen), self._chip)


def _asked(request: Request | Asked | None, warp: int) -> Served | None:
    if not isinstance(request, Request):
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
