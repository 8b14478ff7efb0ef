"""The descriptors of ``ptxlab layout --descriptor``: of a tile, or read back from a number."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from ptxlab.cli import readers
from ptxlab.errors import PtxlabError

if TYPE_CHECKING:
    from ptxlab.matrix.bit_record import BitRecord, Value
    from ptxlab.verbs.layout.descriptor_text import Descriptor

KIND = "kind::"
OWN_OPTIONS = ("major", "address", "field")
"""The options that go with ``--descriptor`` alone."""


def add_descriptors(parser: argparse.ArgumentParser) -> None:
    """Add the options about descriptors."""
    group = parser.add_argument_group("descriptors of wgmma and tcgen05")
    group.add_argument(
        "--descriptor",
        metavar="FORMAT",
        help="wgmma or tcgen05: the matrix descriptor of a tile ROWSxK of m or n times k; kind::f16, "
        "kind::mxf4 and so on: the instruction descriptor of MxN; of a number 0x...: its fields",
    )
    group.add_argument(
        "--major",
        metavar="k|mn",
        help="along which direction a tile is contiguous (default k); A.B for an instruction",
    )
    group.add_argument(
        "--address", type=readers.word, metavar="N", help="where the tile starts (default 0)"
    )
    group.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help='any other field by its name, such as "negate a=yes"',
    )


def describe(args: argparse.Namespace) -> Descriptor:
    """Return the descriptor that is asked for. Raises ValueError for one that cannot be."""
    from ptxlab.matrix.descriptor import READERS
    from ptxlab.matrix.instruction_descriptor import INSTRUCTION_DESCRIPTORS, checked
    from ptxlab.verbs.layout.descriptor_text import Descriptor

    name = args.descriptor
    known = [*READERS, *(f"{KIND}{kind}" for kind in INSTRUCTION_DESCRIPTORS)]
    if name not in known:
        raise PtxlabError(
            f"no descriptor {name!r}{readers.suggestion(name, known)}",
            hint=f"there are {', '.join(known)}",
        )
    written = args.layout.lower().startswith("0x")
    if name in READERS:
        return _read(args, READERS[name].record) if written else _of_tile(args, name)
    kind = name.removeprefix(KIND)
    record = INSTRUCTION_DESCRIPTORS[kind]
    if written:
        found = _read(args, record)
        checked(kind, found.word)
        return found
    m, n = _sizes(args.layout, "MxN, such as 128x256")
    values: dict[str, Value] = {"m": m, "n": n}
    for option, fields in (
        ("dtype", ("a type", "b type")),
        ("major", ("major of a", "major of b")),
    ):
        if getattr(args, option):
            first, _, second = getattr(args, option).partition(".")
            values |= dict(zip(fields, (first, second or first), strict=True))
    if args.acc:
        values["d type"] = args.acc
    if args.swizzle or args.address is not None:
        raise PtxlabError(
            "--swizzle and --address are about a tile", hint="an instruction descriptor has none"
        )
    word = checked(kind, record.encode(values | _fields(args, record)))
    return Descriptor(record, word)


def _of_tile(args: argparse.Namespace, name: str) -> Descriptor:
    from ptxlab.matrix.canonical import MODES, Tile
    from ptxlab.matrix.descriptor import READERS, of_tile
    from ptxlab.verbs.layout.descriptor_text import Descriptor, Placed

    reader = READERS[name]
    mn, k = _sizes(args.layout, "ROWSxK, such as 128x64")
    mode = args.swizzle or "none"
    if not isinstance(mode, str):
        raise PtxlabError(
            "a descriptor has no swizzle B,M,S", hint=f"its modes are {', '.join(MODES)}"
        )
    dtype, major = args.dtype or "bf16", args.major or "k"
    reader.check(dtype, major, MODES[mode])
    tile = Tile(mn, k, reader.types[dtype], major, MODES[mode])
    address = args.address or 0
    word = of_tile(reader, tile, address)
    values = reader.record.decode(word) | _fields(args, reader.record)
    return Descriptor(reader.record, reader.record.encode(values), Placed(tile, dtype, address))


def _read(args: argparse.Namespace, record: BitRecord) -> Descriptor:
    from ptxlab.verbs.layout.descriptor_text import Descriptor

    idle = [name for name in (*OWN_OPTIONS, "dtype", "acc", "swizzle") if getattr(args, name)]
    if idle:
        raise PtxlabError(
            f"--{idle[0]} says nothing about a descriptor that is given",
            hint="a number 0x... is read back as it is",
        )
    word = readers.word(args.layout)
    record.decode(word)
    return Descriptor(record, word)


def _fields(args: argparse.Namespace, record: BitRecord) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for text in args.field:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise PtxlabError(
                f"--field {text!r} is not NAME=VALUE", hint="for example --field 'sparse=yes'"
            )
        coded = record.field(name).codes is not None
        found[name] = value if coded else readers.word(value)
    return found


def _sizes(text: str, wanted: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found:
        raise PtxlabError(
            f"{text!r} is not {wanted}", hint="or a descriptor to read back, such as 0x8400490"
        )
    return int(found[1]), int(found[2])
