"""wgmma: products of whole warpgroups, whose factors lie in shared memory, or A in registers.

Source: PTX ISA, "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async" and
"wgmma.mma_async.sp", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix import (
    Factors,
    Sparsity,
    arithmetic,
    sparsity_of,
    word_type,
)
from ptxlab.emulator.operations.matrix_native import (
    NativeProduct,
    blank,
    each,
    made_of,
    repeated,
)
from ptxlab.emulator.operations.order import nothing
from ptxlab.emulator.operations.warp import Aligned, WholeWarps
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import matrix_form
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import MemoryAccess, Tiles
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP, WARPGROUP, Target
from ptxlab.matrix.canonical import MODES, UNIT_BYTES
from ptxlab.matrix.descriptor import WGMMA_DESCRIPTOR
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.shared_matrix import addresses, core_matrices, elements
from ptxlab.native.value import ModuleFunction
from ptxlab.syntax.tree import Integer, Operand

TOGETHER = Aligned(WARPGROUP)


class Warpgroups(WholeWarps):
    """The whole warpgroups that an instruction acts on."""

    kind = "warpgroup"
    size = WARPGROUP

    def register(self, source: Source) -> Array:
        """Return an operand of all threads of the wave, a word for each."""
        return each(source.read(self.registers), self.threads.width)

    def one(self, source: Source, what: str) -> Array:
        """Return an operand that all threads of a warpgroup agree on, [warpgroups]."""
        values = self.read(source)
        differ = (values != values[:, :1]).any(axis=1)
        if differ.any():
            first = self.wave.thread(self.first_thread(int(differ.argmax())))
            raise self.fault(
                f"{self.name}: {what} differs between the threads of the warpgroup of {first}",
                hint="all 128 threads must give the same",
            )
        return np.asarray(values[:, 0])


@dataclass(frozen=True, slots=True)
class _Shared:
    """A factor in shared memory: contiguous along ``major``, ``k`` or ``mn``."""

    operand: SharedOperand
    major: str
    descriptor: Source

    def issue(self, groups: Warpgroups) -> _Lines:
        """Take the descriptors, and return what reads through them."""
        return _Lines(self, groups.wave, self._units(groups))

    def moved(self, groups: Warpgroups) -> list[MemoryAccess]:
        """Return what is read, one core matrix after the other."""
        units, region = core_matrices(self._units(groups)), groups.wave.regions["shared"]
        words, which = np.unique(groups.one(self.descriptor, ""), return_inverse=True)
        fields = [WGMMA_DESCRIPTOR.decode(int(word)) for word in words]
        start = np.array([one["start address"] for one in fields], np.int64)[which]
        start += region.start[groups.threads.index[:: groups.size]]
        swizzles = np.array([one["swizzle"] for one in fields])[which]
        moved = []
        for swizzle in dict.fromkeys(swizzles.tolist()):
            chosen = np.flatnonzero(swizzles == swizzle)
            first = units[chosen].reshape(-1) * UNIT_BYTES
            owner = np.repeat(chosen * groups.size, units[0].size)
            tiles = Tiles(swizzle, MODES[swizzle].span, 0, start[chosen])
            moved.append(MemoryAccess(region, first, UNIT_BYTES, owner, writes=False, tiles=tiles))
        return moved

    def _units(self, groups: Warpgroups) -> Array:
        """Return which 16 bytes of shared memory are read: [warpgroups, lines, units]."""
        name = f"the descriptor of {self.operand.operand}"
        try:
            units = addresses(self.operand, self.major, groups.one(self.descriptor, name))
        except ValueError as error:
            location = groups.fault("").location
            raise Unsupported(f"{groups.name}: {error}", location=location) from None
        return _placed(groups, units, name)


@dataclass(frozen=True, slots=True)
class _Held:
    """A factor in registers."""

    layout: FragmentLayout
    sources: Sequence[Source]

    def issue(self, groups: Warpgroups) -> _Registers:
        """Take the registers, and return what reads them."""
        return _Registers(self, groups)

    def moved(self, groups: Warpgroups) -> list[MemoryAccess]:
        """Return what is read in memory."""
        return []


@dataclass(frozen=True, slots=True)
class _Lines:
    """A factor in shared memory as it will be, when it is read at the ``units``."""

    factor: _Shared
    wave: Wave
    units: Array

    def matrix(self) -> Array:
        """Return [rows, cols, warpgroups]."""
        return elements(self.factor.operand, self.factor.major, self.lines())

    def lines(self) -> Array:
        """Return [warpgroups, lines, units] of 16 bytes, one behind the other."""
        return np.ascontiguousarray(self.wave.regions["shared"].items(UNIT_BYTES)[self.units])


@dataclass(frozen=True, slots=True)
class _Registers:
    """A factor in registers as they were."""

    factor: _Held
    groups: Warpgroups

    def matrix(self) -> Array:
        """Return [rows, cols, warpgroups]."""
        return self.groups.matrix(self.factor.layout, self.factor.sources)

    def registers(self) -> list[Array]:
        return [self.groups.register(source) for source in self.factor.sources]


def _placed(groups: Warpgroups, addresses: Array, name: str) -> Array:
    """Return where in shared memory the 16 bytes at each of [warpgroups, lines, units] addresses are."""
    region = groups.wave.regions["shared"]
    outside = (addresses < region.first) | (addresses + UNIT_BYTES > region.size)
    wrong = outside.any(axis=(1, 2))
    if wrong.any():
        group = int(wrong.argmax())
        raise groups.fault(
            f"{groups.name}: {name} reaches from byte {int(addresses[group].min()):#x} of shared memory "
            f"to {int(addresses[group].max()) + UNIT_BYTES:#x}, of which a CTA has {region.first:#x} to "
            f"{region.size:#x}, in the warpgroup of "
            f"{groups.wave.thread(groups.first_thread(group))}",
            hint="all 64 rows of A and all n columns of B are read, wherever the offsets put them",
            kind="bounds",
        )
    first = groups.threads.index[:: groups.size]
    inside = addresses + region.start[first][:, np.newaxis, np.newaxis]
    return inside // UNIT_BYTES


@dataclass(frozen=True, slots=True)
class Multiplication:
    """One wgmma.mma_async, prepared.

    ``negates`` says that imm-scale-a and imm-scale-b make the product negative.
    """

    form: MatrixInstruction
    d: Sequence[Destination]
    c: Sequence[Source]
    a: _Shared | _Held
    b: _Shared | _Held
    sparsity: Sparsity | None
    adds: Source
    negates: bool
    compute: Callable[[Factors], Array]
    native: NativeProduct | None
    line: int

    def start(self, frame: Frame, threads: Threads) -> None:
        """Begin the product: operands are taken now, shared memory and D when it is waited for.

        An instruction that touches D waits too, as ptxas makes it: "warpgroup.wait is injected in
        around line 7 by compiler to allow use of registers defined by GMMA" (C7517).
        """
        begun = Frame(frame.wave, frame.layout, frame.registers.copy(), frame.local_base)
        whole = self._issued(frame, begun, threads.apart())
        if frame.wave.watched:
            groups = Warpgroups(frame, threads.apart(), self.form.name, self.line)
            moved = self.a.moved(groups) + self.b.moved(groups)
            frame.wave.watcher.begun(threads, moved, None)

        def land(chosen: Array | None) -> None:
            if chosen is None:
                whole()
            else:
                some = Threads(threads.width, index=threads.index[chosen])
                self._issued(frame, begun, some)()

        writes = frozenset(one.slot for one in self.d)
        frame.wave.products.start(threads, land, writes=writes)

    def _issued(self, frame: Frame, begun: Frame, threads: Threads) -> Callable[[], None]:
        """Take the operands of some threads as they were when it was begun; return what executes it."""
        given = Warpgroups(begun, threads, self.form.name, self.line)
        groups = Warpgroups(frame, threads, self.form.name, self.line)
        adds = given.one(self.adds, "scale-d")
        a, b = self.a.issue(given), self.b.issue(given)
        places = None if self.sparsity is None else self.sparsity.places(given)

        def by_arrays() -> None:
            left = a.matrix()
            if self.negates:
                left = left ^ left.dtype.type(1 << (8 * left.itemsize - 1))
            d = self.compute(Factors(left, b.matrix(), self._addend(groups, adds), places))
            groups.write_matrix(self.form.operand("D"), self.d, d)

        native = self.native
        if native is None:
            return by_arrays

        def execute() -> None:
            if native.hot(frame.wave):
                self._natively(native, a, b, groups, adds)
            else:
                native.timed(by_arrays)

        return execute

    def _natively(
        self,
        native: NativeProduct,
        a: _Lines | _Registers,
        b: _Lines | _Registers,
        groups: Warpgroups,
        adds: Array,
    ) -> None:
        """Execute it by machine code: see ``ptxlab.native.tensor_core.wgmma``."""
        assert isinstance(b, _Lines)
        in_registers = a.registers() if isinstance(a, _Registers) else []
        left = None if isinstance(a, _Registers) else a.lines()
        right, firsts = b.lines(), groups.threads.index[:: groups.size] // WARP
        masks = -adds.astype(np.int32)
        registers, word = groups.registers, np.dtype(np.uint32)
        given = [*in_registers, *(groups.register(source) for source in self.c)]
        made = [blank(registers[one.slot], groups.threads, word) for one in self.d]
        bits = self.form.held("A").bits
        words = [
            0 if left is None else left.ctypes.data,
            right.ctypes.data,
            firsts.ctypes.data,
            masks.ctypes.data,
            repeated(1 << (bits - 1), bits) if self.negates else 0,
            *map(id, given),
            *map(id, made),
        ]
        native.run(groups.wave, groups.count, words)
        for destination, value in zip(self.d, made, strict=True):
            registers[destination.slot] = value

    def _addend(self, groups: Warpgroups, adds: Array) -> Array:
        """Return C: D as it is, or zero where ``adds`` does not hold."""
        layout = self.form.operand("D")
        if not adds.any():
            word = np.dtype(f"u{layout.bits // 8}")
            return np.zeros((layout.rows, layout.cols, len(adds)), word)
        c = groups.matrix(layout, self.c)
        return c if adds.all() else c * adds


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
    d = word_type(form.operand("D"))
    sparsity = None
    if form.metadata is not None:
        sparsity = sparsity_of(context, form.metadata, given["sp-meta"], given["sp-sel"])
    a, b = (_factor(context, form, name, given) for name in "ab")
    majors = tuple(one.major if isinstance(one, _Shared) else "" for one in (a, b))
    return Multiplication(
        form=form,
        d=context.destinations(given["d"], d),
        c=context.sources(given["d"], d),
        a=a,
        b=b,
        sparsity=sparsity,
        adds=context.source(given["scale-d"], "pred"),
        negates=negated[0] != negated[1],
        compute=arithmetic(form, context.target),
        native=native_product(form, context.target, majors),
        line=context.line,
    )


@cache
def native_product(
    form: MatrixInstruction, target: Target, majors: tuple[str, ...]
) -> NativeProduct | None:
    """Return what all instructions of a form share, None where nothing is compiled."""

    def write() -> ModuleFunction | None:
        from ptxlab.native.tensor_core import wgmma

        return wgmma.function(form, target, majors)

    return made_of(form.m * form.n * form.k, write)


def _factor(
    context: Context, form: MatrixInstruction, name: str, given: Mapping[str, Operand]
) -> _Shared | _Held:
    operand = form.held(name.upper())
    if isinstance(operand, FragmentLayout):
        return _Held(operand, context.sources(given[name], word_type(operand)))
    along_mn = _is_constant(given.get(f"imm-trans-{name}"), 1)
    source = context.source(given[f"{name}-desc"], "b64")
    return _Shared(operand, "mn" if along_mn else "k", source)


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
