"""The variables of a module, ``__device__`` and ``__constant__`` ones of CUDA C, as the host sees them.

Source: CUDA C++ Programming Guide, "Variable Memory Space Specifiers".
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ptxlab.device.arguments import encoded, spelled
from ptxlab.device.memory import Buffer, Memory
from ptxlab.emulator.prepare.scope import Declared, alignment_of, size_of
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.names import called

Described = tuple[Parameter, tuple[int, ...]]
"""A variable as a parameter of its type would be, and its shape."""


class ModuleVariable(Buffer):
    """A variable of a module: a buffer that is there as long as the module, closed or not.

    ``shape`` and ``dtype`` are as PTX declares them; the components of vectors are the last dimension.
    """

    def __init__(
        self, device: Memory, module: object, path: str, described: Described, address: int
    ) -> None:
        self.device = device
        self.path = path
        self.declared, self.shape = described
        self.dtype = TYPES[self.declared.type].dtype
        self.nbytes = self.declared.size
        self._hold(address, _leave, module)

    def upload(self, value: Any) -> None:
        """Write the variable: what an argument of its type may be, an array of exactly its size.

        Raises PtxlabError for a value that does not fit.
        """
        self.device.require_open()
        data = encoded(f"{self.path}: variable {called(self.declared.name)}", self.declared, value)
        self.device.write(self.address, np.frombuffer(data, np.uint8))

    def __repr__(self) -> str:
        kind, name, what = self.device.kind, self.declared.name, spelled(self.declared)
        return f"<{kind} variable {name}: {what} at {self._address:#x}>"


def _leave(module: object) -> None:
    """Leave the memory to the module, which had to stay until now."""


def described(declared: Declared) -> Described:
    """Describe a variable as PTX declares it."""
    declaration, declarator = declared
    scalar, size = TYPES[declaration.type], size_of(declaration, declarator)
    vector = (declaration.vector,) if declaration.vector > 1 else ()
    shape = tuple(size or 0 for size in declarator.dimensions) + vector
    if declarator.dimensions:  # the first may be told by the initial value alone
        shape = (size // (scalar.bytes * prod(shape[1:])), *shape[1:])
    return _described(declarator.name, scalar.name, size, alignment_of(declaration), shape)


def bytes_of(name: str, nbytes: int) -> Described:
    """Describe a variable of which nothing is known but its size."""
    return _described(name, "b8", nbytes, 1, (nbytes,))


def _described(
    name: str, type_name: str, size: int, alignment: int, shape: tuple[int, ...]
) -> Described:
    count = size // TYPES[type_name].bytes
    return Parameter(0, name, type_name, count, size, alignment, 0, is_pointer=False), shape
