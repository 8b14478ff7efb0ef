"""A file assembled for a target, and what its kernels take of a GPU."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from ptxlab.device.loading import load_assembled, locate, pick
from ptxlab.device.shapes import declared
from ptxlab.isa.occupancy import Occupancy, occupancy
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS
from ptxlab.toolchain.assembly import Assembly
from ptxlab.toolchain.cubin import Resources
from ptxlab.toolchain.sass import SassFunction
from ptxlab.verbs.launching.launch import merged, run_lines
from ptxlab.verbs.launching.options import compilation

BLOCKS = (64, 128, 256, 512, 1024)
"""The sizes of a CTA shown for a kernel of which nobody says its size."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel, and its occupancy with CTAs of one or several sizes and ``dynamic`` shared memory."""

    name: str
    used: Resources
    function: SassFunction
    dynamic: int
    occupancies: tuple[Occupancy, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """One file assembled for one target."""

    file: str
    assembly: Assembly
    kernels: tuple[Kernel, ...]

    @property
    def arch(self) -> str:
        return self.assembly.cubin.arch


def program(args: argparse.Namespace, file: str, arch: str | None) -> Program:
    """Compile and assemble one file for one target, and work out what its kernels take."""
    path = locate(file)
    runs = [run for run in run_lines(path) if args.kernel in (None, run.kernel)]
    if runs:
        args = argparse.Namespace(**{**vars(args), "D": merged(runs[0].D, args.D)})
    arch = arch or default_target(path)
    options = compilation(args, line_info=path.suffix == ".cu")
    assembly = Assembly(*load_assembled(Path(file), TARGETS[arch], options))
    names = [entry.name for entry in assembly.module.entries]
    kernels = {name: kernel(args, assembly, name, runs) for name in names}
    if args.kernel is not None or not kernels:
        kernels = {str(args.kernel): pick(kernels, args.kernel, file)}
    return Program(file, assembly, tuple(kernels.values()))


def default_target(path: Path) -> str:
    """Return the target to assemble for: the usual one, or else the one that the file is for."""
    text = path.read_text(encoding="utf-8", errors="replace")
    for needed in re.findall(r"^\s*\.target\s+(sm_\w+)", text, re.MULTILINE):
        if needed in TARGETS and not TARGETS[DEFAULT_TARGET].runs(needed):
            return str(needed)
    return DEFAULT_TARGET


def kernel(
    args: argparse.Namespace, assembly: Assembly, name: str, runs: list[argparse.Namespace]
) -> Kernel:
    """Describe one kernel, with the occupancy of the CTAs it may be launched with."""
    run = next((run for run in runs if run.kernel == name), None)
    entry = next(entry for entry in assembly.module.entries if entry.name == name)
    block = args.block or declared(entry, "reqntid") or (run.block if run else None)
    block = block or declared(entry, "maxntid")
    dynamic = args.shared if args.shared is not None else (run.shared or 0) if run else 0
    used, target = assembly.cubin.kernels[name], TARGETS[assembly.cubin.arch]
    occupancies = tuple(
        occupancy(
            target,
            threads,
            registers=used.registers,
            shared=used.shared + dynamic,
            barriers=used.barriers,
        )
        for threads in (BLOCKS if block is None else (prod(block),))
    )
    return Kernel(name, used, assembly.functions[name], dynamic, occupancies)
