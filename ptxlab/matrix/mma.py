"""The dense warp-level ``mma.sync`` instructions, block-scaled ones among them.

A line of the table is a shape and its types; one instruction comes of every choice a line leaves.
Legality agrees with both the ISA's text and ptxas, which here and there accepts less or more.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and the fragment section each line names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ptxlab.matrix.form import SM_10X_TO_12X, SM_12X, Version
from ptxlab.matrix.fragment import FragmentLayout, container_bits
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.position import FragmentKind
from ptxlab.matrix.scale import Scale

Pair = tuple[str, str]


def every(*dtypes: str) -> tuple[Pair, ...]:
    """Return all pairs of types of A and B."""
    return tuple((a, b) for a in dtypes for b in dtypes)


def same(*dtypes: str) -> tuple[Pair, ...]:
    """Return the pairs of equal types of A and B."""
    return tuple((dtype, dtype) for dtype in dtypes)


WHOLE_FLOAT8 = every("e4m3", "e5m2")
ALL_F8F6F4 = every("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
WITH_SMALLER = tuple(pair for pair in ALL_F8F6F4 if pair not in WHOLE_FLOAT8)
INT8 = every("s8", "u8")
INT4 = every("s4", "u4")

BLOCK_SCALED = (
    ("mxf8f6f4", "", 1, "ue8m0", (8, 7)),
    ("mxf8f6f4", ".scale_vec::1X", 1, "ue8m0", (8, 7)),
    ("mxf4", "", 2, "ue8m0", (8, 7)),
    ("mxf4", ".scale_vec::2X", 2, "ue8m0", (8, 7)),
    ("mxf4nvf4", ".scale_vec::2X", 2, "ue8m0", (8, 7)),
    ("mxf4nvf4", ".scale_vec::4X", 4, "ue4m3", (8, 7)),
    ("mxf4nvf4", ".scale_vec::4X", 4, "ue8m0", (9, 1)),
)
"""Kind, qualifier, blocks a row, type of a scale, and least PTX version."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One shape: pairs of types of A and B, accumulators, what more the name says, requirements."""

    shape: tuple[int, int, int]
    pairs: tuple[Pair, ...]
    accumulators: tuple[str, ...]
    targets: tuple[str, ...]
    minimum_ptx: Version
    kind: str = ""
    bit_operation: str = ""

    @property
    def variants(self) -> tuple[str, ...]:
        """What may stand between the layouts and the types."""
        if self.pairs in (INT8, INT4):
            return ("", ".satfinite")
        if self.pairs == (("f64", "f64"),):
            return ("", ".rn", ".rz", ".rm", ".rp")
        return (self.kind,)


# Where a shape allows several types or accumulators, the first is the one meant when none is named.
_LINES = (
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
    _Line((8, 8, 16), INT8, ("s32",), ("sm_75",), (6, 5)),
    _Line((16, 8, 16), INT8, ("s32",), ("sm_80",), (7, 0)),
    _Line((16, 8, 32), INT8, ("s32",), ("sm_80",), (7, 0)),
    _Line((8, 8, 32), INT4, ("s32",), ("sm_75",), (6, 5)),
    _Line((16, 8, 32), INT4, ("s32",), ("sm_80",), (7, 0)),
    _Line((16, 8, 64), INT4, ("s32",), ("sm_80",), (7, 0)),
    _Line((8, 8, 128), same("b1"), ("s32",), ("sm_75",), (7, 0), bit_operation="xor"),
    _Line((16, 8, 128), same("b1"), ("s32",), ("sm_80",), (7, 0), bit_operation="xor"),
    _Line((16, 8, 256), same("b1"), ("s32",), ("sm_80",), (7, 0), bit_operation="xor"),
    _Line((8, 8, 128), same("b1"), ("s32",), ("sm_80",), (7, 1), bit_operation="and"),
    _Line((16, 8, 128), same("b1"), ("s32",), ("sm_80",), (7, 1), bit_operation="and"),
    _Line((16, 8, 256), same("b1"), ("s32",), ("sm_80",), (7, 1), bit_operation="and"),
    _Line((16, 8, 32), WHOLE_FLOAT8, ("f32",), ("sm_89",), (8, 4)),
    _Line((16, 8, 32), WHOLE_FLOAT8, ("f16",), ("sm_89",), (8, 7)),
    _Line((16, 8, 16), WHOLE_FLOAT8, ("f32", "f16"), ("sm_89",), (8, 7)),
    _Line((16, 8, 32), WHOLE_FLOAT8, ("f32",), SM_10X_TO_12X, (8, 6), ".kind::f8f6f4"),
    _Line((16, 8, 32), WHOLE_FLOAT8, ("f16",), SM_10X_TO_12X, (8, 7), ".kind::f8f6f4"),
    _Line((16, 8, 16), WHOLE_FLOAT8, ("f32", "f16"), SM_10X_TO_12X, (8, 7), ".kind::f8f6f4"),
    _Line((16, 8, 32), WITH_SMALLER, ("f32", "f16"), SM_12X, (8, 7), ".kind::f8f6f4"),
)

FLOAT_SECTION = "floating point type"
_SECTIONS = {
    ("m8n8k4", "f16"): "Matrix Fragments for mma.m8n8k4 with .f16 floating point type",
    ("m8n8k4", "f64"): "Matrix Fragments for mma.m8n8k4 with .f64 floating point type",
    ("m16n8k16", "f16"): f"Matrix Fragments for mma.m16n8k16 with {FLOAT_SECTION}",
    ("m16n8k16", "bf16"): f"Matrix Fragments for mma.m16n8k16 with {FLOAT_SECTION}",
    ("m16n8k16", "f64"): f"Matrix Fragments for mma.m16n8k16 with {FLOAT_SECTION}",
    ("m16n8k16", ""): "Matrix Fragments for mma.m16n8k16 with integer type",
}


