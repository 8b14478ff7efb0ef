"""The operands of every matrix instruction, in the order PTX writes them.

Source: the syntax blocks of the PTX ISA's sections on mma, mma.sp, wmma.load, wmma.mma, wmma.store,
ldmatrix, stmatrix and movmatrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ptxlab.isa.entry import Form
from ptxlab.isa.fragment import FragmentLayout
from ptxlab.isa.instruction import MatrixInstruction
from ptxlab.isa.ldmatrix import LdMatrix, MovMatrix, StMatrix

Role = Literal["result", "source", "constant", "address"]

_OWN_REGISTER_TYPES = ("f32", "f64", "s32")


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: what the ISA calls it, and what it takes.

    Of registers, ``count`` of ``type`` each; of constants, so many in braces if more than one.
    ``layout`` says which lane holds which element, None where an operand is no matrix or several.
    """

    name: str
    role: Role
    meaning: str
    count: int = 1
    type: str = "b32"
    layout: FragmentLayout | None = None
    braces: bool = True

    @property
    def registers(self) -> tuple[str, ...]:
        """Names for its registers, ``d0``, ``d1``, ...; none of constants and addresses."""
        if self.role not in ("result", "source"):
            return ()
        prefix = self.name.replace("-", "_")
        return tuple(f"{prefix}{i}" for i in range(self.count))


def signature(form: Form) -> tuple[Operand, ...]:
    """Return the operands of ``form``."""
    if isinstance(form, MatrixInstruction):
        return _multiplication(form)
    if isinstance(form, MovMatrix):
        meaning = "8 x 8 of 16 bits"
        return (
            Operand("d", "result", f"{meaning}, transposed", 1, "b32", form.destination, False),
            Operand("a", "source", meaning, 1, "b32", form.source, False),
        )
    if isinstance(form, LdMatrix | StMatrix):
        return _rows(form)
    stores = form.layout.operand == "D"
    fragment = _fragment("r", "source" if stores else "result", form.layout)
    address = Operand(
        "p", "address", "address of the matrix's first element, the same in all lanes"
    )
    return (address, fragment) if stores else (fragment, address)


def _fragment(name: str, role: Role, layout: FragmentLayout) -> Operand:
    size = f"{layout.rows} x {layout.cols} of {layout.dtype}"
    several = f"{layout.matrices} matrices of " if layout.matrices > 1 else ""
    kind = layout.dtype if layout.dtype in _OWN_REGISTER_TYPES else f"b{layout.register_bits}"
    return Operand(name, role, several + size, layout.registers_per_lane, kind, layout)


def _multiplication(form: MatrixInstruction) -> tuple[Operand, ...]:
    operands = [
        _fragment(name.lower(), "result" if name == "D" else "source", form.operand(name))
        for name in "DABC"
    ]
    if form.metadata is not None:
        kept, of = form.metadata.granularity
        last = form.metadata.selectors[-1]
        choice = f"0 to {last}" if last else "0"
        operands += [
            Operand(
                "e", "source", f"metadata: which {kept} of {of} elements A keeps", braces=False
            ),
            Operand("f", "constant", f"sparsity selector, {choice}", braces=False),
        ]
    for scale in form.scales:
        line = "row" if scale.operand == "A" else "column"
        name = f"scale-{scale.operand.lower()}"
        choices = (scale.byte_ids, scale.thread_ids)
        ids = " and ".join(
            f"{what} in {{{', '.join(map(str, allowed))}}}"
            for what, allowed in zip(("byte-id", "thread-id"), choices, strict=True)
        )
        plural = "scale" if scale.blocks == 1 else "scales"
        meaning = f"{scale.blocks} {plural} of {scale.dtype} a {line} of {scale.operand}"
        operands += [
            Operand(f"{name}-data", "source", meaning),
            Operand(f"{name}-ids", "constant", ids, 2),
        ]
    return tuple(operands)


def _rows(form: LdMatrix | StMatrix) -> tuple[Operand, ...]:
    matrices = "matrix" if form.matrices == 1 else "matrices"
    meaning = f"{form.matrices} {matrices} of {form.rows} x {form.cols} of {form.bits} bits"
    layout = form.fragment if form.matrices == 1 else None
    lanes = form.matrices * form.rows
    address = Operand("p", "address", f"address of a row of 16 bytes, of lanes 0 to {lanes - 1}")
    if isinstance(form, StMatrix):
        return address, Operand("r", "source", meaning, form.registers, "b32", layout)
    return Operand("r", "result", meaning, form.registers, "b32", layout), address
