"""What one ``wmma.load`` or ``wmma.store`` is.

The table of them is in ``wmma``: it takes time to make, which a program without matrices does not spend.

Source: PTX ISA, "Warp-level Matrix Load Instruction: wmma.load" and "Warp-level Matrix Store
Instruction: wmma.store".
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.matrix.form import Form, SignatureOperand, address, fragment, register
from ptxlab.matrix.fragment import FragmentLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class WmmaMove(Form):
    """One ``wmma.load`` of operand A, B or C, or ``wmma.store`` of D, for a matrix in some order.

    The instruction's state space and its stride operand are no part of the form; ``name`` is the
    one for shared memory.
    """

    shape: str
    order: str

    @property
    def layout(self) -> FragmentLayout:
        """The layout of what is loaded or stored."""
        return self.operands[0]

    @property
    def opcode(self) -> str:
        """``wmma.load.a`` or the like."""
        return self.name.partition(".sync")[0]

    @property
    def signature(self) -> tuple[SignatureOperand, ...]:
        """The fragment and an address, in the order PTX writes them."""
        stores = self.layout.operand == "D"
        integer = "s32" if self.layout.dtype in ("s8", "u8") else ""
        held = fragment("r", "source" if stores else "result", self.layout, integer)
        first = address("address of the matrix's first element, the same in all lanes")
        return (first, held) if stores else (held, first)

    @property
    def optional(self) -> tuple[SignatureOperand, ...]:
        """The stride."""
        return (register("stride", "elements from one row, or column, to the next", "u32"),)


def move_name(layout: FragmentLayout, shape: str, order: str) -> str:
    """Return the load of A, B or C, or store of D, of a shape as ``m16n16k16``, in full."""
    opcode = f"wmma.{'store' if layout.operand == 'D' else 'load'}.{layout.operand.lower()}"
    return f"{opcode}.sync.aligned.{order}.{shape}.shared.{layout.dtype}"
