"""Run one rung of the ladder on a device and check every element of what it computes."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from ptxlab import resources
from ptxlab.arrays import Array
from ptxlab.device.protocol import Device, Kernel, LaunchResult, Module
from ptxlab.device.stopwatch import StreamWork
from ptxlab.errors import PtxlabError, ToolchainError, Unsupported
from ptxlab.gemm.algorithms import ALGORITHMS, Algorithm, Rung
from ptxlab.gemm.compiled import made_alike, ptx_for
from ptxlab.gemm.ladder import Baseline, HostBaseline
from ptxlab.gemm.problem import DeviceOperands, Inputs, Problem, uploaded
from ptxlab.gemm.scaled import SCALED
from ptxlab.gemm.tensor_maps import arguments
from ptxlab.gemm.tile import AS_IT_IS, Sizes, Tile, require
from ptxlab.gemm.tile_file import tile_for
from ptxlab.gemm.verification import Verdict, Verification
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.parser import parse
from ptxlab.toolchain.wheels import ToolAbsent

_REFUSED = re.compile(r'static assertion failed with "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Computed:
    """What a rung made of a problem: D, elements written outside of it, the time, and where.

    ``tile`` has the macros of a kernel's tile; what is no kernel has none.
    """

    d: Array
    strays: int
    launched: LaunchResult
    device: str
    arch: str
    tile: Sizes


@dataclass(frozen=True, slots=True)
class GemmResult:
    """What a run showed: how a ``rung`` did on a ``problem``, where, with which ``tile``.

    ``launched`` has the seconds, of the kernel on a GPU, of the product on the CPU for a baseline
    there, of the emulation on the emulator, and what was counted.
    """

    rung: Rung
    problem: Problem
    device: str
    arch: str
    tile: Sizes
    verdict: Verdict
    launched: LaunchResult

    def __repr__(self) -> str:
        where = self.device if self.device == self.arch else f"{self.device}, {self.arch}"
        right = "right" if self.passed else "wrong"
        return (
            f"<{self.rung.name}, {self.problem} on {where}: {right}, {self.launched.seconds:.3g} s>"
        )

    @property
    def passed(self) -> bool:
        return self.verdict.passed

    @property
    def tflops(self) -> float | None:
        """TFLOP/s, None on the emulator, and where nothing was computed."""
        seconds = self.launched.seconds
        timed = self.device != "emulator" and seconds > 0
        return self.problem.flops / seconds / 1e12 if timed else None


def run(
    device: Device, problem: Problem, rung: Algorithm | Baseline, sizes: Sizes = AS_IT_IS
) -> GemmResult:
    """Compute ``problem`` with a rung of the ladder and compare it with float64.

    ``sizes`` changes the kernel's tile. Raises PtxlabError for what the rung does not take; a wrong
    result is no error but ``passed`` False.
    """
    inputs = problem.inputs()
    verification = Verification(problem, inputs)
    with ThreadPoolExecutor(1) as beside:
        if device.kind == "emulator" and isinstance(rung, Algorithm):  # no time is measured
            verification.begin(beside)
        computed = compute(device, problem, inputs, rung, sizes)
    return judge(device, verification, rung, computed)


def compute(
    device: Device,
    problem: Problem,
    inputs: Inputs,
    rung: Algorithm | Baseline,
    sizes: Sizes = AS_IT_IS,
) -> Computed:
    """Compute ``problem``; see ``run`` for what is raised."""
    rung.require(problem.dtype, problem.acc, problem.layout, problem.epilogue)
    if sizes and not isinstance(rung, Algorithm):
        raise PtxlabError(f"{rung.name} is no kernel of ptxlab's: it has no tile to change")
    if isinstance(rung, HostBaseline):
        began = perf_counter()
        d = rung.compute(problem, inputs)
        launched = LaunchResult(perf_counter() - began)
        return Computed(d, 0, launched, "cpu", platform.machine(), {})
    macros: Sizes = {}
    with uploaded(device, problem, inputs) as operands:
        if isinstance(rung, Algorithm):
            tile = tile_for(device, rung, problem, sizes)
            launched, macros = launch(device, operands, rung, tile), tile.macros
        else:
            launched = rung.compute(device, operands)
        d, strays = operands.result()
    return Computed(d, strays, launched, device.kind, device.target.name, macros)


def judge(device: Device, verification: Verification, rung: Rung, computed: Computed) -> GemmResult:
    """Compare what was computed with float64, element by element."""
    d, strays = computed.d, computed.strays
    return GemmResult(
        rung,
        verification.problem,
        computed.device,
        computed.arch,
        computed.tile,
        verification.verdict(d, rung.method, device.target.dot16, strays),
        computed.launched,
    )


def launch(
    device: Device, operands: DeviceOperands, algorithm: Algorithm, tile: Tile
) -> LaunchResult:
    """Compile the algorithm for its operands and run it once; an empty D needs no launch."""
    if operands.problem.m == 0 or operands.problem.n == 0:
        return LaunchResult(0.0)
    kernel, config, args = prepare(device, operands, algorithm, tile)
    return kernel.run(config, args)


def queue(device: Device, operands: DeviceOperands, algorithm: Algorithm, tile: Tile) -> StreamWork:
    """Return what puts one launch on a GPU's stream, and keeps what its tensor maps are of."""
    kernel, config, args = prepare(device, operands, algorithm, tile)
    work = kernel.prepare(config, args)

    def queued(_kept: list[Any] = args) -> None:
        work()

    return queued


