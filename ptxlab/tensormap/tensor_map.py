"""What a tensor map says, and what the driver demands of one.

Dimensions are innermost first, as the driver and PTX have them: dimension 0 is contiguous.

Source: CUDA Driver API, "Tensor Map Object Management"; PTX ISA, "tensormap.replace".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.layouts.layout import Swizzle
from ptxlab.matrix.canonical import MODES, UNIT_BYTES, Mode
from ptxlab.numbers.types import TYPES, ScalarType

SWIZZLE_MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        *(MODES[name] for name in ("none", "32B", "64B", "128B", "128B.atom32B")),
        Mode("128B.atom32B.flip8B", 128, Swizzle(2, 5, 2)),
        Mode("128B.atom64B", 128, Swizzle(1, 6, 1)),
        Mode("96B", 96, Swizzle(1, 4, 3)),
    )
}
"""How units of 16 bytes are swizzled. With a flip the halves of those on every second line change places, too."""

ALONE_ON_GPU = "96B"
"""The swizzle that the driver has no number for: ``tensormap.replace`` makes maps of it, for sm_103a and sm_107a."""
SWIZZLES = tuple(name for name in SWIZZLE_MODES if name != ALONE_ON_GPU)
PLAIN_SWIZZLES = SWIZZLES[:4]
"""Those that keep units of 16 bytes together; the others are of sm_100 and newer."""
INTERLEAVES = ("none", "16B", "32B")
FILLS = ("zeros", "nan")
L2_PROMOTIONS = (0, 64, 128, 256)
"""The modes in the order of their numbers, which the driver, the map and ``tensormap.replace`` share.

Of a swizzle only the driver has one number; a map has 128B, and the atomicity apart.
"""

MOST_DIMENSIONS = 5
CORNER_BITS = {3: 16, 4: 8, 5: 5}
"""The bits of an offset of an im2col window's corner, by the number of dimensions."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How many bytes sixteen numbers of less than a byte take in ``global_`` memory, and in ``shared``."""

    global_: int
    shared: int

    @property
    def padded(self) -> bool:
        """Whether there is padding in shared memory."""
        return self.shared > self.global_


TOGETHER = 16
"""How many packed numbers lie together."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type of tensor elements, by its name in PTX.

    ``driver`` is its number in CUtensorMapDataType, ``replaced`` the one that ``tensormap.replace``
    takes. Those with ``.ftz`` and those of tf32 are f32 in memory, and changed on the way. Those with a
    ``packing`` have 4 or 6 bits.
    """

    name: str
    driver: int
    replaced: int
    packing: Packing | None = None

    @property
    def is_tf32(self) -> bool:
        """Whether f32 becomes tf32, which has a bit of its own in a map."""
        return self.name.startswith("tf32")

    @property
    def code(self) -> int:
        """Its number in a map, which for tf32 is that of f32, so that the next ones are packed."""
        behind = 4 if self.is_tf32 else 2 if self.packing else 0
        return self.replaced - behind

    @property
    def scalar(self) -> ScalarType:
        """The PTX type that it is in memory, bytes where it is packed."""
        if self.packing:
            return TYPES["u8"]
        return TYPES["f32" if self.is_tf32 else self.name.removesuffix(".ftz")]

    @property
    def bits(self) -> int:
        """How many bits an element has in global memory."""
        return 8 * self.packing.global_ // TOGETHER if self.packing else 8 * self.scalar.bytes


ELEMENT_TYPES: dict[str, ElementType] = {
    rule.name: rule
    for rule in (
        ElementType("u8", 0, 0),
        ElementType("u16", 1, 1),
        ElementType("u32", 2, 2),
        ElementType("s32", 3, 3),
        ElementType("u64", 4, 4),
        ElementType("s64", 5, 5),
        ElementType("f16", 6, 6),
        ElementType("f32", 7, 7),
        ElementType("f32.ftz", 10, 8),
        ElementType("f64", 8, 9),
        ElementType("bf16", 9, 10),
        ElementType("tf32", 11, 11),
        ElementType("tf32.ftz", 12, 12),
        ElementType("b4x16", 13, 13, Packing(8, 8)),
        ElementType("b4x16_p64", 14, 14, Packing(8, 16)),
        ElementType("b6x16_p32", 15, 15, Packing(12, 16)),
    )
}
"""The types by name. Numbers of 8 bits travel as u8; the packed ones are of sm_100 and newer.

A store with ``b6x16_p32`` takes a byte for each number, as ``b6p2x16``, and drops its upper two bits.
"""


