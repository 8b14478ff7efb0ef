"""The descriptors of ``ptxlab layout --descriptor``: of a tile, or read back from a number.

As text, as JSON (schema ``ptxlab.layout.descriptor/1``), and the tile as a picture.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any

from ptxlab.cli import readers
from ptxlab.errors import PtxlabError
from ptxlab.matrix.bit_record import BitField, BitRecord, FieldValue
from ptxlab.matrix.canonical import MODES, SharedTile
from ptxlab.matrix.descriptor import READERS, Reader, of_tile
from ptxlab.matrix.instruction_descriptor import INSTRUCTION_DESCRIPTORS, checked, encode
from ptxlab.verbs.layout.layouts import Offsets, known, layout_json
from ptxlab.view.json import members
from ptxlab.view.text import aligned, fields, hexadecimal

SCHEMA = "ptxlab.layout.descriptor/1"
KIND = "kind::"


@dataclass(frozen=True, slots=True)
class Placed:
    """A tile of a type, at an address of shared memory."""

    tile: SharedTile
    dtype: str
    address: int

    @property
    def starts(self) -> list[int]:
        return [self.address + self.tile.advance(step) for step in range(self.tile.steps)]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A word, what its bits mean, and the tile it was made for where there is one."""

    record: BitRecord
    word: int
    placed: Placed | None = None

    @property
    def written(self) -> str:
        return hexadecimal(self.word, self.record.width)

    def text(self, width: int | None = None) -> str:
        """Return the word, its fields from the low bits up, and where each instruction starts."""
        stored = [("bits", "stored")]
        meant = [("field", "value")]
        for field in self.record.fields:
            stored.append((_bits(field), str(field.stored(self.word))))
            meant.append((field.name, _value(field, self.word)))
        rows = zip(aligned(stored), aligned(meant, "<"), strict=True)
        lines = [
            f"{self.record.name}  {self.written}",
            f"PTX ISA  {self.record.section}",
            "",
            *(f"{bits}  {field}" for bits, field in rows),
        ]
        if self.placed:
            lines += ["", *_tile_text(self.placed)]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "format": self.record.name,
            "section": self.record.section,
            "value": self.written,
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
        **members(tile, "mn", "k"),
        "dtype": placed.dtype,
        **members(tile, "bits", "major"),
        "swizzle": tile.mode.name,
        "address": placed.address,
        "bytes": tile.bytes,
        "k_step": tile.k // tile.steps,
        "starts": placed.starts,
        **layout_json(tile.layout),
    }


# ---- what the command line asks for ----------------------------------------------------------


def describe(args: argparse.Namespace) -> Descriptor:
    """Return the descriptor that is asked for. Raises ValueError for one that cannot be."""
    name = args.descriptor
    records = {reader: READERS[reader].record for reader in READERS}
    record = known(
        name, records | {r.name: r for r in INSTRUCTION_DESCRIPTORS.values()}, "descriptor"
    )
    if args.layout.lower().startswith("0x"):
        word = readers.word(args.layout)
        record.decode(word)
        if name not in READERS:
            checked(name.removeprefix(KIND), word)
        return Descriptor(record, word)
    if name in READERS:
        return _of_tile(args, READERS[name])
    m, n = _sizes(args.layout, "MxN, such as 128x256")
    values: dict[str, FieldValue] = {"m": m, "n": n}
    for option, of_a, of_b in (
        (args.dtype, "a type", "b type"),
        (args.major, "major of a", "major of b"),
    ):
        if option:
            first, _, second = option.partition(".")
            values |= {of_a: first, of_b: second or first}
    if args.acc:
        values["d type"] = args.acc
    if args.swizzle or args.address is not None:
        raise PtxlabError(
            "--swizzle and --address are about a tile", hint="an instruction descriptor has none"
        )
    return Descriptor(record, encode(name.removeprefix(KIND), values | _fields(args, record)))


def _of_tile(args: argparse.Namespace, reader: Reader) -> Descriptor:
    mn, k = _sizes(args.layout, "ROWSxK, such as 128x64")
    mode = args.swizzle or "none"
    if not isinstance(mode, str):
        raise PtxlabError(
            "a descriptor has no swizzle B,M,S", hint=f"its modes are {', '.join(MODES)}"
        )
    dtype, major = args.dtype or "bf16", args.major or "k"
    reader.check(dtype, major, MODES[mode])
    tile = SharedTile(mn, k, reader.types[dtype], major, MODES[mode])
    address = args.address or 0
    word = of_tile(reader, tile, address)
    values = reader.record.decode(word) | _fields(args, reader.record)
    return Descriptor(reader.record, reader.record.encode(values), Placed(tile, dtype, address))


def _fields(args: argparse.Namespace, record: BitRecord) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = {}
    for text in args.field:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise PtxlabError(
                f"--field {text!r} is not NAME=VALUE", hint="for example --field 'sparse=yes'"
            )
        coded = record.field(name).codes is not None
        fields[name] = value if coded else readers.word(value)
    return fields


def _sizes(text: str, wanted: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if not match:
        raise PtxlabError(
            f"{text!r} is not {wanted}", hint="or a descriptor to read back, such as 0x8400490"
        )
    return int(match[1]), int(match[2])
