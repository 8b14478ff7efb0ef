"""What each integer instruction computes, thread by thread in Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.decode import decoded
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import NOWHERE, Launch
from ptxlab.machine.registers import Registers
from ptxlab.machine.sass import read_sass
from ptxlab.machine.values import ALL, Array
from ptxlab.prediction.following.lifted import computations
from tests.together import in_one_test

LANES = 64
MASK, WIDE = (1 << 32) - 1, (1 << 64) - 1
EDGES = [0, 1, 2, 31, 32, 33, 63, 64, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, MASK]


def instruction(
    text: str, number: int = 0, labels: Mapping[str, int] | None = None
) -> DecodedInstruction:
    """Decode one instruction as nvdisasm writes it."""
    told = f'.section .text.k,"ax"\n/*0000*/ {text} ;\n/*0010*/ EXIT ;\n'
    return decoded(number, read_sass(told)["k"].instructions[0], bytes(16), labels or {})


def launched(block: int = LANES, banks: dict[int, bytes] | None = None) -> Launch:
    return Launch(TARGETS["sm_90a"], LaunchConfig.of(1, block), b"", (), banks or {})


def registers() -> Registers:
    """Return registers R1 to R9 and predicates P0 to P3 of random bits and edges."""
    filled, chance = Registers(launched(), [0]), np.random.default_rng(7)
    for number in range(1, 10):
        words = chance.integers(0, 1 << 32, LANES, dtype=np.uint64).astype(np.uint32)
        words[: len(EDGES)] = chance.permutation(np.array(EDGES, np.uint32))
        filled.words.write(number, ALL, words)
    for number in range(4):
        filled.predicates.write(number, ALL, chance.integers(0, 2, LANES).astype(bool))
    return filled


def run(text: str, r: Registers | None = None, where: Array | slice = ALL) -> Registers:
    r = r or registers()
    i = instruction(text)
    assert i.computed(floats=True), text
    with np.errstate(all="ignore"):
        [computation] = computations([i], TARGETS["sm_90a"])
        assert computation is not None, text
        computation.run(r, where)
    return r


def word(r: Registers, number: int) -> list[int]:
    values = r.words.read(number, ALL)
    assert values is not None
    return [int(value) for value in values]


def pair(r: Registers, number: int) -> list[int]:
    return [
        low | high << 32 for low, high in zip(word(r, number), word(r, number + 1), strict=True)
    ]


def holds(r: Registers, number: int) -> list[bool]:
    predicate = r.predicates.read(number, ALL)
    assert predicate is not None
    return [bool(bit) for bit in predicate]


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def funnel_right(lower: int, upper: int, by: int) -> int:
    return (upper << 32 | lower) >> by


def first_differing(a: int) -> int:
    a = signed(a)
    return ((a if a >= 0 else ~a).bit_length() - 1) & MASK


def permuted(a: int, selector: int, b: int) -> int:
    source, chosen = (b << 32 | a).to_bytes(8, "little"), []
    for n in range(4):
        choice = selector >> 4 * n & 15
        byte = source[choice & 7]
        chosen.append((255 if byte & 128 else 0) if choice & 8 else byte)
    return int.from_bytes(bytes(chosen), "little")


WORDS: dict[str, Callable[[int, int, int], int]] = {
    "IADD3 R0, R1, R2, R3": lambda a, b, c: a + b + c,
    "IADD3 R0, R1, -R2, R3": lambda a, b, c: a - b + c,
    "IADD3 R0, -R1, 0x7, -R3": lambda a, b, c: 7 - a - c,
    "VIADD R0, R1, 0xfffffff8": lambda a, b, c: a - 8,
    "IMAD R0, R1, R2, R3": lambda a, b, c: a * b + c,
    "IMAD.MOV.U32 R0, RZ, RZ, R3": lambda a, b, c: c,
    "IMAD.HI.U32 R0, R1, R2, RZ": lambda a, b, c: a * b >> 32,
    "IMAD.HI R0, R1, R2, RZ": lambda a, b, c: signed(a) * signed(b) >> 32,
    "LEA R0, R1, R2, 0x3": lambda a, b, c: (a << 3) + b,
    "LEA.HI R0, R1, R2, R3, 0x5": lambda a, b, c: ((c << 32 | a) << 5 >> 32) + b,
    "LEA.HI.SX32 R0, R1, R2, 0x1b": lambda a, b, c: (signed(a) >> 5) + b,
    "LOP3.LUT R0, R1, R2, R3, 0x96, !PT": lambda a, b, c: a ^ b ^ c,
    "LOP3.LUT R0, R1, R2, R3, 0xca, !PT": lambda a, b, c: a & b | ~a & c,
    "LOP3.LUT R0, R1, 0xff, RZ, 0xc0, !PT": lambda a, b, c: a & 255,
    "SHF.L.U32 R0, R1, 0x5, RZ": lambda a, b, c: a << 5,
    "SHF.L.U32 R0, R1, R2, RZ": lambda a, b, c: a << min(b, 32),
    "SHF.L.W.U32.HI R0, R1, R2, R3": lambda a, b, c: (c << 32 | a) << (b & 31) >> 32,
    "SHF.R.U32.HI R0, RZ, R2, R3": lambda a, b, c: c >> min(b, 32),
    "SHF.R.S32.HI R0, RZ, 0x1f, R3": lambda a, b, c: signed(c) >> 31,
    "SHF.R.W.U32 R0, R1, R2, R3": lambda a, b, c: funnel_right(a, c, b & 31),
    "SHF.R.U64 R0, R1, R2, R3": lambda a, b, c: funnel_right(a, c, min(b, 64)),
    "SHF.R.S64 R0, R1, 0x9, R3": lambda a, b, c: signed(c << 32 | a, 64) >> 9,
    "SHF.L.U64.HI R0, R1, 0x9, R3": lambda a, b, c: (c << 32 | a) << 9 >> 32,
    "IABS R0, R1": lambda a, b, c: abs(signed(a)),
    "PRMT R0, R1, R2, R3": permuted,
    "PRMT R0, R1, 0x7604, R3": lambda a, b, c: permuted(a, 0x7604, c),
    "BMSK R0, R1, R2": lambda a, b, c: (1 << min(b, 32)) - 1 << min(a, 32),
    "SGXT R0, R1, 0x9": lambda a, b, c: signed(a & 511, 9),
    "SGXT.U32 R0, R1, 0x9": lambda a, b, c: a & 511,
    "POPC R0, R1": lambda a, b, c: a.bit_count(),
    "FLO.U32 R0, R1": lambda a, b, c: a.bit_length() - 1,
    "FLO R0, R1": lambda a, b, c: first_differing(a),
    "FLO.U32.SH R0, R1": lambda a, b, c: 32 - a.bit_length() if a else MASK,
    "BREV R0, R1": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "IMNMX R0, R1, R2, PT": lambda a, b, c: min(signed(a), signed(b)),
    "IMNMX.U32 R0, R1, R2, !PT": lambda a, b, c: max(a, b),
    "VIADDMNMX R0, R1, R2, R3, PT": lambda a, b, c: min(signed((a + b) & MASK), signed(c)),
    "VIADDMNMX.U32 R0, R1, R2, R3, !PT": lambda a, b, c: max((a + b) & MASK, c),
    "MOV R0, R2": lambda a, b, c: b,
}
"""By instruction, of what R1, R2 and R3 hold."""


@in_one_test("text", WORDS)
def test_a_word_is_that_of_pythons_integers(text: str) -> None:
    r = run(text)
    want = [
        WORDS[text](*each) & MASK for each in zip(*(word(r, n) for n in (1, 2, 3)), strict=True)
    ]
    assert word(r, 0) == want


def test_sums_carry_on() -> None:
    """Two carries leave a sum of three, and either goes into the next."""
    r = run("IADD3 R0, P0, P1, R1, R2, R3")
    totals = [sum(each) for each in zip(*(word(r, n) for n in (1, 2, 3)), strict=True)]
    assert holds(r, 0) == [total >> 32 >= 1 for total in totals]
    assert holds(r, 1) == [total >> 32 >= 2 for total in totals]
    again = run("IADD3.X R10, R4, R5, RZ, P0, P1", r)
    want = [
        (a + b + (total >> 32)) & MASK
        for a, b, total in zip(word(r, 4), word(r, 5), totals, strict=True)
    ]
    assert word(again, 10) == want


def test_differences_borrow() -> None:
    """A negated word is its complement and one; with X its complement alone, as the borrow is the carry."""
    r = run("IADD3 R10, P0, PT, R1, -R2, RZ")
    assert holds(r, 0) == [a >= b for a, b in zip(word(r, 1), word(r, 2), strict=True)]
    run("IADD3.X R11, R3, ~R4, RZ, P0, !PT", r)
    minuend, other = (
        [a | b << 32 for a, b in zip(word(r, n), word(r, n + 2), strict=True)] for n in (1, 2)
    )
    assert pair(r, 10) == [(a - b) & WIDE for a, b in zip(minuend, other, strict=True)]


@pytest.mark.parametrize(("suffix", "read"), [("", signed), (".U32", int)])
def test_wide_products_add_a_pair(suffix: str, read: Callable[[int], int]) -> None:
    r = run(f"IMAD.WIDE{suffix} R10, P1, R1, R2, R4")
    sums = [read(a) * read(b) for a, b in zip(word(r, 1), word(r, 2), strict=True)]
    want = [(product + c) & WIDE for product, c in zip(sums, pair(r, 4), strict=True)]
    assert pair(r, 10) == want
    over = [(product & WIDE) + c > WIDE for product, c in zip(sums, pair(r, 4), strict=True)]
    assert holds(r, 1) == over
    run(f"IMAD.WIDE{suffix}.X R12, R1, R2, R4, P1", r)
    assert pair(r, 12) == [(total + carry) & WIDE for total, carry in zip(want, over, strict=True)]


def test_addresses_carry_to_their_upper_half() -> None:
    r = run("LEA R10, P2, R1, R2, 0x2")
    run("LEA.HI.X R11, R1, R3, R4, 0x2, P2", r)
    want = [
        ((d << 32 | a) * 4 + (c << 32 | b)) & WIDE
        for a, b, c, d in zip(*(word(r, n) for n in (1, 2, 3, 4)), strict=True)
    ]
    assert pair(r, 10) == want


def test_pairs_are_summed_and_moved() -> None:
    r = run("IADD.64 R10, R2, -R4")
    assert pair(r, 10) == [(a - b) & WIDE for a, b in zip(pair(r, 2), pair(r, 4), strict=True)]
    run("MOV.64 R12, R6", r)
    assert pair(r, 12) == pair(r, 6)
    run("SEL.64 R14, R2, R4, P0", r)
    chosen = zip(holds(r, 0), pair(r, 2), pair(r, 4), strict=True)
    assert pair(r, 14) == [a if first else b for first, a, b in chosen]


COMPARED: dict[str, Callable[[int, int, bool], bool]] = {
    "ISETP.LT.AND P4, PT, R1, R2, PT": lambda a, b, p: signed(a) < signed(b),
    "ISETP.GE.U32.AND P4, PT, R1, R2, P0": lambda a, b, p: a >= b and p,
    "ISETP.EQ.OR P4, PT, R1, R2, P0": lambda a, b, p: a == b or p,
    "ISETP.NE.XOR P4, PT, R1, RZ, P0": lambda a, b, p: (a != 0) != p,
    "ISETP.GT.U32.AND P4, PT, R1, R2, !P0": lambda a, b, p: a > b and not p,
    "ISETP.LE.AND P4, PT, R1, R2, PT": lambda a, b, p: signed(a) <= signed(b),
}


@pytest.mark.parametrize("text", COMPARED)
def test_comparisons_are_combined_with_a_predicate(text: str) -> None:
    r = registers()
    before = holds(r, 0)
    run(text, r)
    want = [COMPARED[text](*each) for each in zip(word(r, 1), word(r, 2), before, strict=True)]
    assert holds(r, 4) == want


def test_the_opposite_of_a_comparison_is_combined_too() -> None:
    r = registers()
    p = holds(r, 0)
    run("ISETP.LT.U32.AND P4, P5, R1, R2, P0", r)
    less = [a < b for a, b in zip(word(r, 1), word(r, 2), strict=True)]
    assert holds(r, 4) == [a and b for a, b in zip(less, p, strict=True)]
    assert holds(r, 5) == [not a and b for a, b in zip(less, p, strict=True)]


@pytest.mark.parametrize("name", ["LT", "LE", "GT", "GE", "EQ", "NE"])
def test_pairs_are_compared_word_by_word(name: str) -> None:
    """The lower words first, unsigned; the upper ones with EX take what came of these."""
    r = registers()
    third = np.arange(0, LANES, 3)  # where the upper words are equal
    r.words.write(4, third, r.words.read(2, third))
    run(f"ISETP.{name}.U32.AND P4, PT, R1, R3, PT", r)
    run(f"ISETP.{name}.AND.EX P5, PT, R2, R4, PT, P4", r)
    a, b = (
        [signed(low | high << 32, 64) for low, high in zip(word(r, n), word(r, n + 1), strict=True)]
        for n in (1, 3)
    )
    compare: dict[str, Callable[[int, int], bool]] = {
        "LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "EQ": int.__eq__,
        "NE": int.__ne__,
    }  # fmt: skip
    assert holds(r, 5) == [compare[name](x, y) for x, y in zip(a, b, strict=True)]


def test_logic_of_predicates_is_a_table() -> None:
    r = registers()
    p = [holds(r, n) for n in range(3)]
    run("PLOP3.LUT P4, P5, P0, P1, P2, 0x80, 0xfe", r)
    assert holds(r, 4) == [a and b and c for a, b, c in zip(*p, strict=True)]
    assert holds(r, 5) == [a or b or c for a, b, c in zip(*p, strict=True)]
    run("PLOP3.LUT P0, P1, P0, P1, PT, 0xcc, 0xf0", r)
    assert [holds(r, 0), holds(r, 1)] == [p[1], p[0]]


def test_logic_tells_whether_anything_is_left() -> None:
    r = registers()
    before = holds(r, 1)
    run("LOP3.LUT P4, RZ, R1, 0x1, RZ, 0xc0, P1", r)
    assert holds(r, 4) == [bool(a & 1) or p for a, p in zip(word(r, 1), before, strict=True)]


def test_predicates_are_bits_and_back() -> None:
    r = registers()
    p = [holds(r, n) for n in range(4)]
    run("P2R R10, PR, RZ, 0xa", r)
    assert word(r, 10) == [b << 1 | d << 3 for _, b, _, d in zip(*p, strict=True)]
    run("R2P PR, R1, 0x5", r)
    assert holds(r, 0) == [bool(a & 1) for a in word(r, 1)]
    assert holds(r, 2) == [bool(a & 4) for a in word(r, 1)]
    assert (holds(r, 1), holds(r, 3)) == (p[1], p[3])
    run("R2P PR, R1.B2, 0x6", r)
    assert holds(r, 1) == [bool(a & 1 << 17) for a in word(r, 1)]
    assert holds(r, 2) == [bool(a & 1 << 18) for a in word(r, 1)]
    p = [holds(r, n) for n in range(4)]
    rest = [a & ~0xA00 for a in word(r, 2)]  # the other bits are the register's
    run("P2R.B1 R10, PR, R2, 0xa", r)
    bits = zip(*p, strict=True)
    assert word(r, 10) == [a | b << 9 | d << 11 for a, (_, b, _, d) in zip(rest, bits, strict=True)]


def test_the_zero_register_stays_zero_and_so_does_what_follows_it() -> None:
    r = run("IMAD.WIDE RZ, R1, R2, R4")
    assert word(r, 255) == [0] * LANES
    assert word(r, 256) == [0] * LANES


SOURCES: dict[str, Callable[[int], int]] = {
    "IDX": lambda lane: 5,
    "UP": lambda lane: lane - 5,
    "DOWN": lambda lane: lane + 5,
    "BFLY": lambda lane: lane ^ 5,
}


@in_one_test("way", SOURCES)
@in_one_test("segment", [32, 8])
def test_words_come_from_other_lanes_of_a_segment(way: str, segment: int) -> None:
    r = registers()
    clamp = (32 - segment) << 8 | (0 if way == "UP" else 31)
    run(f"SHFL.{way} P4, R10, R1, 0x5, {clamp:#x}", r)
    for thread, (got, inside) in enumerate(zip(word(r, 10), holds(r, 4), strict=True)):
        first = thread - thread % segment
        source = SOURCES[way](thread % segment)
        assert inside == (0 <= source < segment)
        assert got == word(r, 1)[first + source if inside else thread]


def test_lanes_are_counted_warp_by_warp() -> None:
    r = registers()
    p = holds(r, 0)
    run("VOTE.ANY R10, P4, P0", r)
    ballots = [sum(p[32 * warp + lane] << lane for lane in range(32)) for warp in (0, 1)]
    assert word(r, 10) == [ballots[thread // 32] for thread in range(LANES)]
    every = np.array([thread < 32 or thread % 2 == 0 for thread in range(LANES)])
    r.predicates.write(3, ALL, every)
    run("VOTE.ALL P5, P3", r)
    assert holds(r, 5) == [thread < 32 for thread in range(LANES)]
    run("VOTE.ALL P6, P3", r, np.flatnonzero(every))
    assert [holds(r, 6)[thread] for thread in (0, 31, 32, 62)] == [True] * 4


def test_one_of_the_lanes_that_are_there_is_chosen() -> None:
    r, there = registers(), np.array([3, 9, 40, 63])
    run("ELECT P4, R10, PT", r, there)
    assert [holds(r, 4)[thread] for thread in there] == [True, False, True, False]
    assert [word(r, 10)[thread] for thread in there] == [3, 3, 8, 8]


REDUCED: dict[str, Callable[[list[int]], int]] = {
    "REDUX.SUM": sum,
    "REDUX.MIN.S32": lambda words: min(map(signed, words)),
    "REDUX.MAX.S32": lambda words: max(map(signed, words)),
    "REDUX.MAX": max,
    "REDUX.MIN": min,
}


@pytest.mark.parametrize("name", REDUCED)
def test_words_of_a_warp_are_joined(name: str) -> None:
    r, there = registers(), np.arange(0, LANES, 3)
    run(f"{name} R10, R1", r, there)
    for warp in (0, 1):
        lanes = [thread for thread in there.tolist() if thread // 32 == warp]
        want = REDUCED[name]([word(r, 1)[thread] for thread in lanes]) & MASK
        assert {word(r, 10)[thread] for thread in lanes} == {want}


def test_constants_are_each_lanes_own() -> None:
    """An index is each lane's: a table behind it is read at as many places, and unknown beyond its end."""
    table = np.arange(100, 116, dtype=np.uint32)
    r = Registers(launched(32, {3: table.tobytes()}), [0])
    r.words.write(5, ALL, np.arange(32, dtype=np.uint32) % 8 * 4)
    run("MOV R0, c[0x3][R5+0x8]", r)
    values = r.words.read(0, ALL)
    assert values is not None
    assert values.tolist() == [102 + lane % 8 for lane in range(32)]
    run("LDC R1, c[0x3][R5]", r)
    run("LDC.64 R2, c[0x3][R5]", r)
    assert word_of(r, 1) == [100 + lane % 8 for lane in range(32)] == word_of(r, 2)
    assert word_of(r, 3) == [101 + lane % 8 for lane in range(32)]
    r.words.write(5, ALL, np.arange(32, dtype=np.uint32) * 4)
    run("MOV R0, c[0x3][R5]", r)
    assert r.words.read(0, ALL) is None


