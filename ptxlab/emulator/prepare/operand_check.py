"""What an instruction takes: every operand held against its class in the row of the operation.

The rules are the PTX ISA's ("Operand Type Checking Rules", "Operand Size Exceeding Instruction-Type
Size") as ptxas applies them: a register must have the size of the type, and its kind or be untyped; only
mov takes the address of a variable or a special register, which cvt converts as well; an integer
constant stands for any integer, and a floating-point one for its own bits.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ptxlab.emulator.prepare import special
from ptxlab.emulator.prepare.context import SINK, Context
from ptxlab.emulator.prepare.row import ANY, CARRY, Form, OperandClass
from ptxlab.emulator.prepare.scope import Register
from ptxlab.numbers.types import TYPES, ScalarType
from ptxlab.syntax.tree import (
    Address,
    Float,
    Integer,
    Name,
    Negated,
    Not,
    Operand,
    Pair,
    Symbol,
    Vector,
)

_ALTERNATE = re.compile(r"bf16(x2)?|tf32|u?e\d+m\d+(x\d)?")

_SPACES = {"global", "shared", "const", "local", "param"}
_LIES_IN = {"dynamic": "shared", "call": "param"}
"""The state spaces that only the emulator tells apart."""

_PART = re.compile(r"\.[bh]\d+$")

_WIDER_THAN_ITS_TYPE = ("%tid", "%ntid", "%ctaid", "%nctaid")
"""Special registers that mov also reads as 16 bits: they had so many once."""


def check_operands(context: Context, form: Form) -> None:
    """Check the operands of the instruction in hand. Raises PtxSyntaxError at one that cannot be."""
    instruction, row = context.instruction, form.row
    if (row.slots and row.slots[0].name == ANY) or any(s.kind == "name" for s in row.sources):
        return
    operands = list(instruction.operands)
    sources = [(c, t) for c, t in zip(row.sources, form.operands, strict=True) if t != CARRY]
    results = [(c, t) for c, t in zip(row.results, form.results, strict=True) if t != CARRY]
    if results:
        if not operands:
            context.reject(f"{instruction.name} needs operands")
        first = operands.pop(0)
        targets = [first.first, first.second] if isinstance(first, Pair) else [first]
        if len(targets) > len(results):
            context.reject(f"{instruction.name} has one result", first)
        for target, (kind, name) in zip(targets, results, strict=False):
            _Check(context, form, kind, name).result(target)
    needed = [source for source in sources if not source[0].optional]
    if not len(needed) <= len(operands) <= len(sources):
        wanted = f"{len(needed)} to {len(sources)}" if needed != sources else len(needed)
        context.reject(f"{instruction.name} takes {wanted} source operands, found {len(operands)}")
    if len(operands) == len(needed):
        sources = needed
    for operand, (kind, name) in zip(operands, sources, strict=False):
        _Check(context, form, kind, name).source(operand)


class _Check:
    """One operand of an instruction and the class that it must be of."""

    def __init__(self, context: Context, form: Form, kind: OperandClass, name: str) -> None:
        self._context = context
        self._form = form
        self._kind = kind
        self._type = TYPES[name]
        # The alternate formats, which no register is declared with, are told from their words alone.
        alternate = form.row.wider and any(_ALTERNATE.fullmatch(part) for part in form.modifiers)
        self._wider = form.row.wider and not alternate
        # What the instruction's own type does not decide holds a number, a mask or a position.
        self._typed = name in form.modifiers
        self._raw = alternate and not self._typed
        self._count = int(form[kind.vector][1:] or 1) if kind.vector else 1

    def result(self, operand: Operand) -> None:
        """Check what the result is written to."""
        if isinstance(operand, Vector):
            self._vector(operand, is_result=True)
            return
        if not isinstance(operand, Name):
            self._context.reject("a register is needed here", operand)
        if operand.text == SINK and self._kind.optional:
            return
        if self._count > 1:
            self._whole(operand)
        else:
            self._register(operand, self._type)

    def source(self, operand: Operand) -> None:
        """Check what is read."""
        if self._kind.kind == "address":
            self._address(operand)
        elif self._kind.kind == "constant":
            if not isinstance(operand, Integer):
                self._context.reject("an integer constant is needed here", operand)
        elif isinstance(operand, Vector):
            self._vector(operand, is_result=False)
        elif self._count > 1:
            self._whole(operand)
        else:
            self._value(operand, self._type)
        if isinstance(operand, Integer) and not self._kind.allows(operand.value):
            below, multiple = self._kind.below, self._kind.multiple
            known = f"0 to {below - 1}" if below else f"a multiple of {multiple}"
            name = self._context.instruction.name
            self._context.reject(f"{name} takes {known} here, not {operand.value}", operand)

    def _value(self, operand: Operand, wanted: ScalarType) -> None:
        context = self._context
        match operand:
            case Integer():
                if self._raw:
                    context.reject("a register is needed here", operand)
                if not wanted.is_integer and wanted.kind != "predicate":
                    hint = "write 0f… or 0d…" if wanted.kind == "float" else None
                    context.reject(f"an integer where .{wanted.name} is needed", operand, hint)
            case Float():
                fits = wanted.name in ("f32", "f64") or (
                    wanted.kind == "bits" and wanted.bits == operand.width and self._typed
                )
                if not fits:
                    what = f"a {operand.width}-bit float constant where .{wanted.name} is needed"
                    context.reject(what, operand)
            case Not():
                if wanted.kind != "predicate":
                    context.reject("'!' negates a predicate only", operand)
                self._value(operand.operand, wanted)
            case Negated() if self._kind.kind == "part":
                self._name(operand.operand, wanted)
            case Negated():
                context.reject("a register is negated by neg", operand)
            case Symbol():
                self._symbol(operand, wanted)
            case Name():
                self._name(operand, wanted)
            case _:
                context.reject(f"{context.instruction.name} takes one value here", operand)

    def _symbol(self, operand: Symbol, wanted: ScalarType) -> None:
        register = self._context.register(operand.name)
        if register is not None and not TYPES[register.type].is_integer:
            what = f"nothing can be added to a .{register.type} register"
            self._context.reject(what, operand)
        if self._raw or not wanted.is_integer:
            self._context.reject(f"an address where .{wanted.name} is needed", operand)
        if register is not None:
            self._agree(register, wanted, operand, operand.name)

    def _name(self, operand: Name, wanted: ScalarType) -> None:
        context, name = self._context, operand.text
        register, bits = self._declared(name), special.bits(name)
        if register is not None:
            self._agree(register, wanted, operand, name)
        elif bits is not None:
            self._special(operand, wanted, bits)
        elif name in context.program.declared or context.variable(name) is not None:
            if self._kind.kind != "datum" or not wanted.is_integer:
                hint = "move it to a register first: mov.u64 %rd, " + name
                context.reject(
                    f"{context.instruction.name} takes no address of '{name}'", operand, hint
                )
        elif name.startswith("%"):
            context.refuse(f"special register {name}", operand)
        else:
            context.reject(f"'{name}' is not declared", operand)

    def _special(self, operand: Name, wanted: ScalarType, bits: int) -> None:
        context, name = self._context, operand.text
        is_flag = bits == 1 and wanted.kind == "predicate"
        fits = is_flag or (
            wanted.is_integer
            and (
                bits == wanted.bits
                or (self._kind.kind == "special" and bits > wanted.bits)
                or (wanted.bits == 16 and name.split(".")[0] in _WIDER_THAN_ITS_TYPE)
            )
        )
        if self._kind.kind not in ("datum", "special"):
            hint = f"move it to a register first: mov.u{bits} %r, {name}"
            context.reject(f"{context.instruction.name} takes no special register", operand, hint)
        if not fits:
            context.reject(f"{name} has {bits} bits, .{wanted.name} is needed", operand)

    def _register(self, operand: Name, wanted: ScalarType) -> None:
        register = self._declared(operand.text)
        if register is None:
            self._context.reject(f"'{operand.text}' is not a declared register", operand)
        self._agree(register, wanted, operand, operand.text)

    def _declared(self, name: str) -> Register | None:
        if self._kind.kind == "part":
            name = _PART.sub("", name)
        return self._context.register(name)

    def _agree(self, register: Register, wanted: ScalarType, operand: Operand, name: str) -> None:
        context, declared = self._context, TYPES[register.type]
        if declared.bits == 128 > wanted.bits:
            context.refuse(
                f"a part of {name}, a .b128 register, in {context.instruction.name}", operand
            )
        if self._kind.kind == "or predicate" and declared.kind == "predicate":
            return
        fits = agrees(declared, wanted, wider=self._wider, typed=self._typed)
        if not fits or (self._raw and declared.kind != "bits"):
            context.reject(
                f"{name} is a .{declared.name} register, {context.instruction.name} takes "
                f".{wanted.name} here",
                operand,
            )

    def _vector(self, operand: Vector, *, is_result: bool) -> None:
        """Check ``{a, b}``, element by element."""
        context, count = self._context, len(operand.elements)
        wanted = self._type
        if self._kind.kind == "datum":
            wanted = self._part(operand)
        elif not self._kind.vector:
            context.reject(f"{context.instruction.name} takes one value here", operand)
        elif count != self._count:
            self._miscounted(operand, count)
        if all(isinstance(e, Name) and e.text == SINK for e in operand.elements):
            context.reject("a vector needs one register", operand)
        for element in operand.elements:
            if is_result:
                if not isinstance(element, Name):
                    context.reject("a register is needed here", element)
                if element.text != SINK:
                    self._register(element, wanted)
            else:
                self._value(element, wanted)

    def _whole(self, operand: Operand) -> None:
        """Check a register that is itself a vector (``.reg .v4 .f32``), for its components."""
        parts = self._context.components(operand)
        if len(parts) != self._count:
            self._miscounted(operand, len(parts) or 1)
        for part in parts:
            self._register(part, self._type)

    def _miscounted(self, operand: Operand, count: int) -> NoReturn:
        name = self._context.instruction.name
        self._context.reject(f"{name} takes {self._count} registers here, found {count}", operand)

    def _part(self, operand: Vector) -> ScalarType:
        """Return the type of one of the parts of a register that mov packs or unpacks."""
        count, whole = len(operand.elements), self._type
        if whole.kind != "bits" or count not in (2, 4) or whole.bits // count < 8:
            self._context.reject(f"a .{whole.name} has no {count} parts", operand)
        return TYPES[f"b{whole.bits // count}"]

    def _address(self, operand: Operand) -> None:
        """Check ``[register + offset]`` or ``[variable + offset]``."""
        context = self._context
        if not isinstance(operand, Address):
            context.reject("a memory operand in brackets is needed here", operand)
        if operand.base is None:
            if "local" not in context.instruction.modifiers:
                context.reject("an address is a register or a variable", operand)
            return
        register = context.register(operand.base.text)
        if register is None:
            self._same_space(operand.base)
            return
        declared = TYPES[register.type]
        if not declared.is_integer or not 16 <= declared.bits <= 64:
            context.reject(f"{operand.base.text} cannot hold an address", operand)

    def _same_space(self, base: Name) -> None:
        """Check that a variable lies in the state space that the instruction names, if it names one."""
        context = self._context
        variable = context.variable(base.text)
        named = {part.split("::")[0] for part in context.instruction.modifiers} & _SPACES
        if variable is None or not named:
            return
        space = _LIES_IN.get(variable.space, variable.space)
        if space not in named:
            context.reject(f"'{base.text}' lies in .{space}, not in .{', .'.join(named)}", base)


def agrees(declared: ScalarType, wanted: ScalarType, *, wider: bool, typed: bool) -> bool:
    """Say whether a register ``declared`` so can hold a ``wanted`` value, in its low bits where ``wider``.

    An operand that is not ``typed`` by the instruction is an integer, whatever its bits are called.
    """
    if "predicate" in (declared.kind, wanted.kind):
        return declared.kind == wanted.kind
    if declared.bits < wanted.bits or (declared.bits > wanted.bits and not wider):
        return False
    if declared.kind == "bits" or (wanted.kind == "bits" and typed):
        return True
    if wanted.kind in ("float", "packed"):
        return declared.name == wanted.name
    return declared.kind in ("unsigned", "signed")
