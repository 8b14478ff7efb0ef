"""Machine code lifted into PTX: the emulator runs it, and no second one is needed."""

from ptxlab.machine.lift.module import lift

__all__ = ["lift"]
