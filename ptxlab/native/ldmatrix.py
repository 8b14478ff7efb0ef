"""ldmatrix as machine code: rows of 16 bytes of shared memory to the registers of warps.

The function is that of a job of ``ptxlab.native.cores`` of so many warps. Its words are the objects of shared
memory's bytes and of where each thread's begins, its size and first address, what is added to an address, and
the objects that hold registers: the addresses, and the results. Before an address that is none, or of no row, it says that it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ptxlab.isa.targets import WARP
from ptxlab.native.arrays import load_array, load_word
from ptxlab.native.cores import HEADER

NAME = "ldmatrix"
BYTES, START, SIZE, LOWEST, OFFSET, REGISTERS = (HEADER + at for at in range(6))
ROW, ROWS = 16, 8


@cache
def text(matrices: int, checked: int, order: Sequence[int]) -> str:
    """Return the function for so many matrices of 8 x 8 numbers of 16 bits.

    Addresses of the first ``checked`` lanes must be good. ``order`` is the number of each element of a
    register as it lies in a matrix.
    """
    lines = [f"define i32 @{NAME}(ptr %args, i64 %from, i64 %to) {{", "entry:"]
    for name, word in (("bytes", BYTES), ("start", START), ("address", REGISTERS)):
        lines += load_array(name, word)
    for matrix in range(matrices):
        lines += load_array(f"d{matrix}", REGISTERS + 1 + matrix)
    vector = f"<{checked} x i64>"
    for name, word in (("size", SIZE), ("first", LOWEST), ("offset", OFFSET)):
        lines += load_word(name, word)
    lines += [
        f"%rows = alloca [{ROWS * ROW} x i8], align 16",
        "%data = ptrtoint ptr %bytes to i64",
        "%room = sub i64 %size, %first",
        f"%many = call i64 @llvm.usub.sat.i64(i64 %room, i64 {ROW - 1})",
        "%lowest = sub i64 %first, %offset",
        *_splat("many", checked),
        *_splat("lowest", checked),
        *_splat("offset", checked),
        "br label %warp",
        "warp:",
        "%i = phi i64 [%from, %entry], [%next, %good]",
        f"%lane = mul i64 %i, {WARP}",
        "%address.l = getelementptr i32, ptr %address, i64 %lane",
        f"%short = load <{checked} x i32>, ptr %address.l, align 4",
        f"%long = zext <{checked} x i32> %short to {vector}",
        f"%above = sub {vector} %long, %lowest.s",
        f"%inside = icmp ult {vector} %above, %many.s",
        f"%moved = add {vector} %long, %offset.s",
        f"%low = and {vector} %moved, splat (i64 {ROW - 1})",
        f"%aligned = icmp eq {vector} %low, zeroinitializer",
        f"%fits = and <{checked} x i1> %inside, %aligned",
        f"%all = call i1 @llvm.vector.reduce.and.v{checked}i1(<{checked} x i1> %fits)",
        "br i1 %all, label %good, label %bad",
        "good:",
        "%start.l = getelementptr i64, ptr %start, i64 %lane",
        "%begin = load i64, ptr %start.l",
        "%zero = add i64 %data, %begin",
    ]
    for matrix in range(matrices):
        lines += _matrix(matrix, vector, order)
    lines += [
        "%next = add i64 %i, 1",
        "%more = icmp ult i64 %next, %to",
        "br i1 %more, label %warp, label %done",
        "done:",
        "ret i32 0",
        "bad:",
        "ret i32 1",
        "}",
        f"declare i1 @llvm.vector.reduce.and.v{checked}i1(<{checked} x i1>)",
        "declare i64 @llvm.usub.sat.i64(i64, i64)",
    ]
    return "\n".join(lines)


def _matrix(matrix: int, vector: str, order: Sequence[int]) -> list[str]:
    """Return the lines that load a matrix row by row, and put it into a register of the warp."""
    lines = []
    for row in range(ROWS):
        n = f"{matrix}.{row}"
        lines += [
            f"%a{n} = extractelement {vector} %moved, i32 {ROWS * matrix + row}",
            f"%b{n} = add i64 %a{n}, %zero",
            f"%p{n} = inttoptr i64 %b{n} to ptr",
            f"%row{n} = load <{ROW} x i8>, ptr %p{n}, align 1",
            f"%q{n} = getelementptr i8, ptr %rows, i64 {ROW * row}",
            f"store <{ROW} x i8> %row{n}, ptr %q{n}, align 16",
        ]
    halves = f"<{len(order)} x i16>"
    picked = ", ".join(f"i32 {place}" for place in order)
    return [
        *lines,
        f"%m{matrix} = load {halves}, ptr %rows, align 16",
        f"%s{matrix} = shufflevector {halves} %m{matrix}, {halves} poison, <{len(order)} x i32> <{picked}>",
        f"%o{matrix} = getelementptr i32, ptr %d{matrix}, i64 %lane",
        f"store {halves} %s{matrix}, ptr %o{matrix}, align 4",
    ]


def _splat(name: str, lanes: int) -> list[str]:
    kind = f"<{lanes} x i64>"
    return [
        f"%{name}.1 = insertelement {kind} poison, i64 %{name}, i32 0",
        f"%{name}.s = shufflevector {kind} %{name}.1, {kind} poison, <{lanes} x i32> zeroinitializer",
    ]
