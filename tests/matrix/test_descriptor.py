"""Matrices in shared memory: the ISA's examples, CuTe's layouts, and what descriptors read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
import tensor_layouts as cute

from ptxlab.arrays import Array
from ptxlab.matrix.bit_record import BitField, BitRecord, FieldValue
from ptxlab.matrix.canonical import MODES, STEP_BYTES, UNIT_BYTES, SharedTile
from ptxlab.matrix.descriptor import (
    READERS,
    TCGEN05_DESCRIPTOR,
    WGMMA_DESCRIPTOR,
    Reader,
    of_tile,
)
from ptxlab.matrix.instruction_descriptor import INSTRUCTION_DESCRIPTORS, checked, encode
from tests.together import in_one_test

Values = dict[str, FieldValue]

WGMMA, TCGEN05 = READERS["wgmma"], READERS["tcgen05"]


@pytest.mark.parametrize(
    ("mn", "k", "bits", "major", "mode", "leading", "stride"),
    [
        (16, 8, 32, "k", "none", 64 * 4, 32 * 4),
        (8, 8, 32, "k", "32B", 16, 64 * 4),
        (16, 16, 16, "mn", "none", 128 * 2, 64 * 2),
        (32, 16, 16, "mn", "32B", 128 * 2, 256 * 2),
    ],
)
def test_the_examples_of_the_isa(
    mn: int, k: int, bits: int, major: str, mode: str, leading: int, stride: int
) -> None:
    """PTX ISA, "Strides": tf32 contiguous along k, bf16 along mn, bytes as there."""
    tile = SharedTile(mn, k, bits, major, MODES[mode])
    assert (tile.leading, tile.stride) == (leading, stride)
    word = of_tile(WGMMA, tile)
    assert (word >> 16 & 0x3FFF, word >> 32 & 0x3FFF) == (leading // 16, stride // 16)


def test_fields_are_where_the_isa_has_them() -> None:
    tile = SharedTile(128, 64, 16, "k", MODES["128B"])
    assert of_tile(WGMMA, tile, 0x400) == 0x40 | 1 << 16 | 64 << 32 | 1 << 62
    assert of_tile(WGMMA, tile, 0x400, step=3) == 0x46 | 1 << 16 | 64 << 32 | 1 << 62
    assert of_tile(TCGEN05, tile, 0x400) == 0x40 | 1 << 16 | 64 << 32 | 1 << 46 | 2 << 61
    codes = {
        mode: [
            of_tile(reader, SharedTile(64, 128, 16, "k", MODES[mode])) >> low for reader, low in at
        ]
        for mode in ("none", "32B", "64B", "128B")
        for at in [((WGMMA, 62), (TCGEN05, 61))]
    }
    assert codes == {"none": [0, 0], "32B": [3, 6], "64B": [2, 4], "128B": [1, 2]}
    along_mn = SharedTile(64, 16, 32, "mn", MODES["128B.atom32B"])
    assert of_tile(TCGEN05, along_mn) >> 61 == 1


def test_the_base_offset_says_where_a_pattern_starts() -> None:
    """PTX ISA: the pattern's address, not at a multiple of 1024 bytes, shifted right by 7, of three bits."""
    tile = SharedTile(8, 64, 16, "k", MODES["128B"])
    assert of_tile(WGMMA, tile, 0x480) >> 49 & 7 == 1
    assert of_tile(WGMMA, tile, 0x780) >> 49 & 7 == 7
    assert of_tile(WGMMA, tile, 0x800) >> 49 & 7 == 0
    assert of_tile(WGMMA, SharedTile(8, 16, 16, "k", MODES["32B"]), 0x100) >> 49 & 7 == 0


CUTE_SWIZZLES = {"none": (0, 4, 3), "32B": (1, 4, 3), "64B": (2, 4, 3), "128B": (3, 4, 3)}
CUTE_SWIZZLES["128B.atom32B"] = (2, 5, 2)


