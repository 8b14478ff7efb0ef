"""PTX on a CPU: all threads that stand at the same instruction run together, as numpy arrays."""

from functools import partial

import ptxlab.emulator.operations  # noqa: F401  (registers every operation)
from ptxlab.emulator.native.dispatch_loop import MACHINE_CODE
from ptxlab.emulator.prepare.preparation import module_variables, prepare
from ptxlab.emulator.prepare.program import Program
from ptxlab.emulator.prepare.scope import Site
from ptxlab.emulator.run.executable import Executable, load
from ptxlab.emulator.run.grid import launch as launch_on
from ptxlab.emulator.run.grid import print_text
from ptxlab.emulator.run.image import place_variables
from ptxlab.emulator.run.in_flight import Schedule
from ptxlab.emulator.run.memory import Elements, GlobalMemory
from ptxlab.emulator.run.wave import Watcher

launch = partial(launch_on, engine=MACHINE_CODE)
"""A launch whose hot blocks become machine code, where there is any: see ``run.grid.launch``."""

__all__ = [
    "Elements",
    "Executable",
    "GlobalMemory",
    "Program",
    "Schedule",
    "Site",
    "Watcher",
    "launch",
    "load",
    "module_variables",
    "place_variables",
    "prepare",
    "print_text",
]