@dataclass(frozen=True, slots=True)
class Im2col:
    """What one copy takes of a tensor of pixels: ``pixels`` of them, of each so many ``channels``.

    Pixels are those of a window per image, which begins ``lower`` pixels after the image's begin and
    ends ``upper`` pixels after its end, one number for each spatial dimension, in the order in which
    whoever holds this has its dimensions. ``wide`` is for copies with ``im2col::w``: the window has one number,
    along W, and behind the end of a line it goes on in the same line of the next image.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    wide: bool = False


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor in global memory, and what a copy takes of it: a ``box``, or pixels as ``Im2col`` says.

    ``address`` is where it begins, ``dims`` are its sizes and ``strides`` the bytes from one element
    to the next, of every dimension but 0. A copy takes every ``element_strides``-th element of a box,
    whose inner rows are ``swizzle``d in shared memory. What lies outside the tensor is a ``fill``.
    ``l2_promotion`` (bytes) concerns caches alone.

    Raises ValueError, with what and why, for a map that cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col or
    cuTensorMapEncodeIm2colWide refuses with CUDA_ERROR_INVALID_VALUE.
    """

    dtype: str
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] | Im2col
    element_strides: tuple[int, ...]
    swizzle: str = "none"
    interleave: str = "none"
    fill: str = "zeros"
    l2_promotion: int = 0

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ValueError(problem)

    @property
    def element(self) -> ElementType:
        """The type of its elements."""
        return ELEMENT_TYPES[self.dtype]

    @property
    def size(self) -> int:
        """How many bytes an element has, 1 where it is packed."""
        return self.element.scalar.bytes

    @property
    def is_plain(self) -> bool:
        """Whether every GPU with tensor maps reads it, from sm_90 on."""
        packed = self.element.packing is not None
        return self.swizzle in PLAIN_SWIZZLES and not packed and not self.is_wide

    @property
    def is_wide(self) -> bool:
        """Whether it is for copies with ``im2col::w``."""
        return isinstance(self.box, Im2col) and self.box.wide

    @property
    def kind(self) -> str:
        """What messages call it."""
        mode = ", for im2col::w," if self.is_wide else ""
        return f"a tensor map of {self.dtype} and swizzle {self.swizzle}{mode}"

    def along(self, count: int) -> int:
        """Return how many bytes so many elements along dimension 0 take in global memory."""
        return count * self.element.bits // 8

    @property
    def rank(self) -> int:
        """How many dimensions the tensor has, 1 to 5."""
        return len(self.dims)

    @property
    def inner(self) -> int:
        """How many elements lie next to each other in a copy: those along dimension 0."""
        return self.box.channels if isinstance(self.box, Im2col) else self.box[0]

    @property
    def row_bytes(self) -> int:
        """How many bytes these take in shared memory, their padding among them."""
        packing = self.element.packing
        return self.inner // TOGETHER * packing.shared if packing else self.along(self.inner)

    @property
    def nbytes(self) -> int:
        """How many bytes the tensor reaches over, from its first to behind its last element."""
        steps = (
            (size - 1) * stride for size, stride in zip(self.dims[1:], self.strides, strict=True)
        )
        return sum(steps) + self.along(self.dims[0])


def _problems(tensor_map: TensorMap) -> Iterator[str]:
    """Yield what the driver refuses ``tensor_map`` for; what comes first the rest relies on."""
    for name, value, known in (
        ("element type", tensor_map.dtype, tuple(ELEMENT_TYPES)),
        ("swizzle", tensor_map.swizzle, tuple(SWIZZLE_MODES)),
        ("interleave", tensor_map.interleave, INTERLEAVES),
        ("fill", tensor_map.fill, FILLS),
        ("L2 promotion", tensor_map.l2_promotion, L2_PROMOTIONS),
    ):
        if value not in known:
            yield f"{name} {value} is none of {', '.join(str(choice) for choice in known)}"
    least = 1 if isinstance(tensor_map.box, tuple) and tensor_map.interleave == "none" else 3
    if not least <= tensor_map.rank <= MOST_DIMENSIONS:
        yield (
            f"it has {tensor_map.rank} dimensions, not {least} to {MOST_DIMENSIONS}"
            + (", as with im2col or interleaved" if least > 1 else "")
        )
    packing = tensor_map.element.packing
    unit = 32 if tensor_map.interleave == "32B" or (packing and packing.padded) else 16
    if tensor_map.address % unit or not 0 <= tensor_map.address < 1 << 64:
        yield f"address {tensor_map.address:#x} is no multiple of {unit} below 2**64"
    yield from _out_of_range("size", tensor_map.dims, tensor_map.rank, 1, 1 << 32)
    yield from _out_of_range(
        "stride", tensor_map.strides, tensor_map.rank - 1, 0, (1 << 40) - unit, first=1
    )
    for dimension, stride in enumerate(tensor_map.strides, 1):
        if stride % unit:
            yield f"stride {stride} of dimension {dimension} is no multiple of {unit} bytes"
    yield from _out_of_range("element stride", tensor_map.element_strides, tensor_map.rank, 1, 8)
    yield from (
        _of_pixels(tensor_map, tensor_map.box)
        if isinstance(tensor_map.box, Im2col)
        else _of_box(tensor_map, tensor_map.box)
    )
    yield from _of_rows(tensor_map)
    if packing:
        yield from _of_packed(tensor_map, packing)


