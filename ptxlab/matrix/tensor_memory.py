"""``tcgen05.ld``, ``.ld.red`` and ``.st``: between Tensor Memory and the registers of a warp.

Tensor Memory has 128 lanes of 512 columns of 32 bits; an address is lane << 16 | column. A warp reaches
the 32 lanes of its place in the warpgroup. A shape is lanes x bits, ``.x2`` and so on repeat it along the
columns. With ``.pack::16b`` a register takes the low halves of two neighbouring columns, and
``.unpack::16b`` is the way back. ``16x32bx2`` are two accesses of 16 lanes: lanes 0 to 15 of the warp
from the address, lanes 16 to 31 from as many columns behind it as its constant says.

Source: PTX ISA, "Data Movement Shape", "Packing and Unpacking" and the instructions' own sections; the
figures' content after CUTLASS's ``copy_traits_sm100.hpp``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import cast

from ptxlab.matrix.form import Form, Role, SignatureOperand, constant, tensor_memory
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.position import FragmentKind

SM_10X = ("sm_100f", "sm_110f")
SM_103 = ("sm_103f", "sm_110f")

_SHAPES = {"16x64b": 128, "16x128b": 64, "16x256b": 32, "32x32b": 128, "16x32bx2": 128}
"""The largest repetition of each shape."""
_HALVES = "16x32bx2"
_REDUCIBLE = ("32x32b", _HALVES)
_REDUCED = ("f32", "abs.f32", "NaN.f32", "abs.NaN.f32", "u32", "s32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMemoryMove(Form):
    """One load from or store to Tensor Memory, ``count`` times ``shape``.

    ``packed`` stands for the qualifier ``.pack::16b`` or ``.unpack::16b``. ``reduction`` is the operation
    and type of ``tcgen05.ld.red``, ``min.abs.f32``, which also gives the extremum of what each thread loads.
    """

    verb: str
    shape: str
    count: int
    packed: bool
    reduction: str

    @property
    def layout(self) -> FragmentLayout:
        """Which lane holds what: rows are lanes of Tensor Memory, columns its columns, both from the
        address on; of ``16x32bx2`` there are two such matrices.
        """
        return self.operands[0]

    @property
    def signature(self) -> tuple[SignatureOperand, ...]:
        """The operands in the order PTX writes them."""
        layout = self.layout
        several = "twice " if self.shape == _HALVES else ""
        what = f"{several}{layout.rows} lanes x {layout.cols} columns of Tensor Memory"
        if self.packed:
            what += ", the low halves of two columns in a register"
        kind = self.reduction.split(".")[-1] or "b32"
        role: Role = "source" if self.verb == "st" else "result"
        registers = SignatureOperand("r", role, what, layout.registers_per_lane, kind, layout)
        where = [tensor_memory("taddr", "the first lane and column, the same in all lanes")]
        if self.shape == _HALVES:
            where.append(constant("immHalfSplitoff", "columns to the second access", "16"))
        if self.verb == "st":
            return (*where, registers)
        if not self.reduction:
            return (registers, *where)
        meaning = f"the {self.reduction[:3]} of r"
        reduced = SignatureOperand("redval", "result", meaning, type=kind, braces=False)
        return (registers, reduced, *where)


def _move(
    verb: str, shape: str, count: int, packed: bool = False, reduction: str = ""
) -> TensorMemoryMove:
    family = f"tcgen05.{verb}{'.red' if reduction else ''}"
    qualifier = (".pack::16b" if verb == "ld" else ".unpack::16b") if packed else ""
    lanes, bits = (int(part) for part in shape.removesuffix("bx2").removesuffix("b").split("x"))
    elements = 2 if packed else 1
    kind = cast(FragmentKind, f"tmem {shape}")
    width = 32 // elements
    cols = count * bits // 32 * elements
    return TensorMemoryMove(
        family,
        f"{family}.sync.aligned.{shape}.x{count}{qualifier}.{reduction or 'b32'}",
        SM_103 if reduction else SM_10X,
        (8, 8) if reduction else (8, 6),
        f"Matrix fragments for shape .{shape}",
        (FragmentLayout("R", kind, lanes, cols, f"b{width}", width),),
        verb=verb,
        shape=shape,
        count=count,
        packed=packed,
        reduction=reduction,
    )


def _moves() -> Iterator[TensorMemoryMove]:
    for verb, (shape, largest) in product(("ld", "st"), _SHAPES.items()):
        for exponent, packed in product(range(largest.bit_length()), (False, True)):
            yield _move(verb, shape, 1 << exponent, packed)
    for shape in _REDUCIBLE:
        for exponent, operation, kind in product(
            range(1, _SHAPES[shape].bit_length()), ("min", "max"), _REDUCED
        ):
            yield _move("ld", shape, 1 << exponent, reduction=f"{operation}.{kind}")


TENSOR_MEMORY_MOVES: tuple[TensorMemoryMove, ...] = tuple(_moves())
