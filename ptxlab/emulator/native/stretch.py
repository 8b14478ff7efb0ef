"""A stretch of a block as one step: machine code where it pays, the array engine's steps elsewhere."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.emulator.native.writer import (
    FIRST,
    NAME,
    NoNativeForm,
    Shape,
    Writer,
    Written,
    inputs_and_outputs,
)
from ptxlab.emulator.prepare.program import Bound, Step
from ptxlab.emulator.run.memory import Region
from ptxlab.emulator.run.registers import Array
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.native import compiler

MOST_SHAPES = 6
"""Functions that are made of one stretch: more ways to share registers than that are left to arrays."""

MOST_FAULTS = 3
"""How often a function may meet addresses that it does not know before it is given up."""

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)


@dataclass(slots=True)
class Made:
    """A function, how its arguments are packed, what it writes, and how often it met a fault."""

    function: Callable[[bytes], int]
    pack: Callable[..., bytes]
    written: Written
    scratch: list[Array]
    faults: int = 0


class Stretch:
    """Instructions that follow each other in a block, and what they leave behind."""

    def __init__(
        self,
        bounds: Sequence[Bound],
        steps: Sequence[Step],
        dying: Sequence[int],
        lasting: set[int],
        literals: frozenset[int],
    ) -> None:
        self.bounds = bounds
        self.lasting = lasting
        self.literals = literals
        given, written = inputs_and_outputs(bounds)
        wanted = sorted((written & lasting) - set(given))
        self.inputs = [slot for slot in given if slot not in literals]
        self.merged = self.inputs + wanted
        self.steps, self.dying = steps, dying
        self.spaces = {
            one.lowered.access.space for one in bounds if one.lowered and one.lowered.access
        }
        self.made: dict[tuple[Any, ...], Made | None] = {}

    def __call__(self, frame: Frame, threads: Threads) -> None:
        if not self._natively(frame, threads):
            for step in self.steps:
                step(frame, threads)

    def _natively(self, frame: Frame, threads: Threads) -> bool:
        """Run as machine code; False if nothing was done."""
        wave, registers = frame.wave, frame.registers
        everyone, full = threads.everyone, threads.full or threads.everyone
        if threads.sparse or ("shared" in self.spaces and wave.config.cluster_ctas > 1):
            return False
        slots = self.inputs if full else self.merged
        values = [registers[slot] for slot in slots]
        key = (everyone, full, *[len(value) == 1 for value in values])
        made = self.made.get(key, self)
        if made is self:
            made = self._make(key, slots, frame)
        if made is None:
            return False
        assert isinstance(made, Made)
        width, written = wave.width, made.written
        if made.scratch and len(made.scratch[0]) != width:
            made.scratch = [np.empty(width, dtype) for dtype in written.scratch]
        results = [np.empty(width if wide else 1, dtype) for _, dtype, wide in written.outputs]
        mask = threads.mask if not everyone else None
        arguments = made.pack(
            width,
            id(mask),
            id(wave.memory.table),
            *_window(wave, "shared", self.spaces),
            *_window(wave, "local", self.spaces),
            *map(id, values),
            *map(id, results),
            *map(id, made.scratch),
        )
        if made.function(arguments):
            made.faults += 1
            if made.faults == MOST_FAULTS:
                self.made[key] = None
            return False
        moved = [registers[source] for _, source in written.moved]
        for (slot, _, _), result in zip(written.outputs, results, strict=True):
            registers[slot] = result
        for (slot, _), value in zip(written.moved, moved, strict=True):
            registers[slot] = value
        if threads.full:
            initial: Any = frame.layout.initial  # constants are never dropped
            for slot in self.dying:
                registers[slot] = initial[slot]
        return True

    def _make(self, key: tuple[Any, ...], slots: Sequence[int], frame: Frame) -> Made | None:
        """Compile the function for registers shared as ``key`` says; None if there is to be none."""
        made = None
        if len(self.made) < MOST_SHAPES:
            everyone, full, *alike = key
            shared = frozenset(slot for slot, one in zip(slots, alike, strict=True) if one)
            shape = Shape(shared, not everyone, not full)
            try:
                writer = Writer(
                    self.bounds, slots, self.lasting, frame.registers, self.literals, shape
                )
                made = _compiled(writer.written(), len(slots), frame.wave.width)
            except (NoNativeForm, RuntimeError):  # LLVM does not take it: it runs as arrays
                pass
        self.made[key] = made
        return made


def _compiled(written: Written, inputs: int, width: int) -> Made:
    function = compiler.compile(written.text, NAME, _FUNCTION)
    words = FIRST + inputs + len(written.outputs) + len(written.scratch)
    scratch = [np.empty(width, dtype) for dtype in written.scratch]
    return Made(function, struct.Struct(f"{words}q").pack, written, scratch)


_NONE = (0, 0, 0, 0)


def _window(wave: Wave, space: str, spaces: set[str]) -> tuple[int, int, int, int]:
    """Return the words that describe a thread's own memory."""
    if space not in spaces:
        return _NONE
    region: Region = wave.regions[space]
    return id(region.data), id(region.start), region.size, region.first
