"""The rules of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col, one by one, and CUDA's numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from cuda.bindings import driver

from ptxlab.tensormap.tensor_map import (
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    SWIZZLES,
    Im2col,
    TensorMap,
)
from tests.together import in_one_test

TILED = TensorMap("bf16", 0x1000, (256, 128, 8), (512, 65536), (64, 64, 2), (1, 1, 1), "128B")
FOUR = TensorMap("b4x16_p64", 0x1000, (256, 8), (128,), (128, 8), (1, 1))
SIX = TensorMap("b6x16_p32", 0x1000, (256, 8), (192,), (128, 8), (1, 1))
CLOSE = TensorMap("b4x16", 0x1000, (256, 8), (128,), (64, 8), (1, 1))
WINDOW = Im2col((-1, -1), (-1, -1), 64, 128)
PIXELS = TensorMap("f16", 0x1000, (64, 9, 9, 2), (128, 1152, 10368), WINDOW, (1, 1, 1, 1))


def changed(tensor_map: TensorMap, changes: dict[str, Any]) -> TensorMap:
    """Return a map with other fields; those of im2col are named by themselves."""
    inner = {name: changes[name] for name in changes if name in Im2col.__slots__}
    outer = {name: changes[name] for name in changes if name not in inner}
    if inner:
        assert isinstance(tensor_map.box, Im2col)
        outer["box"] = replace(tensor_map.box, **inner)
    return replace(tensor_map, **outer)


@in_one_test(
    "changes",
    [
        {"address": 0},  # null may be filled in later
        {"address": 0x1010},
        {"dims": (1, 1 << 32, 1)},
        {"dims": (8, 2, 2)},  # the box reaches out of the tensor
        {"strides": (0, 0)},
        {"strides": (16, (1 << 40) - 16)},
        {"box": (64, 256, 1)},
        {"box": (8, 1, 1)},  # fewer bytes than the swizzle spans
        {"box": (256, 1, 1), "swizzle": "none"},
        {"element_strides": (8, 8, 8)},
        {"fill": "nan", "l2_promotion": 256},
        {"interleave": "16B", "box": (3, 1, 1)},
        {"interleave": "32B", "swizzle": "32B"},
    ],
)
def test_what_the_driver_takes(changes: dict[str, Any]) -> None:
    changed(TILED, changes)


@in_one_test(
    ("changes", "message"),
    [
        ({"dtype": "f8"}, "element type f8 is none of u8, u16,"),
        ({"swizzle": "48B"}, "swizzle 48B is none of none, 32B, 64B, 128B"),
        ({"interleave": "64B"}, "interleave 64B is none of none, 16B, 32B"),
        ({"fill": "ones"}, "fill ones is none of zeros, nan"),
        ({"l2_promotion": 32}, "L2 promotion 32 is none of 0, 64, 128, 256"),
        ({"dims": ()}, "it has 0 dimensions, not 1 to 5"),
        ({"dims": (16,) * 6}, "it has 6 dimensions, not 1 to 5"),
        (
            {"dims": (16, 16), "interleave": "16B"},
            "it has 2 dimensions, not 3 to 5, as with im2col or interleaved",
        ),
        ({"address": 0x1008}, "address 0x1008 is no multiple of 16"),
        ({"address": 1 << 64}, "address 0x10000000000000000 is no multiple of 16 below 2\\*\\*64"),
        ({"address": 0x1010, "interleave": "32B"}, "address 0x1010 is no multiple of 32"),
        ({"dims": (256, 0, 8)}, "size 0 of dimension 1 is not 1 to 4294967296"),
        ({"dims": (256, 128, (1 << 32) + 1)}, "size 4294967297 of dimension 2"),
        ({"strides": (512,)}, "it has 1 of stride, not 2"),
        ({"strides": (512, 65544)}, "stride 65544 of dimension 2 is no multiple of 16 bytes"),
        ({"strides": (512, 1 << 40)}, "stride 1099511627776 of dimension 2 is not 0 to"),
        ({"strides": (-512, 0)}, "stride -512 of dimension 1 is not 0 to 1099511627760"),
        (
            {"strides": (512, 65552), "interleave": "32B"},
            "stride 65552 of dimension 2 is no multiple of 32",
        ),
        ({"box": (64, 64)}, "it has 2 of box, not 3"),
        ({"box": (64, 0, 2)}, "box 0 of dimension 1 is not 1 to 256"),
        ({"box": (64, 64, 257)}, "box 257 of dimension 2 is not 1 to 256"),
        ({"box": (12, 64, 2)}, "24 bytes of the box along dimension 0 are no multiple of 16"),
        ({"box": (72, 64, 2)}, "144 bytes of the box along dimension 0 are more than swizzle 128B"),
        ({"box": (24, 64, 2), "swizzle": "32B"}, "48 bytes .* are more than swizzle 32B"),
        ({"element_strides": (1, 1)}, "it has 2 of element stride, not 3"),
        ({"element_strides": (1, 0, 1)}, "element stride 0 of dimension 1 is not 1 to 8"),
        ({"element_strides": (1, 1, 9)}, "element stride 9 of dimension 2 is not 1 to 8"),
        ({"interleave": "32B"}, "swizzle 128B does not go with interleave 32B"),
        ({"dtype": "u16", "fill": "nan"}, "u16 has no NaN to fill with"),
    ],
)
def test_what_the_driver_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(TILED, changes)


@pytest.mark.parametrize(
    ("tensor_map", "changes"),
    [
        (FOUR, {"swizzle": "128B"}),
        (FOUR, {"swizzle": "128B.atom32B", "dims": (128, 1)}),
        (SIX, {"swizzle": "128B.atom64B"}),
        (CLOSE, {"dims": (250, 8), "address": 0x1010, "strides": (144,), "box": (256, 1)}),
        (CLOSE, {"swizzle": "32B"}),
        (TILED, {"swizzle": "128B.atom32B.flip8B"}),
    ],
)
def test_what_the_driver_takes_for_blackwell(
    tensor_map: TensorMap, changes: dict[str, Any]
) -> None:
    replace(tensor_map, **changes)


@in_one_test(
    ("tensor_map", "changes", "message"),
    [
        (FOUR, {"address": 0x1010}, "address 0x1010 is no multiple of 32"),
        (SIX, {"strides": (208,)}, "stride 208 of dimension 1 is no multiple of 32"),
        (SIX, {"dims": (192, 8)}, "size 192 of dimension 0 is no multiple of 128, as with b6x16_p32"),
        (FOUR, {"box": (64, 8)}, "64 elements of the box along dimension 0 are not 128"),
        (FOUR, {"swizzle": "64B"}, "128 bytes .* are more than swizzle 64B"),
        (FOUR, {"swizzle": "128B.atom64B"}, "does not go with b4x16_p64, which takes none, 128B, 128B.atom32B"),
        (SIX, {"swizzle": "128B.atom32B.flip8B"}, "does not go with b6x16_p32"),
        (SIX, {"fill": "nan"}, "b6x16_p32 has no NaN to fill with"),
        (CLOSE, {"dims": (255, 8)}, "size 255 of dimension 0 is no multiple of 2, as with b4x16"),
        (CLOSE, {"box": (16, 8)}, "8 bytes of the box along dimension 0 are no multiple of 16"),
    ],
)  # fmt: skip
def test_what_the_driver_refuses_for_blackwell(
    tensor_map: TensorMap, changes: dict[str, Any], message: str
) -> None:
    """CUDA Driver API, "Tensor Map Object Management"."""
    with pytest.raises(ValueError, match=message):
        replace(tensor_map, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"lower": (-128, 127), "upper": (127, 127)},
        {"lower": (8, 0), "upper": (0, 0)},  # one pixel wide
        {"channels": 256, "pixels": 1024},
        {"channels": 8, "pixels": 1},
    ],
)
def test_what_the_driver_takes_of_pixels(changes: dict[str, Any]) -> None:
    changed(PIXELS, changes)


@in_one_test(
    ("changes", "message"),
    [
        ({"dims": (64, 9)}, "it has 2 dimensions, not 3 to 5"),
        ({"lower": (-1,)}, "it has 1 of lower corner, not 2"),
        ({"upper": (-1, -1, -1)}, "it has 3 of upper corner, not 2"),
        ({"lower": (-1, -129)}, "lower corner -129 of dimension 2 is not -128 to 127"),
        ({"upper": (128, 0)}, "upper corner 128 of dimension 1 is not -128 to 127"),
        ({"lower": (9, 0), "upper": (0, 0)}, "the window of dimension 1 is empty: 9 to 9 \\+ 0"),
        ({"channels": 0}, "0 channels are not 1 to 256"),
        ({"channels": 257}, "257 channels are not 1 to 256"),
        ({"channels": 4}, "8 bytes of the box along dimension 0 are no multiple of 16"),
        ({"channels": 72, "swizzle": "128B"}, "144 bytes .* are more than swizzle 128B"),
        ({"pixels": 0}, "0 pixels are not 1 to 1024"),
        ({"pixels": 1025}, "1025 pixels are not 1 to 1024"),
    ],
)
def test_what_the_driver_refuses_of_pixels(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(PIXELS, changes)


@pytest.mark.parametrize(("rank", "most"), [(3, 32767), (4, 127), (5, 15)])
def test_corners_have_fewer_bits_in_more_dimensions(rank: int, most: int) -> None:
    def made(corner: int) -> TensorMap:
        what = Im2col((corner,) * (rank - 2), (most,) * (rank - 2), 16, 1)
        dims, strides = (16,) * rank, (16,) * (rank - 1)
        return TensorMap("u8", 0, dims, strides, what, (1,) * rank)

    made(-most - 1), made(most)
    for corner in (-most - 2, most + 1):
        with pytest.raises(ValueError, match=f"is not {-most - 1} to {most}"):
            made(corner)


def test_numbers_are_those_of_the_driver() -> None:
    def words(enumeration: Any, prefix: str) -> dict[str, int]:
        members = {member.name: int(member) for member in enumeration}
        return {name.removeprefix(f"CU_TENSOR_MAP_{prefix}_"): members[name] for name in members}

    types = words(driver.CUtensorMapDataType, "DATA_TYPE")
    long = {"u": "UINT", "s": "INT", "f": "FLOAT", "b": "BFLOAT", "t": "TFLOAT"}
    packed = {"b4x16": "16U4_ALIGN8B", "b4x16_p64": "16U4_ALIGN16B", "b6x16_p32": "16U6_ALIGN16B"}
    for element_type in ELEMENT_TYPES.values():
        if element_type.name in packed:
            assert element_type.driver == types[packed[element_type.name]]
            continue
        name, _, ftz = element_type.name.partition(".")
        digits = name.lstrip("abcdefghijklmnopqrstuvwxyz") if name[0] != "t" else "32"
        assert element_type.driver == types[long[name[0]] + digits + ("_FTZ" if ftz else "")], (
            element_type
        )
    assert len(ELEMENT_TYPES) == len(types)
    swizzles = words(driver.CUtensorMapSwizzle, "SWIZZLE")
    called = [re.sub(r"\.(ATOM|FLIP)", r"_\1_", name.upper()) for name in SWIZZLES]
    assert [swizzles[name] for name in called] == list(range(len(swizzles)))
    interleaves = words(driver.CUtensorMapInterleave, "INTERLEAVE")
    assert [interleaves[name.upper()] for name in INTERLEAVES] == list(range(3))
    promotions = words(driver.CUtensorMapL2promotion, "L2_PROMOTION")
    names = [f"L2_{size}B" if size else "NONE" for size in L2_PROMOTIONS]
    assert [promotions[name] for name in names] == list(range(4))
    fills = words(driver.CUtensorMapFloatOOBfill, "FLOAT_OOB_FILL")
    assert [fills["NONE"], fills["NAN_REQUEST_ZERO_FMA"]] == [
        FILLS.index("zeros"),
        FILLS.index("nan"),
    ]


def test_how_far_a_tensor_reaches() -> None:
    assert TILED.nbytes == 7 * 65536 + 127 * 512 + 256 * 2
    assert replace(TILED, strides=(512, 0)).nbytes == 128 * 512
    assert TensorMap("f64", 0, (10,), (), (2,), (1,)).nbytes == 80