def require_number(swizzle: str) -> None:
    """Raise ValueError for a swizzle that the driver has no number for."""
    if swizzle not in SWIZZLES:
        raise ValueError(f"swizzle {swizzle} is none of {', '.join(SWIZZLES)}")


def _out_of_range(
    what: str, values: tuple[int, ...], count: int, least: int, most: int, first: int = 0
) -> Iterator[str]:
    if len(values) != count:
        yield f"it has {len(values)} of {what}, not {count}"
    for dimension, value in enumerate(values, first):
        if not least <= value <= most:
            yield f"{what} {value} of dimension {dimension} is not {least} to {most}"


def _of_box(tensor_map: TensorMap, box: tuple[int, ...]) -> Iterator[str]:
    yield from _out_of_range("box", box, tensor_map.rank, 1, 256)


def _of_pixels(tensor_map: TensorMap, pixels: Im2col) -> Iterator[str]:
    spatial = tensor_map.dims[1:2] if pixels.wide else tensor_map.dims[1:-1]
    corner = 1 << CORNER_BITS[len(spatial) + 2] - 1
    for name, offsets in (("lower corner", pixels.lower), ("upper corner", pixels.upper)):
        yield from _out_of_range(name, offsets, len(spatial), -corner, corner - 1, first=1)
    if not 1 <= pixels.channels <= 256:
        yield f"{pixels.channels} channels are not 1 to 256"
    if not 1 <= pixels.pixels <= 1024:
        yield f"{pixels.pixels} pixels are not 1 to 1024"
    windows = zip(spatial, pixels.lower, pixels.upper, strict=True)
    for dimension, (size, lower, upper) in enumerate(windows, 1):
        if size + upper - lower < 1:
            yield f"the window of dimension {dimension} is empty: {lower} to {size} + {upper}"
    if pixels.wide and tensor_map.interleave != "none":
        yield f"interleave {tensor_map.interleave} does not go with im2col::w"
    if pixels.wide and tensor_map.swizzle not in _WIDE_SWIZZLES:
        known = ", ".join(_WIDE_SWIZZLES)
        yield f"swizzle {tensor_map.swizzle} does not go with im2col::w, which takes {known}"


_WIDE_SWIZZLES = ("64B", "128B", "128B.atom32B", "96B")


def _of_rows(tensor_map: TensorMap) -> Iterator[str]:
    """What is wrong with the bytes along dimension 0, and with how they are filled."""
    if tensor_map.interleave == "none" and tensor_map.row_bytes % UNIT_BYTES:
        yield f"{tensor_map.row_bytes} bytes of the box along dimension 0 are no multiple of {UNIT_BYTES}"
    span = SWIZZLE_MODES[tensor_map.swizzle].span
    if (
        tensor_map.interleave == "none"
        and tensor_map.swizzle != "none"
        and tensor_map.row_bytes > span
    ):
        yield f"{tensor_map.row_bytes} bytes of the box along dimension 0 are more than swizzle {span}B"
    if tensor_map.interleave == "32B" and tensor_map.swizzle != "32B":
        yield f"swizzle {tensor_map.swizzle} does not go with interleave 32B, which takes 32B alone"
    if tensor_map.fill == "nan" and tensor_map.element.scalar.kind != "float":
        yield f"{tensor_map.dtype} has no NaN to fill with"


PADDED_ROW = 128
"""How many padded numbers a row has."""

_PADDED_SWIZZLES = {
    "b4x16_p64": ("none", "128B", "128B.atom32B"),
    "b6x16_p32": ("none", "128B", "128B.atom32B", "128B.atom64B"),
}


def _of_packed(tensor_map: TensorMap, packing: Packing) -> Iterator[str]:
    """What is wrong with numbers of 4 or 6 bits."""
    name, whole = tensor_map.dtype, PADDED_ROW if packing.padded else 2
    if tensor_map.dims[0] % whole:
        yield f"size {tensor_map.dims[0]} of dimension 0 is no multiple of {whole}, as with {name}"
    if not packing.padded:
        return
    if tensor_map.inner != PADDED_ROW:
        yield f"{tensor_map.inner} elements of the box along dimension 0 are not {PADDED_ROW}, as with {name}"
    known = _PADDED_SWIZZLES[name]
    if tensor_map.swizzle not in known:
        yield f"swizzle {tensor_map.swizzle} does not go with {name}, which takes {', '.join(known)}"
