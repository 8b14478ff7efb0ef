"""A GPU and a CPU taking turns on the same matrices, and what it costs that both must reach them.

The GPU multiplies X by W into Y; the CPU does something to Y in place; Y is X in the next turn. That is
how a network runs whose layers are multiplied here and activated there, so W has the variance that
keeps numbers from growing (He et al., arXiv 1502.01852). It is measured for three kinds of memory:

  copied   each has memory of its own, and Y is copied to the CPU and back in every turn
  mapped   pinned memory of the CPU, which the GPU reaches through the bus
  managed  pages move to whoever touches them

and for each kind the GPU's part alone, the CPU's, and that of the copies. Their sum is what turns would
take if changing over were free.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.cuda_memory import CommonBuffer
from ptxlab.device.memory import Buffer, Closing
from ptxlab.device.stopwatch import StreamWork
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm, Rung, kernel_of
from ptxlab.gemm.problem import DeviceOperands, Problem
from ptxlab.gemm.run import queue
from ptxlab.gemm.tile_file import tile_for
from ptxlab.gemm.verification import Verdict, Verification

KINDS = ("copied", "mapped", "managed")

PAGE = 4096
"""Bytes of a page of the CPU's memory."""

PART = 4
"""A GPU's free memory is at least so many times what managed memory is asked for."""

MATRICES = 3


def relu(y: Array) -> None:
    np.maximum(y, 0, out=y)


