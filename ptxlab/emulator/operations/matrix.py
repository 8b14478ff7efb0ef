"""mma.sync, mma.sp and wmma.mma on whole warps, with the fragment layouts of ``ptxlab.matrix``.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma", "mma.sp" and "Warp-level Matrix
Multiply-and-Accumulate Instruction: wmma.mma".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix_native import native_product, natively
from ptxlab.emulator.operations.warp import ALIGNED, WholeWarps
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import Target
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.rules import floating
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import InvalidMetadata, Metadata
from ptxlab.numbers.doubles import multiply_add_double
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_integer import multiply_add_bits, multiply_add_integer
from ptxlab.numbers.tensor_core_scaled import multiply_add_grouped, multiply_add_scaled
from ptxlab.numbers.tensor_core_software import (
    multiply_add_bytes,
    multiply_add_m8n8k4,
    multiply_add_wmma,
)
from ptxlab.numbers.tensor_core_sparse import SparseRows
from ptxlab.syntax.tree import Integer, Operand


def word_type(layout: FragmentLayout) -> str:
    """Return the type that a fragment's registers are read as, and written."""
    return f"b{layout.register_bits}"


@dataclass(frozen=True, slots=True)
class Sparsity:
    """The metadata operand of a sparse instruction, and the selector."""

    metadata: Metadata
    source: Source
    selector: int

    def places(self, warps: WholeWarps) -> Array:
        """Return the k of every element of a sparse A, [m, k / 2, warps]."""
        values = self.metadata.decode(warps.read(self.source), self.selector)
        try:
            self.metadata.validate(values)
        except InvalidMetadata as error:
            lane, _ = self.metadata.place(error.row, error.chunk, self.selector)
            thread = warps.first_thread(error.matrix) + lane
            defined = ", ".join(f"{value:#06b}" for value in self.metadata.allowed)
            raise warps.fault(
                f"{error}, held by {warps.wave.thread(thread)}, is undefined",
                hint=f"defined are {defined}",
            ) from None
        return np.moveaxis(self.metadata.columns(values), 0, -1)


@dataclass(frozen=True, slots=True)
class _Scales:
    """The scales of A or B: their register, byte-id and thread-id."""

    scale: Scale
    source: Source
    ids: dict[str, Source]

    def read(self, warps: WholeWarps) -> Array:
        """Return [m, blocks, warps] of A's scales, or [blocks, n, warps] of B's."""
        ids = []
        for name, source in self.ids.items():
            codes = np.unique(warps.read(source))
            if codes.size > 1:
                raise warps.fault(f"{warps.name}: {name} differs between threads")
            ids.append(int(codes[0]))
        try:
            scales = self.scale.unpack(warps.read(self.source), *ids)
        except ValueError as error:
            raise warps.fault(f"{warps.name}: {error}") from None
        return scales.transpose(1, 2, 0) if self.scale.operand == "A" else scales.T


def multiply(context: Context, asked: RowForm) -> Step:
    """Compute D = A*B + C for every active warp at once: dense or sparse, plain or scaled."""
    form = asked.matrix
    assert isinstance(form, MatrixInstruction)
    target, a, b, c, *more = context.instruction.operands
    result = form.operand("D")
    destinations = context.destinations(target, word_type(result))
    layouts = [form.operand(name) for name in "ABC"]
    factors = [
        (layout, context.sources(operand, word_type(layout)))
        for layout, operand in zip(layouts, (a, b, c), strict=True)
    ]
    sparsity, selector = None, 0
    if form.metadata is not None:
        sparsity = sparsity_of(context, form.metadata, more.pop(0), more.pop(0))
        selector = sparsity.selector
    ids = [_constants(context, operand) for operand in more[1::2]]
    scales = [_scales(context, scale, more.pop(0), more.pop(0)) for scale in form.scales]
    compute, line = arithmetic(form, context.target), context.line
    context.participants = ALIGNED

    def run(frame: Frame, threads: Threads) -> None:
        warps = WholeWarps(frame, threads, form.name, line)
        a, b, c = (warps.matrix(layout, sources) for layout, sources in factors)
        places = None if sparsity is None else sparsity.places(warps)
        d = compute(Factors(a, b, c, places, tuple(each.read(warps) for each in scales)))
        warps.write_matrix(result, destinations, d)

    native = native_product("mma", form, context.target, selector, sum(ids, ()))
    if native is None or not all(ids):
        return run
    registers = [source for _, sources in factors for source in sources]
    registers += [sparsity.source] if sparsity else []
    registers += [each.source for each in scales]
    return natively(native, form, run, line, registers, destinations)


