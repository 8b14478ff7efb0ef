"""The machine code of a file, checked: its control bits, and what it leaves beside what the PTX leaves."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

from ptxlab.device.loading import is_machine_code
from ptxlab.errors import Unsupported
from ptxlab.verbs.check.control_bits import CheckedProgram, checked_programs
from ptxlab.verbs.diff.engines import EnginesTold, engines_report
from ptxlab.verbs.launching.launch import read_launch


@dataclass(frozen=True, slots=True)
class CheckedMachineCode:
    """What was found in a file: ``compared`` is its launch on both engines, or ``not_compared`` why there is none.

    ``launches`` says whether a launch is told at all.
    """

    file: str
    programs: tuple[CheckedProgram, ...]
    launches: bool = False
    compared: EnginesTold | None = None
    not_compared: str | None = None

    @property
    def verdict(self) -> str:
        """``findings``, ``incomplete`` where part was not looked at and the rest is right, or ``clean``."""
        kernels = [kernel for program in self.programs for kernel in program.kernels]
        engines = "same" if self.compared is None else self.compared.report.verdict
        if engines == "may not" or any(kernel.hazards for kernel in kernels):
            return "findings"
        open_ends = engines == "unknown" or (self.launches and self.compared is None)
        return "incomplete" if open_ends or any(kernel.unchecked for kernel in kernels) else "clean"


def check_machine_code(args: argparse.Namespace) -> CheckedMachineCode:
    """Check control bits, and make the launch that is told on both engines. Raises PtxlabError where it fails."""
    checked = partial(CheckedMachineCode, args.file, tuple(checked_programs(args)))
    if is_machine_code(args.file):
        return checked(not_compared="the file is machine code")
    asked = read_launch(args)
    if asked.block is None and not asked.values:
        told = "no launch is told (--block, --arg, or a Run: line)"
        return checked(not_compared=told)
    try:
        compared = engines_report(args)
    except Unsupported as error:
        why = str(error).splitlines()[0]
        return checked(launches=True, not_compared=why)
    return checked(launches=True, compared=compared)
