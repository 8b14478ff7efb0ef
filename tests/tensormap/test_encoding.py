"""The bytes of tensor maps, word by word, and ``tensormap.replace`` as ptxas compiles it."""

from __future__ import annotations

import random
import struct
from dataclasses import fields
from dataclasses import replace as changed

import pytest
from cuda.bindings import driver

from ptxlab.tensormap.encoding import MAP_BYTES, decode, encode, replace
from ptxlab.tensormap.tensor_map import ELEMENT_TYPES, Im2col, TensorMap
from tests.tensormap.maps import pixels, tiled
from tests.together import in_one_test

MODES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
ATOMS = {"128B.atom32B": 1, "128B.atom32B.flip8B": 2, "128B.atom64B": 3}
PACKED = {"b4x16": 11, "b4x16_p64": 12, "b6x16_p32": 13}
CODES = {"u8": 0, "u16": 1, "s32": 3, "u64": 4, "f16": 6, "f32": 7, "f64": 9, "bf16": 10}


def drawn(seed: int) -> TensorMap:
    draw = random.Random(seed)
    kind = draw.choice([tiled, tiled, pixels])
    return kind(draw, l2_promotion=draw.choice([0, 64, 128, 256]))


def padded(values: tuple[int, ...], count: int) -> list[int]:
    return [*values, *[0] * (count - len(values))]


