"""The warp-level ``mma.sync`` instructions: dense, sparse (``mma.sp``), and block-scaled ones of both.

A line of a table is a shape and its types; one instruction comes of every choice a line leaves. Every
fragment of a sparse one is a dense one: A's of the columns that are left, k / 2, and B's, C's and D's of
the full shape. See ``ptxlab.matrix.sparse`` for what was left out. Legality agrees with both the ISA's
text and ptxas, which here and there accepts less or more.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and "mma.sp/mma.sp::ordered_metadata", and the
fragment section each instruction names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import cast

from ptxlab.isa.legality import Version
from ptxlab.matrix.form import SM_10X_TO_12X, SM_12X, SM_12X_ONLY
from ptxlab.matrix.multiplication import (
    WHOLE_FLOAT8,
    MatrixInstruction,
    Shape,
    TypePair,
    every,
    layout,
    same,
    variants,
)
from ptxlab.matrix.position import FragmentKind
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import Metadata

_SPARSE, _ORDERED = "mma.sp", "mma.sp::ordered_metadata"
_ALL_F8F6F4 = every("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_WITH_SMALLER = tuple(pair for pair in _ALL_F8F6F4 if pair not in WHOLE_FLOAT8)
_INT8 = every("s8", "u8")
_INT4 = every("s4", "u4")


@dataclass(frozen=True, slots=True)
class _Line:
    """One shape: pairs of types of A and B, accumulators, requirements, what more the name says.

    A line with ``ordered_ptx``, the least PTX version of ordered metadata, is one of sparse shapes; where
    its ``ptx`` is None there is no form without.
    """

    shape: Shape
    pairs: tuple[TypePair, ...]
    accumulators: tuple[str, ...]
    targets: tuple[str, ...]
    ptx: Version | None
    ordered_ptx: Version | None = None
    kind: str = ""
    bit_operation: str = ""

    @property
    def opcodes(self) -> tuple[tuple[str, Version | None], ...]:
        if self.ordered_ptx:
            return (_SPARSE, self.ptx), (_ORDERED, self.ordered_ptx)
        return (("mma", self.ptx),)


# Where a shape allows several types or accumulators, the first is the one meant when none is named.
_DENSE = (
    _Line((16, 8, 16), same("bf16"), ("f32",), ("sm_80",), (7, 0)),
    _Line((16, 8, 16), same("f16"), ("f16", "f32"), ("sm_80",), (7, 0)),
    _Line((16, 8, 8), same("bf16"), ("f32",), ("sm_80",), (7, 0)),
    _Line((16, 8, 8), same("f16"), ("f16", "f32"), ("sm_75",), (6, 5)),
    _Line((16, 8, 8), same("tf32"), ("f32",), ("sm_80",), (7, 0)),
    _Line((16, 8, 4), same("tf32"), ("f32",), ("sm_80",), (7, 0)),
    _Line((8, 8, 4), same("f64"), ("f64",), ("sm_80",), (7, 0)),
    _Line((16, 8, 4), same("f64"), ("f64",), ("sm_90",), (7, 8)),
    _Line((16, 8, 8), same("f64"), ("f64",), ("sm_90",), (7, 8)),
    _Line((16, 8, 16), same("f64"), ("f64",), ("sm_90",), (7, 8)),
    _Line((8, 8, 16), _INT8, ("s32",), ("sm_75",), (6, 5)),
    _Line((16, 8, 16), _INT8, ("s32",), ("sm_80",), (7, 0)),
    _Line((16, 8, 32), _INT8, ("s32",), ("sm_80",), (7, 0)),
    _Line((8, 8, 32), _INT4, ("s32",), ("sm_75",), (6, 5)),
    _Line((16, 8, 32), _INT4, ("s32",), ("sm_80",), (7, 0)),
    _Line((16, 8, 64), _INT4, ("s32",), ("sm_80",), (7, 0)),
    _Line((8, 8, 128), same("b1"), ("s32",), ("sm_75",), (7, 0), bit_operation="xor"),
    _Line((16, 8, 128), same("b1"), ("s32",), ("sm_80",), (7, 0), bit_operation="xor"),
    _Line((16, 8, 256), same("b1"), ("s32",), ("sm_80",), (7, 0), bit_operation="xor"),
    _Line((8, 8, 128), same("b1"), ("s32",), ("sm_80",), (7, 1), bit_operation="and"),
    _Line((16, 8, 128), same("b1"), ("s32",), ("sm_80",), (7, 1), bit_operation="and"),
    _Line((16, 8, 256), same("b1"), ("s32",), ("sm_80",), (7, 1), bit_operation="and"),
    _Line((16, 8, 32), WHOLE_FLOAT8, ("f32",), ("sm_89",), (8, 4)),
    _Line((16, 8, 32), WHOLE_FLOAT8, ("f16",), ("sm_89",), (8, 7)),
    _Line((16, 8, 16), WHOLE_FLOAT8, ("f32", "f16"), ("sm_89",), (8, 7)),
    _Line((16, 8, 32), WHOLE_FLOAT8, ("f32",), SM_10X_TO_12X, (8, 6), kind=".kind::f8f6f4"),
    _Line((16, 8, 32), WHOLE_FLOAT8, ("f16",), SM_10X_TO_12X, (8, 7), kind=".kind::f8f6f4"),
    _Line((16, 8, 16), WHOLE_FLOAT8, ("f32", "f16"), SM_10X_TO_12X, (8, 7), kind=".kind::f8f6f4"),
    _Line((16, 8, 32), _WITH_SMALLER, ("f32", "f16"), SM_12X, (8, 7), kind=".kind::f8f6f4"),
)
_SPARSE_LINES = (
    _Line((16, 8, 16), same("bf16"), ("f32",), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 16), same("f16"), ("f16", "f32"), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 32), same("bf16"), ("f32",), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 32), same("f16"), ("f16", "f32"), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 8), same("tf32"), ("f32",), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 16), same("tf32"), ("f32",), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 32), _INT8, ("s32",), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 64), _INT8, ("s32",), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 64), _INT4, ("s32",), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 128), _INT4, ("s32",), ("sm_80",), (7, 1), (8, 5)),
    _Line((16, 8, 64), WHOLE_FLOAT8, ("f32",), ("sm_89",), (8, 4), (8, 5)),
    _Line((16, 8, 64), WHOLE_FLOAT8, ("f32",), SM_10X_TO_12X, None, (8, 6), ".kind::f8f6f4"),
    _Line((16, 8, 64), WHOLE_FLOAT8, ("f16",), SM_12X, None, (8, 7)),
    _Line((16, 8, 64), WHOLE_FLOAT8, ("f16",), SM_12X, None, (8, 7), ".kind::f8f6f4"),
    _Line((16, 8, 64), _WITH_SMALLER, ("f32", "f16"), SM_12X, None, (8, 7), ".kind::f8f6f4"),
)
_BLOCK_SCALED = (
    ("mxf8f6f4", "", 1, "ue8m0", (8, 7)),
    ("mxf8f6f4", ".scale_vec::1X", 1, "ue8m0", (8, 7)),
    ("mxf4", "", 2, "ue8m0", (8, 7)),
    ("mxf4", ".scale_vec::2X", 2, "ue8m0", (8, 7)),
    ("mxf4nvf4", ".scale_vec::2X", 2, "ue8m0", (8, 7)),
    ("mxf4nvf4", ".scale_vec::4X", 4, "ue4m3", (8, 7)),
    ("mxf4nvf4", ".scale_vec::4X", 4, "ue8m0", (9, 1)),
)
"""Kind, qualifier, blocks a row, type of a scale, and least PTX version."""

_FLOAT_SECTION = "floating point type"
_SECTIONS = {
    ("m8n8k4", "f16"): "Matrix Fragments for mma.m8n8k4 with .f16 floating point type",
    ("m8n8k4", "f64"): "Matrix Fragments for mma.m8n8k4 with .f64 floating point type",
    ("m16n8k16", "f16"): f"Matrix Fragments for mma.m16n8k16 with {_FLOAT_SECTION}",
    ("m16n8k16", "bf16"): f"Matrix Fragments for mma.m16n8k16 with {_FLOAT_SECTION}",
    ("m16n8k16", "f64"): f"Matrix Fragments for mma.m16n8k16 with {_FLOAT_SECTION}",
    ("m16n8k16", ""): "Matrix Fragments for mma.m16n8k16 with integer type",
}


def _section(shape: str, dtype: str) -> str:
    """Return the title of the ISA's section on the fragments of a dense shape."""
    other = _SECTIONS.get((shape, ""), f"Matrix Fragments for mma.{shape}")
    return _SECTIONS.get((shape, dtype), other)


