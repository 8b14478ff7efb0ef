"""A descriptor and its fields as text and as JSON (schema ``ptxlab.descriptor/1``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.matrix.bit_record import BitField, BitRecord
from ptxlab.matrix.canonical import Tile
from ptxlab.verbs.layout.text import Offsets, layout_json
from ptxlab.view.text import fields

SCHEMA = "ptxlab.descriptor/1"


@dataclass(frozen=True, slots=True)
class Placed:
    """A tile of a type, at an address of shared memory."""

    tile: Tile
    dtype: str
    address: int

    @property
    def starts(self) -> list[int]:
        """The start address of each instruction along k."""
        return [self.address + self.tile.advance(step) for step in range(self.tile.steps)]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A word, what its bits mean, and the tile it was made for where there is one."""

    record: BitRecord
    word: int
    placed: Placed | None = None

    def text(self) -> str:
        """Return the word, its fields from the low bits up, and where each instruction starts."""
        digits = self.record.width // 4
        lines = [
            f"{self.record.name}  0x{self.word:0{digits}x}",
            f"PTX ISA  {self.record.section}",
            "",
        ]
        rows = [("bits", "stored", "field", "value")]
        rows += [
            (_bits(field), str(field.stored(self.word)), field.name, _value(field, self.word))
            for field in self.record.fields
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines += [
            f"{bits:>{widths[0]}}  {stored:>{widths[1]}}  {name:{widths[2]}}  {value}".rstrip()
            for bits, stored, name, value in rows
        ]
        if self.placed:
            lines += ["", *_tile_text(self.placed)]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON data."""
        digits = self.record.width // 4
        return {
            "schema": SCHEMA,
            "format": self.record.name,
            "section": self.record.section,
            "value": f"0x{self.word:0{digits}x}",
            "fields": [
                {
                    "name": field.name,
                    "low_bit": field.low,
                    "high_bit": field.high,
                    "stored": field.stored(self.word),
                    "value": field.decode(self.word),
                }
                for field in self.record.fields
            ],
            "tile": self.placed and _tile_json(self.placed),
        }

    def svg(self) -> str:
        """Draw the tile in the colours of its banks. Raises PtxlabError where there is none."""
        if self.placed is None:
            raise PtxlabError("a descriptor alone has no picture", hint="give the tile it is of")
        return Offsets(self.placed.tile.layout, self.placed.tile.bits).svg()


def _bits(field: BitField) -> str:
    return f"{field.low}-{field.high}" if field.bits > 1 else str(field.low)


def _value(field: BitField, word: int) -> str:
    value = field.decode(word)
    if isinstance(value, int) and field.unit > 1 and field.bits > 8:
        return f"{value} bytes" if "offset" in field.name else f"{value:#x}"
    return str(value)


def _tile_text(placed: Placed) -> list[str]:
    tile = placed.tile
    along = "k" if tile.major == "k" else "m or n"
    starts = " ".join(f"{start:#x}" for start in placed.starts)
    each = tile.k // tile.steps
    return fields(
        [
            ("tile", f"{tile.mn} x {tile.k} of {placed.dtype}, contiguous along {along}"),
            ("memory", f"{tile.bytes} bytes from {placed.address:#x} on"),
            ("layout", f"{tile.layout.notation}, from (m or n, k) to elements"),
            (f"k by {each}", f"start address {starts}"),
        ]
    )


def _tile_json(placed: Placed) -> dict[str, Any]:
    tile = placed.tile
    return {
        "mn": tile.mn,
        "k": tile.k,
        "dtype": placed.dtype,
        "bits": tile.bits,
        "major": tile.major,
        "swizzle": tile.mode.name,
        "address": placed.address,
        "bytes": tile.bytes,
        "k_step": tile.k // tile.steps,
        "starts": placed.starts,
        **layout_json(tile.layout),
    }
