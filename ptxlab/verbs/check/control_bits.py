"""The control bits of machine code, checked: of every kernel of a file, along all paths through it."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass

from ptxlab.isa.targets import target_named
from ptxlab.machine.decode import decode
from ptxlab.machine.flow import NotFollowed
from ptxlab.machine.hazards import Hazard, HazardCheck
from ptxlab.machine.latencies import Latencies
from ptxlab.verbs.sass.programs import AssembledProgram
from ptxlab.verbs.sass.verb import in_file


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """A kernel with what it calls: its ``hazards``, and what of it was not looked at."""

    name: str
    instructions: int
    hazards: tuple[Hazard, ...]
    unchecked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedProgram:
    """A file for one target, or one member of a file."""

    program: AssembledProgram
    kernels: tuple[CheckedKernel, ...]


def checked_programs(args: argparse.Namespace) -> list[CheckedProgram]:
    """Check all kernels of a file, or that of ``--kernel``, for its target, or all that a binary has."""
    programs, _ = in_file(args, args.file, [args.arch] if args.arch else [])
    return [
        CheckedProgram(program, tuple(_checked(program, kernel.name) for kernel in program.kernels))
        for program in programs
    ]


def _checked(program: AssembledProgram, kernel: str) -> CheckedKernel:
    assembly = program.assembly
    code = decode(assembly.cubin, assembly.functions, kernel)
    latencies = Latencies(target_named(program.arch).capability)
    unknown = Counter(i.sass.opcode for i in code if not latencies.knows(i))
    unchecked = [f"{count} of {opcode}" for opcode, count in sorted(unknown.items())]
    hazards: list[Hazard] = []
    try:
        hazards = HazardCheck(code, latencies).run()
    except NotFollowed as error:
        unchecked.append(f"anything, because {error}")
    return CheckedKernel(kernel, len(code), tuple(hazards), tuple(unchecked))
