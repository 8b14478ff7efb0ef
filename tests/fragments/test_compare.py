"""Prediction, comparison and query on runs that no device made.

The registers are built here with the manual's groupID and threadID_in_group, not with the layouts
of ``ptxlab.isa``, so that agreement means something.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError
from ptxlab.fragments.handwritten import matrices, mismatches, verifiable
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.report import FragmentReport, FragmentRun, Mismatch
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.fragment import Place
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.verbs.fragments.runs import Selection
from tests.together import in_one_test

SM90 = TARGETS["sm_90a"]
NUMBERED: Fill = "numbered"
ONES: Fill = "ones"
ADDRESSING: Fill = "addressing"
BF16 = multiplication("m16n8k16", "bf16")
F16 = multiplication("m16n8k16", "f16")


def pattern(value: float, dtype: type) -> int:
    return int(bits(np.array([value], dtype))[0])


def bits(matrix: Array) -> Array:
    return matrix.view(f"u{matrix.dtype.itemsize}")


def pairs_of_a(matrix: Array) -> Array:
    words = np.zeros((32, 4), np.uint32)
    for lane, register in itertools.product(range(32), range(4)):
        row = lane // 4 + 8 * (register % 2)
        col = 2 * (lane % 4) + 8 * (register // 2)
        words[lane, register] = int(matrix[row, col]) | int(matrix[row, col + 1]) << 16
    return words


def pairs_of_b(matrix: Array) -> Array:
    words = np.zeros((32, 2), np.uint32)
    for lane, register in itertools.product(range(32), range(2)):
        row, col = 2 * (lane % 4) + 8 * register, lane // 4
        words[lane, register] = int(matrix[row, col]) | int(matrix[row + 1, col]) << 16
    return words


def accumulators(matrix: Array) -> Array:
    singles = np.zeros((32, 4), np.uint32)
    for lane, i in itertools.product(range(32), range(4)):
        singles[lane, i] = matrix[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2]
    if matrix.dtype == np.uint32:
        return singles
    return singles[:, 0::2] | singles[:, 1::2] << 16


def right_run(instruction: MatrixInstruction, fill: Fill) -> FragmentRun:
    expected = matrices(instruction, fill)
    registers = {
        "A": pairs_of_a(expected["A"]),
        "B": pairs_of_b(expected["B"]),
        "C": accumulators(expected["C"]),
        "D": accumulators(expected["D"]),
    }
    return FragmentRun(fill, registers, frozenset("D"), expected["D"])


def right_report(instruction: MatrixInstruction, fill: Fill = NUMBERED) -> FragmentReport:
    fills = dict.fromkeys((fill, NUMBERED, ADDRESSING))
    runs = tuple(right_run(instruction, each) for each in fills)
    return FragmentReport(instruction, "cuda", "Test GPU", SM90, runs, 0, (), None)


@in_one_test("instruction", verifiable())
@in_one_test("fill", [NUMBERED, ONES, ADDRESSING])
def test_right_registers_compare_equal(instruction: MatrixInstruction, fill: Fill) -> None:
    assert mismatches(instruction, [right_run(instruction, fill)]) == ()


def test_the_fills_tell_all_elements_apart() -> None:
    for instruction in verifiable():
        numbered, addressed = matrices(instruction, NUMBERED), matrices(instruction, ADDRESSING)
        for matrix in (numbered["A"], numbered["B"], addressed["C"], addressed["D"]):
            assert np.unique(matrix).size == matrix.size
        a, b = addressed["A"], addressed["B"]
        both = values(instruction.a_type, a) @ values(instruction.b_type, b)
        assert (both == 8 * np.arange(16)[:, None] + np.arange(8)).all()


def values(dtype: str, patterns: Array) -> Array:
    """16-bit numbers by their definition: bf16 is the upper half of an f32."""
    if dtype == "bf16":
        return (patterns.astype(np.uint32) << 16).view(np.float32)
    return patterns.view(np.float16) if dtype == "f16" else patterns.view(np.float32)


def exact_product(instruction: MatrixInstruction, fill: Fill, chunk: int) -> Array:
    """D by exact fractions, rounded to nearest even after every chunk along k."""
    given = matrices(instruction, fill)
    a, b = values(instruction.a_type, given["A"]), values(instruction.b_type, given["B"])
    c = values(instruction.c_type, given["C"])
    rounded: type = np.float16 if instruction.d_type == "f16" else np.float32
    d: Array = np.empty((16, 8), rounded)
    for row, col in itertools.product(range(16), range(8)):
        total = rounded(c[row, col])
        for start in range(0, 16, chunk):
            terms = (
                Fraction(float(a[row, k])) * Fraction(float(b[k, col]))
                for k in range(start, start + chunk)
            )
            if np.isfinite(total):
                exact = float(Fraction(float(total)) + sum(terms))
                with np.errstate(over="ignore"):
                    total = rounded(exact)
        d[row, col] = total
    return d


@in_one_test("instruction", verifiable())
@in_one_test("fill", [NUMBERED, ONES, ADDRESSING])
def test_product_is_exact_arithmetic_whatever_a_target_fuses(
    instruction: MatrixInstruction, fill: Fill
) -> None:
    D = matrices(instruction, fill)["D"]
    for chunk in sorted({target.dot16.chunk for target in TARGETS.values()}):
        assert (bits(exact_product(instruction, fill, chunk)) == D).all()


def test_numbered_f16_overflows_to_infinity_and_f32_does_not() -> None:
    wide = values("f32", matrices(multiplication("m16n8k16", "f16", "f32"), NUMBERED)["D"])
    narrow = values("f16", matrices(F16, NUMBERED)["D"])
    assert wide.max() == (np.arange(240, 256) * np.arange(7, 128, 8)).sum()
    assert (np.isinf(narrow) == (wide >= 65520)).all()
    assert np.isinf(narrow).any()


def test_a_swapped_register_is_found_where_it_is() -> None:
    run = right_run(BF16, NUMBERED)
    run.registers["A"][5, [1, 2]] = run.registers["A"][5, [2, 1]]
    wrong = mismatches(BF16, [run])
    assert len(wrong) == 4
    # Lane 5 is group 1, thread 1: a1 is row 9, columns 2 and 3; a2 is row 1, columns 10 and 11.
    expected, held = (pattern(v, ml_dtypes.bfloat16) for v in (9 * 16 + 2, 16 + 10))
    assert wrong[0] == Mismatch(str(NUMBERED), "register", "A", 5, 1, 0, 9, 2, expected, held, 16)
    assert (wrong[1].low_bit, wrong[1].high_bit) == (16, 31)


def test_one_flipped_bit_in_each_place_is_one_mismatch() -> None:
    for operand, where in (("A", 4), ("B", 2), ("C", 2), ("D", 2)):
        for lane in (0, 17, 31):
            for register in range(where):
                run = right_run(F16, ADDRESSING)
                run.registers[operand][lane, register] ^= np.uint32(1 << 16)
                (mismatch,) = mismatches(F16, [run])
                assert (mismatch.operand, mismatch.lane, mismatch.register) == (
                    operand,
                    lane,
                    register,
                )
                assert (mismatch.element, mismatch.expected ^ mismatch.actual) == (1, 1)


def test_a_wrong_result_in_memory_names_the_lane_that_should_have_stored_it() -> None:
    run = right_run(BF16, ONES)
    assert run.result is not None
    run.result[9, 3] = 0
    (mismatch,) = mismatches(BF16, [run])
    assert (mismatch.where, mismatch.operand, mismatch.row, mismatch.col) == ("memory", "D", 9, 3)
    assert (mismatch.lane, mismatch.register, mismatch.element) == (5, 3, 0)
    assert mismatch.expected == pattern(16, np.float32)


def select(selection: Selection) -> list[tuple[str, Place]]:
    return [(o.operand, place) for o in BF16.operands for place in selection.places(o)]


def test_select_narrows_to_a_lane_or_an_element() -> None:
    report = right_report(BF16)
    everything = select(Selection())
    assert len(everything) == 256 + 128 + 128 + 128
    lane = select(Selection(lane=5))
    assert {place.lane for _, place in lane} == {5}
    assert [operand for operand, _ in lane] == ["A"] * 8 + ["B"] * 4 + ["C"] * 4 + ["D"] * 4
    (_, a), (_, b), (_, c), (_, d) = select(Selection(element=(3, 7)))
    assert (a, b, c, d) == ((15, 0, 1), (29, 0, 1), (15, 1, 0), (15, 1, 0))
    assert report.bits(BF16.operand("A"), a) == pattern(3 * 16 + 7, ml_dtypes.bfloat16)
    assert [operand for operand, _ in select(Selection(element=(3, 9)))] == ["A"]


def test_select_refuses_what_is_not_there() -> None:
    for selection in (Selection(lane=32), Selection(lane=-1)):
        with pytest.raises(PtxlabError, match="no lane"):
            selection.check(BF16)
    with pytest.raises(PtxlabError, match=r"(?s)no operand has an element 16,0.*A 16 x 16"):
        Selection(element=(16, 0)).check(BF16)
    Selection(element=(15, 15)).check(BF16)
