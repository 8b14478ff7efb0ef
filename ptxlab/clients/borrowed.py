"""Memory of this process that a launch uses in place, at the addresses it has."""

from __future__ import annotations

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
