"""The parameter block of a kernel: where each ``.param`` lies in it.

Source: PTX ISA, "State Spaces: Kernel Function Parameters". Each parameter is at the next multiple
of its alignment, which is the size of its type unless ``.align`` says more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ptxlab.errors import Unsupported
from ptxlab.isa.types import TYPES
from ptxlab.syntax.tree import Function


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel ``.param``: its position, PTX type, size and alignment in bytes, block offset.

    ``is_pointer`` is declared by ``.ptr``; ``count`` is the number of elements of ``type``, more
    than 1 for a struct or array passed by value.
    """

    index: int
    name: str
    type: str
    count: int
    size: int
    alignment: int
    offset: int
    is_pointer: bool


def parameters(function: Function) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel with the size, alignment and offset of each, in bytes."""
    found: list[Parameter] = []
    end = 0
    for index, declaration in enumerate(function.parameters):
        (declarator,) = declaration.names
        scalar = TYPES.get(declaration.type)
        if scalar is None or None in declarator.dimensions:
            raise Unsupported(
                f"kernel {function.name}: parameter {index} ({declarator.name}) has type "
                f".{declaration.type}, which no argument can be bound to"
            )
        count = prod(size or 0 for size in declarator.dimensions) * declaration.vector
        natural = scalar.bytes * declaration.vector
        alignment = max(natural, declaration.alignment or 1)
        offset = -(-end // alignment) * alignment
        size = count * scalar.bytes
        pointer = declaration.pointer is not None
        found.append(
            Parameter(index, declarator.name, scalar.name, count, size, alignment, offset, pointer)
        )
        end = offset + size
    return tuple(found)
