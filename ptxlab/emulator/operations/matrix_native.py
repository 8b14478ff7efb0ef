"""Matrix products as machine code, where it is at hand and pays: the same registers, the same bits.

Compiling takes some tenths of a second, so that the array arithmetic goes first and is left when it
has taken as long: see ``ptxlab.emulator.native.engine``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native.heat import ANY, PROCESS, Key, clock
from ptxlab.emulator.native.warp_operation import PartTask, WarpOperation, is_possible
from ptxlab.emulator.operations.warp import WholeWarps
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.run.background import Span
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import NEVER, Frame, Wave
from ptxlab.isa.targets import WARP, Target
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.native import cores as tasks
from ptxlab.native.compiler import compile
from ptxlab.native.text import ModuleFunction

MOST = 4
"""Products with one D that machine code adds up at once: D goes through memory so many times less."""

WORTH = 65_536
"""Products of two numbers that a core does at a time at least, in some microseconds."""


class NativeProduct:
    """A form on a target: its machine code once there is some, the function of a task.

    It is known by a ``key``. An item of the task is so many ``multiply_adds``. ``write`` returns the function, None
    where there is none.
    """

    def __init__(
        self, key: Key, multiply_adds: int, write: Callable[[], ModuleFunction | None]
    ) -> None:
        self.function: Any = None
        self._key = key
        self._least = max(1, WORTH // multiply_adds)
        self._write = write
        self._is_open = True

    def hot(self, wave: Wave) -> bool:
        """Say whether a wave is to have machine code and there is some; it is made when it pays."""
        if wave.hot == NEVER:
            return False
        if self._is_open and PROCESS.is_hot(self._key, wave.hot):
            self._is_open, function = False, self._write()
            if function is not None:
                self.function = compile(function.text, function.name, tasks.Function)
        return self.function is not None

    def begin(
        self, wave: Wave, count: int, words: Sequence[int], held: Any, reads: Sequence[Span]
    ) -> None:
        """Do so many products in the background, which read these bytes; what is ``held`` stays as long."""
        task = _InBackground(tasks.pool(wave.cores), self.task(wave, count, words), held)
        wave.background.begin(task, reads)

    def run(self, wave: Wave, count: int, words: Sequence[int]) -> bool:
        """Do so many products, each with registers of its own: ``words`` are those behind the header.

        Say whether all of them could be done.
        """
        return tasks.pool(wave.cores).run(self.task(wave, count, words))

    def task(self, wave: Wave, count: int, words: Sequence[int]) -> bytes:
        return tasks.pool(wave.cores).task(count, (self.function, self._least, 1), words=words)

    def timed(self, by_arrays: Callable[[], None]) -> None:
        """Do without machine code."""
        began = clock()
        by_arrays()
        PROCESS.spent[self._key] += clock() - began


@dataclass(slots=True)
class _InBackground:
    """A task of a pool, and what it names."""

    pool: tasks.Pool
    task: bytes
    held: Any
    begun: tasks.Begun | None = None

    def start(self) -> None:
        self.begun = self.pool.begin(self.task)

    def is_done(self) -> bool:
        return self.begun is not None and self.pool.is_done(self.begun)

    def finish(self) -> None:
        if self.begun is not None:
            self.pool.finish(self.begun)


@cache
def native_product(
    family: str, form: MatrixInstruction | TensorCoreProblem, *more: Hashable
) -> NativeProduct | None:
    """Return what all instructions of a form share, on a target and with what else tells their functions apart.

    They are those that ``ptxlab.native.tensor_core.products`` has by the ``family``. None where there is no LLVM or it
    would not find the registers.
    """

    def write() -> ModuleFunction | None:
        products = import_module("ptxlab.native.tensor_core.products")  # when something is compiled
        function: ModuleFunction | None = getattr(products, family)(form, *more)
        return function

    key = ANY, family, *map(_called, (form, *more))
    return NativeProduct(key, form.m * form.n * form.k, write) if is_possible() else None


def _called(what: Hashable) -> str:
    return what.name if isinstance(what, MatrixInstruction | Target) else str(what)


@dataclass(eq=False)
class ProductStep(WarpOperation):
    """The step of a product that falls back ``by_arrays`` where there is no machine code: of A, B and C, and of D."""

    product: NativeProduct
    form: MatrixInstruction
    line: int
    sources: Sequence[Source]
    slots: Sequence[int]
    word: np.dtype[Any]

    def __call__(self, frame: Frame, threads: Threads) -> None:
        if not self.product.hot(frame.wave):
            self.product.timed(partial(self.by_arrays, frame, threads))
            return
        warps = WholeWarps(frame, threads, self.form.name, self.line)
        registers, width = frame.registers, threads.width
        given = [each(source.read(registers), width) for source in self.sources]
        made = [blank(registers[slot], threads, self.word) for slot in self.slots]
        listed = None if threads.everyone else threads.index[::WARP] // WARP
        which = 0 if listed is None else listed.ctypes.data
        words = [which, *map(id, given), *map(id, made)]
        if not self.product.run(frame.wave, warps.count, words):
            self.by_arrays(frame, threads)  # which tells why
            return
        for slot, value in zip(self.slots, made, strict=True):
            registers[slot] = value

    def ready(self, wave: Wave) -> bool:
        return self.product.hot(wave)


def natively(
    product: NativeProduct,
    form: MatrixInstruction,
    step: Step,
    line: int,
    sources: Sequence[Source],
    destinations: Sequence[Destination],
) -> Step:
    """Return the step that is machine code, and ``step`` where there is none."""
    word = np.dtype(f"u{form.operand('D').register_bits // 8}")
    slots = [destination.slot for destination in destinations]
    part = None
    if all(each.convert is None and each.dtype.itemsize == word.itemsize for each in sources):
        part = PartTask(
            inputs=[source.slot for source in sources],
            outputs=[(slot, word, True) for slot in slots],
            make=lambda wave, mask: (product.task(wave, wave.warps, [0]), product),
            can_fail=form.metadata is not None,  # which may be undefined
        )
    return ProductStep(step, part, product, form, line, sources, slots, word)


def each(value: Array, width: int) -> Array:
    """Return a register with a word for each thread, one after the other."""
    if len(value) != width:
        return value.repeat(width)
    return np.ascontiguousarray(value)


def repeated(bits: int, width: int) -> int:
    """Return the bits of an element as often as it has room in a word of 32 bits."""
    return bits * (0xFFFFFFFF // ((1 << width) - 1))


def blank(old: Array, threads: Threads, word: np.dtype[Any]) -> Array:
    """Return a register that these threads can write, with what others have in ``old``."""
    if threads.everyone:
        return np.empty(threads.width, word)
    if threads.full:
        return np.zeros(threads.width, word)
    words = old.view(word)
    return words.copy() if len(words) == threads.width else words.repeat(threads.width)
