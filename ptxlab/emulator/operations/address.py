"""cvta, isspacep and prefetch. Source: PTX ISA, "Data Movement and Conversion Instructions"."""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.operations.memory import take_space, two_operands
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.operation import Modifiers, step
from ptxlab.emulator.prepare.program import Array, Destination, Source, Step
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.emulator.prepare.steps import AluStep
from ptxlab.emulator.run.access import WINDOWS
from ptxlab.emulator.run.lanes import Lanes
from ptxlab.emulator.run.memory import WINDOW_SIZE, GlobalMemory
from ptxlab.emulator.run.wave import Frame
from ptxlab.syntax.tree import Instruction


@step("cvta")
def convert_address(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """cvta: between an address in a state space and the generic address of the same byte."""
    to_space = modifiers.take("to")
    space = take_space(modifiers)
    if space == "generic":
        raise UnknownForm("needs a state space")
    if space == "param":
        raise UnknownForm("a generic address of a parameter is not modelled")
    kind = modifiers.type("u32", "u64")
    target, value = two_operands(context, instruction)
    base = np.array([WINDOWS.get(space, 0)], np.uint64)
    if kind.name == "u32" and base[0]:
        raise UnknownForm("32-bit generic addresses are not modelled")
    destination = context.destination(target, kind.name)
    source = context.source(value, kind.name)
    if not base[0]:
        return AluStep(_same, [destination], [source])
    shift = np.subtract if to_space else np.add
    return AluStep(lambda address: shift(address, base), [destination], [source])


class SpaceTest:
    """isspacep: whether a generic address is in a state space."""

    __slots__ = ("_address", "_destination", "_space")

    def __init__(self, space: str, destination: Destination, address: Source) -> None:
        self._space = space
        self._destination = destination
        self._address = address

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Test the addresses of all lanes."""
        slot = self._destination.slot
        address = self._address.read(frame.registers)
        frame.registers[slot] = lanes.merge(
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


@step("isspacep")
def is_in_space(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """isspacep.space: whether a generic address is one of a state space."""
    space = modifiers.one_of(
        "global", "const", "local", "shared", "shared::cta", "shared::cluster", "param",
        "param::entry",
    )  # fmt: skip
    target, value = two_operands(context, instruction)
    destination = context.destination(target, "pred")
    return SpaceTest(space.partition("::")[0], destination, context.source(value, "u64"))


@step("prefetch", "prefetchu")
def prefetch(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """Prefetch: a hint; only its operand is checked."""
    take_space(modifiers)
    modifiers.one_of("L1", "L2", "L2::evict_last", "L2::evict_normal")
    context.address(instruction.operands[0])
    return AluStep(lambda: (), [], [])


def _same(value: Array) -> Array:
    return value
