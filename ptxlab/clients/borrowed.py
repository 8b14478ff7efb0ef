"""Memory of this process that a launch uses in place, at the addresses it has."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
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
