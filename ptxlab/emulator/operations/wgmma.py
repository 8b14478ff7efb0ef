"""wgmma: products of whole warpgroups, whose factors lie in shared memory, or A in registers.

Source: PTX ISA, "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async" and
"wgmma.mma_async.sp", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix import Factors, Sparsity, arithmetic, sparsity_of, word_type
from ptxlab.emulator.operations.matrix_native import (
    MOST,
    NativeProduct,
    blank,
    native_product,
    repeated,
)
from ptxlab.emulator.operations.order import nothing
from ptxlab.emulator.operations.unit_lines import UnitLines
from ptxlab.emulator.operations.warp import Aligned
from ptxlab.emulator.operations.warpgroups import (
    FactorInMemory,
    FactorInRegisters,
    HeldFactor,
    SharedFactor,
    Warpgroups,
)
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import matrix_form
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.in_flight import Joined
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.syntax.tree import Integer, Operand

TOGETHER = Aligned(WARPGROUP)


@dataclass(frozen=True, slots=True)
class Multiplication:
    """One wgmma.mma_async, prepared.

    ``negates`` says that imm-scale-a and imm-scale-b make the product negative.
    """

    form: MatrixInstruction
    d: Sequence[Destination]
    c: Sequence[Source]
    a: SharedFactor | HeldFactor
    b: SharedFactor | HeldFactor
    sparsity: Sparsity | None
    adds: Source
    negates: bool
    writes: frozenset[int]
    compute: Callable[[Factors], Array]
    native: NativeProduct | None
    line: int

    def start(self, frame: Frame, threads: Threads) -> None:
        """Begin the product: operands are taken now, shared memory and D when it is waited for.

        An instruction that touches D waits too, as ptxas makes it: "warpgroup.wait is injected in
        around line 7 by compiler to allow use of registers defined by GMMA" (C7517).
        """
        if isinstance(self.a, HeldFactor):  # as it is now
            frame.leave_sums({source.slot for source in self.a.sources})
        then = Frame(frame.wave, frame.layout, frame.registers.copy(), frame.local_base)
        begun = self.begun(Warpgroups(then, threads.apart(), self.form.name, self.line), frame)
        if frame.wave.watched:
            moved = self.a.moved(begun.then) + self.b.moved(begun.then)
            frame.wave.watcher.begun(threads, moved, None)
        frame.wave.products.start(threads, begun, writes=self.writes)

    def begun(self, then: Warpgroups, frame: Frame) -> _Begun:
        """Take the operands of warpgroups as they were when it was begun, for a frame as it will be."""
        adds = then.agreed(self.adds, "scale-d")
        a, b = self.a.issue(then), self.b.issue(then)
        places = None if self.sparsity is None else self.sparsity.places(then)
        return _Begun(self, then, then.in_frame(frame), adds, a, b, places)


@dataclass(frozen=True, slots=True)
class _Begun(Joined):
    """A product that has begun: operands as they were ``then``, shared memory and D as they are now."""

    how: Multiplication
    then: Warpgroups
    now: Warpgroups
    adds: Array
    a: FactorInMemory | FactorInRegisters
    b: FactorInMemory | FactorInRegisters
    places: Array | None

    @property
    def lines(self) -> Sequence[UnitLines]:
        """The matrices that it reads in shared memory."""
        return [each.lines for each in (self.a, self.b) if isinstance(each, FactorInMemory)]

    @property
    def metadata(self) -> Array:
        """The register of metadata as it was, of all threads; without a sparse A nothing."""
        sparsity = self.how.sparsity
        return np.empty(0, np.uint32) if sparsity is None else self.then.register(sparsity.source)

    def __call__(self, chosen: Array | None) -> None:
        """Execute it, or for the threads at some positions."""
        if chosen is None:
            self.land_with(())
            return
        frame, threads = self.now.frame, self.now.threads
        some = Threads(threads.width, index=threads.index[chosen])
        then = Warpgroups(self.then.frame, some, self.how.form.name, self.how.line)
        self.how.begun(then, frame).land_with(())

    def land_with(self, others: Sequence[Joined]) -> None:
        """Execute it, and others behind it: those with one D at once, in the order of each D."""
        chains: dict[frozenset[int], list[_Begun]] = {}
        for product in (self, *others):
            assert isinstance(product, _Begun)
            writes = product.how.writes
            meets = any(not writes.isdisjoint(chain) for chain in chains if chain != writes)
            if meets or (writes in chains and not product._goes_on_from(chains[writes])):
                _execute(chains.values())
                chains = {}
            chains.setdefault(writes, []).append(product)
        _execute(chains.values())

    def _goes_on_from(self, chain: Sequence[_Begun]) -> bool:
        """Say whether machine code can add it to what these products give."""
        first, native = chain[0], self.how.native
        return (
            native is not None
            and native is first.how.native
            and len(chain) < MOST
            and isinstance(self.a, FactorInMemory)
            and self.how.negates == first.how.negates
            and self.now.frame is first.now.frame
            and bool(self.adds.all())
            and np.array_equal(self.now.firsts, first.now.firsts)
        )

    def by_arrays(self) -> None:
        how = self.how
        left = self.a.matrix()
        if how.negates:
            left = left ^ left.dtype.type(1 << (8 * left.itemsize - 1))
        d = how.compute(Factors(left, self.b.matrix(), self._addend(), self.places))
        self.now.write_matrix(how.form.operand("D"), how.d, d)

    def _addend(self) -> Array:
        """Return C: D as it is, or zero where ``adds`` does not hold."""
        layout, adds = self.how.form.operand("D"), self.adds
        if not adds.any():
            word = np.dtype(f"u{layout.bits // 8}")
            return np.zeros((layout.rows, layout.cols, len(adds)), word)
        c = self.now.matrix(layout, self.how.c)
        return c if adds.all() else c * adds


def _execute(chains: Iterable[Sequence[_Begun]]) -> None:
    """Execute chains of products, each of one D."""
    together: dict[tuple[NativeProduct, int], list[Sequence[_Begun]]] = {}
    for chain in chains:
        native, wave = chain[0].how.native, chain[0].now.wave
        if native is not None and native.hot(wave):
            together.setdefault((native, chain[0].now.count), []).append(chain)
            continue
        wave.background.finish()
        for product in chain:
            if native is None:
                product.by_arrays()
            else:
                native.timed(product.by_arrays)
    for (native, count), alike in together.items():
        wave = alike[0][0].now.wave
        tasks = list(map(_task, alike))
        words = [count, *(word for words, _ in tasks for word in words)]
        lines = {id(line): line for chain in alike for product in chain for line in product.lines}
        spans = [line.span(wave.regions["shared"]) for line in lines.values()]
        native.begin(wave, count * len(alike), words, (tasks, alike), spans)


def _task(chain: Sequence[_Begun]) -> tuple[Sequence[int], object]:
    """Return the words of a chain for machine code, and what must stay as long as it works with them.

    They are those that ``ptxlab.native.tensor_core.products`` has.
    """
    first = chain[0]
    how, groups = first.how, first.now
    told = [product.metadata for product in chain]
    rows = zip(chain, told, strict=True)
    table = np.array([(*each.a.words, *each.b.words, words.ctypes.data) for each, words in rows])
    firsts, masks = groups.firsts // WARP, -first.adds.astype(np.int32)
    in_registers = first.a.registers() if isinstance(first.a, FactorInRegisters) else []
    c, d = _sums(groups, how)
    bits = how.form.held("A").bits
    flips = repeated(1 << (bits - 1), bits) if how.negates else 0
    places = (array.ctypes.data for array in (table, firsts, masks))
    registers = [*in_registers, *c, *d]
    words = [len(chain), *places, flips, *map(id, registers)]
    return words, (table, firsts, masks, told, registers)


def _sums(groups: Warpgroups, how: Multiplication) -> tuple[Sequence[Array], Sequence[Array]]:
    """Return the arrays of C, and those that D is to be in: both are the sum so far, where nobody else has it."""
    frame, word = groups.frame, np.dtype(np.uint32)
    slots = [destination.slot for destination in how.d]
    old = [frame.registers[slot] for slot in slots]
    own = frame.sums.get(how.writes)
    if own is not None and all(map(is_, own, old)):
        return own, own
    frame.leave_sums(how.writes)
    c = [groups.register(source) for source in how.c]
    d = [blank(value, groups.threads, word) for value in old]
    for slot, value in zip(slots, d, strict=True):
        frame.registers[slot] = value
    if not frame.wave.watched:
        frame.sums[how.writes] = d
    return c, d


# ---- from the instruction to that -----------------------------------------------------------


def multiply_async(context: Context, asked: RowForm) -> Step:
    """Compute D = A*B + D for every active warpgroup at once, when it is waited for."""
    form = matrix_form(context, asked)
    assert isinstance(form, MatrixInstruction)
    multiplication = _bound(context, form)
    context.participants = TOGETHER
    context.accumulators |= context.writes
    return multiplication.start


def _bound(context: Context, form: MatrixInstruction) -> Multiplication:
    names = [operand.name for operand in form.signature]
    given = dict(zip(names, context.instruction.operands, strict=True))
    negated = [_is_constant(given.get(f"imm-scale-{x}"), -1) for x in "ab"]
    word = word_type(form.operand("D"))
    d = context.destinations(given["d"], word)
    sparsity = None
    if form.metadata is not None:
        sparsity = sparsity_of(context, form.metadata, given["sp-meta"], given["sp-sel"])
    a, b = (_factor(context, form, name, given) for name in "ab")
    majors = tuple(operand.major if isinstance(operand, SharedFactor) else "" for operand in (a, b))
    return Multiplication(
        form=form,
        d=d,
        c=context.sources(given["d"], word),
        a=a,
        b=b,
        sparsity=sparsity,
        adds=context.source(given["scale-d"], "pred"),
        negates=negated[0] != negated[1],
        writes=frozenset(destination.slot for destination in d),
        compute=arithmetic(form, context.target),
        native=native_product(
            "wgmma", form, context.target, majors, MOST, sparsity.selector if sparsity else 0
        ),
        line=context.line,
    )


def _factor(
    context: Context, form: MatrixInstruction, name: str, given: Mapping[str, Operand]
) -> SharedFactor | HeldFactor:
    operand = form.held(name.upper())
    if isinstance(operand, FragmentLayout):
        return HeldFactor(operand, context.sources(given[name], word_type(operand)))
    along_mn = _is_constant(given.get(f"imm-trans-{name}"), 1)
    source = context.source(given[f"{name}-desc"], "b64")
    return SharedFactor(operand, "mn" if along_mn else "k", source)


def _is_constant(operand: Operand | None, value: int) -> bool:
    """Say whether an operand, which not all forms have, is this constant."""
    return isinstance(operand, Integer) and operand.value == value


def fence(context: Context, asked: RowForm) -> Step:
    """Order accesses to registers and products, which take their registers when they begin."""
    context.participants = TOGETHER
    return nothing


def commit_group(context: Context, asked: RowForm) -> Step:
    """Close the group of products."""
    context.participants = TOGETHER
    return lambda frame, threads: frame.wave.products.commit(threads)


def wait_group(context: Context, asked: RowForm) -> Step:
    """Wait for all groups of products but the latest ones."""
    [allowed] = context.operands(1)
    context.participants = TOGETHER
    return lambda frame, threads: frame.wave.products.wait(threads, allowed.value)


row(
    "wgmma.mma_async.*",
    "",
    step=multiply_async,
    mix="matrix multiply",
    collective=True,
    effects=Effects(begins="products", work="product"),
)
_order = partial(row, mix="synchronization", needs="sm_90a 8.0", collective=True)
_order(
    "wgmma.fence.sync{.aligned}",
    "",
    step=fence,
    fidelity="ordering",
    effects=Effects(fence="registers"),
)
_order(
    "wgmma.commit_group.sync{.aligned}",
    "",
    step=commit_group,
    effects=Effects(commits="products"),
)
_order(
    "wgmma.wait_group.sync{.aligned}",
    "#u32<4294967296",
    step=wait_group,
    effects=Effects(waits="products"),
)
