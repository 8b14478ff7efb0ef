"""Memory of this process that a launch uses in place, at the addresses it has."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ptxlab.emulator import Elements, GlobalMemory


class Borrowed(NamedTuple):
    """``nbytes`` from ``address`` on, which ``owner`` holds; ``name`` is what errors call them.

    ``dtype`` is NumPy's name of the type of the numbers there, and ``elements`` what the program calls them, as far as
    that is known.
    """

    address: int
    nbytes: int
    name: str
    owner: object
    dtype: str = "uint8"
    elements: Elements | None = None


class Named(NamedTuple):
    """What a program calls memory that holds a tensor, and its elements."""

    name: str
    elements: Elements


def named(spans: Iterable[Borrowed], tensors: Sequence[Named]) -> Iterator[Borrowed]:
    """Yield ``spans``, each called by the first of the ``tensors`` that lies in it."""
    for span in spans:
        inside = (t for t in tensors if 0 <= t.elements.address - span.address < span.nbytes)
        tensor = next(inside, None)
        yield span if tensor is None else span._replace(name=tensor.name, elements=tensor.elements)


@contextmanager
def borrowing(memory: GlobalMemory, spans: Sequence[Borrowed]) -> Iterator[None]:
    """Have ``spans`` in the memory of a device meanwhile. Raise PtxlabError where two overlap."""
    mapped = []
    try:
        for span in spans:
            memory.map(*span[:4], writable=True, elements=span.elements)
            mapped.append(span.address)
        yield
    finally:
        for address in mapped:
            memory.unmap(address)


def tensors() -> list[Borrowed]:
    """Return the memory of PyTorch's tensors on "cuda", where there are any."""
    return list(_storages()) if "ptxlab.clients.torch.memory" in sys.modules else []


def _storages() -> Iterator[Borrowed]:
    from ptxlab.clients.torch.memory import allocations

    for address, storage in allocations.live():
        yield Borrowed(address, storage.nbytes(), "a tensor", storage)
