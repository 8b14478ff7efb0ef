"""Tiles and places in the shared memory of a dump, read from a memory that the test has made."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.snapshot import SharedSnapshot
from ptxlab.errors import PtxlabError
from ptxlab.verbs.dump.shared import spot, tile


def memory(nbytes: int) -> SharedSnapshot:
    """Return a memory in which each word of 16 bits is its number."""
    words = np.arange(nbytes // 2, dtype=np.uint16)
    none = np.zeros((128, 512), np.uint32), np.zeros(512, bool)
    return SharedSnapshot(words.view(np.uint8), {"a": 0, "b": 384}, {}, *none, 0)


@pytest.mark.parametrize(
    ("where", "swizzle", "shift", "mask"),
    [
        ("b", "128B", 3, 0x70),
        ("b", "64B", 3, 0x30),
        ("a+128", "32B", 3, 0x10),
        ("b", "128B.atom32B", 2, 0x60),
        ("a+128", "128B.atom64B", 1, 0x40),
    ],
)
def test_the_swizzle_of_a_tile_is_one_of_addresses(
    where: str, swizzle: str, shift: int, mask: int
) -> None:
    start = {"b": 384, "a+128": 128}[where]
    elements = tile(f"{where}:4x64:u16:{swizzle}").read(memory(2048))
    addresses = [start + 2 * number for number in range(256)]
    wanted = [(at ^ (at >> shift & mask)) // 2 for at in addresses]
    assert elements.reshape(-1).tolist() == wanted


def test_what_is_beyond_shared_memory() -> None:
    held = memory(912)
    assert tile("896:1x8:u16").read(held).tolist() == [list(range(448, 456))]
    with pytest.raises(PtxlabError, match="its swizzle 128B leads out of shared memory"):
        tile("896:1x8:u16:128B").read(held)
    with pytest.raises(PtxlabError, match="b ends at byte 0x400 of shared memory"):
        tile("b:5x64:u16").read(held)
    with pytest.raises(PtxlabError, match="there is no shared variable c"):
        tile("c:1x8:u16").read(held)
    assert spot("b+8").address(held, 8) == 392
    assert spot("0x10").address(held, 8) == 16
    assert spot("904").address(held, 8) == 904
    with pytest.raises(PtxlabError, match="ends at byte 0x391"):
        spot("905").address(held, 8)
