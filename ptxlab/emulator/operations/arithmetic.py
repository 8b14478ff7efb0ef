"""The opcodes that exist for integers, for single and double, and for half precision alike."""

from __future__ import annotations

from collections.abc import Callable

from ptxlab.emulator.operation import Alu, Modifiers, UnknownForm, alu
from ptxlab.emulator.operations import floating, half, integer
from ptxlab.isa.types import TYPES

_Family = Callable[[Modifiers], Alu]


def _family(m: Modifiers) -> str:
    """Say who implements the first type among the modifiers: integer, floating or half."""
    for name in m.rest():
        if name in TYPES:
            kind = TYPES[name]
            if kind.kind in ("signed", "unsigned"):
                return "integer"
            if kind.name in ("f32", "f64"):
                return "floating"
            if kind.kind in ("float", "packed"):
                return "half"
            raise UnknownForm(f"does not take type .{name}")
    raise UnknownForm("needs a type it knows")


def _register(opcode: str, **families: _Family) -> None:
    def build(m: Modifiers) -> Alu:
        family = _family(m)
        if family not in families:
            raise UnknownForm("does not take this type")
        return families[family](m)

    alu(opcode)(build)


_register("add", integer=integer.add, floating=floating.add, half=half.add)
_register("sub", integer=integer.sub, floating=floating.sub, half=half.sub)
_register("mul", integer=integer.mul, floating=floating.mul, half=half.mul)
_register("mad", integer=integer.mad, floating=floating.fma)
_register("fma", floating=floating.fma, half=half.fma)
_register("div", integer=integer.div, floating=floating.div)
_register("neg", integer=integer.neg, floating=floating.neg, half=half.neg)
_register("abs", integer=integer.absolute, floating=floating.absolute, half=half.absolute)
_register("min", integer=integer.minimum, floating=floating.minimum, half=half.minimum)
_register("max", integer=integer.maximum, floating=floating.maximum, half=half.maximum)
