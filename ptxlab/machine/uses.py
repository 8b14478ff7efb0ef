"""Which registers and predicates an instruction reads and which it writes, each as bits of a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import (
    RPC,
    TRUE_PREDICATE,
    UNIFORM,
    UNIFORM_PREDICATE,
    UPT,
    URZ,
    ZERO_REGISTER,
    Immediate,
    Operand,
    Predicate,
    SassAddress,
    SassConstant,
    SassRegister,
)
from ptxlab.machine.products import REGISTERS_OF_A, sums_of_warpgroup

PREDICATES = 512
"""The bit of the first predicate; those of registers are their numbers."""

FIXED = 1 << ZERO_REGISTER | 1 << URZ | 1 << PREDICATES + TRUE_PREDICATE | 1 << PREDICATES + UPT
"""What always has its value."""
EVERY_PREDICATE = (1 << TRUE_PREDICATE) - 1 << PREDICATES
"""The predicates of a thread that can be written."""
_KEPT = {number: text.replace(".", "_") for text, number in RPC.items()}
_DESCRIPTOR, _POINTER = 2, 2
_SLOTS = 4


def name(bit: int) -> str:
    """Return the name of the register or predicate that a bit stands for: ``R4``, ``UP1``, ``Rpc_LO``."""
    if bit in _KEPT:
        return _KEPT[bit]
    first, uniform = (PREDICATES, UNIFORM_PREDICATE) if bit >= PREDICATES else (0, UNIFORM)
    letter, number = "P" if first else "R", bit - first
    return f"U{letter}{number - uniform}" if number >= uniform else f"{letter}{number}"


def each(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set."""
    while bits:
        yield (bits & -bits).bit_length() - 1
        bits &= bits - 1


def names(bits: int) -> list[str]:
    return [name(bit) for bit in each(bits)]


def written(i: DecodedInstruction) -> int:
    """Return what an instruction that has a row writes."""
    if i.has("256") and i.known.loads:
        bits = sum(1 << number for number in {*i.loaded})
    else:
        bits = registers(i.dest, i.written)
    for predicate in i.outs:
        bits |= of(predicate)
    if i.known.every_predicate == "written":
        bits |= _masked(i)
    return bits & ~FIXED


def read(i: DecodedInstruction) -> int:
    """Return what an instruction that has a row reads."""
    bits = of(i.guard)
    for predicate in i.ins:
        bits |= of(predicate)
    if i.known.every_predicate == "read":
        bits |= _masked(i)
    if i.does == "product":
        return (bits | _of_warpgroup(i)) & ~FIXED
    for slot, source in enumerate(_sources(i)):
        if isinstance(source, SassAddress):
            bits |= _address(source, _width(i, slot, source), wide=i.is_wide(source))
        else:
            bits |= of(source, _width(i, slot, source))
    return bits & ~FIXED


def _of_warpgroup(i: DecodedInstruction) -> int:
    """Return what a product of a warpgroup reads: A where it is in registers, descriptors, its sums, metadata.

    Behind the descriptor of A stands that of B. That of A is not looked at where A is in registers.
    """
    first, *others = i.sources
    held = isinstance(first, SassRegister)
    bits = of(first, REGISTERS_OF_A) if held else 0
    widths = iter((sums_of_warpgroup(i.sass.modifiers),))
    for source in others if held else i.sources:
        if isinstance(source, SassAddress) and source.uniform is not None:
            both = registers(source.uniform, 2 * _DESCRIPTOR)
            bits |= both & ~registers(source.uniform, _DESCRIPTOR) if held else both
        else:
            bits |= of(source, next(widths, 1) if isinstance(source, SassRegister) else 1)
    return bits


def slots(i: DecodedInstruction) -> dict[int, int]:
    """Return the registers that an instruction that has a row reads as its sources, by their slots."""
    return {
        slot: of(source, _width(i, slot, source))
        for slot, source in enumerate(_sources(i)[:_SLOTS])
        if isinstance(source, SassRegister) and source.number < ZERO_REGISTER
    }


def _sources(i: DecodedInstruction) -> Sequence[Operand]:
    if i.has("256") and i.known.loads:
        return i.sources[1:]  # the other register that it loads stands first
    return i.sources[len(i.outs) :] if i.known.operands == "predicates first" else i.sources


def registers(first: Operand | None, count: int) -> int:
    """Return ``count`` registers in a row, none where the first always is zero."""
    if not isinstance(first, SassRegister) or first.number in (ZERO_REGISTER, URZ):
        return 0
    return ((1 << count) - 1) << first.number


def _masked(i: DecodedInstruction) -> int:
    """Return the predicates of a mask, which stands last; of UR2UP, which has none, all uniform ones."""
    mask = i.sources[-1]
    every = EVERY_PREDICATE & (mask.value << PREDICATES if isinstance(mask, Immediate) else -1)
    return every << UNIFORM_PREDICATE if i.sass.opcode.startswith("U") else every


def _width(i: DecodedInstruction, slot: int, source: Operand) -> int:
    """Return how many registers in a row a source is."""
    row = i.known
    if row.reads is not None:
        return row.reads(i.sass.modifiers, slot)
    if isinstance(source, SassRegister):
        if row.stores:
            return i.words // (1 + i.has("256"))
        if i.takes_pairs or (slot == 2 and i.sums_pairs):
            return 2
    return 1


def of(operand: Operand | None, count: int = 1) -> int:
    """Return what an operand names, of registers in a row ``count``."""
    if isinstance(operand, SassRegister):
        return registers(operand, count)
    if isinstance(operand, Predicate):
        return 1 << PREDICATES + operand.number
    if isinstance(operand, SassConstant):
        return registers(operand.register, 1)
    return 0


def addressed(i: DecodedInstruction) -> int:
    """Return the registers of the addresses of an instruction that has a row."""
    bits = 0
    for operand in i.operands:
        if isinstance(operand, SassAddress):
            bits |= _address(operand, _POINTER, wide=i.is_wide(operand))
    return bits & ~FIXED


def coordinates(i: DecodedInstruction) -> int:
    """Return the registers of where in a tensor a copy is: behind the address in shared memory, and what a load tells."""
    box = i.sources[0]
    assert isinstance(box, SassAddress)
    before = 2 if i.known.loads else 1
    return registers(box.uniform, _width(i, 0, box)) & ~registers(box.uniform, before)


def _address(address: SassAddress, count: int, *, wide: bool) -> int:
    """Return the registers of an address, which is ``wide`` where it has 64 bits; a uniform one is ``count``."""
    base, uniform = address.base, address.uniform
    bits = registers(address.descriptor, _DESCRIPTOR)
    if base is not None:
        bits |= registers(base, _POINTER if base.wide or (wide and uniform is None) else 1)
    if uniform is not None:
        # Beside a distance of 32 bits stands the pointer.
        pointer = uniform.wide or (wide and (base is None or not base.wide))
        bits |= registers(uniform, _POINTER if pointer else count)
    return bits
