"""A segment of instructions as functions of machine code: loops over the threads, eight at a time.

The first loads and computes. It returns 0 when that is done, and 1 when an array is not as expected or
an address is none that it knows: only its own results are written then. What it does for one thread
shows in no other. The second stores, if the segment does. Both are functions of a task of
``ptxlab.native.cores``, of so many threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.emulator.native.accesses import DeferredStore, load, stores
from ptxlab.emulator.native.addresses import (
    WINDOW,
    AddressTranslation,
    Span,
    TranslatedAddress,
    Window,
)
from ptxlab.emulator.native.warp_operation import Output
from ptxlab.emulator.prepare.program import Lowered
from ptxlab.emulator.prepare.registers import Array, Destination, Narrower, Source
from ptxlab.emulator.run.code import InstructionSteps
from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.cores import HEADER
from ptxlab.native.text import module, width
from ptxlab.native.tracing.trace import trace
from ptxlab.native.tracing.ufuncs import llvm_type
from ptxlab.native.value import VectorValue

NAME = "segment"

MASK, TABLE, SHARED, LOCAL, SCRATCH, FIRST = (
    HEADER + at for at in (0, 1, 2, 2 + WINDOW, 2 + 2 * WINDOW, 3 + 2 * WINDOW)
)
"""The words of the task: which threads are active, allocations, windows, where the objects of scratch are, registers."""


@dataclass(frozen=True, slots=True)
class FunctionShape:
    """What a function is for: which registers all threads share, and whose results are wanted.

    ``masked`` says that some threads do not access memory, ``merging`` that these keep their registers.
    ``spread`` are registers to be written once a thread, though all threads share what they become.
    """

    shared: frozenset[int]
    masked: bool
    merging: bool
    spread: frozenset[int]

    def naming(self, slots: Sequence[int]) -> FunctionShape:
        """Return the same with registers named that are known by numbers here."""
        shared, spread = (
            frozenset(slots[number] for number in numbers) for numbers in (self.shared, self.spread)
        )
        return FunctionShape(shared, self.masked, self.merging, spread)


@dataclass(slots=True)
class Written:
    """The text of the functions and what they are to be given behind the fixed words of their task.

    They write the ``outputs``; ``scratch`` are dtypes of arrays of one a thread. It ``stores`` to these spaces.
    """

    text: str
    stores: set[str]
    outputs: list[Output]
    scratch: list[np.dtype[Any]]


class NoNativeForm(Exception):
    """An instruction has no native form after all."""


SPACES = ("global", "shared", "local")


def has_native_form(
    step: InstructionSteps, literals: frozenset[int], initial: Sequence[Any]
) -> bool:
    """Say whether an instruction can be part of a segment."""
    lowered = step.lowered
    if lowered is None or not all(map(_is_read, lowered.sources)):
        return False
    access = lowered.access
    if access is not None:
        count = len(lowered.destinations) or len(lowered.sources) - 1
        return access.space in SPACES and access.nbytes <= 8 * count
    assert lowered.compute is not None
    code = FunctionBuilder()
    values = [
        code.number("i32", int(initial[source.slot].view(f"u{source.dtype.itemsize}")[0]))
        if source.slot in literals and source.dtype == np.uint32
        else VectorValue(code, llvm_type(source.dtype), LANES, "%x")
        for source in lowered.sources
    ]
    return trace(lowered.compute, _dtypes(lowered), code, *values) is not None


def _dtypes(lowered: Lowered) -> list[np.dtype[Any]]:
    return [source.dtype for source in lowered.sources]


def _is_read(source: Source) -> bool:
    convert = source.convert
    known = convert is None or convert is np.logical_not or isinstance(convert, Narrower)
    return known and source.dtype.itemsize <= 8


class Writer:
    """Writes one function.

    In the loop over threads it is at an ``index``, of those threads some are ``active``, None for all. ``objects``
    is where those of scratch are.
    """

    index: VectorValue
    active: VectorValue | None
    objects: VectorValue
    addresses: AddressTranslation

    def __init__(
        self,
        steps: Sequence[InstructionSteps],
        inputs: Sequence[int],
        lasting: set[int],
        registers: Sequence[Array],
        literals: frozenset[int],
        shape: FunctionShape,
    ) -> None:
        self.code = FunctionBuilder()
        self.task, self.begin, self.end = self.code.task()
        self.steps, self.inputs, self.lasting = steps, inputs, lasting
        self.arrays, self.literals, self.shape = registers, literals, shape
        self.raw: dict[int, VectorValue] = {}
        self.now: dict[int, VectorValue] = {}
        self.translated: dict[object, TranslatedAddress] = {}
        self.deferred: list[DeferredStore] = []
        self.scratch: list[np.dtype[Any]] = []
        self.stored: set[str] = set()
        self.windows: dict[str, Window] = {}

    def written(self) -> Written:
        code = self.code
        for at in range(len(self.inputs)):
            with code.when(self.task.is_whole(FIRST + at).is_("eq", 0)):
                code.ret(1)
        self.objects = self.task.word(SCRATCH).pointer()
        table = self.task.array(TABLE)
        mask = self.task.array(MASK) if self.shape.masked else None
        with code.thread_loop(self.begin, self.end) as self.index:
            self.addresses = AddressTranslation(code, table, self.index)
            self.active = None if mask is None else self._each(mask, "i1")
            for step, span in zip(self.steps, self._spans(), strict=True):
                assert step.lowered is not None
                self._step(step, step.lowered, span)
            outputs = self._outputs()
        functions = [code.function(NAME)]
        if self.deferred:
            functions.append(stores(self.deferred, SCRATCH))
        return Written(module(*functions), self.stored, outputs, self.scratch)

    # ---- instructions ----

    def _spans(self) -> list[tuple[object, Span] | None]:
        """Return for each access what tells its base, and all that the segment moves from it."""
        spans: dict[object, Span] = {}
        version: dict[int, int] = {}
        keys: list[object] = []
        for step in self.steps:
            assert step.lowered is not None
            access = step.lowered.access
            key: object = None
            if access is not None:
                guard = step.guard
                base = access.base
                key = (
                    access.space,
                    access.writes,
                    base.slot,
                    version.get(base.slot, 0),
                    base.convert,
                    guard and (guard.slot, guard.convert, version.get(guard.slot, 0)),
                )
                span = spans.setdefault(key, Span(access.offset, access.offset))
                span.add(access.offset, access.nbytes)
            keys.append(key)
            for destination in step.lowered.destinations:
                version[destination.slot] = version.get(destination.slot, 0) + 1
        return [None if key is None else (key, spans[key]) for key in keys]

    def _step(
        self, step: InstructionSteps, lowered: Lowered, span: tuple[object, Span] | None
    ) -> None:
        guard = None if step.guard is None else self._read(step.guard)
        if span is not None:
            self._access(lowered, guard, *span)
            return
        assert lowered.compute is not None
        values = map(self._read, lowered.sources)
        results = trace(lowered.compute, _dtypes(lowered), self.code, *values)
        if results is None:
            raise NoNativeForm
        for destination, result in zip(lowered.destinations, results, strict=True):
            self._write(destination, result, guard)

    def _access(self, lowered: Lowered, guard: VectorValue | None, key: object, span: Span) -> None:
        access = lowered.access
        assert access is not None
        translated = self.translated.get(key)
        if translated is None:
            translated = self.translated[key] = self._translate(lowered, guard, span)
        if not access.writes:
            count = len(lowered.destinations)
            kind = f"i{8 * access.nbytes // count}"
            items = load(self.code, translated, access.offset, kind, count)
            for destination, item in zip(lowered.destinations, items, strict=True):
                self._write(destination, item, guard)
            return
        values = [self._read(source).as_integer() for source in lowered.sources[1:]]
        elements = [self._kept(x) if x.constant is None else x for x in values]
        active = None if translated.active is None else self._kept(translated.active)
        address = self._kept(translated.address + access.offset)
        self.deferred.append(DeferredStore(address, active, elements, values[0].kind))
        self.stored.add(access.space)

    def _translate(
        self, lowered: Lowered, guard: VectorValue | None, span: Span
    ) -> TranslatedAddress:
        access, active = lowered.access, self.active
        assert access is not None
        address = self._read(lowered.sources[0]).extended(64, signed=False)
        if guard is not None:
            active = guard if active is None else active & guard
        elif access.space == "global" and not (address.lanes or access.writes):
            active = None  # what all threads share is loaded once: some thread is active
        if access.space == "global":
            return self.addresses.in_global(address, span, active, writes=access.writes)
        return self.addresses.in_window(address, self._window(access.space), span, active)

    def _window(self, space: str) -> Window:
        if space not in self.windows:
            word = SHARED if space == "shared" else LOCAL
            self.windows[space] = Window.of(self.code, self.task, word)
        return self.windows[space]

    def _kept(self, value: VectorValue) -> int:
        """Keep a value of each thread in an array of its own, and return the array's number."""
        at = len(self.scratch)
        self.scratch.append(_dtype(value))
        with self.code.before_threads():
            array = self.objects.array(at)
        self._put(array, value)
        return at

    def _put(self, array: VectorValue, value: VectorValue) -> None:
        """Write what each thread has."""
        stored = _stored(value).splat(LANES)
        array.at(self.index, stored.width // 8).store(stored, align=1)

    def _each(self, array: VectorValue, kind: str) -> VectorValue:
        """Read what each thread has."""
        size = max(8, width(kind)) // 8
        value = array.at(self.index, size).load(f"i{8 * size}", LANES, align=1)
        return value.extended(width(kind), signed=False)

    # ---- registers ----

    def _read(self, source: Source) -> VectorValue:
        value, convert = self._register(source.slot), source.convert
        if convert is np.logical_not:
            return value ^ 1
        if isinstance(convert, Narrower):
            low = 8 * convert.narrow.itemsize
            value = value.as_integer().extended(low, signed=False)
        kind = llvm_type(source.dtype)
        if width(kind) != value.width:
            raise NoNativeForm
        return value.as_kind(kind)

    def _register(self, slot: int) -> VectorValue:
        if slot not in self.now:
            self.now[slot] = self.raw[slot] = self._loaded(slot)
        return self.now[slot]

    def _loaded(self, slot: int) -> VectorValue:
        """Read a register from its array, at the first use of it."""
        array, code = self.arrays[slot], self.code
        if array.ndim != 1 or array.dtype.itemsize > 8:
            raise NoNativeForm
        kind = "i1" if array.dtype == bool else f"i{8 * array.dtype.itemsize}"
        if slot in self.literals:
            return code.number(kind, int(array.view(f"u{array.dtype.itemsize}")[0]))
        with code.before_threads():
            data = self.task.array(FIRST + self.inputs.index(slot))
            if slot in self.shape.shared:
                value = data.load(f"i{max(8, width(kind))}", align=1)
                return value.extended(width(kind), signed=False)
        return self._each(data, kind)

    def _write(
        self, destination: Destination, value: VectorValue, guard: VectorValue | None
    ) -> None:
        slot = destination.slot
        if destination.widen is not None:
            if value.is_float:
                raise NoNativeForm
            signed = destination.widen.kind == "i"
            value = value.extended(8 * destination.widen.itemsize, signed=signed)
        if guard is not None:
            value = _chosen(guard, value, self._register(slot))
        self.now[slot] = value

    def _outputs(self) -> list[Output]:
        """Have the registers written that matter behind the segment."""
        code = self.code
        outputs: list[Output] = []
        for slot, value in list(self.now.items()):
            value = value.as_integer()
            if slot not in self.lasting or value == self.raw.get(slot):
                continue
            if self.shape.merging:
                assert self.active is not None
                old = self.raw.get(slot) or self._loaded(slot)
                value = _chosen(self.active, value, old)
            each = bool(value.lanes) or self.shape.merging or slot in self.shape.spread
            with code.before_threads():
                array = self.task.array(FIRST + len(self.inputs) + len(outputs))
                if not each:
                    array.store(_stored(value), align=1)
            if each:
                self._put(array, value)
            outputs.append((slot, _dtype(value), each))
        return outputs


def _dtype(value: VectorValue) -> np.dtype[Any]:
    return np.dtype(bool) if value.kind == "i1" else np.dtype(f"u{value.width // 8}")


def _stored(value: VectorValue) -> VectorValue:
    """Return a value as memory has it."""
    return value.extended(max(8, value.width), signed=False)


def _chosen(condition: VectorValue, yes: VectorValue, no: VectorValue) -> VectorValue:
    if yes.kind != no.kind:
        yes, no = yes.as_integer(), no.as_integer()
    if yes.kind != no.kind:
        raise NoNativeForm
    return condition.choose(yes, no)


def inputs_and_outputs(steps: Sequence[InstructionSteps]) -> tuple[list[int], set[int]]:
    """Return the registers that a segment reads before it writes them, and those that it writes."""
    given: dict[int, None] = {}
    written: set[int] = set()
    for step in steps:
        assert step.lowered is not None
        slots = [source.slot for source in step.lowered.sources]
        results = [destination.slot for destination in step.lowered.destinations]
        if step.guard is not None:
            slots += [step.guard.slot, *results]
        given |= dict.fromkeys(slot for slot in slots if slot not in written)
        written.update(results)
    return list(given), written
