"""cvta, isspacep and prefetch. Source: PTX ISA, "Data Movement and Conversion Instructions"."""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxlab.emulator.operations.memory import state_space, two_operands
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, UnknownForm, row
from ptxlab.emulator.prepare.steps import AluStep
from ptxlab.emulator.run.access import WINDOWS
from ptxlab.emulator.run.memory import WINDOW_SIZE, GlobalMemory
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.syntax.tree import Instruction


def convert_address(context: Context, instruction: Instruction, form: Form) -> Step:
    """Convert between an address in a state space and the generic address of the same byte."""
    space = state_space(form.modifiers)
    if space == "param":
        raise UnknownForm("a generic address of a parameter is not modelled")
    target, value = two_operands(context, instruction)
    base = np.array([WINDOWS.get(space, 0)], np.uint64)
    if form["T"] == "u32" and base[0]:
        raise UnknownForm("32-bit generic addresses are not modelled")
    destination = context.destination(target, form["T"])
    source = context.source(value, form["T"])
    if not base[0]:
        return AluStep(_same, [destination], [source])
    shift = np.subtract if form["to"] else np.add
    return AluStep(lambda address: shift(address, base), [destination], [source])


class SpaceTest:
    """isspacep: whether a generic address is in a state space."""

    __slots__ = ("_address", "_destination", "_space")

    def __init__(self, space: str, destination: Destination, address: Source) -> None:
        self._space = space
        self._destination = destination
        self._address = address

    def run(self, frame: Frame, threads: Threads) -> None:
        """Test the addresses of all lanes."""
        slot = self._destination.slot
        address = self._address.read(frame.registers)
        frame.registers[slot] = threads.merge(
            frame.registers[slot], self._inside(address, frame.wave.memory)
        )

    def _inside(self, address: Array, memory: GlobalMemory) -> Array:
        if self._space == "param":  # cvta gives no generic address of a parameter
            return np.zeros(address.shape, bool)
        if self._space in WINDOWS:
            return _in_window(address, WINDOWS[self._space])
        constant = np.array([_is_constant(int(at), memory) for at in address])
        if self._space == "const":
            return constant
        elsewhere = constant
        for base in WINDOWS.values():
            elsewhere = elsewhere | _in_window(address, base)
        return ~elsewhere


def _in_window(address: Array, base: int) -> Array:
    inside: Array = (address >= np.uint64(base)) & (address < np.uint64(base + WINDOW_SIZE))
    return inside


def _is_constant(address: int, memory: GlobalMemory) -> bool:
    found = memory.find(address)
    return found is not None and not found.writable and address < found.address + found.size


def is_in_space(context: Context, instruction: Instruction, form: Form) -> Step:
    """Say whether a generic address is one of a state space."""
    target, value = two_operands(context, instruction)
    destination = context.destination(target, "pred")
    return SpaceTest(state_space(form.modifiers), destination, context.source(value, "u64"))


def prefetch(context: Context, instruction: Instruction, form: Form) -> Step:
    """Take a hint; only its operand is checked."""
    context.address(instruction.operands[0])
    return AluStep(lambda: (), [], [])


def _same(value: Array) -> Array:
    return value


_NEEDS = {
    "shared::cta": "sm_75 7.8",
    "shared::cluster": "sm_90 7.8",
    "param": "sm_75 7.7",
    "param::entry": "sm_75 8.3",
}
_SPACES = "global shared shared::cta local const param param::entry"
row(
    "cvta{.to}.<space>.<T>",
    "T -> T",
    step=convert_address,
    mix="conversion",
    needs=_NEEDS,
    space=_SPACES,
    T="u32 u64",
)
row(
    "isspacep.<space>",
    "u64 -> pred",
    step=is_in_space,
    mix="conversion",
    needs=_NEEDS,
    space=f"{_SPACES} shared::cluster",
)

_hint = partial(row, operands="[b8]", step=prefetch, mix="cache", fidelity="ordering")
_hint("prefetch{.<space>}.<level>", space="global local", level="L1 L2")
_KEPT = ("L2::evict_last", "L2::evict_normal")
_hint("prefetch{.global}.<level>", needs=dict.fromkeys(_KEPT, "sm_80 7.4"), level=" ".join(_KEPT))
_hint("prefetchu.L1")
