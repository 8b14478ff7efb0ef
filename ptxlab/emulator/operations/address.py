"""cvta and isspacep. Source: PTX ISA, "Data Movement and Conversion Instructions"."""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.address_map import RANK_SHIFT, WINDOW_SIZE
from ptxlab.emulator.operations.memory import state_space
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Lowered
from ptxlab.emulator.prepare.row import RowForm, UnknownForm, row
from ptxlab.emulator.run.access import WINDOWS
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import GlobalMemory
from ptxlab.emulator.run.steps import write
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave


def convert_address(context: Context, form: RowForm) -> Lowered:
    """Convert between an address in a state space and the generic address of the same byte."""
    space = state_space(form.modifiers)
    target, value = context.operands(2)
    base = WINDOWS.get(space.removesuffix("::cluster"), 0)
    if form["T"] == "u32" and base:
        raise UnknownForm("32-bit generic addresses are not modelled")
    added = -base if form["to"] else base
    shift = np.array([added % (1 << 64)], np.uint64)
    destination = context.destination(target, form["T"])
    source = context.source(value, form["T"])
    return Lowered([source], [destination], lambda address: address + shift if base else address)


def is_in_space(context: Context, form: RowForm) -> Step:
    """Say whether a generic address is one of a state space."""
    target, value = context.operands(2)
    space = state_space(form.modifiers)
    destination, source = context.destination(target, "pred"), context.source(value, "u64")

    def run(frame: Frame, threads: Threads) -> None:
        inside = _inside(space, source.read(frame.registers), frame.wave)
        write(frame, threads.merge, [destination], [inside])

    return run


def _inside(space: str, address: Array, wave: Wave) -> Array:
    base = WINDOWS.get(space.removesuffix("::cluster"))
    if base is not None:
        inside = _in_window(address, base)
        if space == "shared" and wave.config.cluster_ctas > 1:
            inside &= (address - np.uint64(base)) >> np.uint64(RANK_SHIFT) == wave.rank_of
        return inside
    constant = np.array([_is_constant(int(at), wave.memory) for at in address])
    if space == "const":
        return constant
    elsewhere = constant
    for base in WINDOWS.values():
        elsewhere = elsewhere | _in_window(address, base)
    return ~elsewhere


def _in_window(address: Array, base: int) -> Array:
    inside: Array = (address >= np.uint64(base)) & (address < np.uint64(base + WINDOW_SIZE))
    return inside


def _is_constant(address: int, memory: GlobalMemory) -> bool:
    allocation = memory.find(address)
    return allocation is not None and allocation.space == "const" and address < allocation.end


_NEEDS = {
    "shared::cta": "sm_30 7.8",
    "shared::cluster": "sm_90 7.8",
    "param": "sm_70 7.7",
    "param::entry": "sm_70 8.3",
}
_SPACES = "global shared shared::cta shared::cluster local const param param::entry"
_convert = partial(row, step=convert_address, mix="conversion", needs=_NEEDS, space=_SPACES)
_convert("cvta.<space>.<T>", "$T -> T", T="u32 u64")
_convert("cvta.to.<space>.<T>", "T -> T", T="u32 u64")
row(
    "isspacep.<space>",
    "u64 -> pred",
    step=is_in_space,
    mix="conversion",
    needs=_NEEDS,
    space=_SPACES,
)
