"""PTX run by both engines: the emulator, and the interpreter of the machine code that it becomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.device.loading import load_assembled
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import MemoryRange
from ptxlab.prediction.chip import find
from ptxlab.prediction.following.interpreter import Interpreter, requests, run
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.tma import Copy
from ptxlab.prediction.sm.warps import Asked


def without_launch(told: Prediction) -> float:
    """Return how many seconds what is predicted takes from when the first CTA begins."""
    return told.seconds - find(told.gpu).found(told.cold).launch_seconds


Words = npt.NDArray[np.uint32]


def joined(**programs: str) -> str:
    """Return one module of programs that have a kernel ``k`` each, called by the names given here.

    To disassemble one costs as much as all of them.
    """
    begin = ".visible .entry k("
    parts = [text.split(begin) for text in programs.values()]
    [head] = {head for head, _ in parts}
    kernels = (
        begin.replace("k(", f"{name}(") + body
        for name, (_, body) in zip(programs, parts, strict=True)
    )
    return head + "".join(kernels)


class Both:
    """A program of several kernels, loaded by the emulator and as machine code."""

    def __init__(self, source: str, arch: str) -> None:
        self._arch, self._source = arch, source
        self._assembly = Assembly(*load_assembled(source, TARGETS[arch]))

    def run(
        self, name: str, grid: int, block: int, args: Sequence[Any], out: int
    ) -> tuple[Words, Words | None]:
        """Return what argument number ``out`` holds after a kernel, from the emulator and the machine."""
        with closing(open_device("emulator", arch=self._arch)) as device:
            kernel = device.load(self._source).kernel(name)
            passed = [device.upload(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
            buffers = [argument for argument in passed if isinstance(argument, Buffer)]
            regions = [
                MemoryRange(buffer.address, buffer.nbytes, buffer.numpy()) for buffer in buffers
            ]
            config = LaunchConfig.of(grid, block)
            code = decode(self._assembly.cubin, self._assembly.functions, name)
            launch = Launch(
                device.target, config, bytes(kernel.packed(passed)), regions, floats=True
            )
            machine = Interpreter(code, launch, range(grid))
            machine.run()
            buffer = passed[out]
            end = buffer.address + buffer.nbytes
            computed = machine.memory.load(np.arange(buffer.address, end, 4, dtype=np.uint64))
            kernel.run(config, passed)
            return buffer.numpy().view(np.uint32).reshape(-1), computed


@dataclass
class Issued:
    """What all warps of a launch issue, by opcode, and what they ask memory for."""

    warps: Counter[str] = field(default_factory=Counter)
    passes: Counter[str] = field(default_factory=Counter)
    """Through shared memory."""
    sectors: int = 0
    requests: int = 0
    copies: list[Copy] = field(default_factory=list)


def issued(code: Sequence[DecodedInstruction], launch: Launch) -> Issued:
    """Follow all CTAs of a launch."""
    totals, every = Issued(), range(prod(launch.config.grid))
    steps = run(code, launch, every)
    for first, end, warps in zip(steps.first, steps.end, steps.warps, strict=True):
        for instruction in code[first:end]:
            totals.warps[instruction.sass.opcode] += (
                launch.warps * len(every) if warps is None else len(warps)
            )
    numbers = steps.numbers

    def tell(step: int, asked: Request | Asked) -> None:
        if not isinstance(asked, Request):
            totals.copies += [
                copy for of_warp in asked for copy in of_warp if isinstance(copy, Copy)
            ]
            return
        sectors = [len(asked.sectors(warp)) for warp in range(len(asked.passes))]
        totals.passes[code[numbers[step]].sass.opcode] += int(asked.passes.sum())
        totals.sectors += sum(sectors)
        totals.requests += sum(map(bool, sectors))

    requests(code, launch, every, np.arange(steps.count), tell)
    return totals