def written(tensor_map: TensorMap) -> bytes:
    """Lay a map out as TensorRT-LLM's header does: sixteen words of 32 bits, from one to the next."""
    control = (
        (tensor_map.rank - 1) << 4 | CODES[tensor_map.dtype] << 7 | MODES[tensor_map.swizzle] << 13
    )
    control |= (tensor_map.fill == "nan") << 15 | {0: 0, 64: 1, 128: 2, 256: 3}[
        tensor_map.l2_promotion
    ] << 17
    strides = padded(tensor_map.strides, 4)
    dims = [size - 1 for size in tensor_map.dims] + [0] * (5 - tensor_map.rank)
    traversal = sum((step - 1) << 3 * d for d, step in enumerate(tensor_map.element_strides))
    if isinstance(tensor_map.box, Im2col):
        control |= 1
        bits = {3: 16, 4: 8, 5: 5}[tensor_map.rank]
        corners = 0
        for d, (lower, upper) in enumerate(
            zip(tensor_map.box.lower, tensor_map.box.upper, strict=True)
        ):
            corners |= (lower % (1 << bits)) << d * bits | (upper % (1 << bits)) << 16 + d * bits
        last = [traversal | (tensor_map.box.channels - 1) << 24, corners, tensor_map.box.pixels - 1]
    else:
        box = [size - 1 for size in tensor_map.box] + [0] * (5 - tensor_map.rank)
        last = [traversal | box[0] << 24, int.from_bytes(bytes(box[1:]), "little"), 0]
    return struct.pack(
        "<Q14I64x",
        tensor_map.address,
        control,
        *(stride // 16 & 0xFFFFFFFF for stride in strides),
        sum((stride >> 36) << 4 * d for d, stride in enumerate(strides)),
        *dims,
        *last,
    )


@in_one_test("seed", range(60))
def test_every_field_is_where_the_header_has_it(seed: int) -> None:
    tensor_map = drawn(seed)
    assert encode(tensor_map) == written(tensor_map)
    assert decode(encode(tensor_map)) == tensor_map


@pytest.mark.parametrize("swizzle", ATOMS)
def test_larger_units_are_128B_with_an_atomicity(swizzle: str) -> None:
    """As ptxas has tensormap.replace.tile.swizzle_atomicity for sm_100a: LOP3 with 0x180000 of word 2."""
    tensor_map = TensorMap("u8", 0, (128, 8), (128,), (128, 8), (1, 1), swizzle)
    plain = encode(changed(tensor_map, swizzle="128B"))
    after = bytearray(plain)
    after[10] |= ATOMS[swizzle] << 3
    assert encode(tensor_map) == bytes(after) == replace(plain, "swizzle_atomicity", ATOMS[swizzle])
    assert decode(bytes(after)) == tensor_map


@pytest.mark.parametrize("dtype", PACKED)
def test_types_of_4_and_6_bits_have_codes(dtype: str) -> None:
    """As ptxas has tensormap.replace.tile.elemtype for sm_100a: 0x580, 0x600 and 0x680 for 13, 14 and 15."""
    tensor_map = TensorMap(dtype, 0, (256, 8), (192,), (128, 8), (1, 1))
    plain = encode(changed(tensor_map, dtype="u8"))
    words = list(struct.unpack("<32I", plain))
    words[2] |= {"b4x16": 0x580, "b4x16_p64": 0x600, "b6x16_p32": 0x680}[dtype]
    after = struct.pack("<32I", *words)
    assert words[2] >> 7 & 15 == PACKED[dtype]
    assert encode(tensor_map) == after == replace(plain, "elemtype", PACKED[dtype] + 2)
    assert decode(after) == tensor_map


def test_large_numbers_keep_all_their_bits() -> None:
    draw = random.Random(1)
    for _ in range(50):
        rank = draw.randint(1, 5)
        tensor_map = TensorMap(
            draw.choice(list(CODES)),
            draw.getrandbits(60) << 4,
            tuple(draw.randint(1, 1 << 32) for _ in range(rank)),
            tuple(draw.getrandbits(36) << 4 for _ in range(rank - 1)),
            (draw.choice([16, 256]), *(draw.randint(1, 256) for _ in range(rank - 1))),
            tuple(draw.randint(1, 8) for _ in range(rank)),
        )
        assert encode(tensor_map) == written(tensor_map)
        assert decode(encode(tensor_map)) == tensor_map


def test_a_map_is_as_large_as_the_drivers() -> None:
    assert len(driver.CUtensorMap().opaque) * 8 == MAP_BYTES == len(encode(drawn(0)))


# ---- tensormap.replace ----------------------------------------------------------------------


def compiled(data: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """Do what ptxas 13.0 makes of tensormap.replace for sm_90a: (word, shift, mask) of 32 bits.

    cuobjdump shows of box_dim 3, for example: load +0x38, add -1, shift left 16, LOP3 with 0xff0000
    of the old and the new, store +0x38.
    """
    words = list(struct.unpack("<32I", data))

    def put(word: int, shift: int, mask: int, number: int) -> None:
        words[word] = words[word] & ~mask | number << shift & mask

    if field == "global_address":
        put(0, 0, 0xFFFFFFFF, value & 0xFFFFFFFF)
        put(1, 0, 0xFFFFFFFF, value >> 32)
    elif field == "global_stride":
        put(3 + ordinal, 0, 0xFFFFFFFF, value >> 4 & 0xFFFFFFFF)
        put(7, 4 * ordinal, 0xF << 4 * ordinal, value >> 36)
    elif field == "global_dim":
        put(8 + ordinal, 0, 0xFFFFFFFF, (value - 1) % (1 << 32))
    elif field == "element_stride":
        put(13, 3 * ordinal, 7 << 3 * ordinal, value - 1)
    elif field == "box_dim":
        shift = (0x18, 0, 0x8, 0x10, 0x18)[ordinal]
        put(14 if ordinal else 13, shift, 0xFF << shift, value - 1)
    elif field == "elemtype":
        if value > 10:
            put(2, 16, 0x10000, 1)
        put(2, 7, 0x780, value - 4 if value > 10 else value)
    else:
        shift, mask = {
            "rank": (4, 0x70),
            "interleave_layout": (11, 0x1800),
            "swizzle_mode": (13, 0x6000),
            "fill_mode": (15, 0x8000),
        }[field]
        put(2, shift, mask, value)
    return struct.pack("<32I", *words)


def replacements(draw: random.Random) -> list[tuple[str, int, int]]:
    """Return each field that there is, with a random value that fits it."""
    fields = [
        ("global_address", draw.getrandbits(60) << 4, 0),
        ("rank", draw.randrange(5), 0),
        ("elemtype", draw.randrange(13), 0),
        ("interleave_layout", draw.randrange(3), 0),
        ("swizzle_mode", draw.randrange(4), 0),
        ("fill_mode", draw.randrange(2), 0),
    ]
    for d in range(5):
        fields.append(("box_dim", draw.randint(1, 256), d))
        fields.append(("global_dim", draw.getrandbits(32), d))
        fields.append(("element_stride", draw.randint(1, 8), d))
    fields += [("global_stride", draw.getrandbits(36) << 4, d) for d in range(4)]
    draw.shuffle(fields)
    return fields


def test_replacing_is_what_ptxas_makes_of_it() -> None:
    draw = random.Random(2)
    for _ in range(40):
        data = draw.randbytes(128)
        for field, value, ordinal in replacements(draw):
            after = replace(data, field, value, ordinal)
            assert after == compiled(data, field, value, ordinal), (field, value, ordinal)
            data = after


@in_one_test("seed", range(30))
def test_a_map_can_be_made_from_zeros(seed: int) -> None:
    """As Triton does on the device: every field is replaced, in the instruction's numbers."""
    draw = random.Random(seed)
    tensor_map = tiled(draw)
    assert isinstance(tensor_map.box, tuple)
    types = ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16"]
    steps = [
        ("global_address", tensor_map.address, 0),
        ("rank", tensor_map.rank - 1, 0),
        ("elemtype", types.index(tensor_map.dtype), 0),
        ("interleave_layout", 0, 0),
        ("swizzle_mode", MODES[tensor_map.swizzle], 0),
        ("fill_mode", 0, 0),
    ]
    steps += [("box_dim", size, d) for d, size in enumerate(tensor_map.box)]
    steps += [("global_dim", size % (1 << 32), d) for d, size in enumerate(tensor_map.dims)]
    steps += [("global_stride", stride, d) for d, stride in enumerate(tensor_map.strides)]
    steps += [("element_stride", step, d) for d, step in enumerate(tensor_map.element_strides)]
    draw.shuffle(steps)
    data = bytes(128)
    for field, value, ordinal in steps:
        data = replace(data, field, value, ordinal)
    assert data == encode(tensor_map)
    assert decode(data) == tensor_map


def test_32_bits_of_a_size_of_4_gi_are_zero() -> None:
    """Dimensions have up to 2**32 elements, and a register has 32 bits."""
    tensor_map = TensorMap("u8", 0, (1 << 32, 4), (1 << 32,), (16, 4), (1, 1))
    small = encode(changed(tensor_map, dims=(1, 4)))
    assert replace(small, "global_dim", 0, 0) == encode(tensor_map)
    assert decode(replace(small, "global_dim", 0, 0)).dims == (1 << 32, 4)


def test_what_is_read_of_a_map_is_its_first_half() -> None:
    tensor_map = drawn(3)
    assert decode(encode(tensor_map)[:64] + b"\xff" * 64) == tensor_map


@in_one_test(
    ("field", "value", "ordinal"),
    [
        ("rank", 8, 0),
        ("box_dim", 0, 1),
        ("box_dim", 257, 1),
        ("box_dim", 1, 5),
        ("element_stride", 9, 2),
        ("global_stride", 24, 0),
        ("global_stride", 1 << 40, 0),
        ("global_stride", 16, 4),
        ("swizzle_mode", 4, 0),
        ("fill_mode", 2, 0),
        ("elemtype", 16, 0),
        ("swizzle_atomicity", 4, 0),
        ("global_address", 1 << 64, 0),
    ],
)
def test_what_a_field_cannot_hold(field: str, value: int, ordinal: int) -> None:
    with pytest.raises(ValueError, match=f"{field}.* {value}"):
        replace(bytes(128), field, value, ordinal)


# ---- what is no map -------------------------------------------------------------------------


def damaged(bit: int, bits: int, value: int) -> bytes:
    word = int.from_bytes(encode(TensorMap("f32", 0, (8, 8), (32,), (8, 8), (1, 1))), "little")
    return (word & ~(((1 << bits) - 1) << bit) | value << bit).to_bytes(128, "little")


@in_one_test(
    ("data", "message"),
    [
        (damaged(68, 3, 5), "rank 6 is none that a tensor map has"),
        (damaged(64, 1, 1), "rank 2 is none"),
        (damaged(65, 3, 2), "version 2 is none"),
        (damaged(71, 4, 14), "type 14 is none"),
        (damaged(80, 1, 1), None),  # f32 with this bit is tf32
        (damaged(71, 10, 1 << 9 | 10), "type 10 is none"),
        (damaged(75, 2, 3), "interleave 3 is none"),
        (damaged(87, 1, 1), "bit 87 is set"),
        (damaged(83, 2, 1), "swizzle atomicity 1 is none"),
        (damaged(85, 1, 1), None),  # what the driver sets for tensors from 128 KiB on
        (damaged(480, 1, 1), "bit 480 is set"),
        (damaged(77, 10, 1 << 9 | 1), "swizzle 96B 1 is none"),
        (damaged(0, 4, 8), "address 0x8 is no multiple of 16"),
        (damaged(440, 8, 8), "36 bytes of the box"),
        (bytes(128), "1 bytes of the box along dimension 0 are no multiple of 16"),
    ],
)
def test_what_is_no_map(data: bytes, message: str | None) -> None:
    if message is None:
        decode(data)
        return
    with pytest.raises(ValueError, match=message):
        decode(data)


def test_a_swizzle_of_96_bytes_has_a_bit_of_its_own() -> None:
    """For sm_103a ptxas sets 0x400000 of word 2 by tensormap.replace.tile.swizzle_mode 4, and clears the mode's bits."""
    tensor_map = decode(damaged(86, 1, 1))
    assert tensor_map.swizzle == "96B"
    assert encode(tensor_map) == damaged(86, 1, 1)
    plain = encode(changed(tensor_map, swizzle="none"))
    assert replace(plain, "swizzle_96B", 1) == encode(tensor_map)


def test_a_map_of_wide_pixels_is_told_from_others() -> None:
    """Its corners have 16 bits each, as in the driver's arguments; without its mark it is one of three dimensions."""
    what = Im2col((-32768,), (32767,), 16, 1024, wide=True)
    tensor_map = TensorMap("f32", 0, (16, 9, 7, 3), (64, 576, 4032), what, (1, 2, 1, 1), "64B")
    data = encode(tensor_map)
    assert decode(data) == tensor_map
    assert struct.unpack("<2h", data[56:60]) == (-32768, 32767)
    assert decode(data[:64] + bytes(64)) != tensor_map


def test_tf32_is_f32_with_a_bit() -> None:
    for name in ("tf32", "tf32.ftz"):
        tensor_map = TensorMap(name, 0, (8, 8), (32,), (8, 8), (1, 1))
        plain = TensorMap(name.replace("tf32", "f32"), 0, (8, 8), (32,), (8, 8), (1, 1))
        assert encode(tensor_map)[10] == encode(plain)[10] | 1
        assert decode(encode(tensor_map)) == tensor_map


def test_every_field_of_the_record_matters_for_the_bytes() -> None:
    """The faulty twin of the round trip: no two maps that differ have the same bytes."""
    seen: dict[bytes, TensorMap] = {}
    for seed in range(300):
        tensor_map = drawn(seed)
        assert seen.setdefault(encode(tensor_map), tensor_map) == tensor_map
    assert len(fields(TensorMap)) == 10
    assert len(ELEMENT_TYPES) == 16
