"""Thread-value layouts against the fragments they are derived from, and CuTe's own traits."""

from __future__ import annotations

import itertools

import numpy as np
from tensor_layouts import MMAAtom, atoms_nv

from ptxlab.layouts.layout import Layout
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.thread_value import steps, thread_value
from tests.together import in_one_test

FRAGMENTS = tuple(
    {
        (fragment.kind, fragment.rows, fragment.cols, fragment.bits, fragment.copies): fragment
        for instruction in MULTIPLICATIONS
        for fragment in instruction.operands
    }.values()
)


@in_one_test(
    ("shape", "dtype", "operand", "expected"),
    [
        # cute/atom/mma_traits_sm80.hpp: SM80_16x8x16_F32F16F16F32_TN, SM80_16x8x8_F32TF32TF32F32_TN,
        # SM80_16x8x32_S32S8S8S32_TN
        ("m16n8k16", "bf16", "A", "((4,8),(2,2,2)):((32,1),(16,8,128))"),
        ("m16n8k16", "bf16", "B", "((4,8),(2,2)):((16,1),(8,64))"),
        ("m16n8k16", "bf16", "D", "((4,8),(2,2)):((32,1),(16,8))"),
        ("m16n8k8", "tf32", "A", "((4,8),(2,2)):((16,1),(8,64))"),
        ("m16n8k8", "tf32", "B", "((4,8),2):((8,1),32)"),
        ("m16n8k32", "s8", "A", "((4,8),(4,2,2)):((64,1),(16,8,256))"),
        ("m16n8k32", "s8", "B", "((4,8),(4,2)):((32,1),(8,128))"),
        # cute/atom/mma_traits_sm90_gmma.hpp: CLayout_64xN, ALayout_64x16
        ("wgmma.m64n24k16", "bf16", "D", "((4,8,4),(2,2,3)):((128,1,16),(64,8,512))"),
        ("wgmma.m64n24k16", "bf16", "A", "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))"),
    ],
)
def test_cutes_traits(shape: str, dtype: str, operand: str, expected: str) -> None:
    assert thread_value(multiplication(shape, dtype).operand(operand)).notation == expected


def test_there_are_many_fragments() -> None:
    assert len(FRAGMENTS) > 30


@in_one_test("fragment", FRAGMENTS)
def test_lane_and_value_lead_to_the_element(fragment: FragmentLayout) -> None:
    layout = thread_value(fragment)
    is_b = fragment.kind in ("b", "quad b.row", "quad b.col")
    packed = fragment.elements_per_register
    values = range(fragment.registers_per_lane * packed)
    for lane, value in itertools.product(range(32), values):
        row, col = map(int, fragment.table()[lane, value // packed, value % packed])
        expected = col + fragment.cols * row if is_b else row + fragment.rows * col
        assert layout(lane, value) == expected

    # The steps say the same of lanes, registers and elements.
    index = np.indices(fragment.table().shape[:3])
    counters = dict(zip(("lane", "register", "element"), index, strict=True))
    modes = steps(fragment)
    moved = [counters[s.counter] // s.divisor % s.size for s in modes]
    outer = sum((n * s.outer for n, s in zip(moved, modes, strict=True)), np.zeros(1, int))
    inner = sum((n * s.inner for n, s in zip(moved, modes, strict=True)), np.zeros(1, int))
    table = np.moveaxis(fragment.table(), -1, 0)
    assert (table == np.stack((inner, outer) if is_b else (outer, inner))).all()


WRONG_THERE = {
    # Two lanes of a group overlap: the 256 places hold fewer different elements.
    ("mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32", "B"): "((4,8),8):((32,1),8)",
}


def test_every_atom_of_tensor_layouts_that_is_one_of_our_instructions() -> None:
    ours = {instruction.name: instruction for instruction in MULTIPLICATIONS}
    compared = set()
    for atom in vars(atoms_nv).values():
        if not isinstance(atom, MMAAtom) or atom.ptx not in ours:
            continue
        instruction = ours[atom.ptx]
        for operand, other in (("A", atom.a_layout), ("B", atom.b_layout), ("C", atom.c_layout)):
            fragment = instruction.operand(operand)
            converted, written = thread_value(fragment), Layout(other.shape, other.stride)
            known = WRONG_THERE.get((instruction.name, operand))
            if known is not None:
                assert written.notation == known
                assert len({written(i) for i in range(written.size)}) < written.size
            elif fragment.matrices > 1:
                # Theirs is one quad-pair: threads 0 to 7 are lanes 0 to 3 and 16 to 19.
                threads, values = (part.size for part in written.parts)
                assert (threads, values) == (8, converted.parts[1].size)
                for thread, value in itertools.product(range(threads), range(values)):
                    lane = thread % 4 + 16 * (thread // 4)
                    assert converted(lane, value) == written(thread, value), instruction.name
            else:
                assert converted.notation == written.notation, (instruction.name, operand)
        compared.add(instruction.name)
    assert {name for name, _ in WRONG_THERE} <= compared
    assert len(compared) >= 35
