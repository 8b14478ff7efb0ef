"""A launch of PTX in which every number that is rounded carries how far off it may be: in memory, and through products."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run.memory import Allocation, Part, Region
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.isa.targets import WARP
from ptxlab.judge.carried import Carried
from ptxlab.judge.carried_arithmetic import multiplied
from ptxlab.judge.carried_memory import KINDS, CarriedMemory, Mixed
from ptxlab.judge.carrying_registers import BITS, LOST, NO_RULE, CarryingRegisters, Held
from ptxlab.judge.rounding import Rounding
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import LdMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.numbers.formats import FORMATS
from ptxlab.observe.value_flow import fills_parameter
from ptxlab.syntax.tree import Integer, Operand, Vector


class Carrying(CarryingRegisters):
    """Follows a launch; see ``CarryingRegisters``."""

    rules_by_mix: Mapping[str, str] = {
        **CarryingRegisters.rules_by_mix,
        "load": "_load", "store": "_store", "atomic": "_atomic", "matrix multiply": "_multiply",
    }  # fmt: skip

    def __init__(self, rules: Rounding, roundings: float) -> None:
        super().__init__(rules, roundings)
        self._memories: dict[int, tuple[Allocation | Region, CarriedMemory]] = {}

    def memory(self, address: int) -> CarriedMemory | None:
        """Return what is carried of the allocation at an address, None for nothing."""
        known = [pair for pair in self._memories.values() if isinstance(pair[0], Allocation)]
        return next((carried for held, carried in known if held.begin == address), None)

    def begin(self, wave: Wave) -> None:
        super().begin(wave)
        kept = [pair for pair in self._memories.values() if isinstance(pair[0], Allocation)]
        self._memories = {id(pair[0]): pair for pair in kept}

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        self._stored: list[Held | None] = []
        super().before(site, frame, threads, passing)

    # ---- memory ----

    def _store(self, address: Operand, value: Operand, *_: Operand) -> None:
        self._stored = [self.held(each) for each in _elements(value)]
        lost = any(held is not None and held.kind == LOST for held in self._stored)
        if lost or fills_parameter(self.site.instruction):
            self.want_exact(self.site.reads)

    def _load(self, target: Operand, *_: Operand) -> None:
        """Wait for ``touch``, which says from where."""

    def _atomic(self, *operands: Operand) -> None:
        form = self.form
        self._terms: list[Carried] = []
        if form["op"] != "add" or form["T"] != "f32":
            self.want_exact(self.site.reads)
            return
        returns = form.opcode == "atom"
        self._terms = [self.numbers(each, "f32") for each in _elements(operands[1 + returns])]
        if returns:
            unknown = np.full((1, 1), np.inf)
            self.put(operands[0], LOST, Carried(unknown, unknown, unknown, unknown))

    def touch(
        self, access: Access, threads: Threads, parts: list[Part], items: Array | None
    ) -> None:
        for part in parts:
            index = threads.index if part.where is None else threads.index[part.where]
            first = np.broadcast_to(part.index, index.shape).astype(np.int64) * access.nbytes
            try:
                self._touch(access, part.memory, index, first)
            except Mixed:
                self.refuse(BITS)

    def _touch(
        self, access: Access, memory: Allocation | Region, index: Array, first: Array
    ) -> None:
        form, nbytes = self.form, access.nbytes
        mix = form.row.mix
        if mix == "atomic" and self._terms:
            for at, terms in enumerate(self._terms):
                size = nbytes // len(self._terms)
                own = terms.each(partial(_of_threads, index=index))
                self._carried_in(memory).add(first + at * size, "f32", own, self.roundings)
            return
        copies = form.effects.begins == "copies"
        if copies and access.writes:  # this is touched first
            into = np.zeros(self.wave.width, np.int64)
            into[index] = first
            self._copied_into = memory, into
        if not any(self._stored) and id(memory) not in self._memories:
            return
        carried = self._carried_in(memory)
        if copies and not access.writes:
            self._copy(carried, access.nbytes, index, first)
        elif mix == "store":
            self._put_stored(carried, index, first, nbytes // len(self._stored))
        elif mix == "load":
            targets = _elements(self.site.instruction.operands[0])
            size = nbytes // len(targets)
            for at, target in enumerate(targets):
                self._take(target, index, carried.load(first + at * size, size))
        elif isinstance(form.matrix, LdMatrix):
            self._take_rows(form.matrix, index, carried.load(first, nbytes))
        elif access.writes:
            carried.store(first, nbytes, None)
        elif carried.holds(first, nbytes):
            self.refuse(NO_RULE)

    def _carried_in(self, memory: Allocation | Region) -> CarriedMemory:
        known = self._memories.get(id(memory))
        if known is None:
            if memory.name == "local" and any(
                m.name == "local" for m, _ in self._memories.values()
            ):
                self.refuse("local memory of a function that is called has none")
            known = self._memories[id(memory)] = memory, CarriedMemory(memory)
        return known[1]

    def _put_stored(self, carried: CarriedMemory, index: Array, first: Array, size: int) -> None:
        for at, held in enumerate(self._stored):
            start = first + at * size
            carried.store(start, size, None)
            if held is not None:
                some = held.mask[index]
                numbers = held.numbers.each(partial(_of_threads, index=index[some]))
                carried.store(start[some], size, (held.kind, numbers))

    def _take(self, target: Operand, index: Array, loaded: tuple[str, Carried] | None) -> None:
        """Have a result hold what threads have loaded, beside what others have from elsewhere."""
        slot = self.slot(target)
        if loaded is None or slot is None:
            return
        kind, numbers = loaded
        known = self.results.get(slot)
        if known is not None and known.kind != kind:
            raise Mixed
        mask = np.zeros(self.wave.width, bool)
        mask[index] = True
        whole = numbers.each(partial(_spread, index=index, width=self.wave.width))
        if known is not None:
            whole, mask = whole.or_else(mask[:, None], known.numbers), mask | known.mask
        self.results[slot] = Held(kind, whole, mask)

    def _copy(self, carried: CarriedMemory, nbytes: int, index: Array, first: Array) -> None:
        """Have what is carried of a copy's source be carried of its target from when it begins."""
        if carried.holds(first, nbytes):
            size = self.site.instruction.operands[2]
            if not isinstance(size, Integer) or nbytes != size.value:  # a part of an item
                raise Mixed
            target, into = self._copied_into
            self._carried_in(target).put(into[index], nbytes, carried.copied(first, nbytes))

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        known = any(id(access.memory) in self._memories for access in moved)
        if known and self.form.effects.begins != "copies":
            self.refuse(NO_RULE)

    # ---- matrices ----

    def _take_rows(self, form: LdMatrix, index: Array, loaded: tuple[str, Carried] | None) -> None:
        """Have the results of ldmatrix hold elements of the rows whose addresses threads have given."""
        if loaded is None:
            return
        kind, numbers = loaded
        if FORMATS[kind].dtype.itemsize != 2 or form.packed_bits != 16 or self.results:
            self.refuse(NO_RULE)
        [layout] = form.operands
        warps = self.wave.warps
        rows = numbers.each(partial(_spread, index=index, width=self.wave.width))
        matrices = rows.each(lambda column: column.reshape(warps, WARP, -1))
        self._put_matrix(layout, self.site.instruction.operands[0], kind, matrices)

    def _multiply(self, d: Operand, *given: Operand) -> None:
        form = self.form.matrix
        if not isinstance(form, MatrixInstruction) or self.form.opcode != "mma":
            self.refuse(NO_RULE)
        layouts = [form.operand(name) for name in "ABCD"]
        if not any(layout.dtype in FORMATS for layout in layouts):
            self.want_exact(self.site.reads)
            return
        others = form.metadata or form.scales or layouts[0].matrices > 1
        if others or any(layout.dtype not in KINDS for layout in layouts):
            self.refuse(NO_RULE)
        a, b, c = (self._matrix(*each) for each in zip(layouts, given, strict=False))
        kind = layouts[3].dtype
        result = self.narrowed(kind, multiplied(a, b, c, self.roundings))
        self._put_matrix(layouts[3], d, kind, result)

    def _matrix(self, layout: FragmentLayout, operand: Operand) -> Carried:
        """Return an operand as matrices, [warps, rows, columns]."""
        row, col = np.moveaxis(layout.table(), -1, 0)
        warps, width = self.wave.warps, self.wave.width
        columns = [np.zeros((warps, layout.rows, layout.cols)) for _ in range(4)]
        for register, element in enumerate(_elements(operand)):
            numbers = self.numbers(element, layout.dtype)
            for column, new in zip(columns, numbers.columns(), strict=True):
                each = np.broadcast_to(new, (width, new.shape[1])).reshape(warps, WARP, -1)
                column[:, row[:, register], col[:, register]] = each
        return Carried(*columns)

    def _put_matrix(
        self, layout: FragmentLayout, operand: Operand, kind: str, matrices: Carried
    ) -> None:
        row, col = np.moveaxis(layout.table(), -1, 0)
        width = self.wave.width
        for register, element in enumerate(_elements(operand)):
            at = row[:, register], col[:, register]
            self.put(element, kind, matrices.each(lambda m, at=at: m[:, *at].reshape(width, -1)))


def _elements(operand: Operand) -> list[Operand]:
    return [*operand.elements] if isinstance(operand, Vector) else [operand]


def _of_threads(column: Array, index: Array) -> Array:
    """Return the rows of some threads, of one for each or one for all."""
    return column[index if len(column) > 1 else np.zeros_like(index)]


def _spread(column: Array, index: Array, width: int) -> Array:
    """Return rows, each that of a thread, as rows of all threads."""
    whole = np.zeros((width, column.shape[1]))
    whole[index] = column
    return whole
