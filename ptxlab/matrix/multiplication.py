"""The record of one multiplication: shape, types, and what sparse and block-scaled ones have besides.

What the tables of all families say in the same words is here too. Source: PTX ISA, the ``section``
that each of their forms names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import cast

from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import (
    UNTYPED,
    Fidelity,
    Form,
    Role,
    SharedOperand,
    SignatureOperand,
    constant,
    descriptor,
    fragment,
    register,
)
from ptxlab.matrix.fragment import FragmentLayout, container_bits
from ptxlab.matrix.position import FragmentKind
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import Metadata

TypePair = tuple[str, str]
Shape = tuple[int, int, int]


def every(*dtypes: str) -> tuple[TypePair, ...]:
    """Return all pairs of types of A and B."""
    return tuple((a, b) for a in dtypes for b in dtypes)


def same(*dtypes: str) -> tuple[TypePair, ...]:
    """Return the pairs of equal types of A and B."""
    return tuple((dtype, dtype) for dtype in dtypes)


WHOLE_FLOAT8 = every("e4m3", "e5m2")
EVERY_N = tuple(range(8, 257, 8))
INTEGER_N = (*range(8, 33, 8), *range(48, 257, 16))
"""What n may be in asynchronous instructions, of floating-point numbers and of integers."""


def variants(dtype: str) -> tuple[str, ...]:
    """Return what may be added to the name of a multiplication whose A is of ``dtype``."""
    if dtype in ("s8", "u8", "s4", "u4"):
        return ("", ".satfinite")
    return ("", ".rn", ".rz", ".rm", ".rp") if dtype == "f64" else ("",)


@cache
def layout(
    operand: str,
    shape: Shape,
    dtype: str,
    kind: FragmentKind | None = None,
    *,
    packed: bool = False,
    threads: int = WARP,
) -> FragmentLayout:
    """Return the layout of A, B, C or D of a shape m, n, k, of the usual kind if none is given."""
    m, n, k = shape
    usual: dict[str, tuple[FragmentKind, int, int]] = {"A": ("a", m, k), "B": ("b", k, n)}
    own, rows, cols = usual.get(operand, ("accumulator", m, n))
    bits = container_bits(dtype, packed=packed)
    return FragmentLayout(operand, kind or own, rows, cols, dtype, bits, threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixInstruction(Form):
    """One matrix instruction, D = A * B + C over a warp or, ``wgmma``, the four of a warpgroup.

    ``m``, ``n``, ``k`` is the shape: A is m x k, B is k x n, C and D are m x n. ``a_type``,
    ``b_type``, ``c_type`` and ``d_type`` are PTX types. Where there is no C the instruction adds to D.
    Of a sparse instruction ``operands`` has A without its zeros, m x k/2, and ``metadata`` says where
    those were. ``scales`` are those of A and B of a block-scaled one. ``rounding`` is the PTX rounding
    modifier of f64, ``bit_operation`` what one-bit types do in place of multiplying.
    """

    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    d_type: str
    metadata: Metadata | None = None
    scales: tuple[Scale, ...] = ()
    satfinite: bool = False
    rounding: str = "rn"
    bit_operation: str = ""

    def held(self, name: str) -> FragmentLayout | SharedOperand:
        """Return operand A, B, C or D, in registers or in shared memory; D for a C that is none.

        Raises KeyError for another name.
        """
        shared = (operand for operand in self.shared if operand.operand == name)
        return next(shared, None) or self.operand("D" if self.shared and name == "C" else name)

    @property
    def fidelity(self) -> Fidelity:
        """Nobody has measured sums of sparse products; those of integers are exact all the same."""
        sparse = self.metadata is not None and self.a_type[0] not in "su"
        return "unverified" if sparse else "exact"

    @property
    def rounds(self) -> bool:
        """Sums of integers are exact, and those of f64 are IEEE 754's."""
        return self.d_type in ("f16", "f32")

    @property
    def threads(self) -> int:
        """How many threads execute it together."""
        return self.operands[-1].threads

    @property
    def shape(self) -> str:
        """The shape as the instruction spells it, ``m16n8k16``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def line(self) -> str:
        """The name, with N for n where the n are in steps."""
        return self.name.replace(self.shape, f"m{self.m}nNk{self.k}") if self.shared else self.name

    @property
    def flops(self) -> int:
        """The multiplications and additions: 2 m n k, zeros that a sparse A leaves out included.

        As often as there are matrices, where the threads hold several.
        """
        return 2 * self.m * self.n * self.k * self.operands[-1].matrices

    @property
    def signature(self) -> tuple[SignatureOperand, ...]:
        """All operands, in the order PTX writes them.

        Source: the syntax blocks of the PTX ISA's sections on mma, mma.sp, wmma.mma and
        wgmma.mma_async.
        """
        return tuple(_warpgroup(self) if self.shared else _warp(self))


def _warp(form: MatrixInstruction) -> Iterator[SignatureOperand]:
    for name in "DABC":
        layout, role = form.operand(name), "result" if name == "D" else "source"
        yield fragment(name.lower(), cast(Role, role), layout, _held(form, layout))
    yield from _sparsity(form, "e", "f")
    for scale in form.scales:
        name = f"scale-{scale.operand.lower()}"
        line = "row" if scale.operand == "A" else "column"
        plural = "scale" if scale.blocks == 1 else "scales"
        meaning = f"{scale.blocks} {plural} of {scale.dtype} a {line} of {scale.operand}"
        yield register(f"{name}-data", meaning)
        allowed = scale.byte_ids, scale.thread_ids
        bytes_, threads = (", ".join(map(str, ids)) for ids in allowed)
        ids = f"byte-id in {{{bytes_}}} and thread-id in {{{threads}}}"
        yield SignatureOperand(f"{name}-ids", "constant", ids, 2, "u16", allowed=allowed)


def _held(form: MatrixInstruction, layout: FragmentLayout) -> str:
    """Return the type that decides which registers an operand takes, "" where its own one does.

    Here and there ptxas takes others (measured form by form).
    """
    dtype, is_factor = layout.dtype, layout.operand in ("A", "B")
    if form.scales and is_factor:
        return UNTYPED
    if dtype == "f64" and not (form.family == "wmma" and is_factor):
        return "b64"
    if form.metadata and form.a_type in ("f16", "bf16", "tf32") and dtype != "f16":
        return "b32"
    if form.d_type == "s32" and (form.family == "wmma" or form.shape == "m8n8k16"):
        return "s32"
    return ""


def _sparsity(form: MatrixInstruction, metadata: str, selector: str) -> Iterator[SignatureOperand]:
    """Yield the two operands of a sparse A under the names the ISA gives them."""
    if form.metadata:
        kept, of = form.metadata.granularity
        last = form.metadata.selectors[-1]
        yield register(metadata, f"metadata: which {kept} of {of} elements A keeps")
        meaning = f"sparsity selector, {f'0 to {last}' if last else '0'}"
        yield constant(selector, meaning, allowed=(form.metadata.selectors,))


def _warpgroup(form: MatrixInstruction) -> Iterator[SignatureOperand]:
    """Yield the operands of ``wgmma``: D, A and B, and how they are taken."""
    yield fragment("d", "result", form.operand("D"))
    if form.variant == "rs":
        yield fragment("a", "source", form.operand("A"), "" if form.d_type == "s32" else "f16x2")
    for o in form.shared:
        yield descriptor(o.operand.lower(), f"{o.operand}, {o.rows} x {o.cols} of {o.dtype}")
    yield from _sparsity(form, "sp-meta", "sp-sel")
    yield register("scale-d", "whether D is added, or taken as zero", "pred")
    if form.d_type != "s32":
        for name in "ab":
            meaning = f"1, or -1 to negate {name.upper()}"
            yield constant(f"imm-scale-{name}", meaning, "1", (range(-1, 2, 2),))
    for o in form.shared:
        if "mn" in o.majors:
            along = "m" if o.operand == "A" else "n"
            meaning = f"whether {o.operand} is contiguous along {along}, not k"
            yield constant(f"imm-trans-{o.operand.lower()}", meaning, allowed=(range(2),))
