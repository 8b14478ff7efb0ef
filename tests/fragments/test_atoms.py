"""Every atom of ``tensor-layouts`` that claims one of these instructions, element by element.

What it has is CuTe's: (thread, value) to an offset, column by column, in A (m x k), B (n x k) or C, and
for copies to a bit. Where they differ from the layouts here, the reason is written down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from tensor_layouts import CopyAtom, MMAAtom, atoms_nv

from ptxlab.matrix.catalog import matching, multiplication
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import LdMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction

MMA_ATOMS: dict[str, MMAAtom] = {
    a.name: a for a in vars(atoms_nv).values() if isinstance(a, MMAAtom)
}
COPY_ATOMS = {a.name: a for a in vars(atoms_nv).values() if isinstance(a, CopyAtom)}

NO_FRAGMENTS = {
    r"SM61_.*": "dp4a and dp2a: a thread multiplies alone",
    r"SM100_.*": "tcgen05.mma: A, B and D lie in shared and Tensor Memory, in no register",
}
NO_MATRICES = {
    r"SM50_Shuffle.*": "two shfl, not movmatrix",
    r"SM80_CP_ASYNC.*": "cp.async: 16 bytes of one thread each",
}
OF_OTHER_NAMES = {
    # SM120 atoms of 16x8x64 and 16x8x128 hold eight, and sparse two times eight, elements a register:
    # they are the ones of e2m1, which CUTLASS instantiates them for, and say e4m3 by mistake.
    "SM120_16x8x64_F32E4M3E4M3F32_TN": "m16n8k64.kind::mxf4.e2m1",
    "SM120_16x8x64_F16E4M3E4M3F16_TN": "m16n8k64.kind::mxf4.e2m1",
    "SM120_16x8x128_F32E4M3E4M3F32_TN_SPARSE": "sp::ordered_metadata.m16n8k128.kind::mxf4.e2m1",
    "SM120_16x8x128_F16E4M3E4M3F16_TN_SPARSE": "sp::ordered_metadata.m16n8k128.kind::mxf4.e2m1",
    "SM120_16x8x64_F32E4M3E4M3F32_TN_SPARSE": "mma.sp.m16n8k64.f32.e4m3.e4m3.f32",
    "SM120_16x8x64_F16E4M3E4M3F16_TN_SPARSE": "mma.sp::ordered_metadata.m16n8k64.f16.e4m3.e4m3.f16",
}
WRONG_THERE = {
    # Two lanes of a group overlap: the 256 places hold fewer different elements.
    ("SM80_16x8x32_S32S4S4S32_TN", "B"): 160,
}


def instruction(atom: MMAAtom) -> MatrixInstruction:
    """The instruction an atom is about."""
    warpgroup = re.fullmatch(
        r"SM90_64x(\d+)x(\d+)_(F16|F32|S32)(F16|BF16|TF32|S8|E4M3|E5M2)\4_SS(_SPARSE)?", atom.name
    )
    if warpgroup:
        n, k, d, ab, sparse = warpgroup.groups()
        opcode = "wgmma.mma_async.sp" if sparse else "wgmma.mma_async"
        name = f"{opcode}.m64n{n}k{k}.{d}.{ab}.{ab}.ss".lower()
        form = matching(name)[0]
    elif atom.name in OF_OTHER_NAMES:
        form = matching(OF_OTHER_NAMES[atom.name])[0]
    else:  # a complex number is multiplied by four instructions of its real parts
        form = multiplication(atom.ptx.removesuffix(" (complex)"))
    assert isinstance(form, MatrixInstruction)
    return form


def reason(name: str, table: dict[str, str]) -> str | None:
    return next((why for pattern, why in table.items() if re.fullmatch(pattern, name)), None)


COMPARED = [a for a in MMA_ATOMS.values() if not reason(a.name, NO_FRAGMENTS)]
COPIES = [a for a in COPY_ATOMS.values() if not reason(a.name, NO_MATRICES)]


def test_there_are_as_many_atoms_as_before() -> None:
    """A new release may bring more, which then need a comparison or a reason."""
    assert (len(MMA_ATOMS), len(COPY_ATOMS)) == (124, 16)
    assert (len(COMPARED), len(COPIES)) == (96, 12)
    for table, names in ((NO_FRAGMENTS, MMA_ATOMS), (NO_MATRICES, COPY_ATOMS)):
        for pattern in table:
            assert any(re.fullmatch(pattern, name) for name in names), pattern


def places(layout: FragmentLayout) -> Iterator[tuple[int, int, int, int]]:
    """Thread and value of every place of the first matrix, with its row and column."""
    packed = layout.elements_per_register
    for thread in range(layout.threads):
        if layout.matrix(thread) == 0:
            for value in range(layout.registers_per_lane * packed):
                row, col = layout.table()[thread, value // packed, value % packed]
                yield thread, value, int(row), int(col)


@pytest.mark.parametrize("atom", COMPARED, ids=lambda atom: atom.name)
def test_multiplications(atom: MMAAtom) -> None:
    form = instruction(atom)
    assert (form.m, form.n, form.k) == atom.shape_mnk
    for layout in form.operands:
        name = layout.operand
        theirs = {"A": atom.a_layout, "B": atom.b_layout}.get(name, atom.c_layout)
        quad_pair = layout.matrices > 1  # theirs has 8 threads: lanes 0 to 3 and 16 to 19
        sparse_a = name == "A" and form.metadata is not None
        different = set()
        for thread, value, row, col in places(layout):
            t = thread % 4 + 4 * (thread // 16) if quad_pair else thread
            if sparse_a:  # theirs has the columns of whole A: of two neighbours one is stored
                found = {theirs(t, 2 * value + i) for i in range(2)}
                assert {offset % form.m for offset in found} == {row}
                assert col in {offset // form.m // 2 for offset in found}
                continue
            outer, inner, rows = (col, row, form.n) if name == "B" else (row, col, form.m)
            different.add(theirs(t, value))
            if (atom.name, name) not in WRONG_THERE:
                assert theirs(t, value) == outer + rows * inner, (name, thread, value)
        if (atom.name, name) in WRONG_THERE:
            assert len(different) == WRONG_THERE[atom.name, name] < layout.rows * layout.cols


def move(atom: CopyAtom) -> LdMatrix | StMatrix:
    """The instruction a copy is about: ``U16x8_LDSM_T`` has 8 elements of 16 bits a lane."""
    found = re.fullmatch(r"SM\d+_U(\d+)x(\d+)_(LDSM|STSM)_([NT])", atom.name)
    assert found
    opcode = "ldmatrix" if found[3] == "LDSM" else "stmatrix"
    count = int(found[1]) * int(found[2]) // 32
    trans = ".trans" if found[4] == "T" else ""
    form = matching(f"{opcode}.m8n8.x{count}{trans}.b16")[0]
    assert isinstance(form, LdMatrix | StMatrix)
    assert form.trans == bool(trans)
    return form


@pytest.mark.parametrize("atom", COPIES, ids=lambda atom: atom.name)
def test_rows_of_shared_memory(atom: CopyAtom) -> None:
    form = move(atom)
    assert form.name.startswith(atom.ptx.split(".")[0])
    in_memory, in_registers = atom.src_layout_bits, atom.dst_layout_bits
    if isinstance(form, StMatrix):
        in_memory, in_registers = in_registers, in_memory
    layout = form.operands[0]
    for thread, value, row, col in places(layout):
        for bit in (0, 15):
            assert in_registers(thread, 16 * value + bit) == 128 * row + 16 * col + bit
    for lane in range(8 * form.matrices):
        assert form.addressed_row(lane) == divmod(lane, 8)
        assert [in_memory(lane, bit) for bit in (0, 127)] == [128 * lane, 128 * lane + 127]


def test_the_comparison_sees_two_rows_exchanged() -> None:
    atom = MMA_ATOMS["SM80_16x8x16_F32BF16BF16F32_TN"]
    layout = instruction(atom).operand("A")
    rows = np.arange(16)
    rows[[3, 5]] = rows[[5, 3]]
    wrong = [
        atom.a_layout(thread, value) != int(rows[row]) + 16 * col
        for thread, value, row, col in places(layout)
    ]
    assert sum(wrong) == 2 * 16
