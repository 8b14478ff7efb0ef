"""Names in a function being prepared: registers, variables, labels; and errors with their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ptxlab.emulator.prepare.program import Action, Program
from ptxlab.emulator.prepare.registers import Initial
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.emulator.prepare.scope import LabelledTable, Register, Scope, Variable
from ptxlab.errors import Location, PtxSyntaxError, Unsupported
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import locate
from ptxlab.syntax.tree import Address, Element, Function, Instruction, Integer, Name, Node, Symbol


class DeclaredBefore(NamedTuple):
    """What a function may name of its module: what is declared before ``end``, by ``order``."""

    order: Mapping[str, int]
    end: int

    def has(self, name: str) -> bool:
        return self.order.get(name, 0) <= self.end


class Names:
    """The function being prepared, the instruction in hand, and what names stand for at it.

    ``program`` is what it will be part of. ``reads`` and ``writes`` collect the registers of the
    instruction; ``droppable`` are registers proper, ``pinned`` those of them that calls pass values
    through, ``accumulators`` those that products of warpgroups write when they are done. ``literals`` are
    those of numbers in the text, ``unread`` those for results that nobody wants. ``accepted``
    are the shapes of instructions whose operands have been found right, ``returned`` the .param
    variables that calls before the instruction give results in. ``prologue`` is what is done just
    before the instruction, which stands after ``before`` others of its block, and ``participants``
    (``run.code.Participants``) who must arrive at it together.
    """

    def __init__(self, program: Program, earlier: DeclaredBefore) -> None:
        self.program = program
        self._earlier = earlier
        self.target = program.target
        self.module = program.module
        self.initial: list[Initial] = []
        self.droppable: set[int] = set()
        self.pinned: set[int] = set()
        self.accumulators: set[int] = set()
        self.literals: set[int] = set()
        self.unread: set[int] = set()
        self.returned: set[Variable] = set()
        self.accepted: set[tuple[object, ...]] = set()
        self._constants: dict[object, int] = {}
        self.begin(Instruction("", (), ()), Scope())

    def begin(self, instruction: Instruction, scope: Scope, before: int = 0) -> None:
        """Turn to the next instruction, which stands in ``scope`` after ``before`` of its block."""
        self.instruction = instruction
        self.scope = scope
        self.before = before
        self.prologue: list[Action] = []
        self.participants: Any = None
        self.reads: set[int] = set()
        self.writes: set[int] = set()

    # ---- registers ----

    def new_slot(self, type_name: str) -> int:
        """Allot a register of PTX type ``type_name``, holding zero until it is written."""
        kind = TYPES[type_name]
        slot = self._add(np.zeros(1, kind.dtype))
        self.droppable.add(slot)
        return slot

    def argument_slot(self, size: int) -> int:
        """Allot a register for a ``.param`` variable of a call: rows of ``size`` bytes."""
        return self._add(np.zeros((1, size), np.uint8))

    def _add(self, value: Initial) -> int:
        self.initial.append(value)
        return len(self.initial) - 1

    def constant(self, value: Initial, key: object) -> int:
        """Return the slot that holds ``value``, one slot for equal keys."""
        slot = self._constants.get(key)
        if slot is None:
            slot = self._constants[key] = self._add(value)
        return slot

    def register(self, name: str) -> Register | None:
        """Find a register by its scope; None when ``name`` is not one."""
        scope: Scope | None = self.scope
        while scope is not None:
            register = scope.registers.get(name)
            if register is None and scope.ranges:
                scope.declare_counted(name, self.new_slot)
                register = scope.registers.get(name)
            if register is not None:
                return register
            scope = scope.parent
        return None

    def variable(self, name: str) -> Variable | None:
        """Find a variable by its scope; None when ``name`` is not one."""
        for scope in self.scope.outward():
            if scope.parent is None and not self._earlier.has(name):
                break
            if name in scope.variables:
                return scope.variables[name]
            if name in scope.unmodelled:
                self.refuse(scope.unmodelled[name])
        return None

    def function(self, name: str) -> Function | None:
        """Find a function of the module, which is reached from now on; None when ``name`` is not one."""
        function = self.program.declared.get(name)
        if function is None or not self._earlier.has(name):
            return None
        self.program.reached[name] = None
        return function

    def plain(self, instruction: Instruction) -> Instruction:
        """Return an instruction with ``array[4]`` as the address that it is.

        ld and st take one for the memory at it, mov and cvta for the address itself.
        """
        if Element not in map(type, instruction.operands):
            return instruction
        operands = tuple(
            self._place(operand) if isinstance(operand, Element) else operand
            for operand in instruction.operands
        )
        return replace(instruction, operands=operands)

    def _place(self, element: Element) -> Address | Symbol | Element:
        name, index, position = element.name, element.index, element.position
        size = self.array(element).element
        opcode, modifiers = self.instruction.opcode, self.instruction.modifiers
        accessing = opcode in ("ld", "ldu", "st")
        if not accessing and (opcode not in ("mov", "cvta") or "to" in modifiers):
            what = f"{self.instruction.name} takes no element of an array"
            hint = f"move its address to a register first: mov.u64 %rd, {name}[0]"
            self.reject(what, element, hint)
        if not isinstance(index, Integer):
            return element
        # ptxas computes the distance in 32 bits, and adds it to an address without its sign.
        offset = index.value * size % (1 << 32)
        if accessing:
            return Address(Name(name, position=position), offset, position=position)
        return Symbol(name, offset, position=position)

    def array(self, element: Element) -> Variable:
        name = element.name
        variable = self.variable(name)
        if variable is None or not variable.element or self.register(name) is not None:
            self.reject(f"'{name}' is not an array, and has no elements", element)
        return variable

    def label(self, name: str) -> int:
        for scope in self.scope.outward():
            if name in scope.labels:
                return scope.labels[name]
        return self.reject(f"no label '{name}' in this function")

    def table(self, name: str) -> LabelledTable:
        """Return the ``.branchtargets``, ``.callprototype`` or ``.calltargets`` called ``name``."""
        for scope in self.scope.outward():
            if name in scope.tables:
                return scope.tables[name]
        return self.reject(f"no list of targets or prototype '{name}' in this function")

    # ---- errors ----

    @property
    def line(self) -> int:
        return self.instruction.position.line

    def location(self, node: Node | None = None) -> Location:
        """Return the place of ``node``, or of the instruction in hand."""
        position = (node or self.instruction).position
        if position.line == 0:
            position = self.instruction.position
        return locate(self.module.source, position)

    def refuse(self, what: str, node: Node | None = None, hint: str | None = None) -> NoReturn:
        """Raise Unsupported: valid PTX that is not modelled."""
        raise Unsupported(f"{what} is not modelled", location=self.location(node), hint=hint)

    def refuse_form(self, form: UnknownForm) -> NoReturn:
        """Raise Unsupported for an opcode that is known, but not like this."""
        raise Unsupported(f"{self.instruction.name}: {form}", location=self.location()) from None

    def reject(self, what: str, node: Node | None = None, hint: str | None = None) -> NoReturn:
        """Raise PtxSyntaxError: the instruction is not valid PTX."""
        raise PtxSyntaxError(what, location=self.location(node), hint=hint)
