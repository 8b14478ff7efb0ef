"""A file assembled for a target, and what its kernels take of a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from ptxlab.device.loading import find_file, load_assembled, pick
from ptxlab.device.shapes import declared
from ptxlab.isa.occupancy import MULTIPROCESSORS, Occupancy, occupancy
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS, target_named
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.sass import SassFunction
from ptxlab.syntax.tree import PtxModule
from ptxlab.toolchain.cubin import Used
from ptxlab.toolchain.fatbin import Member
from ptxlab.verbs.launching.launch import merged, needed_target, run_lines
from ptxlab.verbs.launching.options import compilation

BLOCKS = (64, 128, 256, 512, 1024)
"""The sizes of a CTA shown for a kernel of which nobody says its size."""


@dataclass(frozen=True, slots=True)
class AssembledKernel:
    """A kernel, and its occupancy with CTAs of one or several sizes and ``dynamic`` shared memory.

    On a target of which ptxlab does not know the SM there is none.
    """

    name: str
    used: Used
    function: SassFunction
    dynamic: int
    occupancies: tuple[Occupancy, ...]


@dataclass(frozen=True, slots=True)
class AssembledProgram:
    """One file, or the ``member`` of one that has several, as machine code for one target."""

    file: str
    assembly: Assembly
    kernels: tuple[AssembledKernel, ...]
    member: Member | None = None

    @property
    def arch(self) -> str:
        return self.assembly.cubin.arch


def assembled(args: argparse.Namespace, file: str, arch: str | None) -> AssembledProgram:
    """Compile and assemble one file for one target, and work out what its kernels take."""
    path = find_file(file)
    runs = [run for run in run_lines(path) if args.kernel in (None, run.kernel)]
    if runs:
        args = argparse.Namespace(**{**vars(args), "D": merged(runs[0].D, args.D)})
    arch = arch or needed_target(path) or DEFAULT_TARGET
    options = compilation(args, line_info=path.suffix == ".cu")
    module, cubin = load_assembled(Path(file), TARGETS[arch], options)
    kernels = of_module(args, Assembly(module, cubin), module, runs)
    return AssembledProgram(file, Assembly(module, cubin), chosen(kernels, args.kernel, file))


def of_module(
    args: argparse.Namespace,
    assembly: Assembly,
    module: PtxModule,
    runs: Sequence[argparse.Namespace] = (),
) -> Iterator[AssembledKernel]:
    """Describe the kernels of PTX that was assembled, with the CTAs they may be launched with."""
    for entry in module.entries:
        run = next((run for run in runs if run.kernel == entry.name), None)
        block = args.block or declared(entry, "reqntid") or (run.block if run else None)
        block = block or declared(entry, "maxntid")
        dynamic = args.shared if args.shared is not None else (run.shared or 0) if run else 0
        used = assembly.cubin.kernels[entry.name]
        yield kernel(assembly, used, block and prod(block), dynamic)


def chosen(
    kernels: Iterable[AssembledKernel], name: str | None, file: str
) -> tuple[AssembledKernel, ...]:
    """Return all kernels, or the one of that name. Raises PtxlabError where there is none."""
    named = {kernel.name: kernel for kernel in kernels}
    if name is None and named:
        return tuple(named.values())
    return (pick(named, name, file),)


def kernel(assembly: Assembly, used: Used, threads: int | None, dynamic: int) -> AssembledKernel:
    """Describe one kernel, with the occupancy of CTAs of ``threads``, or of several sizes."""
    target = target_named(assembly.cubin.arch)
    known = target.capability in MULTIPROCESSORS
    occupancies = tuple(
        occupancy(
            target,
            size,
            registers=used.registers,
            shared=used.shared + dynamic,
            barriers=used.barriers,
        )
        for size in (BLOCKS if threads is None else (threads,))
        if known
    )
    return AssembledKernel(used.kernel, used, assembly.functions[used.kernel], dynamic, occupancies)