def _constants(context: Context, operand: Operand) -> tuple[int, ...]:
    """Return the numbers of an operand, none where one of them is in a register."""
    elements = context.elements(operand)
    values = tuple(each.value for each in elements if isinstance(each, Integer))
    return values if len(values) == len(elements) else ()


def sparsity_of(
    context: Context, metadata: Metadata, register: Operand, selector: Operand
) -> Sparsity:
    """Bind the two operands that say where the elements of a sparse A belong."""
    [source] = context.sources(register, "b32")
    assert isinstance(selector, Integer)
    return Sparsity(metadata, source, selector.value)


def _scales(context: Context, scale: Scale, register: Operand, ids: Operand) -> _Scales:
    [source] = context.sources(register, "b32")
    byte_and_thread = zip(("byte-id", "thread-id"), context.sources(ids, "u16"), strict=True)
    return _Scales(scale, source, dict(byte_and_thread))


for _opcode in ("mma", "wmma.mma"):
    row(f"{_opcode}.*", "", step=multiply, mix="matrix multiply", collective=True)


# ---- which arithmetic a target has ----------------------------------------------------------

# All functions take and return matrices of raw words with the warps last; see
# ``ptxlab.numbers.tensor_core`` and its neighbours.
Product = Callable[..., Array]


@dataclass(frozen=True, slots=True)
class Factors:
    """What one multiplication takes: A [m, k, warps], B [k, n, warps], C [m, n, warps].

    ``places`` are the k of A's elements, [m, k / 2, warps], where A is sparse and without its zeros.
    ``scales`` are those of A, [m, blocks, warps], and B, [blocks, n, warps], where there are any.
    """

    a: Array
    b: Array
    c: Array
    places: Array | None = None
    scales: tuple[Array, ...] = ()


def arithmetic(form: MatrixInstruction, target: Target) -> Callable[[Factors], Array]:
    product = _scaled(form, target) if form.scales else _product(form, target)

    def compute(factors: Factors) -> Array:
        if factors.places is None:
            return product(factors.a, factors.b, factors.c, *factors.scales)
        rows = SparseRows(factors.places)
        scales: tuple[Array, ...] = ()
        if factors.scales:
            scales = (rows.left(factors.scales[0]), rows.repeated(factors.scales[1]))
        a, b, c = rows.left(factors.a), rows.picked(factors.b), rows.accumulator(factors.c)
        return rows.restore(product(a, b, c, *scales))

    return compute


def _product(form: MatrixInstruction, target: Target) -> Product:
    pair: dict[str, Any] = {"a_type": form.a_type, "b_type": form.b_type}
    ends: dict[str, Any] = {"c_type": form.c_type, "d_type": form.d_type}
    rules: Any = floating(form, target)
    match form.a_type:
        case "s8" | "u8" | "s4" | "u4":
            return partial(multiply_add_integer, **pair, satfinite=form.satfinite)
        case "b1":
            return partial(multiply_add_bits, operation=form.bit_operation)
        case "f64":
            return partial(multiply_add_double, rounding=form.rounding)
        case "f16" if form.family == "wmma":
            return partial(multiply_add_wmma, **ends, rules=rules)
        case "f16" if form.k == 4:
            return partial(multiply_add_m8n8k4, **ends, rules=rules)
        case "f16" | "bf16" | "tf32":
            return partial(multiply_add, dtype=form.a_type, acc=form.d_type, rules=rules)
    return partial(multiply_add_bytes, **pair, acc=form.d_type, rules=_present(form, target))


def _scaled(form: MatrixInstruction, target: Target) -> Product:
    if form.operand("B").bits == 4:
        scale_type = form.scales[0].dtype
        rules = _present(form, target)
        return partial(multiply_add_grouped, scale_type=scale_type, rules=rules)
    pair: dict[str, Any] = {"a_type": form.a_type, "b_type": form.b_type}
    return partial(multiply_add_scaled, **pair, rules=_present(form, target))


def _present(form: MatrixInstruction, target: Target) -> Any:
    """Return the arithmetic of the target, which has one where it runs the instruction."""
    rules = floating(form, target)
    if rules is None:
        raise ValueError(f"{target.name} has no arithmetic for {form.name}")
    return rules
