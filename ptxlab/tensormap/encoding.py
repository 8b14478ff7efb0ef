"""Tensor maps as the 128 bytes that the copy engine reads, and ``tensormap.replace`` on these.

The first 64 bytes are one word of fields. A map may be made from 128 zeros by replacing every field. Which bits tell
one of ``im2col::w`` is not public: here it is one of im2col with a window of one number, and its name behind those
64 bytes, so that a GPU's own map of that kind is refused and not read wrongly.

Source: NVIDIA TensorRT-LLM, ``fmha/hopper/tma_descriptor.h``; what ptxas 13.0 makes of
``tensormap.replace``, which is loads, stores and shifts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptxlab.tensormap.tensor_map import (
    ALONE_ON_GPU,
    CORNER_BITS,
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    MOST_DIMENSIONS,
    PLAIN_SWIZZLES,
    SWIZZLES,
    Im2col,
    TensorMap,
)

MAP_BYTES = 128
READ_BYTES = 64
"""All of a map, and those in which its fields are, which the copy engine reads."""


@dataclass(frozen=True, slots=True)
class _Field:
    """``bits`` of the word from ``low`` on, which hold a number less ``least``, or a ``signed`` one."""

    low: int
    bits: int
    least: int = 0
    signed: bool = False

    @property
    def mask(self) -> int:
        return (1 << self.bits) - 1

    def get(self, word: int) -> int:
        stored = word >> self.low & self.mask
        negative = self.signed and stored >> self.bits - 1
        return stored - (1 << self.bits if negative else 0) + self.least

    def put(self, word: int, value: int) -> int:
        return word & ~(self.mask << self.low) | (value - self.least & self.mask) << self.low


_Fields = dict[str, _Field]


def _row(name: str, count: int, low: int, bits: int, least: int = 0, first: int = 0) -> _Fields:
    places = range(first, first + count)
    return {f"{name} {i}": _Field(low + (i - first) * bits, bits, least) for i in places}


def _corner(name: str, count: int, low: int) -> _Fields:
    bits = CORNER_BITS[count + 2]
    return {f"{name} {i}": _Field(low + i * bits, bits, signed=True) for i in range(count)}


_COMMON: _Fields = {
    "address": _Field(0, 64),
    "im2col": _Field(64, 1),
    "version": _Field(65, 3),
    "rank": _Field(68, 3, least=1),
    "type": _Field(71, 4),
    "interleave": _Field(75, 2),
    "swizzle": _Field(77, 2),
    "fill": _Field(79, 1),
    "tf32": _Field(80, 1),
    "l2 promotion": _Field(81, 2),
    "swizzle atomicity": _Field(83, 2),
    "large": _Field(85, 1),  # the driver sets it for tensors from 128 KiB on
    "swizzle 96B": _Field(86, 1),  # of sm_103a, with swizzle none
    **_row("stride", 4, 96, 32),
    **_row("stride high", 4, 224, 4),
    **_row("dim", 5, 256, 32, least=1),
    **_row("element stride", 5, 416, 3, least=1),
    "box 0": _Field(440, 8, least=1),
}
_TILED = _COMMON | _row("box", 4, 448, 8, least=1, first=1)
_IM2COL = {
    count: {
        **_COMMON,
        **_corner("lower", count, 448),
        **_corner("upper", count, 464),
        "pixels": _Field(480, 10, least=1),
    }
    for count in (1, 2, 3)
}
"""The fields by how many numbers a corner of the window has."""
_WIDE = b"im2col::w"

_TYPES = {
    (element_type.code, element_type.is_tf32): name for name, element_type in ELEMENT_TYPES.items()
}
_LAST_PLAIN = len(PLAIN_SWIZZLES) - 1


def encode(tensor_map: TensorMap) -> bytes:
    """Return the 128 bytes of a tensor map. Behind the 64 that the copy engine reads they are zero, but for im2col::w."""
    element, box = tensor_map.element, tensor_map.box
    is_96 = tensor_map.swizzle == ALONE_ON_GPU
    swizzle = 0 if is_96 else SWIZZLES.index(tensor_map.swizzle)
    values = {
        "address": tensor_map.address,
        "rank": tensor_map.rank,
        "type": element.code,
        "tf32": int(element.is_tf32),
        "interleave": INTERLEAVES.index(tensor_map.interleave),
        "swizzle": min(swizzle, _LAST_PLAIN),
        "swizzle atomicity": max(swizzle - _LAST_PLAIN, 0),
        "swizzle 96B": int(is_96),
        "fill": FILLS.index(tensor_map.fill),
        "l2 promotion": L2_PROMOTIONS.index(tensor_map.l2_promotion),
        **_each("dim", tensor_map.dims),
        **_each("element stride", tensor_map.element_strides),
    }
    for i, stride in enumerate(tensor_map.strides):
        values |= _stride(i, stride)
    if isinstance(box, Im2col):
        fields = _IM2COL[len(box.lower)]
        values |= {"im2col": 1, "box 0": box.channels, "pixels": box.pixels}
        values |= _each("lower", box.lower) | _each("upper", box.upper)
    else:
        fields = _TILED
        values |= _each("box", box)
    read = _with(0, fields, values).to_bytes(READ_BYTES, "little")
    return (read + _WIDE * tensor_map.is_wide).ljust(MAP_BYTES, b"\0")


def decode(data: bytes) -> TensorMap:
    """Return what the copy engine reads in the bytes of a tensor map.

    Raises ValueError for bits that mean nothing and for a map that the driver would not have made, or
    ``tensormap.replace`` of one of those.
    """
    word, wide = int.from_bytes(data[:READ_BYTES], "little"), data[READ_BYTES:].startswith(_WIDE)
    fields = _fields(word, wide=wide)
    value = {name: field.get(word) for name, field in fields.items()}
    rank = value["rank"]

    def several(name: str, count: int) -> tuple[int, ...]:
        return tuple(value[f"{name} {i}"] for i in range(count))

    box: tuple[int, ...] | Im2col
    if value["im2col"]:
        count = 1 if wide else rank - 2
        lower, upper = several("lower", count), several("upper", count)
        box = Im2col(lower, upper, value["box 0"], value["pixels"], wide)
    else:
        box = several("box", rank)
    strides = zip(several("stride", rank - 1), several("stride high", rank - 1), strict=True)
    return TensorMap(
        dtype=_TYPES[value["type"], bool(value["tf32"])],
        address=value["address"],
        dims=several("dim", rank),
        strides=tuple((high << 32 | low) << 4 for low, high in strides),
        box=box,
        element_strides=several("element stride", rank),
        swizzle=ALONE_ON_GPU
        if value["swizzle 96B"]
        else SWIZZLES[value["swizzle"] + value["swizzle atomicity"]],
        interleave=INTERLEAVES[value["interleave"]],
        fill=FILLS[value["fill"]],
        l2_promotion=L2_PROMOTIONS[value["l2 promotion"]],
    )


def _fields(word: int, *, wide: bool) -> _Fields:
    """Return the fields of a tensor map, or raise as ``decode`` does for one that has none."""
    value = {name: field.get(word) for name, field in _COMMON.items()}
    rank, kind = value["rank"], (value["type"], bool(value["tf32"]))
    atoms = value["swizzle atomicity"]
    for name, known in (
        ("version", value["version"] <= 1),
        ("rank", rank in CORNER_BITS if value["im2col"] else rank <= MOST_DIMENSIONS),
        ("type", kind in _TYPES),
        ("interleave", value["interleave"] < len(INTERLEAVES)),
        ("swizzle atomicity", not atoms or value["swizzle"] == _LAST_PLAIN),
        ("swizzle 96B", not (value["swizzle 96B"] and value["swizzle"])),
    ):
        if not known:
            raise ValueError(f"{name} {value[name]} is none that a tensor map has")
    fields = _IM2COL[1 if wide else rank - 2] if value["im2col"] else _TILED
    used = sum(field.mask << field.low for field in fields.values())
    if stray := word & ~used:
        raise ValueError(f"bit {stray.bit_length() - 1} is set, which is none of a tensor map's")
    return fields


_REPLACED = {
    "global_address": "address",
    "box_dim": "box {}",
    "element_stride": "element stride {}",
    "interleave_layout": "interleave",
    "swizzle_mode": "swizzle",
    "swizzle_96B": "swizzle 96B",
    "swizzle_atomicity": "swizzle atomicity",
    "fill_mode": "fill",
}
"""What those fields of ``tensormap.replace`` are called here that take what they hold. 96B is the mode 4 of it."""


def replace(data: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """Return a tensor map after ``tensormap.replace.tile.FIELD`` with ``value``.

    ``rank`` takes the number of dimensions less 1, ``global_stride`` bytes, and modes their numbers.
    ``ordinal`` is the dimension; stride 0 is that of dimension 1. Replacing tf32 by another type leaves
    the bit of tf32 set, as ptxas's code does. Raises ValueError for what the field cannot hold.
    """
    if field == "elemtype":
        values = _element(value)
    elif field == "global_stride":
        values = _stride(ordinal, value)
    elif field == "rank":
        values = {"rank": value + 1}
    elif field == "global_dim":
        values = {f"dim {ordinal}": value or 1 << 32}  # 32 bits of a size of 2**32 are 0
    else:
        values = {_REPLACED[field].format(ordinal): value}
    for name, number in values.items():
        known = _TILED.get(name)
        if known is None or not 0 <= number - known.least <= known.mask:
            raise ValueError(f"{field} {ordinal} cannot be {value}")
    word = _with(int.from_bytes(data, "little"), _TILED, values)
    return word.to_bytes(len(data), "little")


def _element(number: int) -> dict[str, int]:
    for element_type in ELEMENT_TYPES.values():
        if element_type.replaced == number:
            return {"type": element_type.code} | ({"tf32": 1} if element_type.is_tf32 else {})
    raise ValueError(f"elemtype cannot be {number}: it is 0 to {len(ELEMENT_TYPES) - 1}")


def _stride(i: int, nbytes: int) -> dict[str, int]:
    if nbytes % 16:
        raise ValueError(f"global_stride {i} cannot be {nbytes}, no multiple of 16")
    return {f"stride {i}": nbytes >> 4 & 0xFFFF_FFFF, f"stride high {i}": nbytes >> 36}


def _each(name: str, values: tuple[int, ...]) -> dict[str, int]:
    return {f"{name} {i}": value for i, value in enumerate(values)}


def _with(word: int, fields: _Fields, values: Mapping[str, int]) -> int:
    for name, value in values.items():
        word = fields[name].put(word, value)
    return word
