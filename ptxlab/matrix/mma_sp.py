"""The sparse warp-level instructions ``mma.sp`` and ``mma.sp::ordered_metadata``.

Every fragment is a dense one: A's of the columns that are left, k / 2, and B's, C's and D's of the
full shape. See ``ptxlab.matrix.sparse`` for what was left out.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma.sp/mma.sp::ordered_metadata".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from ptxlab.matrix.form import SM_10X_TO_12X, SM_12X, SM_12X_ONLY, Version
from ptxlab.matrix.fragment import container_bits
from ptxlab.matrix.mma import (
    ALL_F8F6F4,
    BLOCK_SCALED,
    INT4,
    INT8,
    WHOLE_FLOAT8,
    WITH_SMALLER,
    Pair,
    layouts,
    same,
)
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import Metadata


@dataclass(frozen=True, slots=True)
class _Line:
    """One depth: types, accumulators, targets, and least PTX without and with ordered metadata."""

    k: int
    pairs: tuple[Pair, ...]
    accumulators: tuple[str, ...]
    targets: tuple[str, ...]
    plain_ptx: Version | None
    ordered_ptx: Version
    kind: str = ""

    @property
    def variants(self) -> tuple[str, ...]:
        """What may stand between the layouts and the types."""
        return ("", ".satfinite") if self.pairs in (INT8, INT4) else (self.kind,)


_LINES = (
    _Line(16, same("bf16"), ("f32",), ("sm_80",), (7, 1), (8, 5)),
    _Line(16, same("f16"), ("f16", "f32"), ("sm_80",), (7, 1), (8, 5)),
    _Line(32, same("bf16"), ("f32",), ("sm_80",), (7, 1), (8, 5)),
    _Line(32, same("f16"), ("f16", "f32"), ("sm_80",), (7, 1), (8, 5)),
    _Line(8, same("tf32"), ("f32",), ("sm_80",), (7, 1), (8, 5)),
    _Line(16, same("tf32"), ("f32",), ("sm_80",), (7, 1), (8, 5)),
    _Line(32, INT8, ("s32",), ("sm_80",), (7, 1), (8, 5)),
    _Line(64, INT8, ("s32",), ("sm_80",), (7, 1), (8, 5)),
    _Line(64, INT4, ("s32",), ("sm_80",), (7, 1), (8, 5)),
    _Line(128, INT4, ("s32",), ("sm_80",), (7, 1), (8, 5)),
    _Line(64, WHOLE_FLOAT8, ("f32",), ("sm_89",), (8, 4), (8, 5)),
    _Line(64, WHOLE_FLOAT8, ("f32",), SM_10X_TO_12X, None, (8, 6), ".kind::f8f6f4"),
    _Line(64, WHOLE_FLOAT8, ("f16",), SM_12X, None, (8, 7)),
    _Line(64, WHOLE_FLOAT8, ("f16",), SM_12X, None, (8, 7), ".kind::f8f6f4"),
    _Line(64, WITH_SMALLER, ("f32", "f16"), SM_12X, None, (8, 7), ".kind::f8f6f4"),
)


def _instructions(line: _Line) -> Iterator[MatrixInstruction]:
    spellings = (("mma.sp", line.plain_ptx), ("mma.sp::ordered_metadata", line.ordered_ptx))
    for (opcode, version), variant, pair, acc in product(
        spellings, line.variants, line.pairs, line.accumulators
    ):
        if version is not None:
            types = f"{acc}.{pair[0]}.{pair[1]}.{acc}"
            form = _form(opcode, line.k, variant, types, pair, acc)
            yield replace(
                form,
                minimum_targets=line.targets,
                minimum_ptx=version,
                satfinite=variant == ".satfinite",
            )


def _block_scaled_instructions() -> Iterator[MatrixInstruction]:
    for kind, qualifier, blocks, scale_type, minimum_ptx in BLOCK_SCALED:
        packed = kind != "mxf8f6f4"
        for pair in same("e2m1") if packed else ALL_F8F6F4:
            form = _form(
                "mma.sp::ordered_metadata",
                128 if packed else 64,
                f".kind::{kind}.block_scale{qualifier}",
                f"f32.{pair[0]}.{pair[1]}.f32.{scale_type}",
                pair,
                "f32",
                packed=packed,
            )
            yield replace(
                form,
                family="mma.sp.block_scale",
                minimum_targets=SM_12X_ONLY if packed else SM_12X,
                minimum_ptx=minimum_ptx,
                scales=(Scale("A", blocks, scale_type), Scale("B", blocks, scale_type)),
            )


def _form(
    opcode: str, k: int, variant: str, types: str, pair: Pair, acc: str, *, packed: bool = False
) -> MatrixInstruction:
    """Return the instruction with everything but its requirements."""
    a, *others = layouts((16, 8, k), pair, acc, acc, packed=packed)
    bits = container_bits(pair[0], packed=packed)
    return MatrixInstruction(
        "mma.sp",
        f"{opcode}.sync.aligned.m16n8k{k}.row.col{variant}.{types}",
        (),
        (0, 0),
        f"Matrix Fragments for sparse mma.m16n8k{k}",
        (replace(a, cols=k // 2), *others),
        m=16,
        n=8,
        k=k,
        a_type=pair[0],
        b_type=pair[1],
        c_type=acc,
        d_type=acc,
        metadata=Metadata(k, bits, ordered=opcode != "mma.sp"),
    )


MMA_SPARSE: tuple[MatrixInstruction, ...] = tuple(
    instruction for line in _LINES for instruction in _instructions(line)
)
MMA_SPARSE_BLOCK_SCALED: tuple[MatrixInstruction, ...] = tuple(_block_scaled_instructions())
