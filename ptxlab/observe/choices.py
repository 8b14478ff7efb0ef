"""Of which bits of its operands, and in which threads, an instruction makes what, where it does not take all of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of, form_of
from ptxlab.emulator.run.wave import Frame
from ptxlab.numbers.types import TYPES
from ptxlab.observe.value_flow import slots
from ptxlab.syntax.tree import Integer, Not, Operand, Vector

_BY_BITS = {"bits", "shifted", "chosen"}


def worst(state: Array) -> Array:
    """Return the state of a whole register, of one of each of its bits."""
    least: Array = state if state.ndim == 1 else state.max(axis=0)
    return least


def taken(site: Site, frame: Frame, states: Mapping[int, Array]) -> dict[int, Array]:
    """Return of registers that are not written all over where the result depends on what is not.

    ``states`` are those of the registers, by number. It is said by [threads], or for each bit of the result, and of
    registers that are not mentioned the result is made in all threads.
    """
    effects = effects_of(site.instruction)
    if effects.passes in _BY_BITS:
        return _by_bits(site, frame, states, chosen=effects.passes != "bits")
    if effects.begins == "products":
        return _added_to(site, frame)
    return {}


def _by_bits(
    site: Site, frame: Frame, states: Mapping[int, Array], *, chosen: bool
) -> dict[int, Array]:
    """Compute with all that is not written 0, and all ones: what differs is made of it.

    That is exact where each bit of the result is made of one bit of each operand at most. Where one is ``chosen``, or
    shifted, the last operand says so, of which that does not hold.
    """
    form = form_of(site.instruction)
    operands = site.instruction.operands[1:]
    names = form.operands[: len(operands)]
    given = []
    for operand, name in zip(operands, names, strict=True):
        value = operand_value(site, frame, operand, name)
        if value is None and (not chosen or operand is operands[-1]):
            return {}
        given.append(np.zeros(1, TYPES[name].dtype) if value is None else value)
    registers = [_register(site, operand) for operand in operands]
    choosing = registers[-1] if chosen else None
    open_ = [slot for slot in states if slot in registers and slot != choosing]
    results = {}
    for bits in product((False, True), repeat=len(open_)):
        filled = dict(zip(open_, bits, strict=True))
        results[bits] = form.compute(
            *(
                value if slot not in filled else _filled(value, states[slot], ones=filled[slot])
                for slot, value in zip(registers, given, strict=True)
            )
        )
    return {slot: _differences(results, at) for at, slot in enumerate(open_)}


def _filled(value: Array, state: Array, *, ones: bool) -> Array:
    """Return a value all of whose bits that are not written are 0, or 1."""
    if value.dtype == np.bool_:
        return np.where(worst(state) != 0, ones, value)
    bits = 8 * value.itemsize
    whole = state.ndim == 1 or len(state) != bits
    unwritten = np.broadcast_to(worst(state) if whole else state, (bits, state.shape[-1])) != 0
    kind = np.dtype(f"u{value.itemsize}")
    octets = np.packbits(unwritten.T, axis=1, bitorder="little")
    packed = np.ascontiguousarray(octets).view(kind)[:, 0]
    word = value.view(kind)
    filled: Array = (word | packed if ones else word & ~packed).view(value.dtype)
    return filled


def _differences(results: Mapping[tuple[bool, ...], Array], at: int) -> Array:
    """Say which bits of results, [bits, threads], or which of predicates, change with what was filled at one place."""
    differs = np.zeros(1, bool)
    for bits, result in results.items():
        if bits[at]:
            other = results[(*bits[:at], False, *bits[at + 1 :])]
            pairs = np.broadcast_arrays(result, other)
            first, second = (_bits(each) for each in pairs)
            differs = differs | (first != second)
    return differs


def _bits(result: Array) -> Array:
    if result.dtype == np.bool_:
        return result
    octets = np.ascontiguousarray(result).view(np.uint8).reshape(result.size, -1)
    return np.unpackbits(octets, axis=1, bitorder="little").T


def moved(site: Site, states: Mapping[int, Array]) -> dict[int, Array]:
    """Return the states of the results of a move, which puts registers together, or one asunder."""
    targets, sources = (slots(site, operand) for operand in site.instruction.operands[:2])
    of_sources = [None if slot is None else states.get(slot) for slot in sources]
    if len(targets) == len(sources):
        pairs = zip(targets, of_sources, strict=True)
        return {to: state for to, state in pairs if to is not None and state is not None}
    bits = TYPES[site.instruction.modifiers[-1]].bits
    size = bits // len(sources)
    width = max(state.shape[-1] for state in states.values())
    parts = np.zeros((len(sources), size, width), np.int32)
    for part, state in zip(parts, of_sources, strict=True):
        if state is not None:
            part[:] = state if len(state) == size else worst(state)
    whole = parts.reshape(len(targets), bits // len(targets), width)
    return {to: state for to, state in zip(targets, whole, strict=True) if to is not None}


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
    if isinstance(operand, Vector):
        return None
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
