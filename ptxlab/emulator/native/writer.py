"""A segment of instructions as functions in LLVM's assembly: loops over the threads, eight at a time.

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

from ptxlab.emulator.native.addresses import (
    AddressTranslation,
    Span,
    TranslatedAddress,
    Window,
    find,
)
from ptxlab.emulator.native.loads import Loads
from ptxlab.emulator.native.stores import DeferredStore
from ptxlab.emulator.native.stores import texts as stores
from ptxlab.emulator.prepare.program import Bound, Lowered
from ptxlab.emulator.run.registers import Array, Destination, Narrower, Source
from ptxlab.native.arrays import DATA, FLAGS
from ptxlab.native.code import LANES, WIDTHS, Code, Value, number
from ptxlab.native.cores import HEADER
from ptxlab.native.tracing.trace import trace
from ptxlab.native.tracing.ufuncs import llvm_type

NAME = "segment"
_REDUCED = "declare i1 @llvm.vector.reduce.and.v8i1(<8 x i1>)\n"

MASK, TABLE, SHARED, LOCAL, FIRST = (HEADER + at for at in (0, 1, 2, 6, 10))
"""The words of the task: which threads are active, allocations, windows, registers."""


@dataclass(frozen=True, slots=True)
class FunctionShape:
    """What a function is for: which registers all threads share, and whose results are wanted.

    ``masked`` says that some threads do not access memory, ``merging`` that these keep their registers.
    ``spread`` are registers to be written once a thread, though all threads share what they become.
    """

    shared: frozenset[int]
    masked: bool
    merging: bool
    spread: frozenset[int] = frozenset()


@dataclass(slots=True)
class Written:
    """The text of the functions and what they are to be given behind the fixed words of their task.

    ``outputs`` are (register, dtype, one a thread or one for all), ``scratch`` dtypes of arrays of one
    a thread. It ``stores`` to these spaces.
    """

    text: str
    stores: set[str]
    outputs: list[tuple[int, np.dtype[Any], bool]]
    scratch: list[np.dtype[Any]]


class NoNativeForm(Exception):
    """An instruction has no native form after all."""


SPACES = ("global", "shared", "local")


def has_native_form(step: Bound, literals: frozenset[int], initial: Sequence[Any]) -> bool:
    """Say whether an instruction can be part of a segment."""
    lowered = step.lowered
    if lowered is None or not all(map(_is_read, lowered.sources)):
        return False
    access = lowered.access
    if access is not None:
        count = len(lowered.destinations) or len(lowered.sources) - 1
        return access.space in SPACES and access.nbytes <= 8 * count
    assert lowered.compute is not None
    values = [
        number(int(initial[one.slot].view(f"u{one.dtype.itemsize}")[0]), "i32")
        if one.slot in literals and one.dtype == np.uint32
        else Value("%x", llvm_type(one.dtype), True)
        for one in lowered.sources
    ]
    return trace(lowered.compute, _dtypes(lowered), Code(), *values) is not None


def _dtypes(lowered: Lowered) -> list[np.dtype[Any]]:
    return [source.dtype for source in lowered.sources]


def _is_read(source: Source) -> bool:
    convert = source.convert
    known = convert is None or convert is np.logical_not or isinstance(convert, Narrower)
    return known and source.dtype.itemsize <= 8


class Writer:
    """Writes one function."""

    def __init__(
        self,
        steps: Sequence[Bound],
        inputs: Sequence[int],
        lasting: set[int],
        registers: Sequence[Array],
        literals: frozenset[int],
        shape: FunctionShape,
    ) -> None:
        self.code = Code()
        self.addresses, self.loads = AddressTranslation(self.code, "%table"), Loads(self.code)
        self.steps, self.inputs, self.lasting = steps, inputs, lasting
        self.arrays, self.literals, self.shape = registers, literals, shape
        self.raw: dict[int, Value] = {}
        self.now: dict[int, Value] = {}
        self.version: dict[int, int] = {}
        self.translated: dict[object, TranslatedAddress] = {}
        self.deferred: list[DeferredStore] = []
        self.scratch: list[np.dtype[Any]] = []
        self.stored: set[str] = set()
        self.windows: dict[str, Window] = {}
        self._active: Value | None = None

    def written(self) -> Written:
        code = self.code
        if self.shape.masked:
            code.body += [
                "%mask.p = getelementptr i8, ptr %mask, i64 %i",
                "%mask.8 = load <8 x i8>, ptr %mask.p, align 1",
                "%active = trunc <8 x i8> %mask.8 to <8 x i1>",
            ]
            self._active = Value("%active", "i1", True)
        for step, span in zip(self.steps, self._spans(), strict=True):
            assert step.lowered is not None
            self._step(step, step.lowered, span)
        outputs = self._outputs()
        first = FIRST + len(self.inputs) + len(outputs)
        rest = self.code.declared.union(stores(self.deferred, first) if self.deferred else [])
        text = "\n".join([*self._segment(len(outputs)), *sorted(rest | {_REDUCED})])
        finds = "@find" in text or "@nowhere" in text
        return Written(text + "\n" + find() * finds, self.stored, outputs, self.scratch)

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
            for one in step.lowered.destinations:
                version[one.slot] = version.get(one.slot, 0) + 1
        return [None if key is None else (key, spans[key]) for key in keys]

    def _step(self, step: Bound, lowered: Lowered, span: tuple[object, Span] | None) -> None:
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

    def _access(self, lowered: Lowered, guard: Value | None, key: object, span: Span) -> None:
        access, code = lowered.access, self.code
        assert access is not None
        found = self.translated.get(key)
        if found is None:
            found = self.translated[key] = self._translate(lowered, guard, span)
        if not access.writes:
            count = len(lowered.destinations)
            kind = f"i{8 * access.nbytes // count}"
            items = self.loads.load(found, access.offset, kind, count)
            for destination, item in zip(lowered.destinations, items, strict=True):
                self._write(destination, item, guard)
            return
        elements = []
        for source in lowered.sources[1:]:
            value = self._read(source)
            value = code.bits(code.canonical(value))
            elements.append((None if value.literal else self._kept(value), value))
        address = code.spread(code.op("add", found.address, number(access.offset, "i64")))
        active = None if found.active is None else self._kept(code.spread(found.active))
        self.deferred.append(DeferredStore(self._kept(address), active, tuple(elements)))
        self.stored.add(access.space)

    def _translate(self, lowered: Lowered, guard: Value | None, span: Span) -> TranslatedAddress:
        access, active = lowered.access, self._active
        assert access is not None
        address = self.code.extended(self._read(lowered.sources[0]), 64, signed=False)
        if guard is not None:
            active = guard if active is None else self.code.op("and", active, guard)
        elif access.space == "global" and not (address.per_lane or access.writes):
            active = None  # what all threads share is loaded once: some thread is active
        if access.space == "global":
            return self.addresses.in_global(address, span, active, writes=access.writes)
        return self.addresses.in_window(address, self._window(access.space), span, active)

    def _window(self, space: str) -> Window:
        window = self.windows.get(space)
        if window is None:
            at = SHARED if space == "shared" else LOCAL
            lines, names = self.code.before, [f"%{space}{i}" for i in range(4)]
            for i, name in enumerate(names):
                lines.append(f"{name}.p = getelementptr i64, ptr %args, i64 {at + i}")
                lines.append(f"{name} = load i64, ptr {name}.p")
            for name in names[:2]:
                lines += self._data(name, f"{name}.d")
            lines.append(f"{names[0]}.a = ptrtoint ptr {names[0]}.d to i64")
            window = self.windows[space] = Window(
                Value(f"{names[0]}.a", "i64"),
                f"{names[1]}.d",
                Value(names[2], "i64"),
                Value(names[3], "i64"),
            )
        return window

    def _kept(self, value: Value) -> int:
        """Keep a value of each thread in an array of its own, and return the array's number."""
        at = len(self.scratch)
        dtype = np.dtype(bool) if value.type == "i1" else np.dtype(f"u{value.bits // 8}")
        self.scratch.append(dtype)
        self._put(f"%scratch{at}", value)
        return at

    def _put(self, array: str, value: Value) -> None:
        code = self.code
        value = code.bits(code.canonical(value))
        if value.type == "i1":
            value = code.convert("zext", value, "i8")
        value = code.spread(value)
        pointer = code.name()
        code.body.append(f"{pointer} = getelementptr {value.type}, ptr {array}, i64 %i")
        code.body.append(f"store {value}, ptr {pointer}, align 1")

    # ---- registers ----

    def _read(self, source: Source) -> Value:
        code, value = self.code, self._register(source.slot)
        convert = source.convert
        if convert is np.logical_not:
            return code.op("xor", value, number(1, "i1"))
        if isinstance(convert, Narrower):
            low = 8 * convert.narrow.itemsize
            value = code.extended(code.bits(code.canonical(value)), low, signed=False)
        return self._seen(value, source.dtype)

    def _seen(self, value: Value, dtype: np.dtype[Any]) -> Value:
        kind = llvm_type(dtype)
        if WIDTHS[kind] != value.bits:
            raise NoNativeForm
        return self.code.seen_as(value, kind)

    def _register(self, slot: int) -> Value:
        value = self.now.get(slot)
        if value is None:
            value = self.now[slot] = self.raw[slot] = self._loaded(slot)
        return value

    def _loaded(self, slot: int) -> Value:
        """Read a register from its array, at the first use of it."""
        array = self.arrays[slot]
        if array.ndim != 1 or array.dtype.itemsize > 8:
            raise NoNativeForm
        boolean = array.dtype == bool
        kind = "i1" if boolean else f"i{8 * array.dtype.itemsize}"
        if slot in self.literals:
            return number(int(array.view(f"u{array.dtype.itemsize}")[0]), kind)
        stored = "i8" if boolean else kind
        name = self.code.name("%r")
        if slot in self.shape.shared:
            lines, whole, at = self.code.before, stored, "0"
        else:
            lines, whole, at = self.code.body, f"<{LANES} x {stored}>", "%i"
        pointer = f"%in{self.inputs.index(slot)}"
        lines.append(f"{name}.p = getelementptr {stored}, ptr {pointer}, i64 {at}")
        lines.append(f"{name} = load {whole}, ptr {name}.p, align 1")
        value = Value(name, stored, at == "%i")
        return self.code.convert("trunc", value, "i1") if boolean else value

    def _write(self, destination: Destination, value: Value, guard: Value | None) -> None:
        code, slot = self.code, destination.slot
        if destination.widen is not None:
            if value.is_float:
                raise NoNativeForm
            signed = destination.widen.kind == "i"
            value = code.extended(value, 8 * destination.widen.itemsize, signed=signed)
        if guard is not None:
            value = self._chosen(guard, value, self._register(slot))
        self.now[slot] = value

    def _chosen(self, condition: Value, yes: Value, no: Value) -> Value:
        code = self.code
        if yes.type != no.type:
            yes, no = (code.bits(code.canonical(one)) for one in (yes, no))
        if yes.type != no.type:
            raise NoNativeForm
        return code.select(condition, yes, no)

    # ---- the function ----

    def _outputs(self) -> list[tuple[int, np.dtype[Any], bool]]:
        """Have the registers written that matter behind the segment."""
        outputs: list[tuple[int, np.dtype[Any], bool]] = []
        for slot, value in list(self.now.items()):
            value = self.code.bits(self.code.canonical(value))
            if slot not in self.lasting or value == self.raw.get(slot):
                continue
            if self.shape.merging:
                assert self._active is not None
                value = self._chosen(self._active, value, self._old(slot))
            dtype = np.dtype(bool) if value.type == "i1" else np.dtype(f"u{value.bits // 8}")
            array = f"%out{len(outputs)}"
            if value.per_lane or self.shape.merging or slot in self.shape.spread:
                self._put(array, value)
                outputs.append((slot, dtype, True))
            else:
                self._put_one(array, value)
                outputs.append((slot, dtype, False))
        return outputs

    def _old(self, slot: int) -> Value:
        value = self.raw.get(slot)
        return self._loaded(slot) if value is None else value

    def _put_one(self, array: str, value: Value) -> None:
        """Write what all threads share, before the loop."""
        code = self.code
        value = code.bits(code.canonical(value))
        if value.type == "i1":
            value = code.make("i8", "zext {0} to i8", value)
        code.before.append(f"store {value}, ptr {array}, align 1")

    def _data(self, word: str, name: str) -> list[str]:
        """Return the lines that give the address of an array's data, whose object ``word`` is."""
        return [
            f"{name}.o = inttoptr i64 {word} to ptr",
            f"{name}.f = getelementptr i8, ptr {name}.o, i64 {DATA}",
            f"{name} = load ptr, ptr {name}.f",
        ]

    def _segment(self, outputs: int) -> list[str]:
        """Return the lines of the function that loads and computes."""
        code = self.code
        names = ["%table"] + (["%mask"] if self.shape.masked else [])
        words = [TABLE] + ([MASK] if self.shape.masked else [])
        names += [f"%in{i}" for i in range(len(self.inputs))]
        names += [f"%out{i}" for i in range(outputs)]
        names += [f"%scratch{i}" for i in range(len(self.scratch))]
        words += [FIRST + i for i in range(len(names) - len(words))]
        return [
            f"define i32 @{NAME}(ptr %args, i64 %from, i64 %to) {{",
            "entry:",
            *code.allocas,
            *self._arrays(dict(zip(names, words, strict=True))),
            *self._whole(),
            "br i1 %whole, label %begin, label %fault",
            *code.emit_loop(),
        ]

    def _arrays(self, words: dict[str, int]) -> list[str]:
        """Return the lines that find the data of arrays, each given by a word of the task."""
        lines = []
        for name, word in words.items():
            lines.append(f"{name}.w = getelementptr i64, ptr %args, i64 {word}")
            lines.append(f"{name}.i = load i64, ptr {name}.w")
            lines += self._data(f"{name}.i", name)
        return lines

    def _whole(self) -> list[str]:
        """Return the lines that look whether the registers' arrays are in one piece."""
        lines, found = [], "1"
        for i in range(len(self.inputs)):
            lines += [
                f"%in{i}.g = getelementptr i8, ptr %in{i}.o, i64 {FLAGS}",
                f"%in{i}.h = load i32, ptr %in{i}.g",
                f"%in{i}.all = and i32 {found}, %in{i}.h",
            ]
            found = f"%in{i}.all"
        return [*lines, f"%whole = trunc i32 {found} to i1"]


def inputs_and_outputs(steps: Sequence[Bound]) -> tuple[list[int], set[int]]:
    """Return the registers that a segment reads before it writes them, and those that it writes."""
    given: dict[int, None] = {}
    written: set[int] = set()
    for step in steps:
        assert step.lowered is not None
        slots = [one.slot for one in step.lowered.sources]
        results = [one.slot for one in step.lowered.destinations]
        if step.guard is not None:
            slots += [step.guard.slot, *results]
        given |= dict.fromkeys(slot for slot in slots if slot not in written)
        written.update(results)
    return list(given), written
