"""Module variables in memory: allocated once for a device, with their initial values."""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.prepare.program import Program
from ptxlab.emulator.prepare.scope import size_of
from ptxlab.emulator.run.memory import GlobalMemory
from ptxlab.emulator.run.wave import locate
from ptxlab.errors import PtxSyntaxError
from ptxlab.numbers.types import TYPES, ScalarType
from ptxlab.syntax.tree import (
    Aggregate,
    Declaration,
    Declarator,
    Float,
    Initializer,
    Integer,
    Symbol,
)


def symbols(program: Program, memory: GlobalMemory) -> dict[str, int]:
    """Return the addresses of the program's .global and .const variables, allocating them once."""
    known = memory.images.get(program)
    if known is not None:
        return known
    addresses: dict[str, int] = {}
    todo: list[tuple[Declaration, Declarator]] = []
    for declaration in dict.fromkeys(program.variables.values()):
        for declarator in declaration.names:
            size = size_of(declaration, declarator, TYPES[declaration.type].bytes)
            writable = declaration.space != "const"
            addresses[declarator.name] = memory.allocate(size, declarator.name, writable=writable)
            todo.append((declaration, declarator))
    for declaration, declarator in todo:
        if declarator.initializer is not None:
            scalar = TYPES[declaration.type]
            rows = (*declarator.dimensions[1:], declaration.vector)
            data = _encode(program, declarator.initializer, scalar, rows, addresses)
            memory.write(addresses[declarator.name], data)
    memory.images[program] = addresses
    return addresses


def _encode(
    program: Program,
    value: Initializer,
    scalar: ScalarType,
    inner: tuple[int | None, ...],
    addresses: dict[str, int],
) -> bytes:
    """Return the bytes of an initialiser; a row that is not full is filled with zeros."""
    if isinstance(value, Aggregate):
        parts = [
            _encode(program, element, scalar, inner[1:], addresses)
            if not isinstance(element, Aggregate)
            else _padded(_encode(program, element, scalar, inner[1:], addresses), scalar, inner)
            for element in value.elements
        ]
        return b"".join(parts)
    if isinstance(value, Integer):
        return (value.value % (1 << scalar.bits)).to_bytes(scalar.bytes, "little")
    if isinstance(value, Float):
        return _float_bytes(value, scalar)
    return _address_bytes(program, value, scalar, addresses)


def _padded(data: bytes, scalar: ScalarType, inner: tuple[int | None, ...]) -> bytes:
    size = scalar.bytes
    for dimension in inner:
        size *= dimension or 1
    return data.ljust(size, b"\0")


def _float_bytes(value: Float, scalar: ScalarType) -> bytes:
    width = value.width // 8
    number = np.frombuffer(value.bits.to_bytes(width, "little"), f"f{width}")
    if scalar.bits == value.width:
        return number.tobytes()
    return number.astype(scalar.dtype).tobytes()


def _address_bytes(
    program: Program, value: Symbol, scalar: ScalarType, addresses: dict[str, int]
) -> bytes:
    known = addresses.get(value.name, program.function_addresses.get(value.name))
    if known is None:
        raise PtxSyntaxError(
            f"'{value.name}' is not declared", location=locate(program.module, value.position.line)
        )
    address = known + value.offset
    if value.mask is not None:
        address = (address & value.mask) >> (8 * _first_byte(value.mask))
    return (address % (1 << scalar.bits)).to_bytes(scalar.bytes, "little")


def _first_byte(mask: int) -> int:
    return ((mask & -mask).bit_length() - 1) // 8