def prepare(
    device: Device, operands: DeviceOperands, algorithm: Algorithm, tile: Tile
) -> tuple[Kernel, LaunchConfig, list[Any]]:
    """Compile the algorithm for a problem whose D is not empty; return also how it is launched."""
    with cutting(algorithm, operands.problem, tile, device.target) as (file, options, config):
        dtype = operands.problem.dtype
        kernel = _loaded(device, algorithm, dtype, file, options).kernel(algorithm.entry)
    return kernel, config, arguments(device, operands, algorithm)


def _loaded(
    device: Device, algorithm: Algorithm, dtype: str, file: Path, options: tuple[str, ...]
) -> Module:
    """Load the PTX that came with ptxlab where it is what NVRTC would make, or where there is no NVRTC; else compile."""
    if device.kind == "emulator" and made_alike(algorithm, dtype, device.target):
        module = _as_it_came(device, algorithm, dtype, options)
        if module is not None:
            return module
    try:
        return device.load(file, options=options)
    except ToolAbsent as absent:
        module = _as_it_came(device, algorithm, dtype, options)
        if module is None:
            absent.hint = f"{absent.hint}; usual tiles of matrices as they are come compiled"
            raise
        return module


def _as_it_came(
    device: Device, algorithm: Algorithm, dtype: str, options: tuple[str, ...]
) -> Module | None:
    """Load the PTX that came with ptxlab, None where none did."""
    ptx = ptx_for(algorithm, dtype, options, device.target)
    if ptx is None:
        return None
    return device.load(parse(ptx, f"{algorithm.file} (PTX)", skim=True))


@contextmanager
def cutting(
    algorithm: Algorithm, problem: Problem, tile: Tile, target: Target
) -> Iterator[tuple[Path, tuple[str, ...], LaunchConfig]]:
    """Yield the file to be compiled with which options in the ``with``, and how it is launched then.

    What a kernel's own static_assert refuses becomes a user's error.
    """
    _require_target(algorithm, problem, target)
    config = algorithm.launch(problem, tile)
    require(config, target)
    try:
        yield resources.path(algorithm.file), algorithm.options(problem, tile), config
    except ToolchainError as error:
        refused = _REFUSED.search(error.message)
        if refused is None:
            raise
        own = algorithm.cut(AS_IT_IS, problem.dtype).macros
        usual = ",".join(f"{name}={size}" for name, size in own.items())
        raise PtxlabError(
            f"{algorithm.name} cannot be cut like that: {refused[1]}",
            hint=f"it usually has {usual}",
        ) from None


def _require_target(algorithm: Algorithm, problem: Problem, target: Target) -> None:
    """Raise Unsupported where ``target`` has not what a kernel needs, with a rung or a target that has."""
    needed = algorithm.needs(problem.dtype)
    if target.runs(needed):
        return
    able = [name for name, target in TARGETS.items() if target.runs(needed)]
    hint = f"--device emulator --arch {able[0]} is one"
    if problem.dtype in SCALED:
        others = (rung for rung in ALGORITHMS.values() if rung.takes(problem))
        here = [rung.name for rung in others if target.runs(rung.needs(problem.dtype))]
        hint = f"{here[0]} does it here" if here else hint
    of_type = "" if needed == algorithm.target else f" with {problem.dtype}"
    raise Unsupported(
        f"{algorithm.name}{of_type} is for {needed}, and this is {target.name}", hint=hint
    )
