"""cvta and prefetch. Source: PTX ISA, "Data Movement and Conversion Instructions"."""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.access import WINDOWS
from ptxlab.emulator.context import Context
from ptxlab.emulator.operation import Modifiers, UnknownForm, step
from ptxlab.emulator.operations.memory import take_space, two_operands
from ptxlab.emulator.program import Array, Step
from ptxlab.emulator.steps import AluStep
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


@step("prefetch", "prefetchu")
def prefetch(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """Prefetch: a hint; only its operand is checked."""
    take_space(modifiers)
    modifiers.one_of("L1", "L2", "L2::evict_last", "L2::evict_normal")
    context.address(instruction.operands[0])
    return AluStep(lambda: (), [], [])


def _same(value: Array) -> Array:
    return value
