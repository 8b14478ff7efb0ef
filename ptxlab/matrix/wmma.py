"""The ``wmma`` instructions: load, multiply and store of fragments whose layout PTX keeps to itself.

A program may rely on nothing but that one lane's registers of equal fragments hold equal elements.
The layouts here are ptxlab's own choice, not an architecture's: those of ``mma``, extended to the
shapes of ``wmma`` by the same formula, with A and B of f16 repeated until they fill their registers.

Source: PTX ISA, "Warp-level Matrix Fragment" and "Warp-level Matrix Load Instruction: wmma.load".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from ptxlab.isa.legality import Version
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import (
    MatrixInstruction,
    Shape,
    TypePair,
    every,
    layout,
    same,
    variants,
)
from ptxlab.matrix.wmma_move import WmmaMove, move_name

SECTION = "Warp-level Matrix Fragment"
F16_REGISTERS = 8
_ALL_ORDERS = every("row", "col")
_TILES = ((16, 16, 16), (8, 32, 16), (32, 8, 16))


@dataclass(frozen=True, slots=True)
class _Line:
    """A group of shapes: input types, (D, C) types, orders of A and B, requirements."""

    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    accumulators: tuple[TypePair, ...]
    orders: tuple[TypePair, ...]
    target: str
    minimum_ptx: Version
    bit_operation: str = ""


_ROW_COL = (("row", "col"),)
_F16_ACCUMULATORS = every("f16", "f32")

_LINES = (
    _Line(_TILES, ("f16",), _F16_ACCUMULATORS, _ALL_ORDERS, "sm_70", (6, 3)),
    _Line(_TILES, ("bf16",), same("f32"), _ALL_ORDERS, "sm_80", (7, 0)),
    _Line(_TILES, ("s8", "u8"), same("s32"), _ALL_ORDERS, "sm_72", (6, 3)),
    _Line(((16, 16, 8),), ("tf32",), same("f32"), _ALL_ORDERS, "sm_80", (7, 0)),
    _Line(((8, 8, 4),), ("f64",), same("f64"), _ALL_ORDERS, "sm_80", (7, 0)),
    _Line(((8, 8, 32),), ("s4", "u4"), same("s32"), _ROW_COL, "sm_75", (6, 3)),
    _Line(((8, 8, 128),), ("b1",), same("s32"), _ROW_COL, "sm_75", (6, 3), "xor"),
    _Line(((8, 8, 128),), ("b1",), same("s32"), _ROW_COL, "sm_80", (7, 1), "and"),
)


def _layout(operand: str, shape: Shape, dtype: str) -> FragmentLayout:
    held = layout(operand, shape, dtype)
    if dtype != "f16" or held.kind == "accumulator":
        return held
    return replace(held, copies=F16_REGISTERS // held.registers_per_lane)


def _instructions(line: _Line) -> Iterator[MatrixInstruction]:
    operation = f".{line.bit_operation}.popc" if line.bit_operation else ""
    for shape, order, dtype, (d_type, c_type), variant in product(
        line.shapes, line.orders, line.dtypes, line.accumulators, variants(line.dtypes[0])
    ):
        m, n, k = shape
        types = f"{d_type}.{c_type}" if dtype == "f16" else f"{d_type}.{dtype}.{dtype}.{c_type}"
        rounding, ending = (variant, "") if dtype == "f64" else ("", variant)
        where = f"{order[0]}.{order[1]}.m{m}n{n}k{k}{rounding}"
        yield MatrixInstruction(
            "wmma",
            f"wmma.mma{operation}.sync.aligned.{where}.{types}{ending}",
            (line.target,),
            line.minimum_ptx,
            SECTION,
            tuple(
                _layout(operand, shape, t)
                for operand, t in zip("ABCD", (dtype, dtype, c_type, d_type), strict=True)
            ),
            m=m,
            n=n,
            k=k,
            a_type=dtype,
            b_type=dtype,
            c_type=c_type,
            d_type=d_type,
            satfinite=bool(ending),
            rounding=rounding[1:] or "rn",
            bit_operation=line.bit_operation,
        )


def _moves() -> tuple[WmmaMove, ...]:
    """Return what the multiplications need: each operand's load, and the store of D."""
    moves: dict[str, WmmaMove] = {}
    for line in _LINES:
        for (m, n, k), dtype, (d, c), operand, (a_order, b_order), c_order in product(
            line.shapes, line.dtypes, line.accumulators, "ABCD", line.orders, ("row", "col")
        ):
            held = _layout(operand, (m, n, k), {"D": d, "C": c}.get(operand, dtype))
            shape = f"m{m}n{n}k{k}"
            order = {"A": a_order, "B": b_order}.get(operand, c_order)
            name = move_name(held, shape, order)
            verb = "store" if operand == "D" else "load"
            section = f"Warp-level Matrix {verb.title()} Instruction: wmma.{verb}"
            needs = (line.target,), line.minimum_ptx
            move = WmmaMove("wmma", name, *needs, section, (held,), shape=shape, order=order)
            moves.setdefault(name, move)
    return tuple(moves.values())


WMMA: tuple[MatrixInstruction, ...] = tuple(
    instruction for line in _LINES for instruction in _instructions(line)
)
WMMA_MOVES: tuple[WmmaMove, ...] = _moves()
