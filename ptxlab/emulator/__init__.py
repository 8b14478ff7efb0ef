"""PTX on a CPU: all threads that stand at the same instruction run together, as numpy arrays."""

from ptxlab.emulator.grid import launch, print_text
from ptxlab.emulator.memory import GlobalMemory
from ptxlab.emulator.preparation import prepare
from ptxlab.emulator.program import Program
from ptxlab.emulator.watch import Site, Watcher

__all__ = ["GlobalMemory", "Program", "Site", "Watcher", "launch", "prepare", "print_text"]