def section(shape: str, dtype: str) -> str:
    """Return the title of the ISA's section on the fragments of a shape."""
    other = _SECTIONS.get((shape, ""), f"Matrix Fragments for mma.{shape}")
    return _SECTIONS.get((shape, dtype), other)


def layouts(
    shape: tuple[int, int, int], pair: Pair, c_type: str, d_type: str, *, packed: bool = False
) -> tuple[FragmentLayout, ...]:
    """Return the layouts of A, B, C and D of a dense shape, all but those of f16 m8n8k4."""
    m, n, k = shape
    operands: tuple[tuple[str, FragmentKind, int, int, str], ...] = (
        ("A", "a", m, k, pair[0]),
        ("B", "b", k, n, pair[1]),
        ("C", "accumulator", m, n, c_type),
        ("D", "accumulator", m, n, d_type),
    )
    return tuple(
        FragmentLayout(name, kind, rows, cols, dtype, container_bits(dtype, packed=packed))
        for name, kind, rows, cols, dtype in operands
    )


def _instructions(line: _Line) -> Iterator[MatrixInstruction]:
    m, n, k = line.shape
    shape = f"m{m}n{n}k{k}"
    ending = f".{line.bit_operation}.popc" if line.bit_operation else ""
    for variant, pair, acc in product(line.variants, line.pairs, line.accumulators):
        types = f"{acc}.{pair[0]}.{pair[1]}.{acc}"
        yield MatrixInstruction(
            "mma",
            f"mma.sync.aligned.{shape}.row.col{variant}.{types}{ending}",
            line.targets,
            line.minimum_ptx,
            section(shape, pair[0]),
            layouts(line.shape, pair, acc, acc),
            m=m,
            n=n,
            k=k,
            a_type=pair[0],
            b_type=pair[1],
            c_type=acc,
            d_type=acc,
            satfinite=variant == ".satfinite",
            rounding=variant[1:] if variant[1:] in ("rz", "rm", "rp") else "rn",
            bit_operation=line.bit_operation,
        )


def _quad_pair_instructions() -> Iterator[MatrixInstruction]:
    """Yield m8n8k4 of f16: four products a warp, in every combination of layouts."""
    accumulators = (("f16", "f16"), ("f32", "f32"), ("f32", "f16"))
    orders = (("row", "col"), ("row", "row"), ("col", "row"), ("col", "col"))
    for (a_order, b_order), (d_type, c_type) in product(orders, accumulators):
        a_kind: FragmentKind = "quad a.row" if a_order == "row" else "quad a.col"
        b_kind: FragmentKind = "quad b.row" if b_order == "row" else "quad b.col"
        operands: tuple[tuple[str, FragmentKind, int, int, str], ...] = (
            ("A", a_kind, 8, 4, "f16"),
            ("B", b_kind, 4, 8, "f16"),
            ("C", "quad accumulator", 8, 8, c_type),
            ("D", "quad accumulator", 8, 8, d_type),
        )
        yield MatrixInstruction(
            "mma",
            f"mma.sync.aligned.m8n8k4.{a_order}.{b_order}.{d_type}.f16.f16.{c_type}",
            ("sm_70",),
            (6, 4),
            section("m8n8k4", "f16"),
            tuple(
                FragmentLayout(name, kind, rows, cols, dtype, container_bits(dtype))
                for name, kind, rows, cols, dtype in operands
            ),
            m=8,
            n=8,
            k=4,
            a_type="f16",
            b_type="f16",
            c_type=c_type,
            d_type=d_type,
        )


def _block_scaled_instructions() -> Iterator[MatrixInstruction]:
    for kind, qualifier, blocks, scale_type, minimum_ptx in BLOCK_SCALED:
        packed = kind != "mxf8f6f4"
        k = 64 if packed else 32
        for pair in same("e2m1") if packed else ALL_F8F6F4:
            types = f"f32.{pair[0]}.{pair[1]}.f32.{scale_type}"
            yield MatrixInstruction(
                "mma.block_scale",
                f"mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale{qualifier}.{types}",
                SM_12X,
                minimum_ptx,
                section(f"m16n8k{k}", pair[0]),
                layouts((16, 8, k), pair, "f32", "f32", packed=packed),
                m=16,
                n=8,
                k=k,
                a_type=pair[0],
                b_type=pair[1],
                c_type="f32",
                d_type="f32",
                scales=(Scale("A", blocks, scale_type), Scale("B", blocks, scale_type)),
            )


def program(form: MatrixInstruction) -> str:
    """Return what the handwritten program of a form is called, ``ptx/mma_m16n8k16_bf16_f32.ptx``.

    Few forms have one.
    """
    types = dict.fromkeys((form.a_type, form.b_type))
    return f"ptx/mma_{form.shape}_{'_'.join(types)}_{form.d_type}.ptx"


MMA: tuple[MatrixInstruction, ...] = (
    *(instruction for line in _LINES for instruction in _instructions(line)),
    *_quad_pair_instructions(),
)
MMA_BLOCK_SCALED: tuple[MatrixInstruction, ...] = tuple(_block_scaled_instructions())
