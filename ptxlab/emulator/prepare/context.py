"""What a step builder asks while a function is prepared: how to read and write the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.prepare import special
from ptxlab.emulator.prepare.names import Names
from ptxlab.emulator.prepare.program import Step, function_addresses
from ptxlab.emulator.prepare.scope import Register, Variable
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, InFrame, InWave, address
from ptxlab.numbers.types import TYPES, ScalarType
from ptxlab.syntax.tree import Address, Float, Integer, Name, Node, Not, Operand, Symbol

SINK = "_"


def read_clock(slot: int, lowest: int, dtype: np.dtype[Any], before: int) -> Step:
    """Put into a register how many instructions have been executed, ``before`` of this block among them."""

    def run(frame: Frame, threads: Threads) -> None:
        now = np.array([frame.wave.clock + before], np.uint64) >> np.uint64(lowest)
        frame.registers[slot] = now.astype(dtype)

    return run


class Context(Names):
    """The function being prepared and the instruction in hand, with its operands bound to registers."""

    def source(self, operand: Operand, type_name: str, *, wider: bool = False) -> Source:
        """Return how to read ``operand`` as ``type_name``.

        ``wider`` allows a register with more bits, of which the low ones are read: PTX ISA, "Operand
        Size Exceeding Instruction-Type Size", allows it for ld, st and cvt only.
        """
        source = self._source_of(operand, type_name, wider)
        self.reads.add(source.slot)
        return source

    def _source_of(self, operand: Operand, type_name: str, wider: bool = False) -> Source:
        kind = TYPES[type_name]
        if isinstance(operand, Integer | Float):
            value = self.immediate(operand, type_name)
            return Source(self.constant(value, (type_name, value.tobytes())), kind.dtype)
        if isinstance(operand, Not):
            if kind.kind != "predicate":
                self.reject("'!' negates a predicate only", operand)
            inner = self._source_of(operand.operand, "pred")
            return Source(inner.slot, inner.dtype, np.logical_not)
        if isinstance(operand, Symbol):
            register = self.register(operand.name)
            if register is not None:
                return self._sum(register, operand, type_name, wider)
            return self._symbol_source(operand.name, operand.offset, operand, kind)
        if not isinstance(operand, Name):
            self.refuse(f"operand of this kind in {self.instruction.name}", operand)
        register = self.register(operand.text)
        if register is not None:
            return self._register_source(register, type_name, operand, wider)
        return self._named_source(operand, type_name)

    def _sum(self, register: Register, operand: Symbol, type_name: str, wider: bool) -> Source:
        """Return how to read a register plus a constant, added in the register's own width."""
        declared = TYPES[register.type]
        if not declared.is_integer or declared.bits > 64:
            self.reject(f"nothing can be added to a .{declared.name} register here", operand)
        name = Name(operand.name, position=operand.position)
        plain = self._register_source(register, type_name, name, wider)
        whole = np.dtype(f"u{declared.bytes}")
        added = np.array([operand.offset % (1 << declared.bits)], np.uint64).astype(whole)
        convert = plain.convert or (lambda value: value.view(plain.dtype))
        return Source(plain.slot, plain.dtype, lambda value: convert(value.view(whole) + added))

    def _register_source(
        self, register: Register, type_name: str, operand: Name, wider: bool
    ) -> Source:
        kind, declared = TYPES[type_name], TYPES[register.type]
        if (declared.kind == "predicate") != (kind.kind == "predicate"):
            self.reject(
                f"{operand.text} is a .{register.type} register, .{type_name} is needed", operand
            )
        if declared.bits == kind.bits:
            return Source(register.slot, kind.dtype)
        if declared.bits < kind.bits or not wider:
            self.reject(
                f"{operand.text} has {declared.bits} bits, {self.instruction.name} needs {kind.bits}",
                operand,
            )
        return Source(register.slot, kind.dtype, _narrower(declared.bits, kind.bits, kind.dtype))

    def _named_source(self, operand: Name, type_name: str) -> Source:
        name, kind = operand.text, TYPES[type_name]
        if kind.kind == "predicate" and special.bits(name) != kind.bits:
            self.reject(f"{name} is no predicate register", operand)
        if name in special.CLOCKS:
            return self._clock(name, kind)
        bits = special.bits(name)
        if bits is not None:
            slot = self.constant(InWave(special.TABLE[name]), ("special", name))
            if bits == kind.bits:
                return Source(slot, kind.dtype)
            if bits > kind.bits:
                return Source(slot, kind.dtype, _narrower(bits, kind.bits, kind.dtype))
            return Source(slot, kind.dtype, lambda value: value.astype(kind.dtype))
        if name.startswith("%") and self.function(name) is None and self.variable(name) is None:
            self.refuse(f"special register {name}", operand)
        return self._symbol_source(name, 0, operand, kind)

    def _clock(self, name: str, kind: ScalarType) -> Source:
        """Return a clock, which is read anew before each instruction that names it."""
        lowest, bits = special.CLOCKS[name]
        dtype = np.dtype(f"u{bits // 8}")
        slot = self.constant(np.zeros(1, dtype), ("clock", name))
        self.prologue.append(read_clock(slot, lowest, dtype, self.before))
        if bits == kind.bits:
            return Source(slot, kind.dtype)
        return Source(slot, kind.dtype, _narrower(bits, kind.bits, kind.dtype))

    def _symbol_source(self, name: str, offset: int, operand: Node, kind: ScalarType) -> Source:
        """Return how to read the address of ``name`` plus ``offset``, or its low bits."""
        slot = self._symbol(name, offset, operand)
        if kind.bits > 64:
            self.refuse(f"an address of {kind.bits} bits", operand)
        narrower = None if kind.bits == 64 else _narrower(64, kind.bits, kind.dtype)
        return Source(slot, kind.dtype, narrower)

    def _symbol(self, name: str, offset: int, operand: Node) -> int:
        variable = self.variable(name)
        if variable is None:
            if self.function(name) is not None:
                at = function_addresses(self.program.declared)[name]
                return self.constant(address(at), ("function", name))
            self.reject(f"'{name}' is not declared", operand)
        return self.address_slot(variable, offset)

    def address_slot(self, variable: Variable, offset: int) -> int:
        """Return the slot holding the address of ``variable`` plus ``offset`` in its own space."""
        at = variable.offset + offset
        key = (variable, offset)
        if variable.space in ("global", "const"):
            name = variable.name
            return self.constant(InWave(lambda wave: address(wave.symbols[name] + offset)), key)
        if variable.space in ("shared", "dynamic"):
            self.needs_place(variable)
            place = InWave(lambda wave: address(wave.shared.starts[variable] + offset))
            return self.constant(place, key)
        if variable.space == "call":
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
            if kind.kind == "float":
                self.reject(f"an integer where .{type_name} is needed", operand, "write 0f… or 0d…")
            raw = (operand.value % (1 << kind.bits)).to_bytes(kind.bits // 8, "little")
            return np.frombuffer(raw, kind.dtype)
        width = operand.width
        value = np.frombuffer(operand.bits.to_bytes(width // 8, "little"), f"f{width // 8}")
        if kind.kind == "float" and kind.bits in (32, 64):
            with np.errstate(all="ignore"):
                return value.astype(kind.dtype)
        if kind.bits != width:
            self.reject(f"a {width}-bit float constant where .{type_name} is needed", operand)
        return value.view(kind.dtype)

    def destination(self, operand: Operand, type_name: str, *, wider: bool = False) -> Destination:
        """Return how to write a result of ``type_name`` to ``operand``, a register or ``_``.

        ``wider`` allows a register with more bits, to which the result is extended; see ``source``.
        """
        kind = TYPES[type_name]
        if not isinstance(operand, Name):
            self.reject("a register is needed here", operand)
        if operand.text == SINK:
            return Destination(self.constant(np.zeros(1, kind.dtype), (SINK, kind.bits)))
        register = self.register(operand.text)
        if register is None:
            self.reject(f"'{operand.text}' is not a declared register", operand)
        declared = TYPES[register.type]
        mixed = (declared.kind == "predicate") != (kind.kind == "predicate")
        if mixed or declared.bits < kind.bits or (declared.bits > kind.bits and not wider):
            self.reject(
                f"{operand.text} is a .{register.type} register, the result is .{type_name}",
                operand,
            )
        self.writes.add(register.slot)
        if declared.bits == kind.bits:
            return Destination(register.slot)
        letter = "i" if kind.kind == "signed" else "u"
        return Destination(register.slot, np.dtype(f"{letter}{declared.bits // 8}"))

    def address(self, operand: Operand) -> tuple[Source, int]:
        """Return the base of a memory operand and the bytes to add to it."""
        if not isinstance(operand, Address):
            self.reject("a memory operand in brackets is needed here", operand)
        if operand.extra:
            self.refuse(f"memory operand with coordinates in {self.instruction.name}", operand)
        if operand.base is None:
            return self.source(Integer(operand.offset), "u64"), 0
        register = self.register(operand.base.text)
        if register is not None:
            kind = TYPES[register.type]
            if kind.bits not in (32, 64) or kind.kind == "float":
                self.reject(f"{operand.base.text} cannot hold an address", operand)
            return self.source(operand.base, f"u{kind.bits}"), operand.offset
        return self.source(operand.base, "u64"), operand.offset

    def elements(self, operand: Operand, count: int) -> Sequence[Operand]:
        """Return the elements of a vector operand of ``count``; a lone operand when ``count`` is 1.

        A register that is itself a vector (``.reg .v4 .f32``) stands for its components.
        """
        items = getattr(operand, "elements", None) or self.components(operand) or (operand,)
        if len(items) != count:
            self.reject(
                f"{self.instruction.name} takes {count} registers here, found {len(items)}", operand
            )
        return tuple(items)

    def components(self, operand: Operand) -> list[Name]:
        """Return the components of a register that is itself a vector; none of another operand."""
        if not isinstance(operand, Name):
            return []
        parts = (Name(f"{operand.text}.{x}", position=operand.position) for x in "xyzw")
        return [part for part in parts if self.register(part.text) is not None]

    def sources(
        self, operand: Operand, type_name: str, count: int, *, wider: bool = False
    ) -> list[Source]:
        """Return how to read the elements of a vector operand; see ``source``."""
        elements = self.elements(operand, count)
        return [self.source(element, type_name, wider=wider) for element in elements]

    def destinations(
        self, operand: Operand, type_name: str, count: int, *, wider: bool = False
    ) -> list[Destination]:
        """Return how to write the elements of a vector operand; see ``destination``."""
        elements = self.elements(operand, count)
        return [self.destination(element, type_name, wider=wider) for element in elements]

    def operands(self, count: int) -> list[Any]:
        """Return the operands, which must be ``count``."""
        found = len(self.instruction.operands)
        if found != count:
            self.reject(f"{self.instruction.name} takes {count} operands, found {found}")
        return list(self.instruction.operands)

    def names(self, count: int) -> list[str]:
        """Return the texts of the operands, which must be ``count`` plain names."""
        operands = self.instruction.operands
        names = [operand.text for operand in operands if isinstance(operand, Name)]
        if len(names) != count or len(operands) != count:
            self.reject(f"{self.instruction.name} takes {count} names")
        return names


def _narrower(
    register_bits: int, bits: int, dtype: np.dtype[Any]
) -> Callable[[Array], npt.NDArray[Any]]:
    """Return the conversion of a register to its low ``bits``, seen as ``dtype``."""
    wide, narrow = np.dtype(f"u{register_bits // 8}"), np.dtype(f"u{bits // 8}")

    def convert(value: Array) -> Array:
        return value.view(wide).astype(narrow).view(dtype)

    return convert
