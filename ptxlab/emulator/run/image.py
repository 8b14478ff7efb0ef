"""Module variables in memory, with their initial values."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from ptxlab.emulator.prepare.program import declared_functions, function_addresses
from ptxlab.emulator.prepare.scope import Declared, size_of
from ptxlab.emulator.run.memory import GlobalMemory
from ptxlab.errors import PtxSyntaxError
from ptxlab.numbers.types import TYPES, ScalarType
from ptxlab.syntax import locate
from ptxlab.syntax.tree import Aggregate, Float, Initializer, Integer, PtxModule, Symbol


def place_variables(
    module: PtxModule,
    declared: Mapping[str, Declared],
    memory: GlobalMemory,
    addresses: dict[str, int],
) -> None:
    """Put .global and .const variables of a module into memory, and their ``addresses`` to those known.

    Those that have an address are there: other kernels of the module have the same.
    """
    variables = {name: variable for name, variable in declared.items() if name not in addresses}
    addresses |= {
        name: memory.allocate(size_of(declaration, declarator), name, declaration.space)
        for name, (declaration, declarator) in variables.items()
    }
    image = _Image(module, function_addresses(declared_functions(module)) | addresses)
    for name, (declaration, declarator) in variables.items():
        if declarator.initializer is not None:
            rows = (*declarator.dimensions[1:], declaration.vector)
            data = image.encoded(declarator.initializer, TYPES[declaration.type], rows)
            memory.write(addresses[name], data)


class _Image:
    """The bytes of initialisers, which may name any variable or function by its address."""

    def __init__(self, module: PtxModule, addresses: Mapping[str, int]) -> None:
        self._module = module
        self._addresses = addresses

    def encoded(
        self, value: Initializer, scalar: ScalarType, inner: tuple[int | None, ...]
    ) -> bytes:
        """Return the bytes of an initialiser; a row that is not full is filled with zeros."""
        if isinstance(value, Aggregate):
            row = scalar.bytes * prod(size or 1 for size in inner)
            parts = [(part, self.encoded(part, scalar, inner[1:])) for part in value.elements]
            return b"".join(
                data.ljust(row, b"\0") if isinstance(part, Aggregate) else data
                for part, data in parts
            )
        if isinstance(value, Float):
            width = value.width // 8
            number = np.frombuffer(value.bits.to_bytes(width, "little"), f"f{width}")
            same = scalar.bits == value.width
            return number.tobytes() if same else number.astype(scalar.dtype).tobytes()
        bits = value.value if isinstance(value, Integer) else self._address(value)
        return (bits % (1 << scalar.bits)).to_bytes(scalar.bytes, "little")

    def _address(self, value: Symbol) -> int:
        if value.name not in self._addresses:
            location = locate(self._module.source, value.position)
            raise PtxSyntaxError(f"'{value.name}' is not declared", location=location)
        address = self._addresses[value.name] + value.offset
        if value.mask is None:
            return address
        first_bit = (value.mask & -value.mask).bit_length() - 1
        return (address & value.mask) >> (first_bit // 8 * 8)