def word_of(r: Registers, number: int) -> list[int]:
    values = r.words.read(number, ALL)
    assert values is not None
    return [int(value) for value in values]


def test_special_registers_are_those_of_the_launch() -> None:
    config = LaunchConfig.of((3, 2, 2), (5, 4, 3))
    r = Registers(Launch(TARGETS["sm_80"], config, b"", ()), [7, 10])
    for register, name in enumerate(
        ("TID.X", "TID.Y", "TID.Z", "CTAID.X", "CTAID.Y", "CTAID.Z", "LANEID", "LTMASK")
    ):
        run(f"S2R R{register}, SR_{name}", r)
    at = 64 + 37  # of the second CTA, which is number 10
    got = [word_of(r, register)[at] for register in range(8)]
    assert got == [37 % 5, 37 // 5 % 4, 37 // 20, 10 % 3, 10 // 3 % 2, 10 // 6, 5, 31]
    run("CS2R R10, SRZ", r)
    assert (word_of(r, 10), word_of(r, 11)) == ([0] * 128, [0] * 128)


def test_special_registers_of_some_ctas() -> None:
    r, lane = Registers(Launch(TARGETS["sm_90a"], LaunchConfig.of((4, 2), 40), b"", ()), [5]), 9
    for name in ("CTAID.X", "CTAID.Y"):
        run(f"S2R R0, SR_{name}", r)
        assert set(word_of(r, 0)) == {1}
    run("S2UR UR4, SR_SWINHI", r)
    assert set(word(r, 260)) == {NOWHERE}
    masks = {
        "EQ": 1 << 9, "LT": (1 << 9) - 1, "LE": (1 << 10) - 1,
        "GT": 0xFFFFFFFF ^ (1 << 10) - 1, "GE": 0xFFFFFFFF ^ (1 << 9) - 1,
    }  # fmt: skip
    for name, mask in masks.items():
        run(f"S2R R0, SR_{name}MASK", r)
        assert word_of(r, 0)[lane] == mask


def test_all_lanes_get_what_the_first_has_for_which_a_guard_holds() -> None:
    """A predicate tells those for which it holds whether they have something else: so ptxas goes round a loop."""
    r = registers()
    p, before = holds(r, 0), holds(r, 3)
    run("@P0 R2UR P3, UR4, R1", r)
    words = word(r, 1)
    firsts = [words[next(n for n in range(32 * warp, LANES) if p[n])] for warp in (0, 1)]
    assert word(r, 260) == [firsts[thread // 32] for thread in range(LANES)]
    other = [words[thread] != firsts[thread // 32] for thread in range(LANES)]
    assert holds(r, 3) == [
        new if on else old for on, new, old in zip(p, other, before, strict=True)
    ]
    run("R2UR P3, URZ, R1", r)
    assert holds(r, 3) == [words[thread] != words[thread // 32 * 32] for thread in range(LANES)]


def test_a_value_that_depends_on_what_nobody_knows_is_not_known() -> None:
    r = registers()
    r.words.write(2, ALL, None)
    r.words.write(3, np.array([1]), None)
    for text in ("IADD3 R0, R1, R2, RZ", "IMAD.WIDE R0, R1, R2, R4", "MOV R0, R3"):
        run(text, r)
        assert r.words.read(0, ALL) is None
    assert r.words.read(3, np.array([0, 2])) is not None
