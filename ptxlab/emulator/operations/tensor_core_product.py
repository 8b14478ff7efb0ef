"""tcgen05.mma: one thread has the tensor cores of a CTA, or of two, multiply matrices.

A lies in shared memory or in Tensor Memory, B in shared memory, D in Tensor Memory. What registers say is
taken when the thread issues the product; memory is read and written when it is executed, in the order of
issue (``tensor_core_issue``). Of a pair each CTA has half of the rows of A and D, and half of the columns
of B, which both read. Collector buffers keep what may not change anyway, and do nothing here.

Source: PTX ISA, "TensorCore 5th Generation Instructions: tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws",
"tcgen05.mma.ws.sp".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix import Factors
from ptxlab.emulator.operations.matrix_native import MOST, NativeProduct, native_product
from ptxlab.emulator.operations.tensor_core_arithmetic import arithmetic, scaled_down
from ptxlab.emulator.operations.tensor_core_issue import (
    Cells,
    Issued,
    Operation,
    TensorAddress,
    matrix_descriptor,
)
from ptxlab.emulator.operations.tensor_core_native import product_task
from ptxlab.emulator.operations.tensor_core_operands import (
    Differing,
    both_halves,
    cells_of_a,
    from_shared,
    from_tensor_memory,
    in_bytes,
    metadata_cells,
    places,
    scales,
    words_of_tensor_memory,
)
from ptxlab.emulator.operations.unit_lines import UnitLines
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import matrix_form, require
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, UnknownForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.in_flight import Joined
from ptxlab.emulator.run.tensor_memory import COLUMNS, LANES
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.legality import parse_needs
from ptxlab.isa.targets import Target
from ptxlab.matrix.canonical import MODES, UNIT_BYTES
from ptxlab.matrix.descriptor import READERS
from ptxlab.matrix.instruction_descriptor import LONG_K
from ptxlab.matrix.sparse import InvalidMetadata
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem, problem
from ptxlab.matrix.tensor_memory_operand import shifted, zero_columns
from ptxlab.syntax.tree import Address, Integer, Operand

if TYPE_CHECKING:  # it makes tables that most programs can spare
    from ptxlab.matrix.tcgen05 import TensorCoreProduct

_USES = ("fill", "use", "lastuse", "discard")
_WORD_BITS = 32
_HALF = 16
_LOW = np.uint32(0xFFFF)


@dataclass(frozen=True, slots=True)
class Multiplication:
    """One tcgen05.mma, prepared. ``a`` is a descriptor, or a place in Tensor Memory."""

    operation: Operation
    form: TensorCoreProduct
    target: Target
    d: TensorAddress
    a: Source | TensorAddress
    b: Source
    metadata: TensorAddress | None
    scales: Sequence[TensorAddress]
    descriptor: Source
    masks: Sequence[Source]
    adds: Source
    shift: int
    zeros: Source | None
    shifts: bool

    def __call__(self, frame: Frame, threads: Threads) -> None:
        """Issue the products of threads."""
        for issued in self.operation.issued(frame, threads):
            words = issued.values(self.descriptor)
            for word in sorted(set(words.tolist())):
                self._begin(issued.part(words == word), word)

    def _begin(self, issued: Issued, word: int) -> None:
        """Take the operands of products of one instruction descriptor, and have them executed in turn."""
        try:
            asked = problem(self.form, word)
        except ValueError as error:
            what = f"instruction descriptor {word:#010x}: {error}"
            hint = f"ptxlab layout 128x256 --descriptor kind::{self.form.kind} prints one of m x n"
            raise issued.fault(0, what, hint=hint, kind="async") from None
        known = self.form.long_k_targets
        if asked.k == LONG_K and self.target.name not in known:
            raise issued.unsupported(
                f"k of {asked.k} is known of {' '.join(known)} alone, not of {self.target.name}"
            )
        self._refuse(issued, asked)
        if self.form.fidelity_on(self.target) == "unverified" or self.shift:
            issued.wave.unverified.add(self.operation.line)
        product = _Product(self, issued, asked)
        issued.start(product, product.access)

    def _refuse(self, issued: Issued, product: TensorCoreProblem) -> None:
        """Raise Unsupported where nothing public says how operands lie."""
        if product.path.scattered and product.form.sparse:
            raise issued.unsupported(
                f"where the metadata of a sparse A of m {product.m} lies is not modelled"
            )
        if self.shifts and product.path.rows != LANES:
            raise issued.fault(0, f".ashift with m of {product.m}", kind="async")
        if product.path.parts > 1 and max(product.scale_words) > 1:
            raise issued.unsupported(
                f"where the scales behind the fourth of a row lie with m of {product.m} is not modelled"
            )


class _Product(Joined):
    """Products that have been issued: registers as they were, for memory as it will be."""

    def __init__(self, how: Multiplication, issued: Issued, product: TensorCoreProblem) -> None:
        self._how = how
        self._issued = issued
        self._problem = product
        path = product.path
        halves = (0, _HALF) if path.scattered else (0,)
        self._swizzles: dict[str, str] = {}
        self._d = issued.cells(how.d, path.columns, "D", lanes=halves)
        self._b = self._shared(how.b, "B")
        self._a: UnitLines | Cells
        if isinstance(how.a, Source):
            self._a = self._shared(how.a, "A")
        else:
            columns = product.a.cols * product.bits // _WORD_BITS
            self._a = issued.cells(how.a, columns, "A", lanes=halves)
            apart = self._a.lane != self._d.lane
            if apart.any():
                what = "A and D begin in different halves of the lanes of a quarter"
                hint = "both begin at lane 0, or both at lane 16"
                raise issued.fault(int(apart.argmax()) // product.form.group, what, hint=hint)
        width = 1 if product.bits >= _HALF else 2
        self._metadata = how.metadata and issued.cells(how.metadata, width, "the metadata")
        self._scales = [
            issued.cells(
                cells, int(product.scale_cells(name)[1].max()) + 1, f"the scales of {name}"
            )
            for cells, name in zip(how.scales, "AB", strict=False)
        ]
        self._adds = issued.values(how.adds).repeat(product.form.group)
        self._masks = np.array([issued.values(mask) for mask in how.masks], np.uint32)
        self._zeros = None if how.zeros is None else self._zero_columns(issued.values(how.zeros))
        self._native = self._machine_code()

    def _machine_code(self) -> NativeProduct | None:
        """Return the product of machine code, None where some of it would be left to arrays."""
        how, product = self._how, self._problem
        blank = self._issued.wave.tensor_memory.blank if product.d_type == "f16" else 0
        if self._zeros is not None or how.shift or how.shifts or blank:
            return None
        most = MOST if self._is_plain else 1
        return native_product("tcgen05", product, how.target, isinstance(self._a, Cells), most)

    @property
    def _is_plain(self) -> bool:
        """Whether shared memory and D is all that it needs when it is executed."""
        is_own = isinstance(self._a, UnitLines) and not (self._metadata or self._scales)
        return is_own and not len(self._masks)

    def _shared(self, source: Source, name: str) -> UnitLines:
        """Return the lines of units of 16 bytes that A or B is read from."""
        issued, product = self._issued, self._problem
        operand, major = (
            (product.a, product.majors[0]) if name == "A" else (product.b, product.majors[1])
        )
        descriptors = issued.values(source)
        for word, at in issued.distinct(descriptors):
            try:
                mode = MODES[str(matrix_descriptor(word)["swizzle"])]
                self._swizzles[name] = mode.name
                if product.bits == 4 or operand.dtype in READERS["tcgen05"].types:
                    dtype = "e2m1x2" if product.bits == 4 else operand.dtype
                    READERS["tcgen05"].check(dtype, major, mode)
            except ValueError as error:
                raise issued.misdescribed(at, name, word, error) from None
        return issued.lines(operand, major, descriptors)

    def _zero_columns(self, masks: Array) -> Array:
        """Return which columns of B are zero, [n, products]."""
        path = self._problem.path
        try:
            columns = [zero_columns(mask, path.n, path.parts) for mask in masks.tolist()]
        except ValueError as error:
            raise self._issued.unsupported(error) from None
        return np.stack(columns, axis=1)

    def access(self) -> TensorCoreAccess:
        """Return what is accessed: of D also rows that are disabled."""
        path, product = self._problem.path, self._problem
        read, shared = {}, {"B": self._b.units * UNIT_BYTES}
        written = {"D": self._d.at(*path.d())}
        if isinstance(self._a, Cells):
            read["A"] = cells_of_a(product, self._a)
            if self._how.shifts:
                _, written["A"] = shifted(read["A"])
        else:
            shared["A"] = self._a.units * UNIT_BYTES
        if self._metadata is not None:
            read["metadata"], _ = metadata_cells(product, self._metadata)
        for name, cells in zip("AB", self._scales, strict=False):
            read[f"scale-{name}"] = cells.at(*product.scale_cells(name))
        return TensorCoreAccess(
            product.form.group, shared, read, written, product, self._adds, self._swizzles
        )

    # ---- execution ----

    def __call__(self, chosen: Array | None) -> None:
        """Execute the products at the positions ``chosen``, or all."""
        self._execute(chosen, ())

    def land_with(self, others: Sequence[Joined]) -> None:
        """Execute all, and others behind them, several with one D at once."""
        chain: list[_Product] = [self]
        for product in others:
            assert isinstance(product, _Product)
            if not product._goes_on_from(chain):
                chain[0]._execute(None, chain[1:])
                chain = []
            chain.append(product)
        chain[0]._execute(None, chain[1:])

    def _goes_on_from(self, chain: Sequence[_Product]) -> bool:
        """Say whether machine code can add it to what these products give."""
        first, native = chain[0], self._native
        return (
            native is not None
            and native is first._native
            and native.hot(self._issued.wave)
            and len(chain) < MOST
            and self._is_plain
            and bool(self._adds.all())
            and self._d.same(first._d)
        )

    def _execute(self, chosen: Array | None, others: Sequence[_Product]) -> None:
        """Execute the products at some positions, or all with others that go on from them."""
        operations = slice(None) if chosen is None else chosen
        some, native = self._issued.of_ctas(chosen), self._native
        if native is None:
            self._by_arrays(operations, some)
        elif not native.hot(self._issued.wave):
            native.timed(partial(self._by_arrays, operations, some))
        elif self._is_plain:
            self._in_background(native, some, others)
        else:
            self._natively(native, operations, some)

    def _in_background(
        self, native: NativeProduct, some: Array | slice, others: Sequence[_Product]
    ) -> None:
        pairs, reads, region = [], [], self._issued.wave.regions["shared"]
        for product in (self, *others):
            assert isinstance(product._a, UnitLines)
            a, b = product._a.part(some), product._b.part(some)
            pairs.append((product._in_bytes("A", a), product._in_bytes("B", b)))
            reads += [a.span(region), b.span(region)]
        wave, adds = self._issued.wave, self._adds[some]
        task = product_task(wave, self._problem, pairs, self._d.part(some), adds)
        native.begin(wave, task.count, task.words, task, reads)

    def _in_bytes(self, name: str, lines: UnitLines) -> UnitLines:
        """Return lines of A, or of B of all CTAs that multiply it, as machine code has them."""
        product = self._problem
        lines = in_bytes(product, name, lines)
        if name == "A":
            return lines
        return lines.side_by_side(product.form.group, 1 if product.majors[1] == "k" else 2)

    def _natively(
        self, native: NativeProduct, operations: Array | slice, some: Array | slice
    ) -> None:
        product, wave = self._problem, self._issued.wave
        memory, kept = wave.tensor_memory.cells, self._disabled(operations, some)
        before = memory[kept]
        if isinstance(self._a, Cells):
            words = words_of_tensor_memory(wave, product, self._a.part(some))
            a = UnitLines.dense(words.reshape(-1, *words.shape[2:]))
        else:
            a = self._in_bytes("A", self._a.part(some))
        b = self._in_bytes("B", self._b.part(some))
        by_part = isinstance(self._a, Cells)
        chosen = [self._places(some, part * by_part) for part in range(product.path.parts)]
        task = product_task(
            wave,
            product,
            [(a, b)],
            self._d.part(some),
            self._adds[some],
            self._read_scales(some),
            [places for places in chosen if places is not None],
        )
        native.run(wave, task.count, task.words)
        memory[kept] = before

    def _by_arrays(self, operations: Array | slice, some: Array | slice) -> None:
        """Compute D of some ``operations``, and ``some`` CTAs that are theirs."""
        product, wave = self._problem, self._issued.wave
        path, group = product.path, product.form.group
        cells = self._cells(some)
        b = both_halves(from_shared(product, "B", self._b.part(some)), group)
        if self._zeros is not None:
            b = np.where(self._zeros[:, operations], b.dtype.type(0), b)
        c = self._addend(cells, self._adds[some])
        scaled = self._read_scales(some)
        if isinstance(self._a, Cells):
            parts = from_tensor_memory(wave, product, self._a.part(some))
        else:
            parts = [from_shared(product, "A", self._a.part(some))]
        d, compute = np.empty_like(c), arithmetic(product, self._how.target)
        width = path.n // len(parts)
        for number, a in enumerate(parts):
            of = slice(number * width, (number + 1) * width)
            its_scales = (scaled[0], scaled[1][:, of]) if scaled else ()
            factors = Factors(a, b[:, of], c[:, of], self._places(some, number), its_scales)
            d[:, of] = compute(factors)
        memory = wave.tensor_memory.cells
        kept = self._disabled(operations, some)
        before = memory[kept]
        words = d.transpose(2, 0, 1).astype(np.uint32)
        if product.d_type == "f16":
            # What is in the upper half of a cell, the PTX ISA leaves open.
            words |= wave.tensor_memory.blank & ~_LOW
        memory[cells] = words
        memory[kept] = before
        if self._how.shifts:
            assert isinstance(self._a, Cells)
            earlier, later = shifted(cells_of_a(product, self._a.part(some)))
            memory[later] = memory[earlier]

    def _cells(self, some: Array | slice) -> Array:
        """Return the cells of D, [CTAs, rows, n]."""
        places = self._problem.path.d()
        return self._d.part(some).at(*(x[np.newaxis] for x in places))[:, 0]

    def _disabled(self, operations: Array | slice, some: Array | slice) -> Array:
        """Return the cells of D in lanes that are disabled."""
        if not len(self._masks):
            return np.empty(0, np.int64)
        cells = self._cells(some)
        masks = self._masks[:, operations].T.reshape(len(cells), -1)
        lane = cells // COLUMNS % LANES
        words = np.take_along_axis(masks, (lane // _WORD_BITS).reshape(len(cells), -1), axis=1)
        disabled = words.reshape(lane.shape) >> (lane % _WORD_BITS).astype(np.uint32) & np.uint32(1)
        in_disabled: Array = cells[disabled == 1]
        return in_disabled

    def _addend(self, cells: Array, adds: Array) -> Array:
        """Return C [rows, n, products]: D as it is, or zero where ``adds`` does not hold."""
        words = self._issued.wave.tensor_memory.cells.take(cells).transpose(1, 2, 0)
        c = (words & _LOW).astype(np.uint16) if self._problem.d_type == "f16" else words
        if not adds.all():
            c = np.where(adds, c, c.dtype.type(0))
        return scaled_down(np.ascontiguousarray(c), self._how.shift, self._problem.d_type)

    def _read_scales(self, some: Array | slice) -> tuple[Array, ...]:
        wave, product = self._issued.wave, self._problem
        try:
            return tuple(
                scales(wave, product, name, cells.part(some))
                for name, cells in zip("AB", self._scales, strict=False)
            )
        except Differing as error:
            hint = "each quarter of the lanes must hold all of them: tcgen05.cp.32x128b.warpx4 copies so"
            at = self._operation(some, error.at)
            raise self._issued.fault(at, str(error), hint=hint, kind="async") from None

    def _places(self, some: Array | slice, part: int) -> Array | None:
        if self._metadata is None:
            return None
        try:
            return places(self._issued.wave, self._problem, self._metadata.part(some), part)
        except InvalidMetadata as error:
            at = self._operation(some, error.matrix)
            hint = "a chunk's two indices increase, the lower one in the lower bits"
            raise self._issued.fault(at, f"{error} is undefined", hint=hint, kind="async") from None

    def _operation(self, some: Array | slice, at: int) -> int:
        """Return the position of the operation that is for the CTA at a position among ``some``."""
        return int(np.arange(self._d.cta.size)[some][at]) // self._problem.form.group


# ---- from the instruction to that -----------------------------------------------------------


def multiply(context: Context, asked: RowForm) -> Step:
    """Multiply, for every thread that executes it, when it is waited for."""
    form = cast("TensorCoreProduct", matrix_form(context, asked))
    operands = context.instruction.operands
    names = form.written([len(context.elements(operand)) for operand in operands])
    given = {name.name: operand for name, operand in zip(names, operands, strict=True)}
    shifts = _checked(context, asked, form)
    shift, zeros, masks = (
        given.get(name)
        for name in ("scale-input-d", "zero-column-mask-desc", "disable-output-lane")
    )
    return Multiplication(
        operation=Operation.of(context, asked),
        form=form,
        target=context.target,
        d=context.address(given["d-tmem"]),
        a=_a(context, given),
        b=context.source(given["b-desc"], "b64"),
        metadata=context.address(given["sp-meta-tmem"]) if form.sparse else None,
        scales=[context.address(given[f"scale-{name}-tmem"]) for name in "AB" if form.scaling],
        descriptor=context.source(given["idesc"], "b32"),
        masks=() if masks is None else context.sources(masks, "b32"),
        adds=context.source(given["enable-input-d"], "pred"),
        shift=shift.value if isinstance(shift, Integer) else 0,
        zeros=None if zeros is None else context.source(zeros, "b64"),
        shifts=shifts,
    )


def _a(context: Context, given: Mapping[str, Operand]) -> Source | TensorAddress:
    address = given.get("a-tmem")
    if isinstance(address, Address):
        return context.address(address)
    return context.source(given["a-desc"], "b64")


def _checked(context: Context, asked: RowForm, form: TensorCoreProduct) -> bool:
    """Say whether A is shifted behind the product. Raise UnknownForm for modifiers that the form does not take."""
    shifts = "ashift" in asked.modifiers
    if shifts and (form.variant != "ts" or form.stationary or form.scaling):
        raise UnknownForm("takes .ashift with A in Tensor Memory, and without scales or .ws")
    buffers = ("b0", "b1", "b2", "b3") if form.stationary else ("a",)
    uses = [use for use in _USES if not (shifts and use in ("fill", "use"))]
    known = {f"collector::{buffer}::{use}" for buffer in buffers for use in uses}
    wrong = [m for m in asked.modifiers if m.startswith("collector") and m not in known]
    of_b = {f"collector::b::{use}" for use in _USES} if not form.stationary else set()
    if wrong and form.kind != "i8" and of_b.issuperset(wrong):
        require(context, asked.name, parse_needs("sm_107f 9.4"))
    elif wrong:
        raise UnknownForm(f"does not take .{wrong[0]}")
    return shifts


_multiply = partial(row, operands="", step=multiply, mix="matrix multiply")
_multiply("tcgen05.mma.*", effects=Effects(begins="tensor_work", work="product"))
