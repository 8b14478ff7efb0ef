"""In which threads an instruction takes the values of its operands, where it does not take all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of, form_of
from ptxlab.emulator.run.wave import Frame
from ptxlab.numbers.types import TYPES
from ptxlab.observe.unwritten import State
from ptxlab.observe.value_flow import slots
from ptxlab.syntax.tree import Integer, Not, Operand


def taken(site: Site, frame: Frame, states: Sequence[State]) -> dict[int, Array]:
    """Return for registers that an instruction does not read in all threads in which it does.

    ``states`` say where registers are not written.
    """
    effects = effects_of(site.instruction)
    if effects.passes == "chosen":
        return _chosen(site, frame)
    if effects.decides and form_of(site.instruction).results == ("pred",):
        return _undecided(site, frame, states, deciding=effects.decides == "1")
    if effects.begins == "products":
        return _added_to(site, frame)
    return {}


def _chosen(site: Site, frame: Frame) -> dict[int, Array]:
    """Choose as selp, slct and prmt do: what is taken of an operand shows where it has all bits and the other none."""
    form = form_of(site.instruction)
    *_, first, second, selector = site.instruction.operands
    kind = TYPES[form.operands[0]].dtype
    by = operand_value(site, frame, selector, form.operands[2])
    if by is None:
        return {}
    none = np.zeros(1, kind)
    every = (~none.view(f"u{kind.itemsize}")).view(kind)
    chosen: dict[int, Array] = {}
    for operand, given in ((first, (every, none)), (second, (none, every))):
        [slot] = slots(site, operand)
        if slot is not None and slot not in slots(site, selector):
            chosen[slot] = chosen.get(slot, np.False_) | (form.compute(*given, by) != 0)
    return chosen


def _undecided(
    site: Site, frame: Frame, states: Sequence[State], *, deciding: bool
) -> dict[int, Array]:
    """Leave out the operand of ``and`` or ``or`` whose other one is written, and ``deciding``."""
    _, *both = site.instruction.operands
    undecided: dict[int, Array] = {}
    for operand, other in (both, both[::-1]):
        slot, value = _register(site, operand), operand_value(site, frame, other, "pred")
        if slot is None or value is None:
            continue
        beside = _register(site, other)
        state = None if beside is None else states[beside]
        open_ = value != deciding
        undecided[slot] = open_ if state is None else open_ | (state != 0)
    return undecided


def _added_to(site: Site, frame: Frame) -> dict[int, Array]:
    """Take the registers of D where wgmma adds to them: where scale-d holds."""
    form = form_of(site.instruction).matrix
    if form is None:
        return {}
    index = [operand.name for operand in form.signature].index("scale-d")
    holds = operand_value(site, frame, site.instruction.operands[index], "pred")
    d = slots(site, site.instruction.operands[0])
    return {} if holds is None else {slot: holds for slot in d if slot is not None}


def _register(site: Site, operand: Operand) -> int | None:
    [slot] = slots(site, operand.operand if isinstance(operand, Not) else operand)
    return slot


def operand_value(site: Site, frame: Frame, operand: Operand, type_name: str) -> Array | None:
    """Return the value of an operand in each thread, None for what is neither register nor integer."""
    dtype = TYPES[type_name].dtype
    if isinstance(operand, Integer):
        return np.array([operand.value]).astype(dtype)
    slot = _register(site, operand)
    if slot is None:
        return None
    value = frame.registers[slot].view(dtype)
    return ~value if isinstance(operand, Not) else value