def tiles() -> Iterator[SharedTile]:
    for mode, bits in product(MODES.values(), (4, 8, 16, 32)):
        for major in ("k", "mn"):
            if (bits == 4 and major == "mn") or (mode.lines == 4 and major == "k"):
                continue
            for mn, k in ((2, 1), (1, 3)):
                span = max(8 * mode.span, 256) // bits
                wide = 8 * mode.span // bits
                size = (
                    (8 * mn, span * k) if major == "k" else (wide * mn, max(32 * 8 // bits, 8) * k)
                )
                yield SharedTile(*size, bits, major, mode)


@pytest.mark.parametrize(
    "tile", [*tiles()], ids=lambda t: f"{t.mode.name}-{t.bits}-{t.major}-{t.mn}x{t.k}"
)
def test_a_tile_is_that_of_cute_and_holds_every_element_once(tile: SharedTile) -> None:
    """CuTe's atoms, in bits: 8 lines of a span (4 lines of tf32 units), and the swizzle of bytes."""
    span, lines = 8 * tile.mode.span, tile.mode.lines
    inside = (lines, span) if tile.major == "k" else (span, lines)
    strides = (span, 1) if tile.major == "k" else (1, span)
    layout = cute.Layout(inside, strides)
    atom = np.array([[layout(mn, k) for k in range(inside[1])] for mn in range(inside[0])])
    swizzle = cute.Swizzle(*CUTE_SWIZZLES[tile.mode.name])
    per_atom = span * lines
    atom_mn, atom_k = inside[0], inside[1]
    if tile.major == "k":
        atom_k //= tile.bits
    else:
        atom_mn //= tile.bits
    mn, k = np.indices((tile.mn, tile.k))
    block = mn // atom_mn + tile.mn // atom_mn * (k // atom_k)
    row, col = mn % atom_mn, k % atom_k
    bit = per_atom * block + (
        atom[row, col * tile.bits] if tile.major == "k" else atom[row * tile.bits, col]
    )
    byte = np.array([swizzle(number) for number in (bit // 8).ravel().tolist()])
    moved = 8 * byte.reshape(bit.shape) + bit % 8
    assert np.array_equal(np.asarray(tile.layout(mn, k)) * tile.bits, moved)
    assert sorted(moved.ravel().tolist()) == [*range(0, 8 * tile.bytes, tile.bits)]


def addresses(values: Values, major: str, mn: int, bits: int) -> Array:
    """Return the byte addresses, [mn, k], that one instruction reads through a descriptor.

    ``values`` are its decoded fields; k is what 32 bytes hold of elements of ``bits``, of at least 8.
    This is the ISA's canonical layout with the offsets the descriptor gives. Raises ValueError for a
    base offset, where the swizzle's pattern is not that of addresses.
    """
    if values["base offset"]:
        raise ValueError("the addresses behind a base offset are not modelled")
    mode = MODES[str(values["swizzle"])]
    start, leading, stride = (
        int(values[name]) for name in ("start address", "leading byte offset", "stride byte offset")
    )
    size = bits // 8
    row = np.arange(mn)[:, np.newaxis]
    col = np.arange(8 * STEP_BYTES // bits)
    if major == "k":
        between = leading if mode.span == UNIT_BYTES else UNIT_BYTES
        unit, within = np.divmod(col * size, UNIT_BYTES)
        plain = row % 8 * mode.span + row // 8 * stride + unit * between + within
    else:
        spans, within = np.divmod(row * size, mode.span)
        next_mn, next_k = (stride, leading) if mode.span == UNIT_BYTES else (leading, stride)
        line, lines = col % mode.lines, col // mode.lines
        plain = within + spans * next_mn + line * mode.span + lines * next_k
    return np.asarray(mode.swizzle(start + plain))


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_a_descriptor_reads_is_the_tile(reader: Reader) -> None:
    """Step by step along k, from the descriptor's own fields."""
    count = 0
    for tile in tiles():
        dtype = next((d for d, bits in reader.types.items() if bits == tile.bits), None)
        if dtype is None or tile.bits < 8:
            continue
        try:
            reader.check(dtype, tile.major, tile.mode)
        except ValueError:
            continue
        per_step = 256 // tile.bits
        for step in range(tile.steps):
            fields = reader.record.decode(of_tile(reader, tile, 0x2000, step))
            read = addresses(fields, tile.major, tile.mn, tile.bits)
            for mn, k in product(range(0, tile.mn, 3), range(per_step)):
                offset = tile.layout(mn, step * per_step + k)
                assert read[mn, k] == 0x2000 + offset * tile.bits // 8
            count += 1
    assert count > 30


def test_a_wrong_offset_reads_something_else() -> None:
    tile = SharedTile(16, 32, 16, "k", MODES["64B"])
    fields = WGMMA.record.decode(of_tile(WGMMA, tile))
    right = addresses(fields, "k", 16, 16)
    wrongs: tuple[Values, ...] = (
        {"stride byte offset": 256},
        {"swizzle": "32B"},
        {"start address": 16},
    )
    for wrong in wrongs:
        assert not np.array_equal(addresses(fields | wrong, "k", 16, 16), right)
    with pytest.raises(ValueError, match="base offset"):
        addresses(fields | {"base offset": 1}, "k", 16, 16)


@in_one_test(
    ("make", "message"),
    [
        (lambda: SharedTile(12, 16, 16, "k", MODES["none"]), "mn is 12, no multiple of 8"),
        (
            lambda: SharedTile(8, 32, 16, "k", MODES["128B"]),
            "k is 32, no multiple of 64, which an atom",
        ),
        (
            lambda: SharedTile(8, 8, 16, "k", MODES["none"]),
            "k is 8, no multiple of 16, which an instr",
        ),
        (lambda: SharedTile(8, 16, 16, "n", MODES["none"]), "no direction 'n'"),
        (
            lambda: SharedTile(64, 8, 32, "k", MODES["128B.atom32B"]),
            "for tiles contiguous along mn",
        ),
        (lambda: SharedTile(8, 64, 16, "k", MODES["128B"]).advance(4), "no step 4"),
        (lambda: WGMMA.check("e2m1x2", "k", MODES["none"]), "no type e2m1x2"),
        (lambda: WGMMA.check("e4m3", "mn", MODES["none"]), "e4m3 must be contiguous along k"),
        (lambda: WGMMA.check("bf16", "mn", MODES["128B.atom32B"]), "has no swizzle 128B.atom32B"),
        (lambda: TCGEN05.check("tf32", "mn", MODES["128B"]), "with 128B.atom32B alone"),
        (lambda: TCGEN05.check("bf16", "mn", MODES["128B.atom32B"]), "not for bf16 along mn"),
        (
            lambda: of_tile(WGMMA, SharedTile(8, 64, 16, "k", MODES["128B"]), 0x40),
            "starts at a multiple of 128, not 0x40",
        ),
        (
            lambda: of_tile(WGMMA, SharedTile(8, 64, 16, "k", MODES["128B"]), 0x3FF80),
            "not below 0x40000",
        ),
    ],
)
def test_what_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        make()


# ---- records of bits ----

RECORD = BitRecord(
    "record",
    16,
    "none",
    (
        BitField("count", 0, 4, unit=8, least=8, default=8),
        BitField("colour", 6, 2, codes={"red": 1, "blue": 2}, default="red"),
        BitField("one", 10, 1, default=1, fixed=True),
    ),
)


def test_a_record_is_written_and_read() -> None:
    assert RECORD.encode({}) == 1 | 1 << 6 | 1 << 10
    word = RECORD.encode({"count": 120, "colour": "blue"})
    assert word == 15 | 2 << 6 | 1 << 10
    assert RECORD.decode(word) == {"count": 120, "colour": "blue", "one": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 12}, "no multiple of 8"),
        ({"count": 0}, "not from 8 to 120"),
        ({"count": 128}, "not from 8 to 120"),
        ({"colour": "green"}, "it is red, blue"),
        ({"one": 0}, "one is 1 here"),
        ({"size": 1}, "no field size"),
    ],
)
def test_what_a_field_cannot_be(values: Values, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RECORD.encode(values)


@pytest.mark.parametrize(
    "word", [1 | 1 << 6, 1 | 1 << 10, 1 | 1 << 5 | 1 << 6 | 1 << 10, 1 << 16 | 0x441]
)
def test_bits_that_mean_nothing(word: int) -> None:
    """A fixed field left out, a code of none, a bit between fields, one above the word."""
    with pytest.raises(ValueError, match=r"^(record|bits|0x)"):
        RECORD.decode(word)


@in_one_test("record", [WGMMA_DESCRIPTOR, TCGEN05_DESCRIPTOR, *INSTRUCTION_DESCRIPTORS.values()])
def test_every_value_comes_back(record: BitRecord) -> None:
    for field in record.fields:
        numbers = [n * field.unit for n in range(1 << field.bits) if n * field.unit >= field.least]
        allowed = [field.default] if field.fixed else [*(field.codes or numbers)]
        for value in {allowed[0], allowed[len(allowed) // 2], allowed[-1]}:
            assert record.decode(record.encode({field.name: value}))[field.name] == value


def test_fields_may_not_overlap() -> None:
    with pytest.raises(ValueError, match="fields overlap"):
        BitRecord("twice", 8, "none", (BitField("a", 0, 4), BitField("b", 3, 2)))
    with pytest.raises(ValueError, match="reach over 8 bits"):
        BitRecord("wide", 8, "none", (BitField("a", 7, 2),))


# ---- instruction descriptors ----


def test_instruction_descriptors_by_hand() -> None:
    """PTX ISA, "Instruction descriptor": bits of the three formats, put together by hand."""
    bf16: Values = {"m": 128, "n": 256, "d type": "f32", "a type": "bf16", "b type": "bf16"}
    assert encode("f16", bf16) == 1 << 4 | 1 << 7 | 1 << 10 | 32 << 17 | 8 << 24 == 0x08400490
    along_n: Values = bf16 | {
        "major of b": "mn",
        "negate a": "yes",
        "sparse": "yes",
        "sparsity selector": 1,
    }
    assert encode("f16", along_n) == 0x08400490 | 1 << 16 | 1 << 13 | 1 << 2 | 1
    integer: Values = {"m": 64, "n": 8, "a type": "u8", "b type": "s8", "saturate": "yes"}
    assert encode("i8", integer) == 1 << 3 | 2 << 4 | 1 << 10 | 1 << 17 | 4 << 24
    narrow: Values = {"m": 128, "n": 16, "a type": "e2m1", "b type": "e3m2", "d type": "f16"}
    assert encode("f8f6f4", narrow) == 5 << 7 | 4 << 10 | 2 << 17 | 8 << 24
    scaled: Values = {
        "m": 256,
        "n": 128,
        "a type": "e5m2",
        "b type": "e2m3",
        "scale id of a": 3,
        "scale id of b": 2,
    }
    assert (
        encode("mxf8f6f4", scaled)
        == 2 << 4 | 1 << 7 | 3 << 10 | 16 << 17 | 1 << 23 | 2 << 27 | 3 << 29
    )
    packed: Values = {"m": 128, "n": 64, "scale type": "ue4m3", "scale id of a": 2}
    assert encode("mxf4nvf4", packed) == 1 << 7 | 1 << 10 | 8 << 17 | 1 << 27 | 1 << 30
    assert encode("mxf4", packed | {"scale type": "ue8m0"}) == encode("mxf4nvf4", packed) | 1 << 23


@in_one_test(
    ("kind", "values", "message"),
    [
        ("f16", {"a type": "tf32"}, "a type tf32 has no code here; it is bf16, f16"),
        ("f16", {"saturate": "yes"}, "saturate is no here, not yes"),
        ("f16", {"d type": "f16", "a type": "bf16"}, "D of f16 goes with A and B of f16"),
        ("f16", {"n": 264}, "n is at most 256"),
        ("f16", {"m": 96}, "m is 32"),
        ("tf32", {"d type": "f16"}, "it is f32"),
        ("i8", {"negate b": "yes"}, "negate b is no here"),
        ("mxf4", {"scale type": "ue4m3"}, "it is ue8m0"),
        ("mxf4", {"major of a": "mn"}, "major of a is k here"),
        ("mxf4", {"scale id of b": 1}, "scale id of b is 0 or 2"),
        ("f8", {}, "no kind f8, there are f16"),
    ],
)
def test_what_no_instruction_descriptor_says(kind: str, values: Values, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(kind, values)


def test_a_descriptor_read_back_is_checked_too() -> None:
    assert checked("f16", 0x08400490) == 0x08400490
    with pytest.raises(ValueError, match="m is 32"):
        checked("f16", 0x06400490)