def _form(
    opcode: str,
    shape: Shape,
    variant: str,
    pair: TypePair,
    accumulators: tuple[str, str],
    targets: tuple[str, ...],
    minimum_ptx: Version,
    *,
    orders: tuple[str, str] = ("row", "col"),
    bit_operation: str = "",
    blocks: int = 0,
    scale_type: str = "",
) -> MatrixInstruction:
    """Return a form with accumulators of the types of D and C, block-scaled where there are blocks."""
    (m, n, k), (a_type, b_type), (d_type, c_type) = shape, pair, accumulators
    name = f"m{m}n{n}k{k}"
    types = f"{d_type}.{a_type}.{b_type}.{c_type}"
    ending = f".{scale_type}" if blocks else f".{bit_operation}.popc" if bit_operation else ""
    packed = ".kind::mxf4" in variant
    sparse = opcode != "mma"
    kept = (m, n, k // 2) if sparse else shape
    kinds = ("a", "b", "accumulator", "accumulator")
    if (k, a_type) == (4, "f16"):
        kinds = (f"quad a.{orders[0]}", f"quad b.{orders[1]}", *2 * ("quad accumulator",))
    operands = tuple(
        layout(operand, size, dtype, cast(FragmentKind, kind), packed=packed)
        for operand, size, dtype, kind in zip(
            "ABCD", (kept, shape, shape, shape), (*pair, c_type, d_type), kinds, strict=True
        )
    )
    return MatrixInstruction(
        ("mma.sp" if sparse else "mma") + (".block_scale" if blocks else ""),
        f"{opcode}.sync.aligned.{name}.{'.'.join(orders)}{variant}.{types}{ending}",
        targets,
        minimum_ptx,
        f"Matrix Fragments for sparse mma.{name}" if sparse else _section(name, a_type),
        operands,
        m=m,
        n=n,
        k=k,
        a_type=a_type,
        b_type=b_type,
        c_type=c_type,
        d_type=d_type,
        metadata=Metadata(k, operands[0].bits, opcode == _ORDERED) if sparse else None,
        scales=(Scale("A", blocks, scale_type), Scale("B", blocks, scale_type)) if blocks else (),
        satfinite=variant == ".satfinite",
        rounding=variant[1:] if variant in (".rz", ".rm", ".rp") else "rn",
        bit_operation=bit_operation,
    )


def _variants(line: _Line) -> tuple[str, ...]:
    """Return what may stand between the layouts and the types."""
    return (line.kind,) if line.kind else variants(line.pairs[0][0])


def _forms(lines: tuple[_Line, ...]) -> Iterator[MatrixInstruction]:
    for line in lines:
        for (opcode, ptx), variant, pair, acc in product(
            line.opcodes, _variants(line), line.pairs, line.accumulators
        ):
            if ptx is not None:
                yield _form(
                    opcode,
                    line.shape,
                    variant,
                    pair,
                    (acc, acc),
                    line.targets,
                    ptx,
                    bit_operation=line.bit_operation,
                )


def _quad_pair_forms() -> Iterator[MatrixInstruction]:
    """Yield m8n8k4 of f16: four products a warp, in every combination of layouts."""
    accumulators = (("f16", "f16"), ("f32", "f32"), ("f32", "f16"))
    orders = (("row", "col"), ("row", "row"), ("col", "row"), ("col", "col"))
    for order, sums in product(orders, accumulators):
        yield _form("mma", (8, 8, 4), "", ("f16", "f16"), sums, ("sm_70",), (6, 4), orders=order)


def _block_scaled_forms(opcode: str, depth: int) -> Iterator[MatrixInstruction]:
    """Yield the forms of an opcode whose k is ``depth`` elements of 8 bits."""
    for kind, qualifier, blocks, scale_type, ptx in _BLOCK_SCALED:
        packed = kind != "mxf8f6f4"
        targets = SM_12X_ONLY if packed and opcode == _ORDERED else SM_12X
        for pair in same("e2m1") if packed else _ALL_F8F6F4:
            yield _form(
                opcode,
                (16, 8, 2 * depth if packed else depth),
                f".kind::{kind}.block_scale{qualifier}",
                pair,
                ("f32", "f32"),
                targets,
                ptx,
                blocks=blocks,
                scale_type=scale_type,
            )


def program(form: MatrixInstruction) -> str:
    """Return what the handwritten program of a form is called, ``ptx/mma_m16n8k16_bf16_f32.ptx``.

    Few forms have one.
    """
    types = dict.fromkeys((form.a_type, form.b_type))
    return f"ptx/mma_{form.shape}_{'_'.join(types)}_{form.d_type}.ptx"


MMA: tuple[MatrixInstruction, ...] = (*_forms(_DENSE), *_quad_pair_forms())
MMA_BLOCK_SCALED: tuple[MatrixInstruction, ...] = tuple(_block_scaled_forms("mma", 32))
MMA_SPARSE: tuple[MatrixInstruction, ...] = tuple(_forms(_SPARSE_LINES))
MMA_SPARSE_BLOCK_SCALED: tuple[MatrixInstruction, ...] = tuple(_block_scaled_forms(_ORDERED, 64))
