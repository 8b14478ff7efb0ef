"""The operands of every matrix instruction, in the order PTX writes them.

Source: the syntax blocks of the PTX ISA's sections on mma, mma.sp, wmma.load, wmma.mma, wmma.store,
ldmatrix, stmatrix, movmatrix and wgmma.mma_async; those on tcgen05 are in its own tables.
"""

from __future__ import annotations

from ptxlab.matrix.asynchronous import AsyncInstruction
from ptxlab.matrix.entry import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.instruction import MatrixInstruction
from ptxlab.matrix.ldmatrix import LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.operand import Operand, Role, descriptor, predicate
from ptxlab.matrix.tensor_memory import TensorMemoryMove

_OWN_REGISTER_TYPES = ("f32", "f64", "s32")


def signature(form: Form) -> tuple[Operand, ...]:
    """Return the operands of ``form``."""
    if isinstance(form, MatrixInstruction):
        return _asynchronous(form) if form.shared else _multiplication(form)
    if isinstance(form, TensorMemoryMove | AsyncInstruction):
        return form.signature
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
    operands += _sparsity(form, "e", "f")
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


def _sparsity(form: MatrixInstruction, metadata: str, selector: str) -> list[Operand]:
    """Return the two operands of a sparse A under the names the ISA gives them."""
    if form.metadata is None:
        return []
    kept, of = form.metadata.granularity
    last = form.metadata.selectors[-1]
    choice = f"0 to {last}" if last else "0"
    meaning = f"metadata: which {kept} of {of} elements A keeps"
    return [
        Operand(metadata, "source", meaning, braces=False),
        Operand(selector, "constant", f"sparsity selector, {choice}", braces=False),
    ]


def _asynchronous(form: MatrixInstruction) -> tuple[Operand, ...]:
    """Return the operands of ``wgmma``: D, A and B, and how they are taken."""
    d = _fragment("d", "result", form.operand("D"))
    matrices = [
        descriptor(o.operand.lower(), f"{o.operand}, {o.rows} x {o.cols} of {o.dtype}")
        for o in form.shared
    ]
    if form.variant == "rs":
        matrices.insert(0, _fragment("a", "source", form.operand("A")))
    operands = [d, *matrices, *_sparsity(form, "sp-meta", "sp-sel")]
    operands.append(predicate("scale-d", "whether D is added, or taken as zero"))
    if form.d_type != "s32":
        operands += [
            Operand(
                f"imm-scale-{name}", "constant", f"1, or -1 to negate {name.upper()}", value="1"
            )
            for name in "ab"
        ]
    operands += [
        Operand(
            f"imm-trans-{o.operand.lower()}",
            "constant",
            f"whether {o.operand} is contiguous along {'m' if o.operand == 'A' else 'n'}, not k",
        )
        for o in form.shared
        if "mn" in o.majors
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
