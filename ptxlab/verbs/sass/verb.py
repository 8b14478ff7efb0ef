"""``ptxlab sass``: PTX beside the machine code it becomes, and what that takes of a GPU."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.readers import count, dimensions
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.options import LINE_INFO, add_compilation, compilation

if TYPE_CHECKING:
    from ptxlab.isa.occupancy import Occupancy
    from ptxlab.toolchain.assembly import Assembly
    from ptxlab.verbs.sass.text import Kernel, Program

EXAMPLE = """\
example:
  ptxlab sass ptx/mma_m16n8k16_bf16_f32.ptx
  ptxlab sass ptx/mma_m16n8k16_bf16_f32.ptx --arch sm_80 --arch sm_90a       side by side
  ptxlab sass kernels/naive.cu --diff kernels/coalescing.cu                  what changed
  ptxlab sass mine.cu -D TILE=64 --arch sm_120a --block 256 --json

Needs neither a GPU nor a CUDA toolkit. Of a .cu file the lines of CUDA C stand above the PTX. The
size of a CTA, which occupancy depends on, is taken from --block, from the kernel's own directives or
from the "Run:" line of the file; without any, several are shown."""

BLOCKS = (64, 128, 256, 512, 1024)
"""The sizes of a CTA shown for a kernel of which nobody says its size."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    parser.add_argument("file", metavar="FILE", help="a .ptx or .cu file, or one ptxlab ships")
    parser.add_argument("--kernel", metavar="NAME", help="one kernel of the file (default all)")
    parser.add_argument("--diff", metavar="FILE", help="compare with the SASS of another file")
    parser.add_argument("--block", type=dimensions, metavar="X[,Y[,Z]]", help="threads of a CTA")
    parser.add_argument("--shared", type=count, metavar="BYTES", help="dynamic shared memory")
    add_compilation(parser)
    add_common(parser, many_targets=True)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.verbs.sass import text as view
    from ptxlab.view.sources import read_sources

    if args.diff is not None and len(args.arch) > 1:
        raise PtxlabError("--diff compares two files for one target", hint="give --arch once")
    programs = [program(args, args.file, arch) for arch in args.arch or [None]]
    if args.diff is not None:
        programs.append(program(args, args.diff, programs[0].assembly.cubin.arch))
    report = view.Report(args.file, tuple(programs), args.diff)
    named = {line.path for one in programs for line in one.assembly.sources.values()}
    emit(args, lambda: view.text(report, read_sources(named)), view.as_json(report))
    return 0


def program(args: argparse.Namespace, file: str, arch: str | None) -> Program:
    """Compile and assemble one file for one target, and work out what its kernels take."""
    from ptxlab.device.loading import load_assembled, locate, pick
    from ptxlab.isa.targets import TARGETS
    from ptxlab.toolchain.assembly import Assembly
    from ptxlab.verbs.launching.launch import merged, run_lines
    from ptxlab.verbs.sass.text import Program

    path = locate(file)
    runs = [run for run in run_lines(path) if args.kernel in (None, run.kernel)]
    if runs:
        args = argparse.Namespace(**{**vars(args), "D": merged(runs[0].D, args.D)})
    arch = arch or default_target(path)
    options = (*compilation(args), LINE_INFO) if path.suffix == ".cu" else compilation(args)
    assembly = Assembly(*load_assembled(Path(file), TARGETS[arch], options))
    names = [entry.name for entry in assembly.module.entries]
    kernels = {name: kernel(args, assembly, name, runs) for name in names}
    if args.kernel is not None or not kernels:
        kernels = {str(args.kernel): pick(kernels, args.kernel, file)}
    return Program(file, assembly, tuple(kernels.values()))


def default_target(path: Path) -> str:
    """Return the target to assemble for: the usual one, or else the one that the file is for."""
    from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS

    text = path.read_text(encoding="utf-8", errors="replace")
    for needed in re.findall(r"^\s*\.target\s+(sm_\w+)", text, re.MULTILINE):
        if needed in TARGETS and not TARGETS[DEFAULT_TARGET].runs(needed):
            return str(needed)
    return DEFAULT_TARGET


def kernel(
    args: argparse.Namespace, assembly: Assembly, name: str, runs: list[argparse.Namespace]
) -> Kernel:
    """Describe one kernel, with the occupancy of the CTAs it may be launched with."""
    from math import prod

    from ptxlab.device.shapes import declared
    from ptxlab.verbs.sass.text import Kernel

    run = next((run for run in runs if run.kernel == name), None)
    function = next(entry for entry in assembly.module.entries if entry.name == name)
    block = args.block or declared(function, "reqntid") or (run.block if run else None)
    block = block or declared(function, "maxntid")
    dynamic = args.shared if args.shared is not None else (run.shared or 0) if run else 0
    sizes = BLOCKS if block is None else (prod(block),)
    return Kernel(name, dynamic, tuple(held(assembly, name, size, dynamic) for size in sizes))


def held(assembly: Assembly, name: str, threads: int, dynamic: int) -> Occupancy:
    """Return how many CTAs of a kernel an SM holds."""
    from ptxlab.isa.occupancy import occupancy
    from ptxlab.isa.targets import TARGETS

    used = assembly.cubin.kernels[name]
    return occupancy(
        TARGETS[assembly.cubin.arch],
        threads,
        registers=used.registers,
        shared=used.shared + dynamic,
        barriers=used.barriers,
    )
