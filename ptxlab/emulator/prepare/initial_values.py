"""Initial values of variables: what they may be, as ptxas takes them (PTX ISA, "Initializers").

They nest as the array does. An address goes into a .u32 or .u64, a byte of one into a .u8 too.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptxlab.emulator.prepare.function_check import reject
from ptxlab.emulator.prepare.scope import MODULE_SPACES, Declared, names_in
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import (
    Aggregate,
    Declaration,
    Declarator,
    Float,
    Function,
    Initializer,
    Integer,
    PtxModule,
    Symbol,
)

KnownNames = dict[str, Function | Declared]
"""The functions and variables of a module by name; of several declarations of one, the definition."""

_BYTES = frozenset(0xFF << shift for shift in range(0, 64, 8))
_ADDRESSES = ("u32", "u64")


def check_initial_value(
    module: PtxModule, declaration: Declaration, declarator: Declarator, known: KnownNames
) -> None:
    """Refuse an initial value of the wrong kind or shape, and none for an array without a size."""
    name, sizes, value = declarator.name, declarator.dimensions, declarator.initializer
    if declaration.linkage == "extern":
        if value is not None:
            what = f".extern .{declaration.space} variable '{name}' takes no initial value"
            reject(module, what, declarator)
        return
    if sizes and not sizes[0] and not getattr(value, "elements", ()):
        reject(module, f"'{name}' needs the size of its array", declarator)
    if value is None:
        return
    if declaration.space not in MODULE_SPACES:
        what = f".{declaration.space} variable '{name}' takes no initial value"
        reject(module, what, declarator)
    vector = (declaration.vector,) if declaration.vector > 1 else ()
    _Values(module, declaration, name, known).check(value, (*sizes, *vector))


def check_addresses(module: PtxModule, value: Initializer | None, known: KnownNames) -> None:
    """Refuse the address of a function that has no body."""
    for name in names_in(value):
        node = known[name]
        if isinstance(node, Function) and node.body is None and value is not None:
            reject(module, f"function '{name}' has no body here, and no address", value)


class _Values:
    """Checks the initial value of the variable ``name``."""

    def __init__(
        self,
        module: PtxModule,
        declaration: Declaration,
        name: str,
        known: Mapping[str, Function | Declared],
    ) -> None:
        self._module = module
        self._name = name
        self._vector = declaration.vector > 1
        self._kind = TYPES[declaration.type]
        self._known = known

    def check(self, value: Initializer, sizes: tuple[int | None, ...]) -> None:
        """Check a value for what has these ``sizes``, the components of a vector among them."""
        if not sizes:
            self._scalar(value)
            return
        name = self._name
        if not isinstance(value, Aggregate):
            what = f"the initial value of '{name}' is to nest as it does, with braces"
            reject(self._module, what, value)
        count, most = len(value.elements), sizes[0]
        if len(sizes) == 1 and self._vector and count != most:
            reject(self._module, f"'{name}' has vectors of {most}, not {count}", value)
        if most and count > most:
            what = f"{count} initial values for {most} elements of '{name}'"
            reject(self._module, what, value)
        for element in value.elements:
            self.check(element, sizes[1:])

    def _scalar(self, value: Initializer) -> None:
        kind = self._kind
        fits = {
            Aggregate: False,
            Integer: kind.is_integer,
            Float: kind.name in ("f32", "f64") or (kind.kind == "bits" and kind.bits in (32, 64)),
            Symbol: kind.name in _ADDRESSES or (kind.name == "u8" and _is_byte(value)),
        }
        if not fits[type(value)]:
            reject(self._module, f"a .{kind.name} takes no such initial value", value)
        if isinstance(value, Symbol):
            self._address(value)

    def _address(self, value: Symbol) -> None:
        node = self._known.get(value.name)
        if node is None:
            what = f"'{value.name}' is no variable or function declared before"
            reject(self._module, what, value)
        if value.mask is not None and value.mask not in _BYTES:
            reject(self._module, f"mask {value.mask:#x} does not select a byte", value)
        if isinstance(node, Function):
            if value.offset or value.generic:
                what = f"of the function '{value.name}' only the address itself is a value"
                reject(self._module, what, value)
        elif node[0].space not in MODULE_SPACES:
            what = f"the address of a .{node[0].space} variable is no initial value"
            reject(self._module, what, value)


def _is_byte(value: Initializer) -> bool:
    return isinstance(value, Symbol) and value.mask is not None
