"""A straight-line segment of a block as one step: machine code where it pays, the array engine's steps elsewhere."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ptxlab.emulator.native.accesses import STORES
from ptxlab.emulator.native.addresses import WINDOW, window_words
from ptxlab.emulator.native.warp_operation import Output, PartTask
from ptxlab.emulator.native.writer import (
    NAME,
    FunctionShape,
    NoNativeForm,
    Writer,
    Written,
    inputs_and_outputs,
)
from ptxlab.emulator.prepare.registers import Array, Source
from ptxlab.emulator.run.code import InstructionSteps, Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.isa.targets import WARP
from ptxlab.native import compiler
from ptxlab.native.cores import Function, Pool, packed, pool

MOST_SHAPES = 6
"""Functions that are made of one segment: more ways to share registers than that are left to arrays."""

MOST_FAULTS = 3
"""How often the functions of a segment may meet addresses that they do not know before they are given up."""

WORTH = 8_000
"""Instructions of threads that a core does at a time at least, in some microseconds."""


@dataclass(slots=True, eq=False)
class CompiledFunction:
    """The functions of a segment, and what they write.

    For threads of some ``width`` on so many cores the ``header`` is that of the task. The registers that
    they keep in between are in ``scratch``, whose objects are ``named`` at an address.
    """

    functions: Sequence[Any]
    written: Written
    instructions: int
    size: tuple[int, int] = (0, 0)
    header: bytes = b""
    scratch: Sequence[Array] = ()
    objects: Any = None
    named: int = 0

    def fit(self, wave: Wave, cores: Pool) -> None:
        """Prepare for the threads of a wave.

        Loads and arithmetic of a thread show in no other thread, its stores to shared memory in no other
        CTA. Of stores to global memory the last wins: they are done in one piece, in the threads' order.
        """
        self.size = width, _ = wave.width, wave.cores
        least = WORTH // self.instructions
        sizes = [(least, WARP), (least, WARP)]
        if "global" in self.written.stores:
            sizes[1] = width, 1
        elif "shared" in self.written.stores:
            sizes[1] = least, wave.cta_width
        stages = zip(self.functions, sizes, strict=False)
        self.header = cores.header(width, *((function, *size) for function, size in stages))
        self.scratch = [np.empty(width, dtype) for dtype in self.written.scratch]
        self.objects = np.array([*map(id, self.scratch)], np.int64)
        self.named = self.objects.ctypes.data

    def results(self, width: int) -> list[Array]:
        """Return arrays for what is written, of so many threads."""
        return [
            np.empty(width if per_lane else 1, dtype) for _, dtype, per_lane in self.written.outputs
        ]

    def task(
        self,
        wave: Wave,
        mask: Array | None,
        spaces: set[str],
        values: Sequence[Array] = (),
        results: Sequence[Array] = (),
    ) -> bytes:
        """Return the task for registers that are read and written, if given, with memory in these ``spaces``.

        It is for the threads of a ``mask``, None for all.
        """
        if self.size != (wave.width, wave.cores):
            self.fit(wave, pool(wave.cores))
        shared, local = (
            window_words(wave.regions[space]) if space in spaces else (0,) * WINDOW
            for space in ("shared", "local")
        )
        return self.header + packed(
            id(mask),
            id(wave.memory.table),
            *shared,
            *local,
            self.named,
            *map(id, values),
            *map(id, results),
        )


@dataclass(slots=True, eq=False)
class Arrays:
    """Instructions that follow each other in a block, and their steps as arrays."""

    bounds: Sequence[InstructionSteps]
    steps: Sequence[Step]
    reads: set[int] = field(init=False)
    writes: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.reads = set().union(*(instruction.reads for instruction in self.bounds))
        self.writes = set().union(*(instruction.writes for instruction in self.bounds))

    def __call__(self, frame: Frame, threads: Threads) -> None:
        for step in self.steps:
            step(frame, threads)


@lru_cache(maxsize=4096)
def specializations_of(
    *segment: Hashable,
) -> tuple[dict[FunctionShape, CompiledFunction | None], dict[FunctionShape, Written | None]]:
    """Return the compiled functions of a segment by their shapes, and their texts; None where there are to be none.

    One that only names other registers has the same.
    """
    return {}, {}


class Segment:
    """Instructions of a target that follow each other in a block, and what they leave behind."""

    def __init__(
        self,
        bounds: Sequence[InstructionSteps],
        arrays: Arrays,
        dying: Sequence[int],
        lasting: set[int],
        literals: dict[int, bytes],
        target: str,
    ) -> None:
        self.bounds = bounds
        self.lasting = lasting
        self.literals = frozenset(literals)
        given, self.written = inputs_and_outputs(bounds)
        self.inputs = [slot for slot in given if slot not in literals]
        self.arrays, self.dying = arrays, dying
        self.spaces = {
            instruction.lowered.access.space
            for instruction in bounds
            if instruction.lowered and instruction.lowered.access
        }
        self.reads, self.writes = set(self.inputs), self.written & lasting
        self._numbers: dict[int, int] = {}
        described = tuple(describe(each, self._numbers, literals) for each in bounds)
        # By number, not slot: a segment that only names other registers has the same functions.
        self.merged = self.inputs + sorted(self.writes - set(given), key=self._numbers.__getitem__)
        self._slots = list(self._numbers)
        writes = self._numbered(self.writes)
        self.compiled, self.texts = specializations_of(target, described, writes)
        self._shapes: dict[tuple[int, ...], FunctionShape] = {}
        self._made = self._faults = 0

    def __call__(self, frame: Frame, threads: Threads) -> None:
        if not self._natively(frame, threads):
            self.arrays(frame, threads)

    def _natively(self, frame: Frame, threads: Threads) -> bool:
        """Run as machine code; False if nothing was done."""
        wave, registers = frame.wave, frame.registers
        everyone, full = threads.everyone, threads.full or threads.everyone
        slots = self.inputs if full else self.merged
        values = [registers[slot] for slot in slots]
        form = everyone, full, *map(len, values)
        shape = self._shapes.get(form)
        if shape is None:
            shared = [slot for slot, count in zip(slots, form[2:], strict=True) if count == 1]
            shape = self.shape(shared, masked=not everyone, merging=not full)
            self._shapes[form] = shape
        compiled = self.compiled_in(shape, frame)
        if compiled is None:
            return False
        results = compiled.results(wave.width)
        mask = None if everyone else threads.mask
        if not pool(wave.cores).run(compiled.task(wave, mask, self.spaces, values, results)):
            self._faults += 1
            return False
        for (number, _, _), result in zip(compiled.written.outputs, results, strict=True):
            registers[self._slots[number]] = result
        if threads.full:
            initial: Any = frame.layout.initial  # constants are never dropped
            for slot in self.dying:
                registers[slot] = initial[slot]
        return True

    def shape(
        self,
        shared: Iterable[int],
        *,
        masked: bool,
        merging: bool = False,
        spread: Iterable[int] = (),
    ) -> FunctionShape:
        """Return a shape, with registers by their numbers in this segment."""
        return FunctionShape(self._numbered(shared), masked, merging, self._numbered(spread))

    def task_of(self, compiled: CompiledFunction) -> PartTask:
        """Return what runs it in a dispatch loop."""

        def make(wave: Wave, mask: Array | None) -> tuple[bytes, Any]:
            task = compiled.task(wave, mask, self.spaces)
            return task, (compiled, compiled.scratch, compiled.objects)

        return PartTask(self.inputs, self.outputs(compiled.written), make)

    def outputs(self, written: Written) -> list[Output]:
        """Return what functions write of this segment's registers, each with its dtype, and whether one a thread."""
        return [(self._slots[number], dtype, each) for number, dtype, each in written.outputs]

    def _numbered(self, slots: Iterable[int]) -> frozenset[int]:
        return frozenset(self._numbers[slot] for slot in slots)

    def compiled_in(self, shape: FunctionShape, frame: Frame) -> CompiledFunction | None:
        """Return the functions of a shape, compiled at the first time; None if there are to be none."""
        if self._faults >= MOST_FAULTS:
            return None
        if shape in self.compiled:
            return self.compiled[shape]
        if self._made == MOST_SHAPES:
            return None  # of others of these functions this says nothing
        compiled, self._made = None, self._made + 1
        written = self.written_in(shape, frame)
        if written is not None:
            try:
                compiled = _compiled(written, len(self.bounds))
            except RuntimeError:  # LLVM refuses the text: told to who asked for machine code
                if not frame.wave.hot:
                    raise
        self.compiled[shape] = compiled
        return compiled

    def written_in(self, shape: FunctionShape, frame: Frame) -> Written | None:
        """Return the text of the functions of a shape, None where there is an instruction without."""
        if shape not in self.texts:
            slots = self.merged if shape.merging else self.inputs
            own = shape.naming(self._slots)
            try:
                writer = Writer(
                    self.bounds, slots, self.lasting, frame.registers, self.literals, own
                )
                written = writer.written()
                outputs = [
                    (self._numbers[slot], dtype, each) for slot, dtype, each in written.outputs
                ]
                self.texts[shape] = replace(written, outputs=outputs)
            except NoNativeForm:
                self.texts[shape] = None
        return self.texts[shape]


def describe(
    instruction: InstructionSteps, numbers: dict[int, int], literals: dict[int, bytes]
) -> Hashable:
    """Return all that an instruction's machine code depends on, but for the target; None where it has none.

    Registers are named by ``numbers``, in the order in which they are met first.
    """
    lowered = instruction.lowered
    if lowered is None:
        return None

    def named(slot: int) -> Hashable:
        return literals[slot] if slot in literals else numbers.setdefault(slot, len(numbers))

    def read(source: Source) -> Hashable:
        return named(source.slot), source.dtype, source.convert

    access, guard = lowered.access, instruction.guard
    return (
        lowered.compute,
        tuple(map(read, lowered.sources)),
        tuple((named(each.slot), each.widen) for each in lowered.destinations),
        access and (access.space, access.writes, access.nbytes, access.offset, read(access.base)),
        guard and read(guard),
    )


def _compiled(written: Written, instructions: int) -> CompiledFunction:
    names = [NAME, STORES] if written.stores else [NAME]
    functions = [compiler.compile(written.text, name, Function, masked=False) for name in names]
    return CompiledFunction(functions, written, instructions)
