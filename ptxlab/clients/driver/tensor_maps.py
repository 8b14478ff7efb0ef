"""Tensor maps, as programs make them for the copy engine that GPUs have from sm_90 on.

Source: CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, fetch, store
from ptxlab.tensormap.encoding import MAP_BYTES, encode, replace
from ptxlab.tensormap.tensor_map import (
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    MOST_DIMENSIONS,
    PLAIN_SWIZZLES,
    SWIZZLES,
    ElementType,
    Im2col,
    TensorMap,
)

_TYPES = {element_type.driver: element_type.name for element_type in ELEMENT_TYPES.values()}
_WIDE_MODES = range(2)
"""W and W128: the instruction says which, and the map does not."""
_LARGE_SWIZZLES = range(len(PLAIN_SWIZZLES), len(SWIZZLES))

_T = TypeVar("_T")


@answers("cuTensorMapEncodeTiled", "u64 i32 u32 u64 u64 u64 u64 u64 i32 i32 i32 i32", since=12000)
def encode_tiled(gpu: EmulatedGpu, at: int, *given: int) -> None:
    tensor, (box, steps), modes = given[:5], given[5:7], given[7:]
    rank = _dimensions(tensor, 1)
    _encode(gpu, at, tensor, fetch(box, f"<{rank}I"), steps, modes)


@answers(
    "cuTensorMapEncodeIm2col",
    "u64 i32 u32 u64 u64 u64 u64 u64 u32 u32 u64 i32 i32 i32 i32",
    since=12000,
)
def encode_im2col(gpu: EmulatedGpu, at: int, *given: int) -> None:
    tensor, (lower, upper, channels, pixels, steps), modes = given[:5], given[5:10], given[10:]
    rank = _dimensions(tensor, 3)
    begin, end = (fetch(corner, f"<{rank - 2}i") for corner in (lower, upper))
    _encode(gpu, at, tensor, Im2col(begin, end, channels, pixels), steps, modes)


@answers(
    "cuTensorMapEncodeIm2colWide",
    "u64 i32 u32 u64 u64 u64 i32 i32 u32 u32 u64 i32 i32 i32 i32 i32",
    since=12080,
)
def encode_im2col_wide(gpu: EmulatedGpu, at: int, *given: int) -> None:
    tensor, (lower, upper, channels, pixels, steps), modes = given[:5], given[5:10], given[10:]
    _dimensions(tensor, 3)
    interleave, of_w, *others = modes
    if of_w not in _WIDE_MODES:
        raise Refused(DriverResult.INVALID_VALUE, f"{of_w} is no mode of im2col::w")
    box = Im2col((lower,), (upper,), channels, pixels, wide=True)
    _encode(gpu, at, tensor, box, steps, (interleave, *others))


@answers("cuTensorMapReplaceAddress", "u64 u64", since=12000)
def replace_address(gpu: EmulatedGpu, at: int, address: int) -> None:
    _require_maps(gpu, at)
    data = fetch(at, f"<{MAP_BYTES}s")[0]
    if address % 16:
        raise Refused(DriverResult.INVALID_VALUE, f"address {address:#x} is no multiple of 16")
    store(at, replace(data, "global_address", address))


def _dimensions(tensor: Sequence[int], least: int) -> int:
    """Return the rank of a tensor. Raise Refused where it says not how many numbers to read."""
    rank = tensor[1]
    if not least <= rank <= MOST_DIMENSIONS:
        raise Refused(DriverResult.INVALID_VALUE, f"a tensor of {rank} dimensions has no such map")
    return rank


def _encode(
    gpu: EmulatedGpu,
    at: int,
    tensor: Sequence[int],
    box: tuple[int, ...] | Im2col,
    steps: int,
    modes: Sequence[int],
) -> None:
    """Store the map of a tensor, whose sizes, strides and ``steps`` are where its numbers say."""
    _require_maps(gpu, at)
    type_, rank, address, dims, strides = tensor
    interleave, swizzle, promotion, fill = modes
    if type_ not in _TYPES:
        raise Refused(DriverResult.INVALID_VALUE, f"{type_} is no type of elements")
    _require_known(gpu, ELEMENT_TYPES[_TYPES[type_]], swizzle, box)
    try:
        tensor_map = TensorMap(
            _TYPES[type_],
            address,
            fetch(dims, f"<{rank}Q"),
            fetch(strides, f"<{rank - 1}Q") if rank > 1 else (),
            box,
            fetch(steps, f"<{rank}I"),
            _mode(SWIZZLES, swizzle),
            _mode(INTERLEAVES, interleave),
            _mode(FILLS, fill),
            _mode(L2_PROMOTIONS, promotion),
        )
    except ValueError as error:
        raise Refused(DriverResult.INVALID_VALUE, str(error)) from None
    store(at, encode(tensor_map))


def _require_known(
    gpu: EmulatedGpu, element: ElementType, swizzle: int, box: tuple[int, ...] | Im2col
) -> None:
    """Raise Refused for what came with sm_100, on a GPU before that."""
    is_wide = isinstance(box, Im2col) and box.wide
    known = element.packing is None and swizzle not in _LARGE_SWIZZLES and not is_wide
    if not known and not gpu.target.runs("sm_100"):
        what = "elements of 4 or 6 bits" if element.packing else "a swizzle of larger units"
        what = "im2col::w" if is_wide else what
        raise Refused(
            DriverResult.NOT_SUPPORTED,
            f"a tensor map with {what} is for sm_100 and newer, not {gpu.target.name}",
        )


def _mode(known: Sequence[_T], number: int) -> _T:
    if number not in range(len(known)):
        raise ValueError(f"mode {number} is none of {', '.join(map(str, known))}")
    return known[number]


def _require_maps(gpu: EmulatedGpu, at: int) -> None:
    """Raise Refused unless the GPU reads maps and there is room for one, aligned or not: a launch copies it."""
    if not gpu.target.runs("sm_90"):
        raise Refused(
            DriverResult.NOT_SUPPORTED,
            f"{gpu.target.name} reads no tensor maps; GPUs from sm_90 on do",
        )
    if not at:
        raise Refused(DriverResult.INVALID_VALUE)
