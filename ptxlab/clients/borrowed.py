"""Memory of this process that a launch uses in place, at the addresses it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ptxlab.emulator import GlobalMemory


class Borrowed(NamedTuple):
    """``nbytes`` from ``address`` on, which ``owner`` holds; ``name`` is what errors call them.

    ``dtype`` is NumPy's name of the type of the numbers there, as far as it is known.
    """

    address: int
    nbytes: int
    name: str
    owner: object
    dtype: str = "uint8"


@contextmanager
def borrowing(memory: GlobalMemory, spans: Sequence[Borrowed]) -> Iterator[None]:
    """Have ``spans`` in the memory of a device meanwhile. Raise PtxlabError where two overlap."""
    mapped = []
    try:
        for address, nbytes, name, owner, _ in spans:
            memory.map(address, nbytes, name, owner, writable=True)
            mapped.append(address)
        yield
    finally:
        for address in mapped:
            memory.unmap(address)