def touch(y: Array) -> None:
    """Change the sign of one number in every page: the least that makes all of it come over."""
    page = y.reshape(-1)[:: PAGE // y.itemsize]
    np.negative(page, out=page)


@dataclass(frozen=True, slots=True)
class Activity:
    """What the CPU does to Y, and the variance of W, times its rows, that leaves Y as large as X."""

    name: str
    apply: Callable[[Array], None]
    variance: float


ACTIVITIES: dict[str, Activity] = {
    activity.name: activity
    for activity in (Activity("relu", relu, 2.0), Activity("touch", touch, 1.0))
}


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """Seconds of a turn with memory of one ``kind``: of each part alone, and of all in turns."""

    kind: str
    gpu: float
    cpu: float
    copies: float
    interleaved: float

    @property
    def sum(self) -> float:
        return self.gpu + self.cpu + self.copies

    @property
    def extra(self) -> float:
        return self.interleaved - self.sum


@dataclass(frozen=True, slots=True)
class Interleaving:
    """All kinds of memory on one problem.

    ``verdict`` is that of the first products. ``agree`` says whether all kinds end with the same bits.
    """

    gpu: str
    arch: str
    algorithm: Algorithm
    activity: Activity
    problem: Problem
    turns: int
    verdict: Verdict
    agree: bool
    kinds: tuple[TurnTimes, ...]

    @property
    def passed(self) -> bool:
        return self.verdict.passed and self.agree


def interleave(
    device: CudaDevice,
    rung: Rung,
    size: int,
    activity: Activity,
    turns: int,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = perf_counter,
) -> Interleaving:
    """Let GPU and CPU take ``turns`` on matrices of ``size`` squared, of f32.

    Raises PtxlabError for a rung that is no kernel for f32, and for matrices that are more than a
    quarter of the GPU's free memory: managed memory beyond that can bring a GPU to a halt.
    """
    algorithm = kernel_of(rung, ", and cannot be put into turns")
    problem = Problem(size, size, size, "f32", "f32", seed)
    algorithm.require(problem.dtype, problem.acc)
    asked, free = MATRICES * 4 * size * size, device.free_bytes
    if PART * asked > free:
        raise PtxlabError(
            f"three matrices of {size} x {size} are {asked} bytes, more than a quarter of the "
            f"{free} that are free on {device.name}"
        )
    inputs = problem.inputs()
    inputs = replace(inputs, b=inputs.b * np.float32(np.sqrt(activity.variance / size)))
    verification = Verification(problem, inputs, sampled=True)
    verdicts, kinds, ends = [], [], []
    for kind in KINDS:
        say(f"{size} x {size}: {kind} memory")
        with Players(device, problem, algorithm, kind, activity) as players:
            players.start(inputs.a, inputs.b)
            players.multiply()
            players.y.to_cpu()
            d = players.y.array
            verdicts.append(verification.verdict(d, algorithm.method, device.target.dot16))
            kinds.append(players.timed(turns, clock))
            players.start(inputs.a, inputs.b)
            for _ in range(turns):
                players.turn()
            ends.append(players.x.array.tobytes())
    return Interleaving(
        device.name,
        device.target.name,
        algorithm,
        activity,
        problem,
        turns,
        next((verdict for verdict in verdicts if not verdict.passed), verdicts[-1]),
        all(end == ends[0] for end in ends),
        tuple(kinds),
    )


class CommonMatrix(Closing):
    """A matrix in memory of one kind: ``array`` for the CPU, ``buffer`` for the GPU."""

    def __init__(self, device: CudaDevice, size: int, kind: str) -> None:
        self.device = device
        self.common = CommonBuffer(device, (size, size), np.float32, managed=kind == "managed")
        self.array = self.common.array
        self.buffer: Buffer = self.common
        if kind == "copied":
            self.buffer = device.zeros((size, size), "f32")

    def to_cpu(self) -> None:
        """Let the CPU see what the GPU wrote."""
        if self.buffer is not self.common:
            self.device.read_into(self.buffer.address, self.array)

    def to_gpu(self) -> None:
        """Let the GPU see what the CPU wrote."""
        if self.buffer is not self.common:
            self.device.write(self.buffer.address, self.array)

    def close(self) -> None:
        self.buffer.close()
        self.common.close()


class Players(Closing):
    """The GPU and the CPU, and the three matrices they play with; X and Y change places."""

    def __init__(
        self,
        device: CudaDevice,
        problem: Problem,
        algorithm: Algorithm,
        kind: str,
        activity: Activity,
    ) -> None:
        self.device = device
        self.kind = kind
        self.activity = activity
        with ExitStack() as stack:
            self.x, self.y, self.w = (
                stack.enter_context(CommonMatrix(device, problem.n, kind)) for _ in range(MATRICES)
            )
            tile = tile_for(device, algorithm, problem)
            self._forth, self._back = (
                queue(
                    device,
                    DeviceOperands(problem, a.buffer, self.w.buffer, d.buffer),
                    algorithm,
                    tile,
                )
                for a, d in ((self.x, self.y), (self.y, self.x))
            )
            self._memory = stack.pop_all()

    def start(self, x: Array, w: Array) -> None:
        for matrix, values in ((self.x, x), (self.w, w)):
            matrix.array[...] = values
            matrix.to_gpu()

    def multiply(self) -> None:
        """Let the GPU make Y, and wait for it."""
        self.device.timed("multiply", self._forth)

    def turn(self) -> None:
        """Let the GPU make Y and the CPU change it; then Y is X."""
        self.multiply()
        self.y.to_cpu()
        self.activity.apply(self.y.array)
        self.y.to_gpu()
        self.x, self.y = self.y, self.x
        self._forth, self._back = self._back, self._forth

    def timed(self, turns: int, clock: Callable[[], float]) -> TurnTimes:
        """Time every part alone and all together, each after a first time that does not count."""

        def of(work: StreamWork) -> float:
            work()
            began = clock()
            for _ in range(turns):
                work()
            return (clock() - began) / turns

        def copies() -> None:
            self.y.to_cpu()
            self.y.to_gpu()

        return TurnTimes(
            self.kind,
            gpu=of(self.multiply),
            cpu=of(lambda: self.activity.apply(self.y.array)),
            copies=of(copies) if self.kind == "copied" else 0.0,
            interleaved=of(self.turn),
        )

    def close(self) -> None:
        self._memory.close()
