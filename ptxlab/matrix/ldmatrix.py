"""``ldmatrix``, ``stmatrix`` and ``movmatrix``: which lane addresses which row and holds what.

A matrix in shared memory is 8 or 16 rows of 16 bytes. One lane supplies the address of each row,
aligned to 16; rows need not follow each other. A row holds 8 elements of 16 bits or 16 of 8 bits.
``ldmatrix`` also reads rows of 16 elements of 6 or 4 bits, packed at the start of the 16 bytes, and
puts each into the low bits of a byte; and, with ``.s8.s4``, rows of 8 bytes with 16 signed elements of 4 bits,
which it extends by their sign.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix", "Warp-level matrix store
instruction: stmatrix", "Warp-level matrix transpose instruction: movmatrix". Where an element of ``.s8.s4`` goes, and
that rows are 8 bytes: the probe of vLLM's pull request 50096, which was run on an H100.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Self

from ptxlab.isa.legality import Version
from ptxlab.isa.targets import Target
from ptxlab.matrix.form import SM_10X_TO_12X, Form, SignatureOperand, address
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.position import FragmentKind

ROWS = 8
ROW_BYTES = 16

SIGNED = "s8.s4"
"""The type whose elements are extended by their sign, in rows that have no padding."""

PADDED = {"b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}
PACKED_BITS = {**PADDED, SIGNED: 4}
"""Bits of an element in memory where they are fewer than in a register, by the type's spelling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMove(Form):
    """What loads and stores share: ``matrices`` (1, 2 or 4) of ``shape`` (``m8n8``) and ``dtype``.

    The one operand, R, is all matrices below each other, so that lane r addresses row r. The first
    registers have the first matrix, where ``fragment`` says. With ``.trans`` a lane has what it would
    have of the transposed matrix.
    """

    matrices: int
    trans: bool
    shape: str
    dtype: str

    @classmethod
    def of(cls, matrices: int, trans: bool, shape: str = "m8n8", dtype: str = "b16") -> Self:
        """Return the form of so many matrices."""
        family = cls.__name__.lower()
        verb, bits = family.removesuffix("matrix"), 16 if dtype == "b16" else 8
        kind: FragmentKind = "b" if trans else "a"
        if bits == 8:
            needs: tuple[tuple[str, ...], Version] = SM_10X_TO_12X, (8, 6)
            if dtype == SIGNED:
                needs = ("sm_90a", *SM_10X_TO_12X), (9, 4)
            kind = "accumulator.trans" if verb == "st" else kind
        else:
            needs = (("sm_75",), (6, 5)) if verb == "ld" else (("sm_90",), (7, 8))
        rows = 16 if shape == "m16n16" else ROWS
        cols = 8 * ROW_BYTES // bits
        ending = f"x{matrices}{'.trans' if trans else ''}.shared.{dtype}"
        return cls(
            family,
            f"{family}.sync.aligned.{shape}.{ending}",
            *needs,
            f"Warp-level matrix {'load' if verb == 'ld' else 'store'} instruction: {family}",
            (FragmentLayout("R", kind, matrices * rows, cols, f"b{bits}", bits),),
            matrices=matrices,
            trans=trans,
            shape=shape,
            dtype=dtype,
        )

    @property
    def bits(self) -> int:
        """The width of an element in a register."""
        return self.operands[0].bits

    @property
    def rows(self) -> int:
        """How many rows one matrix has in memory."""
        return self.operands[0].rows // self.matrices

    @property
    def cols(self) -> int:
        """How many elements a row has in memory."""
        return self.operands[0].cols

    @property
    def row_bytes(self) -> int:
        """How many bytes of shared memory a lane names, and by how many its address is aligned."""
        return ROW_BYTES // 2 if self.dtype == SIGNED else ROW_BYTES

    @property
    def fragment(self) -> FragmentLayout:
        """The layout, over the warp, of any one of the matrices as it lies in shared memory."""
        return replace(self.operands[0], operand="matrix", rows=self.rows)

    @property
    def registers(self) -> int:
        """How many registers of each lane all matrices take."""
        return self.operands[0].registers_per_lane

    @property
    def signature(self) -> tuple[SignatureOperand, ...]:
        """The registers and an address, in the order PTX writes them."""
        matrices = "matrix" if self.matrices == 1 else "matrices"
        meaning = f"{self.matrices} {matrices} of {self.rows} x {self.cols} of {self.bits} bits"
        layout = self.fragment if self.matrices == 1 else None
        last = self.matrices * self.rows - 1
        rows = address(f"address of a row of {self.row_bytes} bytes, of lanes 0 to {last}")
        if self.family == "stmatrix":
            return rows, SignatureOperand("r", "source", meaning, self.registers, "b32", layout)
        return SignatureOperand("r", "result", meaning, self.registers, "b32", layout), rows

    def addressed_row(self, lane: int) -> tuple[int, int] | None:
        """Return the (matrix, row) ``lane`` supplies the address of; None if it is not asked."""
        matrix, row = divmod(lane, self.rows)
        return (matrix, row) if matrix < self.matrices else None


