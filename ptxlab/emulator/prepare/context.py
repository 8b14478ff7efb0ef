"""What a step builder asks while a function is prepared: how to read and write the operands.

What an operand may be has been checked before (``operand_check``): here it is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare import special
from ptxlab.emulator.prepare.names import Names
from ptxlab.emulator.prepare.program import Lowered, ReadClock, function_addresses
from ptxlab.emulator.prepare.registers import (
    Destination,
    InFrame,
    InWave,
    Narrower,
    Source,
    VariableAddress,
    address,
)
from ptxlab.emulator.prepare.scope import MODULE_SPACES, PASSED, Register, Variable
from ptxlab.numbers.types import TYPES, ScalarType
from ptxlab.syntax.tree import (
    Address,
    Element,
    Float,
    Integer,
    Name,
    Node,
    Not,
    Operand,
    Symbol,
    Vector,
)

SINK = "_"


def element_address(index: Source, offset: int, size: int, array: int, slot: int) -> Lowered:
    """Put the address of ``array[index + offset]`` into a register, of elements of ``size`` bytes.

    As ptxas has it, the distance is a number of 32 bits, added to the address without its sign.
    """

    def compute(index: Array, array: Array) -> Array:
        distance = (index.astype(np.uint32) + np.uint32(offset)) * np.uint32(size)
        return array + distance.astype(np.uint64)

    base = Source(array, np.dtype(np.uint64))
    return Lowered([index, base], [Destination(slot)], compute)


class Context(Names):
    """The function being prepared and the instruction in hand, with its operands bound to registers."""

    def source(self, operand: Operand, type_name: str) -> Source:
        """Return how to read ``operand`` as ``type_name``; of a register with more bits the low ones."""
        source = self._source_of(operand, type_name)
        self.reads.add(source.slot)
        return source

    def _source_of(self, operand: Operand, type_name: str) -> Source:
        kind = TYPES[type_name]
        if isinstance(operand, Name):  # most are
            register = self.register(operand.text)
            return (
                self._named_source(operand, kind)
                if register is None
                else _register_source(register, kind)
            )
        if isinstance(operand, Integer | Float):
            value = self.immediate(operand, type_name)
            slot = self.constant(value, (type_name, value.tobytes()))
            self.literals.add(slot)
            return Source(slot, kind.dtype)
        if isinstance(operand, Not):
            inner = self._source_of(operand.operand, "pred")
            return Source(inner.slot, inner.dtype, np.logical_not)
        if isinstance(operand, Symbol):
            register = self.register(operand.name)
            if register is not None:
                return self._sum(register, operand, kind)
            return self._symbol_source(operand.name, operand.offset, operand, kind)
        if isinstance(operand, Element):
            return self._slot_source(self._element(operand), operand, kind)
        return self.refuse(f"operand of this kind in {self.instruction.name}", operand)

    def _sum(self, register: Register, operand: Symbol, kind: ScalarType) -> Source:
        """Return how to read a register plus a constant, added in the register's own width."""
        declared, plain = TYPES[register.type], _register_source(register, kind)
        whole = np.dtype(f"u{declared.bytes}")
        added = np.array([operand.offset % (1 << declared.bits)], np.uint64).astype(whole)
        convert = plain.convert or (lambda value: value.view(plain.dtype))
        return Source(plain.slot, plain.dtype, lambda value: convert(value.view(whole) + added))

    def _named_source(self, operand: Name, kind: ScalarType) -> Source:
        name = operand.text
        register = special.TABLE.get(name)
        if register is None:
            return self._symbol_source(name, 0, operand, kind)
        if register.value is None:
            slot = self._clock(name, register)
        else:
            slot = self.constant(InWave(register.value), ("special", name))
        if register.bits == kind.bits:
            return Source(slot, kind.dtype)
        if register.bits > kind.bits:
            return Source(slot, kind.dtype, _narrower(register.bits, kind.bits, kind.dtype))
        return Source(slot, kind.dtype, lambda value: value.astype(kind.dtype))

    def _clock(self, name: str, clock: special.SpecialRegister) -> int:
        """Return the slot of a clock, which is read anew before each instruction that names it."""
        dtype = np.dtype(f"u{clock.bits // 8}")
        slot = self.constant(np.zeros(1, dtype), ("clock", name))
        self.prologue.append(ReadClock(slot, dtype, clock.lowest, self.before))
        return slot

    def _symbol_source(self, name: str, offset: int, operand: Node, kind: ScalarType) -> Source:
        """Return how to read the address of ``name`` plus ``offset``, or its low bits."""
        return self._slot_source(self._symbol(name, offset, operand), operand, kind)

    def _slot_source(self, slot: int, operand: Node, kind: ScalarType) -> Source:
        """Return how to read the address in a register, or its low bits."""
        if kind.bits > 64:
            self.refuse(f"an address of {kind.bits} bits", operand)
        narrower = None if kind.bits == 64 else _narrower(64, kind.bits, kind.dtype)
        return Source(slot, kind.dtype, narrower)

    def _element(self, element: Element) -> int:
        """Return the slot of the address of an element, computed anew before the instruction."""
        array, index = self.array(element), element.index
        assert not isinstance(index, Integer)
        name, offset = (index.text, 0) if isinstance(index, Name) else (index.name, index.offset)
        kind = self.index_type(name)
        assert kind is not None
        whole = TYPES[f"u{kind.bits}"]
        # The constant is one of the register's own type, the register has no sign.
        constant = np.array([offset % (1 << kind.bits)], np.uint64).astype(whole.dtype)
        added = int(constant.view(kind.dtype).astype(np.uint32)[0])
        slot = self._add(np.zeros(1, np.uint64))
        base = self.address_slot(array, 0)
        source = self.source(Name(name, position=index.position), whole.name)
        self.prologue.append(element_address(source, added, array.element, base, slot))
        return slot

    def index_type(self, name: str) -> ScalarType | None:
        """Return the type of what ``name`` is as an index, a register of either kind, or None."""
        register, bits = self.register(name), special.bits(name)
        if register is not None:
            return TYPES[register.type]
        return None if bits is None else TYPES[f"u{bits}" if bits > 1 else "pred"]

    def _symbol(self, name: str, offset: int, operand: Node) -> int:
        variable = self.variable(name)
        if variable is None:
            function = self.function(name)
            if function is not None:
                if function.body is None or offset:
                    what = "no body here, and no address" if not function.body else "no parts"
                    self.reject(f"function '{name}' has {what}", operand)
                at = function_addresses(self.program.declared)[name]
                return self.constant(address(at), ("function", name))
            self.reject(f"'{name}' is not declared", operand)
        return self.address_slot(variable, offset)

    def address_slot(self, variable: Variable, offset: int) -> int:
        """Return the slot holding the address of ``variable`` plus ``offset`` in its own space."""
        at = variable.offset + offset
        key = (variable, offset)
        if variable.space in MODULE_SPACES:
            return self.constant(VariableAddress(variable, offset), key)
        if variable.space in ("shared", "dynamic"):
            self.needs_place(variable)
            return self.constant(VariableAddress(variable, offset), key)
        if variable.space in PASSED:
            self.refuse(f"the address of call parameter '{variable.name}'")
        if variable.space == "local":
            return self.constant(InFrame(at), key)
        return self.constant(address(at), key)

    def needs_place(self, variable: Variable) -> None:
        """Have a place for a shared variable, or refuse it once they all have theirs."""
        layout = self.program.shared
        if layout is not None and variable not in layout.starts:
            self.refuse(
                f"shared variable '{variable.name}' of a function that is called by an address from "
                f"elsewhere"
            )
        self.program.named[variable] = None

    def immediate(self, operand: Integer | Float, type_name: str) -> Array:
        """Return a constant as the one number of ``type_name`` that it stands for."""
        kind = TYPES[type_name]
        if isinstance(operand, Integer):
            if kind.kind == "predicate":
                return np.array([operand.value != 0])
            raw = (operand.value % (1 << kind.bits)).to_bytes(kind.bits // 8, "little")
            return np.frombuffer(raw, kind.dtype)
        width = operand.width
        value = np.frombuffer(operand.bits.to_bytes(width // 8, "little"), f"f{width // 8}")
        if kind.name == "f32":
            with np.errstate(all="ignore"):
                return value.astype(kind.dtype)
        if kind.bits < width:
            self.reject(f"a {width}-bit float constant where .{type_name} is needed", operand)
        # As ptxas has it, a number of 32 bits in one of 64 is these bits.
        return np.frombuffer(operand.bits.to_bytes(kind.bits // 8, "little"), kind.dtype)

    def destination(self, operand: Operand, type_name: str) -> Destination:
        """Return how to write a result of ``type_name`` to ``operand``, a register or ``_``.

        To a register with more bits it is extended.
        """
        kind = TYPES[type_name]
        assert isinstance(operand, Name)
        if operand.text == SINK:
            return Destination(self.unread_slot(kind))
        register = self.register(operand.text)
        assert register is not None
        self.writes.add(register.slot)
        declared = TYPES[register.type]
        if declared.bits == kind.bits:
            return Destination(register.slot)
        letter = "i" if kind.kind == "signed" else "u"
        return Destination(register.slot, np.dtype(f"{letter}{declared.bits // 8}"))

    def unread_slot(self, kind: ScalarType) -> int:
        """Return a slot for results that nobody wants."""
        slot = self.constant(np.zeros(1, kind.dtype), (SINK, kind.bits))
        self.unread.add(slot)
        return slot

    def address(self, operand: Operand, bits: int = 64) -> tuple[Source, int]:
        """Return the base of a memory operand, of which ``bits`` count, and the bytes to add to it."""
        if isinstance(operand, Element):
            return self.source(operand, "u64"), 0
        assert isinstance(operand, Address)
        if operand.extra:
            self.refuse(f"memory operand with coordinates in {self.instruction.name}", operand)
        if operand.base is None:
            return self.source(Integer(operand.offset), "u64"), 0
        register = self.register(operand.base.text)
        if register is not None:
            wide = min(TYPES[register.type].bits, bits)
            return self.source(operand.base, f"u{wide}"), operand.offset
        return self.source(operand.base, "u64"), operand.offset

    def space_of(self, operand: Operand) -> str | None:
        """Return the state space of the variable that an address names; None of a register."""
        base = operand.base if isinstance(operand, Address) else None
        variable = None if base is None else self.variable(base.text)
        if variable is None:
            return None
        return "shared" if variable.space == "dynamic" else variable.space

    def elements(self, operand: Operand) -> Sequence[Operand]:
        """Return the elements of a vector operand; a lone operand itself.

        A register that is itself a vector (``.reg .v4 .f32``) stands for its components.
        """
        return getattr(operand, "elements", None) or self.components(operand) or (operand,)

    def components(self, operand: Operand) -> list[Name]:
        """Return the components of a register that is itself a vector; none of another operand."""
        if not isinstance(operand, Name) or self.register(f"{operand.text}.x") is None:
            return []
        parts = (Name(f"{operand.text}.{x}", position=operand.position) for x in "xyzw")
        return [part for part in parts if self.register(part.text) is not None]

    def in_braces(self, operand: Operand) -> Operand:
        """Return a register that is itself a vector as its components in braces; any other operand itself."""
        parts = self.components(operand)
        return Vector(tuple(parts), position=operand.position) if parts else operand

    def sources(self, operand: Operand, type_name: str) -> list[Source]:
        """Return how to read the elements of a vector operand; see ``source``."""
        return [self.source(element, type_name) for element in self.elements(operand)]

    def destinations(self, operand: Operand, type_name: str) -> list[Destination]:
        """Return how to write the elements of a vector operand; see ``destination``."""
        return [self.destination(element, type_name) for element in self.elements(operand)]

    def operands(self, count: int) -> list[Any]:
        """Return the operands, which must be ``count``."""
        given = len(self.instruction.operands)
        if given != count:
            self.reject(f"{self.instruction.name} takes {count} operands, found {given}")
        return list(self.instruction.operands)

    def names(self, count: int) -> list[str]:
        """Return the texts of the operands, which must be ``count`` plain names."""
        operands = self.instruction.operands
        names = [operand.text for operand in operands if isinstance(operand, Name)]
        if len(names) != count or len(operands) != count:
            self.reject(f"{self.instruction.name} takes {count} names")
        return names


def _register_source(register: Register, kind: ScalarType) -> Source:
    declared = TYPES[register.type]
    if declared.bits == kind.bits:
        return Source(register.slot, kind.dtype)
    return Source(register.slot, kind.dtype, _narrower(declared.bits, kind.bits, kind.dtype))


def _narrower(register_bits: int, bits: int, dtype: np.dtype[Any]) -> Narrower:
    """Return the conversion of a register to its low ``bits``, seen as ``dtype``."""
    return Narrower(np.dtype(f"u{register_bits // 8}"), np.dtype(f"u{bits // 8}"), dtype)
