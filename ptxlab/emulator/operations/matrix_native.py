"""mma and wmma.mma as machine code, where it is at hand and pays: the same registers, the same bits.

Compiling takes some tenths of a second, so that the array arithmetic goes first and is left when it
has taken as long.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from ptxlab.emulator.operations.warp import Warps
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP, Target
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.native.compiler import available, compile

BREAK_EVEN = 0.2
"""Seconds of array arithmetic of one form after which it is compiled."""

Call = Callable[[bytes, int | None, int], None]
"""Takes the objects of the registers, where the numbers of the warps are, and how many warps."""
_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)


class NativeProduct:
    """A form on a target: ``call`` is its machine code once there is some.

    ``spent`` are the seconds that it has taken without; None where there will never be machine code.
    """

    def __init__(self, form: MatrixInstruction, target: Target) -> None:
        self.form, self.target = form, target
        self.call: Call | None = None
        self.spent: float | None = 0.0

    def hot(self) -> Call | None:
        """Return the machine code, which is made when it pays."""
        if self.call is None and self.spent is not None and self.spent >= BREAK_EVEN:
            self._compile()
        return self.call

    def timed(self, step: Step, frame: Frame, threads: Threads) -> None:
        """Execute the step that is made of arrays."""
        began = perf_counter()
        step(frame, threads)
        if self.spent is not None:
            self.spent += perf_counter() - began

    def _compile(self) -> None:
        from ptxlab.native.tensor_core import mma

        self.spent, function = None, mma.function(self.form, self.target)
        if function is not None:
            self.call = _TYPE(compile(function.text, function.name))


@cache
def native_product(form: MatrixInstruction, target: Target) -> NativeProduct | None:
    """Return what all instructions of a form share, None where nothing is compiled."""
    return NativeProduct(form, target) if available() else None


def natively(
    product: NativeProduct,
    step: Step,
    line: int,
    sources: Sequence[Source],
    destinations: Sequence[Destination],
) -> Step:
    """Return the step that gives way from ``step`` to machine code.

    ``sources`` are the registers of A, B and C, ``destinations`` those of D.
    """
    form = product.form
    word = np.dtype(f"u{form.operand('D').register_bits // 8}")
    slots = [destination.slot for destination in destinations]
    objects = struct.Struct(f"{len(sources) + len(slots)}P").pack

    def run(frame: Frame, threads: Threads) -> None:
        call = product.hot()
        if call is None:
            product.timed(step, frame, threads)
            return
        warps = Warps(frame, threads, form.name, line)
        registers, width = frame.registers, threads.width
        given = [_each(source.read(registers), width) for source in sources]
        if threads.everyone:
            made = [np.empty(width, word) for _ in slots]
            listed, which = None, None
        else:
            made = [_kept(registers[slot], threads, word) for slot in slots]
            listed = threads.index[::WARP] // WARP
            which = listed.ctypes.data
        call(objects(*map(id, given), *map(id, made)), which, warps.count)
        for slot, value in zip(slots, made, strict=True):
            registers[slot] = value

    return run


def _each(value: Array, width: int) -> Array:
    """Return a register with a word for each thread, one after the other."""
    if len(value) != width:
        return value.repeat(width)
    return np.ascontiguousarray(value)


def _kept(old: Array, threads: Threads, word: np.dtype[Any]) -> Array:
    """Return a new register with what threads other than these keep."""
    if threads.full:
        return np.zeros(threads.width, word)
    return np.array(np.broadcast_to(old.view(word), (threads.width,)))
