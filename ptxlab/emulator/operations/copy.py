"""cp.async and its groups. Source: PTX ISA, "Non-bulk copy: cp.async"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.copy_native import committed, natively, waited
from ptxlab.emulator.operations.memory import HINT, NEEDS, PREFETCHES
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import parts
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM, Part
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.syntax.tree import Integer, Name, Operand

SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def copy(context: Context, form: RowForm) -> Step:
    """Copy from global to shared memory. Bytes past the source size are filled with zeros.

    Addresses are checked at once; the bytes are read, and land, when they are waited for.
    """
    cache = form["cache"]
    operands = list(context.instruction.operands)
    if HINT in context.instruction.modifiers:
        context.source(operands.pop(), "b64")
    target, origin, size = operands[:3]
    if not isinstance(size, Integer) or size.value not in SIZES[cache]:
        context.reject(
            f"the size of cp.async.{cache} is one of {', '.join(map(str, SIZES[cache]))}", size
        )
    nbytes = size.value
    given = _given(context, operands[3]) if len(operands) == 4 else None
    if len(operands) == 4 and isinstance(operands[3], Integer) and operands[3].value > nbytes:
        context.reject(f"{operands[3].value} bytes are more than the copy has", operands[3])
    write = Access("shared", *context.address(target), nbytes, context.line, "cp.async write", True)
    read = Access("global", *context.address(origin), nbytes, context.line, "cp.async read")

    def run(frame: Frame, threads: Threads) -> None:
        [into] = parts(write, frame, threads)
        pieces = _pieces(read, _source_bytes(given, read, frame, threads), frame, threads)
        width = threads.size

        def land(chosen: Array | None) -> None:
            items = np.zeros(width * nbytes, np.uint8).view(ITEM[nbytes])
            for piece in pieces:
                piece.fill(items)
            index = np.broadcast_to(into.index, (width,))
            memory = into.memory.items(nbytes)
            if chosen is None:
                memory[index] = items
            else:
                memory[index[chosen]] = items[chosen]

        frame.wave.copies.start(threads, land)

    return natively(run, read, write) if given is None else run


def _given(context: Context, operand: Operand) -> Source:
    """Return the last operand: how many bytes to read, or a predicate whether to ignore them all."""
    register = context.register(operand.text) if isinstance(operand, Name) else None
    ignores = register is not None and register.type == "pred"
    return context.source(operand, "pred" if ignores else "u32")


def _source_bytes(given: Source | None, read: Access, frame: Frame, threads: Threads) -> Array:
    """Return how many bytes each lane reads, one number for all where it is the same."""
    nbytes = read.nbytes
    if given is None:
        return np.array([nbytes])
    value = threads.pick(given.read(frame.registers))
    if value.dtype == bool:
        return np.where(value, 0, nbytes)
    too_many = value > nbytes
    if too_many.any():
        at = int(np.argmax(too_many))
        raise LaunchError(
            f"cp.async of {nbytes} bytes has a source size of {int(value[at])} "
            f"in {frame.wave.thread(int(threads.index[at]))}",
            location=frame.wave.locate(read.line),
            hint="the source size must not be larger than the copy",
        )
    return value


@dataclass(slots=True)
class _Piece:
    """Part of what a copy reads: whole items, or byte ``byte`` of each, for its lanes at ``where``."""

    part: Part
    where: Array | None
    byte: int | None = None

    def fill(self, items: Array) -> None:
        """Read the piece into ``items``, one per lane of the copy."""
        nbytes = items.itemsize
        into = items if self.byte is None else items.view(np.uint8)[self.byte :: nbytes]
        read = self.part.memory.items(nbytes if self.byte is None else 1).take(self.part.index)
        into[slice(None) if self.where is None else self.where] = read


def _pieces(read: Access, given: Array, frame: Frame, threads: Threads) -> list[_Piece]:
    """Find what each lane reads. Nothing is read, or checked, past a lane's source size."""
    if (given == read.nbytes).all():
        return [_Piece(part, part.where) for part in parts(read, frame, threads)]
    given = np.broadcast_to(given, (threads.size,))
    reads: list[tuple[Access, Array, int | None]] = [(read, given == read.nbytes, None)]
    for byte in range(read.nbytes):
        short = (given > byte) & (given < read.nbytes)
        reads.append((replace(read, offset=read.offset + byte, nbytes=1), short, byte))
    pieces = []
    for access, chosen, at in reads:
        where = np.flatnonzero(chosen)
        if where.size:
            some = Threads(threads.width, index=threads.index[where])
            for part in parts(access, frame, some):
                pieces.append(_Piece(part, where if part.where is None else where[part.where], at))
    return pieces


# ---- groups of copies -----------------------------------------------------------------------


def commit_group(context: Context, form: RowForm) -> Step:
    """Close the group of copies."""
    return committed(lambda frame, threads: frame.wave.copies.commit(threads))


def wait_all(context: Context, form: RowForm) -> Step:
    """Wait for all copies."""
    return waited(lambda frame, threads: frame.wave.copies.wait_all(threads), -1)


def wait_group(context: Context, form: RowForm) -> Step:
    """Wait for all groups of copies but the latest ones."""
    [allowed] = context.operands(1)
    most = allowed.value
    return waited(lambda frame, threads: frame.wave.copies.wait(threads, most), most)


for _hint, _policy in (("", ""), (f".{HINT}", " b64")):
    row(
        f"cp.async.<cache>.<shared>.global{_hint}{{.<prefetch>}}",
        f"[b8@shared] [b8@global] #u32 ~u32?{_policy}",
        step=copy,
        mix="asynchronous copy",
        effects=Effects(begins="copies", work="copy"),
        cache=" ".join(SIZES),
        needs={"": "sm_80 7.0", **NEEDS},
        shared="shared shared::cta",
        prefetch=PREFETCHES,
    )
_group = partial(row, mix="asynchronous copy", needs="sm_80 7.0")
_group("cp.async.commit_group", "", step=commit_group, effects=Effects(commits="copies"))
_waits = partial(_group, effects=Effects(waits="copies"))
_waits("cp.async.wait_all", "", step=wait_all)
_waits("cp.async.wait_group", "#u32", step=wait_group)
