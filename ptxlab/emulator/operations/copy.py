"""cp.async and its groups. Source: PTX ISA, "Non-bulk copy: cp.async"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ptxlab.emulator.operations.memory import HINT, NEEDS, PREFETCHES
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.run.access import parts
from ptxlab.emulator.run.memory import ITEM, Access, Part
from ptxlab.emulator.run.registers import Array, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.syntax.tree import Instruction, Integer, Name

SIZES = {"ca": (4, 8, 16), "cg": (16,)}


@dataclass(slots=True)
class _Piece:
    """Part of what a copy reads: whole items, or byte ``byte`` of each, for some of its lanes."""

    part: Part
    positions: Array | None
    byte: int | None

    def fill(self, items: Array, nbytes: int) -> None:
        """Read the piece into ``items``, one per lane of the copy."""
        where = self.positions
        if self.part.where is not None:
            where = self.part.where if where is None else where[self.part.where]
        into = items if self.byte is None else items.view(np.uint8)[self.byte :: nbytes]
        values = self.part.memory.items(1 if self.byte is not None else nbytes).take(
            self.part.index
        )
        into[slice(None) if where is None else where] = values


class AsyncCopy:
    """cp.async: addresses are checked at once, the bytes are read and land when they are waited for."""

    __slots__ = ("_given", "_ignore", "_read", "_write")

    def __init__(
        self, write: Access, read: Access, given: Source | None, ignore: Source | None
    ) -> None:
        self._write = write
        self._read = read
        self._given = given
        self._ignore = ignore

    def run(self, frame: Frame, threads: Threads) -> None:
        """Start the copy for ``threads``. Bytes past the source size are filled with zeros."""
        nbytes = self._write.nbytes
        [target] = parts(self._write, frame, threads)
        pieces = self._pieces(frame, threads)
        width = threads.size

        def land(chosen: Array | None) -> None:
            items = np.zeros(width * nbytes, np.uint8).view(ITEM[nbytes])
            for piece in pieces:
                piece.fill(items, nbytes)
            index = np.broadcast_to(target.index, (width,))
            memory = target.memory.items(nbytes)
            if chosen is None:
                memory[index] = items
            else:
                memory[index[chosen]] = items[chosen]

        frame.wave.copies.start(threads, land)

    def _pieces(self, frame: Frame, threads: Threads) -> list[_Piece]:
        """Find what each lane reads. Nothing is read, or checked, past a lane's source size."""
        nbytes = self._read.nbytes
        given = self._source_bytes(frame, threads)
        if (given == nbytes).all():
            return [_Piece(part, None, None) for part in parts(self._read, frame, threads)]
        given = np.broadcast_to(given, (threads.size,))
        whole = np.flatnonzero(given == nbytes)
        found = self._some(frame, threads, self._read, whole, None) if whole.size else []
        for byte in range(nbytes):
            short = np.flatnonzero((given > byte) & (given < nbytes))
            if short.size == 0:
                break
            access = replace(self._read, offset=self._read.offset + byte, nbytes=1)
            found += self._some(frame, threads, access, short, byte)
        return found

    def _some(
        self, frame: Frame, threads: Threads, access: Access, positions: Array, byte: int | None
    ) -> list[_Piece]:
        chosen = Threads(threads.width, index=threads.index[positions])
        return [_Piece(part, positions, byte) for part in parts(access, frame, chosen)]

    def _source_bytes(self, frame: Frame, threads: Threads) -> Array:
        """Return how many bytes each lane reads, one number for all where it is the same."""
        nbytes = self._write.nbytes
        if self._ignore is not None:
            return np.where(threads.pick(self._ignore.read(frame.registers)), 0, nbytes)
        if self._given is None:
            return np.array([nbytes])
        given = threads.pick(self._given.read(frame.registers)).astype(np.int64)
        too_many = given > nbytes
        if too_many.any():
            at = int(np.argmax(too_many))
            raise LaunchError(
                f"cp.async of {nbytes} bytes has a source size of {int(given[at])} "
                f"in {frame.wave.thread(int(threads.index[at]))}",
                location=frame.wave.locate(self._read.line),
                hint="the source size must not be larger than the copy",
            )
        return given


class CommitGroup:
    """cp.async.commit_group."""

    __slots__ = ()

    def run(self, frame: Frame, threads: Threads) -> None:
        """Close the lanes' open group."""
        frame.wave.copies.commit(threads)


class WaitGroup:
    """cp.async.wait_group, or wait_all where ``allowed`` is None."""

    __slots__ = ("_allowed",)

    def __init__(self, allowed: int | None) -> None:
        self._allowed = allowed

    def run(self, frame: Frame, threads: Threads) -> None:
        """Land the copies that the lanes wait for."""
        if self._allowed is None:
            frame.wave.copies.wait_all(threads)
        else:
            frame.wave.copies.wait(threads, self._allowed)


def commit_group(context: Context, instruction: Instruction, form: Form) -> Step:
    """Close the group of copies."""
    return CommitGroup()


def wait_all(context: Context, instruction: Instruction, form: Form) -> Step:
    """Wait for all copies."""
    return WaitGroup(None)


def wait_group(context: Context, instruction: Instruction, form: Form) -> Step:
    """Wait for all groups of copies but the latest ones."""
    [allowed] = instruction.operands
    if not isinstance(allowed, Integer):
        context.reject("cp.async.wait_group takes an integer constant", allowed)
    return WaitGroup(allowed.value)


def copy(context: Context, instruction: Instruction, form: Form) -> Step:
    """Copy from global to shared memory."""
    cache = form["cache"]
    operands = list(instruction.operands)
    if form[HINT] and operands:
        context.source(operands.pop(), "b64")
    if not 3 <= len(operands) <= 4:
        context.reject(f"{instruction.name} takes 3 or 4 operands")
    target, origin, size = operands[:3]
    if not isinstance(size, Integer) or size.value not in SIZES[cache]:
        context.reject(
            f"the size of cp.async.{cache} is one of {', '.join(map(str, SIZES[cache]))}", size
        )
    given = ignore = None
    if len(operands) == 4:
        last = operands[3]
        register = context.register(last.text) if isinstance(last, Name) else None
        if register is not None and register.type == "pred":
            ignore = context.source(last, "pred")
        else:
            given = context.source(last, "u32")
    write = Access(
        "shared", *context.address(target), size.value, context.line, "cp.async write", True
    )
    read = Access("global", *context.address(origin), size.value, context.line, "cp.async read")
    return AsyncCopy(write, read, given, ignore)


row(
    "cp.async.<cache>.<shared>.global{.L2::cache_hint}{.<prefetch>}",
    "[b8] [b8] #u32 u32? b64?",
    step=copy,
    mix="asynchronous copy",
    cache=" ".join(SIZES),
    needs={"": "sm_80 7.0", **NEEDS},
    shared="shared shared::cta",
    prefetch=PREFETCHES,
)
_group = partial(row, mix="asynchronous copy", needs="sm_80 7.0")
_group("cp.async.commit_group", "", step=commit_group)
_group("cp.async.wait_all", "", step=wait_all)
_group("cp.async.wait_group", "#u32", step=wait_group)