class LdMatrix(RowMove):
    """One ``ldmatrix`` instruction."""

    __slots__ = ()

    @property
    def packed_bits(self) -> int:
        """The width of an element in memory."""
        return PACKED_BITS.get(self.dtype, self.bits)

    def needs_all_addresses(self, target: Target) -> bool:
        """Say whether the address of every lane must be valid on ``target``, not only those asked."""
        return target.capability <= 75


class StMatrix(RowMove):
    """One ``stmatrix`` instruction: ``ldmatrix`` the other way, but for bytes.

    A matrix of bytes is stored transposed, and a lane holds of it what it holds of the accumulator of
    a 16 x 8 ``mma`` (CUTLASS's layout for the instruction, which it uses on such accumulators).
    """

    __slots__ = ()


class MovMatrix(Form):
    """``movmatrix``: a lane gives two elements of a row and gets two of a column."""

    __slots__ = ()

    @property
    def source(self) -> FragmentLayout:
        """The layout of the matrix in the source register."""
        return self.operands[0]

    @property
    def destination(self) -> FragmentLayout:
        """The layout of the same matrix, not transposed, in the destination register."""
        return self.operands[1]

    @property
    def signature(self) -> tuple[SignatureOperand, ...]:
        """Destination and source."""
        meaning = "8 x 8 of 16 bits"
        return (
            SignatureOperand(
                "d", "result", f"{meaning}, transposed", 1, "b32", self.destination, False
            ),
            SignatureOperand("a", "source", meaning, 1, "b32", self.source, False),
        )


LDMATRIX: tuple[LdMatrix, ...] = (
    *(LdMatrix.of(count, trans) for trans in (False, True) for count in (1, 2, 4)),
    *(
        LdMatrix.of(count, True, "m16n16", dtype)
        for count, dtype in product((1, 2), ("b8", *PADDED))
    ),
    *(
        LdMatrix.of(count, False, "m8n16", dtype)
        for count, dtype in product((1, 2, 4), PACKED_BITS)
    ),
)
STMATRIX: tuple[StMatrix, ...] = (
    *(StMatrix.of(count, trans) for trans in (False, True) for count in (1, 2, 4)),
    *(StMatrix.of(count, True, "m16n8", "b8") for count in (1, 2, 4)),
)
MOVMATRIX = MovMatrix(
    "movmatrix",
    "movmatrix.sync.aligned.m8n8.trans.b16",
    ("sm_75",),
    (7, 8),
    "Warp-level matrix transpose instruction: movmatrix",
    (
        FragmentLayout("A", "a", ROWS, ROWS, "b16", 16),
        FragmentLayout("D", "b", ROWS, ROWS, "b16", 16),
    ),
)
