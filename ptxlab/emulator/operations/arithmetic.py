"""The opcodes that exist for integers, for single and double, and for half precision alike."""

from __future__ import annotations

from collections.abc import Callable

from ptxlab.emulator.operations import floating, half, integer, packed
from ptxlab.emulator.prepare.operation import Alu, Modifiers, UnknownForm, alu
from ptxlab.isa.types import TYPES

_Family = Callable[[Modifiers], Alu]


def _family(m: Modifiers) -> str:
    """Say who implements the first type among the modifiers: integer, floating, half or packed."""
    for name in m.rest():
        if name in TYPES:
            kind = TYPES[name]
            if kind.kind in ("signed", "unsigned"):
                return "integer"
            if kind.name in ("f32", "f64"):
                return "mixed" if kind.name == "f32" and packed.is_mixed(m) else "floating"
            if kind.name in packed.TYPES_HERE:
                return "packed"
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


_register(
    "add",
    integer=integer.add,
    floating=floating.add,
    half=half.add,
    packed=packed.add,
    mixed=packed.add_mixed,
)
_register(
    "sub",
    integer=integer.sub,
    floating=floating.sub,
    half=half.sub,
    packed=packed.sub,
    mixed=packed.sub_mixed,
)
_register("mul", integer=integer.mul, floating=floating.mul, half=half.mul, packed=packed.mul)
_register("mad", integer=integer.mad, floating=floating.fma)
_register("fma", floating=floating.fma, half=half.fma, packed=packed.fma, mixed=packed.fma_mixed)
_register("div", integer=integer.div, floating=floating.div)
_register("neg", integer=integer.neg, floating=floating.neg, half=half.neg)
_register("abs", integer=integer.absolute, floating=floating.absolute, half=half.absolute)
_register(
    "min",
    integer=integer.minimum,
    floating=floating.minimum,
    half=half.minimum,
    packed=packed.minimum,
)
_register(
    "max",
    integer=integer.maximum,
    floating=floating.maximum,
    half=half.maximum,
    packed=packed.maximum,
)
