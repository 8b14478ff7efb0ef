"""Every atom of ``tensor-layouts`` that claims one of these instructions, element by element.

What it has is CuTe's: (thread, value) to an offset, column by column, in A (m x k), B (n x k) or C, and
for copies to a bit. Where they differ from the layouts here, the reason is written down.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from tensor_layouts import CopyAtom, MMAAtom, atoms_nv

from ptxlab.arrays import Array
from ptxlab.matrix.catalog import matching, multiplication
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import LdMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from tests.together import in_one_test

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


def elements(layout: FragmentLayout) -> tuple[list[int], Array]:
    """Return the threads of the first matrix, and row and column of their values, [thread, value, 2]."""
    threads = [thread for thread in range(layout.threads) if layout.matrix(thread) == 0]
    return threads, layout.table()[threads].reshape(len(threads), -1, 2)


@cache
def offsets(layout: Any, threads: tuple[int, ...], values: int) -> Array:
    """Return what a layout of CuTe says of values of threads, [thread, value]."""
    return np.array([[layout(thread, value) for value in range(values)] for thread in threads])


@in_one_test("atom", COMPARED)
def test_multiplications(atom: MMAAtom) -> None:
    form = instruction(atom)
    assert (form.m, form.n, form.k) == atom.shape_mnk
    for layout in form.operands:
        name = layout.operand
        theirs = {"A": atom.a_layout, "B": atom.b_layout}.get(name, atom.c_layout)
        threads, ours = elements(layout)
        row, col = np.moveaxis(ours, -1, 0)
        if layout.matrices > 1:  # theirs has 8 threads: lanes 0 to 3 and 16 to 19
            threads = [thread % 4 + 4 * (thread // 16) for thread in threads]
        if name == "A" and form.metadata is not None:
            # Theirs has the columns of whole A: of two neighbours one is stored.
            pairs = offsets(theirs, tuple(threads), 2 * row.shape[1]).reshape(*row.shape, 2)
            assert (pairs % form.m == row[..., None]).all()
            assert (pairs // form.m // 2 == col[..., None]).any(axis=-1).all()
            continue
        outer, inner, rows = (col, row, form.n) if name == "B" else (row, col, form.m)
        actual = offsets(theirs, tuple(threads), row.shape[1])
        if (atom.name, name) in WRONG_THERE:
            assert (
                len(np.unique(actual)) == WRONG_THERE[atom.name, name] < layout.rows * layout.cols
            )
        else:
            np.testing.assert_array_equal(actual, outer + rows * inner, name)


def move(atom: CopyAtom) -> LdMatrix | StMatrix:
    """The instruction a copy is about: ``U16x8_LDSM_T`` has 8 elements of 16 bits a lane."""
    match = re.fullmatch(r"SM\d+_U(\d+)x(\d+)_(LDSM|STSM)_([NT])", atom.name)
    assert match
    opcode = "ldmatrix" if match[3] == "LDSM" else "stmatrix"
    count = int(match[1]) * int(match[2]) // 32
    trans = ".trans" if match[4] == "T" else ""
    form = matching(f"{opcode}.m8n8.x{count}{trans}.b16")[0]
    assert isinstance(form, LdMatrix | StMatrix)
    assert form.trans == bool(trans)
    return form


@in_one_test("atom", COPIES)
def test_rows_of_shared_memory(atom: CopyAtom) -> None:
    form = move(atom)
    assert form.name.startswith(atom.ptx.split(".")[0])
    in_memory, in_registers = atom.src_layout_bits, atom.dst_layout_bits
    if isinstance(form, StMatrix):
        in_memory, in_registers = in_registers, in_memory
    threads, ours = elements(form.operands[0])
    for thread, values in zip(threads, ours.tolist(), strict=True):
        for value, (row, col) in enumerate(values):
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
    threads, ours = elements(layout)
    row, col = np.moveaxis(ours, -1, 0)
    wrong = offsets(atom.a_layout, tuple(threads), row.shape[1]) != rows[row] + 16 * col
    assert wrong.sum() == 2 * 16
