"""The warpgroup instructions ``wgmma.mma_async`` and ``wgmma.mma_async.sp``, of 128 threads.

B lies in shared memory, and so does A (variant ``ss``) or each warp holds its 16 rows of A as the A of a
16-row ``mma`` (``rs``). A thread holds of D what it would hold of n / 8 accumulators of 16 x 8, side by
side, in their order. The instruction adds to D, so that D is C as well. A line of the table stands for
all of its n, and they share one layout.

This module is imported when a warpgroup instruction is asked for: it has thousands.

Source: PTX ISA, "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async" and
"wgmma.mma_async.sp" and the fragment section each instruction names. The ISA's list of n for integers
stops at 224 in the syntax, but has 240 and 256 in the table of shapes, as ptxas does; that pairs of s8
and u8 may differ is in its notes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from ptxlab.isa.legality import Version
from ptxlab.matrix.form import AsyncInstruction, SharedOperand, constant
from ptxlab.matrix.fragment import container_bits
from ptxlab.matrix.multiplication import (
    EVERY_N,
    INTEGER_N,
    WHOLE_FLOAT8,
    MatrixInstruction,
    TypePair,
    layout,
    same,
    variants,
)
from ptxlab.matrix.sparse import Metadata

M = 64
THREADS = 128
TARGETS = ("sm_90a",)
VARIANTS = ("rs", "ss")
TRANSPOSABLE = ("f16", "bf16")
"""The types whose matrices in shared memory may also be contiguous along m or n."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Types, accumulators, dense k, n, and least PTX without and with sparsity (None: there is none)."""

    pairs: tuple[TypePair, ...]
    accumulators: tuple[str, ...]
    k: int
    ns: tuple[int, ...]
    minimum_ptx: Version
    sparse_ptx: Version | None


_LINES = (
    _Line(same("bf16"), ("f32",), 16, EVERY_N, (8, 0), (8, 2)),
    _Line(same("f16"), ("f16", "f32"), 16, EVERY_N, (8, 0), (8, 2)),
    _Line(same("tf32"), ("f32",), 8, EVERY_N, (8, 0), (8, 2)),
    _Line(WHOLE_FLOAT8, ("f32", "f16"), 32, EVERY_N, (8, 0), (8, 2)),
    _Line(same("s8", "u8"), ("s32",), 32, INTEGER_N, (8, 0), (8, 2)),
    _Line((("s8", "u8"), ("u8", "s8")), ("s32",), 32, INTEGER_N, (8, 4), (8, 4)),
    _Line(same("b1"), ("s32",), 256, INTEGER_N, (8, 0), None),
)


@cache
def _shared(operand: str, rows: int, cols: int, dtype: str) -> SharedOperand:
    majors = ("k", "mn") if dtype in TRANSPOSABLE else ("k",)
    return SharedOperand(operand, rows, cols, dtype, container_bits(dtype), majors)


def _instructions(line: _Line, *, sparse: bool) -> Iterator[MatrixInstruction]:
    k = 2 * line.k if sparse else line.k
    version = line.sparse_ptx if sparse else line.minimum_ptx
    if version is None:
        return
    opcode = f"wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned"
    kind = "sparse " if sparse else ""
    for n, satfinite, pair, acc, variant in product(
        line.ns, variants(line.pairs[0][0]), line.pairs, line.accumulators, VARIANTS
    ):
        a_type, b_type = pair
        ending = ".and.popc" if a_type == "b1" else ""
        b = _shared("B", k, n, b_type)
        d = layout("D", (M, n, 0), acc, threads=THREADS)
        a = layout("A", (M, 0, line.k), a_type, threads=THREADS)
        in_registers = variant == "rs"
        yield MatrixInstruction(
            "wgmma.sp" if sparse else "wgmma",
            f"{opcode}.m{M}n{n}k{k}{satfinite}.{acc}.{a_type}.{b_type}{ending}",
            TARGETS,
            version,
            f"Matrix Fragments for {kind}wgmma.mma_async.m64nNk{k}",
            (a, d) if in_registers else (d,),
            (b,) if in_registers else (_shared("A", M, line.k, a_type), b),
            variant,
            m=M,
            n=n,
            k=k,
            a_type=a_type,
            b_type=b_type,
            c_type=acc,
            d_type=acc,
            metadata=Metadata(k, container_bits(a_type), False, M) if sparse else None,
            satfinite=bool(satfinite),
            bit_operation="and" if ending else "",
        )


WGMMA: tuple[MatrixInstruction, ...] = tuple(
    instruction
    for sparse in (False, True)
    for line in _LINES
    for instruction in _instructions(line, sparse=sparse)
)

_GROUPS = constant("N", "how many of the youngest groups may still run")
WGMMA_ORDER: tuple[AsyncInstruction, ...] = tuple(
    AsyncInstruction(
        f"wgmma.{verb}",
        f"wgmma.{verb}.sync.aligned",
        TARGETS,
        (8, 0),
        f"Asynchronous Multiply-and-Accumulate Instruction: wgmma.{verb}",
        meaning=meaning,
        signature=operands,
    )
    for verb, meaning, operands in (
        ("fence", "registers and shared memory written before are seen by wgmma.mma_async", ()),
        ("commit_group", "all wgmma.mma_async since the last commit become a group", ()),
        ("wait_group", "the thread waits until at most N groups still run", (_GROUPS,)),
    )
)
"""What orders them with all else."""
