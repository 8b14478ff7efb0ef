"""One operand held against what it must be.

The rules are the PTX ISA's ("Operand Type Checking Rules", "Operand Size Exceeding Instruction-Type
Size") as ptxas applies them: a register must have the size of the type, and its kind or be untyped; only
mov takes the address of a variable or a special register, which cvt converts as well; an integer
constant stands for any integer, and a floating-point one for its own bits. The elements of a vector must
go together, neighbour by neighbour.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, replace
from itertools import pairwise
from typing import NamedTuple, NoReturn

from ptxlab.emulator.prepare import special
from ptxlab.emulator.prepare.context import SINK, Context
from ptxlab.emulator.prepare.forms import require
from ptxlab.emulator.prepare.row import OperandClass
from ptxlab.emulator.prepare.scope import PASSED, Register
from ptxlab.garbage import record
from ptxlab.matrix.form import UNTYPED, alternatives
from ptxlab.numbers.types import INSTRUCTION_TYPES, TYPES, ScalarType
from ptxlab.syntax.tree import (
    Address,
    Element,
    Float,
    Integer,
    Name,
    Negated,
    Not,
    Operand,
    Symbol,
    Vector,
)

_SPACES = {"global", "shared", "const", "local", "param"}
_GENERIC = ("global", "shared", "local")
"""Where ptxas takes a variable to lie if an instruction names no state space."""
_LIES_IN = {"dynamic": "shared", **dict.fromkeys(PASSED, "param")}
"""The state spaces that only the emulator tells apart."""

_PART = re.compile(r"\.[bh]\d+$")

_WIDER_THAN_ITS_TYPE = ("%tid", "%ntid", "%ctaid", "%nctaid")
"""Special registers that mov also reads as 16 bits: they had so many once."""

_FAMILIES = {"bits": "", "unsigned": "integer", "signed": "integer", "float": "float"}
"""What elements of a vector must have in common, of packed types their name, of plain bits nothing."""


class _Element(NamedTuple):
    """An element of a vector: the bits (0 of a constant), the family and the name of its type."""

    bits: int
    family: str
    type: str

    def goes_with(self, other: _Element) -> bool:
        """Say whether ``other`` may stand next to it."""
        sizes, families = {self.bits, other.bits} - {0}, {self.family, other.family} - {""}
        return len(sizes) < 2 and len(families) < 2


@record(frozen=True, slots=True)
class OperandCheck:
    """One operand of an instruction, and what it must be: a ``kind`` of operand, of a type.

    ``count`` registers stand in braces, which one may lack unless it is ``braced``; 0 is one without.
    The ``rule`` is that of the type, or what the instruction's own type does not decide: that of an
    ``integer`` (a number, a mask, a position), or only registers of plain bits, ``UNTYPED``. A ``wider``
    one may be larger. Constants are among those ``allowed``, of the elements of a vector each among its
    own. An address is in the ``space``, "" for that of the instruction. ``about`` is the hint of refusals
    that have no other.
    """

    context: Context
    kind: OperandClass
    type: ScalarType
    count: int = 0
    _: KW_ONLY
    braced: bool = False
    wider: bool = False
    rule: str = "type"
    allowed: tuple[range, ...] = ()
    space: str = ""
    about: str | None = None

    def result(self, operand: Operand) -> None:
        if self.kind.kind == "datum":
            operand = self.context.in_braces(operand)
        if isinstance(operand, Vector):
            self._vector(operand, is_result=True)
            return
        if not isinstance(operand, Name):
            self._reject("a register is needed here", operand)
        if operand.text == SINK and self.kind.optional:
            return
        if self.count > 1 or self.braced:
            self._whole(operand)
        else:
            self._register(operand, self.type)

    def source(self, operand: Operand) -> None:
        if self.kind.kind == "datum":
            operand = self.context.in_braces(operand)
        if self.kind.kind == "address":
            self._address(operand)
        elif self.kind.kind == "tensor memory":
            self._tensor_memory(operand)
        elif self.kind.kind == "tensor":
            self._tensor(operand)
        elif self.kind.kind == "constant":
            if not isinstance(operand, Integer):
                self._reject("an integer constant is needed here", operand)
        elif isinstance(operand, Vector):
            self._vector(operand, is_result=False)
        elif self.count > 1 or self.braced:
            self._whole(operand)
        else:
            self._value(operand, self.type)
        parts = operand.elements if isinstance(operand, Vector) else (operand,)
        for part, allowed in zip(parts, self.allowed, strict=False):
            if isinstance(part, Integer) and part.value not in allowed:
                self._reject(f"{self.name} takes {_listed(allowed)} here, not {part.value}", part)

    @property
    def name(self) -> str:
        return self.context.instruction.name

    def _reject(self, what: str, operand: Operand, hint: str | None = None) -> NoReturn:
        self.context.reject(what, operand, hint or self.about)

    def _value(self, operand: Operand, wanted: ScalarType) -> None:
        match operand:
            case Integer():
                if self.rule == UNTYPED:
                    self._reject("a register is needed here", operand)
                if not wanted.is_integer and wanted.kind != "predicate":
                    hint = "write 0f… or 0d…" if wanted.kind == "float" else None
                    self._reject(f"an integer where .{wanted.name} is needed", operand, hint)
            case Float():
                fits = wanted.name in ("f32", "f64") or (
                    wanted.kind == "bits" and wanted.bits == operand.width and self.rule == "type"
                )
                if not fits:
                    what = f"a {operand.width}-bit float constant where .{wanted.name} is needed"
                    self._reject(what, operand)
            case Not():
                if wanted.kind != "predicate":
                    self._reject("'!' negates a predicate only", operand)
                self._value(operand.operand, wanted)
            case Negated() if self.kind.kind == "part":
                self._name(operand.operand, wanted)
            case Negated():
                self._reject("a register is negated by neg", operand)
            case Symbol():
                self._symbol(operand, wanted)
            case Element():
                self._element_of(operand, wanted)
            case Name():
                self._name(operand, wanted)
            case _:
                self._reject(f"{self.name} takes one value here", operand)

    def _symbol(self, operand: Symbol, wanted: ScalarType) -> None:
        register = self.context.register(operand.name)
        declared = None if register is None else TYPES[register.type]
        if declared is not None and (not declared.is_integer or declared.bits > 64):
            what = f"nothing can be added to a .{declared.name} register"
            self._reject(what, operand)
        if self.rule == UNTYPED or not wanted.is_integer:
            self._reject(f"an address where .{wanted.name} is needed", operand)
        if register is not None:
            self._agree(register, wanted, operand, operand.name)
        else:
            self._of_its_space(Name(operand.name, position=operand.position))

    def _element_of(self, operand: Element, wanted: ScalarType) -> None:
        if not wanted.is_integer:
            self._reject(f"an address where .{wanted.name} is needed", operand)
        self._of_its_space(Name(operand.name, position=operand.position))
        self._index(operand)

    def _index(self, operand: Element) -> None:
        index = operand.index
        name = index.name if isinstance(index, Symbol) else getattr(index, "text", "")
        kind, register = self.context.index_type(name), self.context.register(name)
        if kind is None or (register is None and "." in name):
            self._reject(f"'{name}' is not a declared register", index)
        if register is None:
            require(self.context, name, special.TABLE[name].needs, index)
        if not kind.is_integer or kind.bits > 64:
            self._reject(f"'{name}' is a .{kind.name}, an index is an integer", index)

    def _name(self, operand: Name, wanted: ScalarType) -> None:
        context, name = self.context, operand.text
        register, bits = self._declared(name), special.bits(name)
        if register is not None:
            self._agree(register, wanted, operand, name)
        elif bits is not None:
            self._special(operand, wanted, bits)
        elif context.function(name) is not None or context.variable(name) is not None:
            self._of_its_space(operand)
            if self.kind.kind not in ("datum", "place") or not wanted.is_integer:
                hint = "move it to a register first: mov.u64 %rd, " + name
                self._reject(f"{self.name} takes no address of '{name}'", operand, hint)
        elif name.startswith("%"):
            context.refuse(f"special register {name}", operand)
        else:
            self._reject(f"'{name}' is not declared", operand)

    def _special(self, operand: Name, wanted: ScalarType, bits: int) -> None:
        name = operand.text
        is_flag = bits == 1 and wanted.kind == "predicate"
        fits = is_flag or (
            wanted.is_integer
            and (
                bits == wanted.bits
                or (self.kind.kind == "special" and bits > wanted.bits)
                or (wanted.bits == 16 and name.split(".")[0] in _WIDER_THAN_ITS_TYPE)
            )
        )
        if self.kind.kind not in ("datum", "special", "element"):
            hint = f"move it to a register first: mov.u{bits} %r, {name}"
            self._reject(f"{self.name} takes no special register", operand, hint)
        if not fits:
            self._reject(f"{name} has {bits} bits, .{wanted.name} is needed", operand)
        require(self.context, name, special.TABLE[name].needs, operand)

    def _register(self, operand: Name, wanted: ScalarType) -> None:
        register = self._declared(operand.text)
        if register is None:
            self._reject(f"'{operand.text}' is not a declared register", operand)
        self._agree(register, wanted, operand, operand.text)

    def _declared(self, name: str) -> Register | None:
        if self.kind.kind == "part":
            name = _PART.sub("", name)
        return self.context.register(name)

    def _agree(self, register: Register, wanted: ScalarType, operand: Operand, name: str) -> None:
        context, declared = self.context, TYPES[register.type]
        if declared.bits == 128 > wanted.bits:
            context.refuse(f"a part of {name}, a .b128 register, in {self.name}", operand)
        if self.kind.kind == "or predicate" and declared.kind == "predicate":
            return
        if not agrees(declared, wanted, self.rule, wider=self.wider):
            what = f"{name} is a .{declared.name} register"
            self._reject(f"{what}, {self.name} takes {self._taken(wanted)}", operand)

    def _taken(self, wanted: ScalarType) -> str:
        kinds = tuple(
            f".{name}"
            for name, kind in TYPES.items()
            if kind.bits == wanted.bits
            and name not in INSTRUCTION_TYPES
            and agrees(kind, wanted, self.rule, wider=False)
        )
        return alternatives(kinds) + (", or a wider one" if self.wider else "")

    def _vector(self, operand: Vector, *, is_result: bool) -> None:
        """Check ``{a, b}``, element by element."""
        count, wanted = len(operand.elements), self.type
        if self.kind.kind == "datum":
            wanted = self._part(operand)
        elif not self.count:
            self._reject(f"{self.name} takes one value here", operand)
        elif count != self.count:
            self._miscounted(operand, count)
        elements = [e for e in operand.elements if not (is_result and _is_sink(e))]
        if not elements:
            self._reject("a vector needs one register", operand)
        described = [self._element(element, is_result=is_result) for element in elements]
        for left, other in pairwise(described):
            if not left.goes_with(other):
                self._reject("the elements of a vector are of different types", operand)
        check = replace(self, kind=replace(self.kind, kind="element"))
        bits = wanted
        if len({element.type for element in described}) > 1 or not described[0].family:
            # Registers of several types, or of plain bits among them, are all plain bits.
            bits, check = TYPES[f"b{wanted.bits}"], replace(check, rule="type")
        for element in elements:
            number = isinstance(element, Float) and wanted.kind == "float"
            check._value(element, wanted if number else bits)

    def _element(self, element: Operand, *, is_result: bool) -> _Element:
        """Return what an element is: a register, or where it is read a constant."""
        match element:
            case Name(text=name):
                register, bits = self._declared(name), special.bits(name)
                if register is not None:
                    kind = TYPES[register.type]
                    return _Element(kind.bits, _FAMILIES.get(kind.kind, kind.name), kind.name)
                if bits is not None and not is_result:
                    return _Element(bits, "", f"b{bits}")
                self._reject(f"'{name}' is not a declared register", element)
            case Integer() if not is_result:
                return _Element(0, "integer", "integer")
            case Float(width=width) if not is_result:
                return _Element(0, "float", f"f{width}")
        return self._reject("a register is needed here", element)

    def _whole(self, operand: Operand) -> None:
        """Check a register that is itself a vector (``.reg .v4 .f32``), for its components."""
        parts = self.context.components(operand)
        if len(parts) != self.count:
            self._miscounted(operand, len(parts))
        for part in parts:
            self._register(part, self.type)

    def _miscounted(self, operand: Operand, count: int) -> NoReturn:
        registers = "register" if self.count == 1 else "registers"
        wanted = f"{self.name} takes {self.count} {registers}"
        self._reject(f"{wanted} in braces here, found {count or 'none'}", operand)

    def _part(self, operand: Vector) -> ScalarType:
        """Return the type of one of the parts of a register that mov packs or unpacks."""
        count, whole = len(operand.elements), self.type
        if whole.kind != "bits" or count not in (1, 2, 4) or whole.bits // count < 8:
            self._reject(f"a .{whole.name} has no {count} parts", operand)
        return TYPES[f"b{whole.bits // count}"]

    def _address(self, operand: Operand) -> None:
        """Check ``[register + offset]`` or ``[variable + offset]``."""
        context = self.context
        if isinstance(operand, Element):
            self._same_space(Name(operand.name, position=operand.position))
            self._index(operand)
            return
        if not isinstance(operand, Address):
            self._reject("a memory operand in brackets is needed here", operand)
        if operand.base is None:
            if "local" not in context.instruction.modifiers:
                self._reject("an address is a register or a variable", operand)
            return
        register = context.register(operand.base.text)
        if register is None:
            self._same_space(operand.base)
            return
        declared = TYPES[register.type]
        if not declared.is_integer or declared.bits not in (32, 64):
            self._reject(f"{operand.base.text} cannot hold an address", operand)

    def _tensor_memory(self, operand: Operand) -> None:
        """Check ``[register + offset]``, a register of 32 bits."""
        base = operand.base if isinstance(operand, Address) and not operand.extra else None
        if base is None:
            self._reject("a Tensor Memory address in brackets is needed here", operand)
        self._register(base, self.type)

    def _tensor(self, operand: Operand) -> None:
        """Check ``[map, {coordinates}]``."""
        extra = operand.extra if isinstance(operand, Address) else ()
        if len(extra) != 1 or not isinstance(extra[0], Vector):
            what = "a tensor map and coordinates are needed here: [map, {0, 0}]"
            self._reject(what, operand)
        self._address(operand)
        self._vector(extra[0], is_result=False)

    def _of_its_space(self, name: Name) -> None:
        """Check the variable whose address cvta makes generic."""
        if self.context.instruction.opcode == "cvta":
            self._same_space(name)

    def _same_space(self, base: Name) -> None:
        """Check that a variable lies in the state space that the instruction names, or in a generic one."""
        context = self.context
        variable = context.variable(base.text)
        if variable is None and context.function(base.text) is not None:
            self._reject(f"'{base.text}' is a function, and no memory", base)
        modifiers = [self.space] if self.space else context.instruction.modifiers
        named = {part.split("::")[0] for part in modifiers} & _SPACES
        if variable is None:
            return
        space = _LIES_IN.get(variable.space, variable.space)
        if space not in (named or _GENERIC):
            self._reject(
                f"'{base.text}' lies in .{space}, not in .{', .'.join(named or _GENERIC)}", base
            )


def agrees(declared: ScalarType, wanted: ScalarType, rule: str, *, wider: bool) -> bool:
    """Say whether a register ``declared`` so can hold a ``wanted`` value, in its low bits where ``wider``."""
    if "predicate" in (declared.kind, wanted.kind):
        return declared.kind == wanted.kind
    if declared.bits < wanted.bits or (declared.bits > wanted.bits and not wider):
        return False
    if declared.kind == "bits" or rule == UNTYPED:
        return declared.kind == "bits"
    if wanted.kind == "bits" and rule == "type":
        return True
    if wanted.kind in ("float", "packed"):
        return declared.name == wanted.name
    return declared.kind in ("unsigned", "signed")


def _is_sink(operand: Operand) -> bool:
    return isinstance(operand, Name) and operand.text == SINK


def _listed(allowed: range) -> str:
    """Write the numbers that a constant may be."""
    if allowed.step == 1 and len(allowed) > 2:
        return f"{allowed[0]} to {allowed[-1]}"
    few = len(allowed) <= 2
    return alternatives(tuple(map(str, allowed))) if few else f"a multiple of {allowed.step}"
