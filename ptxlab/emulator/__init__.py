"""PTX on a CPU: all threads that stand at the same instruction run together, as numpy arrays."""

import ptxlab.emulator.operations  # noqa: F401  (registers every operation)
from ptxlab.emulator.prepare.preparation import module_variables, prepare
from ptxlab.emulator.prepare.program import Program
from ptxlab.emulator.prepare.scope import Site
from ptxlab.emulator.run.grid import launch, print_text
from ptxlab.emulator.run.image import place_variables
from ptxlab.emulator.run.in_flight import Schedule
from ptxlab.emulator.run.memory import GlobalMemory
from ptxlab.emulator.run.wave import Watcher

__all__ = [
    "GlobalMemory",
    "Program",
    "Schedule",
    "Site",
    "Watcher",
    "launch",
    "module_variables",
    "place_variables",
    "prepare",
    "print_text",
]
