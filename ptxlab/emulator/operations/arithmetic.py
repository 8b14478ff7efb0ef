"""The opcodes that exist for integers, for single and double, and for half precision alike."""

from __future__ import annotations

from collections.abc import Callable

from ptxlab.emulator.operations import floating, half, packed
from ptxlab.emulator.prepare.operation import Alu, Modifiers, alu
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.isa.types import TYPES

_Family = Callable[[Modifiers], Alu]


def _family(m: Modifiers) -> str:
    """Say who implements the first type among the modifiers: integer, floating, half or packed."""
    for name in m.rest():
        if name in TYPES:
            kind = TYPES[name]
            if kind.kind in ("signed", "unsigned"):
                raise UnknownForm(f"does not take type .{name}")
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
    floating=floating.add,
    half=half.add,
    packed=packed.add,
    mixed=packed.add_mixed,
)
_register(
    "sub",
    floating=floating.sub,
    half=half.sub,
    packed=packed.sub,
    mixed=packed.sub_mixed,
)
_register("mul", floating=floating.mul, half=half.mul, packed=packed.mul)
_register("mad", floating=floating.fma)
_register("fma", floating=floating.fma, half=half.fma, packed=packed.fma, mixed=packed.fma_mixed)
_register("div", floating=floating.div)
_register("neg", floating=floating.neg, half=half.neg)
_register("abs", floating=floating.absolute, half=half.absolute)
_register(
    "min",
    floating=floating.minimum,
    half=half.minimum,
    packed=packed.minimum,
)
_register(
    "max",
    floating=floating.maximum,
    half=half.maximum,
    packed=packed.maximum,
)
