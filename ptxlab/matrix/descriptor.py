"""Matrix descriptors: the 64 bits that tell ``wgmma`` and ``tcgen05`` where a matrix lies.

Addresses and offsets are in bytes, multiples of 16 below 2**18. ``tcgen05`` has its own record, with a
version, one mode more, and a second meaning of the leading offset: the address where rows go on.

Source: PTX ISA, "Matrix Descriptor Format" of wgmma, "Shared memory descriptor" of tcgen05; CUTLASS,
``mma_sm90_desc.hpp`` and ``mma_sm100_desc.hpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptxlab.matrix.bit_record import BitField, BitRecord, FieldValue, choice
from ptxlab.matrix.canonical import UNIT_BYTES, Mode, SharedTile
from ptxlab.matrix.fragment import container_bits

ADDRESS_BITS = 18
_PERIOD_UNIT = 128

_START = BitField("start address", 0, 14, unit=UNIT_BYTES)
_LEADING = BitField("leading byte offset", 16, 14, unit=UNIT_BYTES)
_STRIDE = BitField("stride byte offset", 32, 14, unit=UNIT_BYTES)
_BASE = BitField("base offset", 49, 3)

WGMMA_DESCRIPTOR = BitRecord(
    "wgmma matrix descriptor",
    64,
    "Matrix Descriptor Format",
    (
        _START,
        _LEADING,
        _STRIDE,
        _BASE,
        choice("swizzle", 62, {"none": 0, "128B": 1, "64B": 2, "32B": 3}, 2),
    ),
)
TCGEN05_DESCRIPTOR = BitRecord(
    "tcgen05 shared memory descriptor",
    64,
    "Shared memory descriptor",
    (
        _START,
        _LEADING,
        _STRIDE,
        BitField("version", 46, 3, default=1, fixed=True),
        _BASE,
        choice("leading offset mode", 52, {"relative": 0, "absolute": 1}),
        choice("swizzle", 61, {"none": 0, "128B.atom32B": 1, "128B": 2, "64B": 4, "32B": 6}, 3),
    ),
)


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads a descriptor: its record, the bits of the types it takes, and which may be mn-major.

    ``restricted`` are types that are mn-major in one mode alone, by type; no other type has that mode.
    """

    record: BitRecord
    types: Mapping[str, int]
    transposable: tuple[str, ...]
    restricted: Mapping[str, str]

    def check(self, dtype: str, major: str, mode: Mode) -> None:
        """Raise ValueError for a tile of ``dtype`` that the instructions cannot read."""
        if dtype not in self.types:
            raise ValueError(f"{self.record.name}: no type {dtype}, it is {', '.join(self.types)}")
        if mode.name not in (self.record.field("swizzle").codes or {}):
            raise ValueError(f"{self.record.name} has no swizzle {mode.name}")
        if major == "mn" and dtype not in self.transposable:
            raise ValueError(
                f"{dtype} must be contiguous along k; along mn may be {', '.join(self.transposable)}"
            )
        alone = self.restricted.get(dtype) if major == "mn" else None
        special = mode.name in self.restricted.values()
        if (alone is not None and alone != mode.name) or (special and alone is None):
            what = f"{dtype} along {major}"
            raise ValueError(
                f"swizzle {mode.name} is not for {what}"
                + (f", which is read with {alone} alone" if alone else "")
            )


_BITS = {name: container_bits(name) for name in ["bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8"]}

READERS: dict[str, Reader] = {
    "wgmma": Reader(WGMMA_DESCRIPTOR, _BITS | {"b1": 1}, ("bf16", "f16"), {}),
    "tcgen05": Reader(
        TCGEN05_DESCRIPTOR, _BITS | {"e2m1x2": 4}, tuple(_BITS), {"tf32": "128B.atom32B"}
    ),
}
"""Who reads descriptors. ``e2m1x2`` are packed e2m1, as the ``mxf4`` kinds take them."""


def of_tile(reader: Reader, tile: SharedTile, address: int = 0, step: int = 0) -> int:
    """Return the descriptor of instruction ``step`` along k of a tile that starts at ``address``.

    A tile whose pattern does not start at a multiple of its period gets the base offset the ISA gives.
    Raises ValueError for an address that is out of range or not aligned.
    """
    align = UNIT_BYTES if tile.mode.span == UNIT_BYTES else _PERIOD_UNIT
    if address % align:
        raise ValueError(
            f"a tile with swizzle {tile.mode.name} starts at a multiple of {align}, not {address:#x}"
        )
    if not 0 <= address <= (1 << ADDRESS_BITS) - tile.bytes:
        raise ValueError(
            f"{tile.bytes} bytes from {address:#x} on are not below {1 << ADDRESS_BITS:#x}, where "
            "descriptors end"
        )
    base = 0
    if tile.mode.span > UNIT_BYTES and address % tile.mode.period:
        base = address // _PERIOD_UNIT % 8
    values: dict[str, FieldValue] = {
        "start address": address + tile.advance(step),
        "leading byte offset": tile.leading,
        "stride byte offset": tile.stride,
        "base offset": base,
        "swizzle": tile.mode.name,
    }
    return reader.record.encode(values)
