"""createpolicy, applypriority and discard: hints to a cache, which never change what a program computes.

A policy is the word that the machine code of ptxas makes for sm_90a. Source: PTX ISA, "createpolicy",
"applypriority".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.memory import scatter
from ptxlab.emulator.operations.order import nothing
from ptxlab.emulator.prepare.computation import computation
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Access, Lowered
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import parts
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM
from ptxlab.emulator.run.steps import register_step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.syntax.tree import Float, Integer, Operand

_PRIMARY = {
    "L2::evict_unchanged": 0,
    "L2::evict_first": 1,
    "L2::evict_last": 2,
    "L2::evict_normal": 3,
}
_SECONDARY = {"": 0, "L2::evict_unchanged": 0, "L2::evict_first": 1}
_LINE = 128
"""Bytes of a line of the cache."""


def _priorities(first: str, second: str) -> int:
    return _PRIMARY[first] << 5 | _SECONDARY[second] << 4


def fractional(first: str, second: str) -> Callable[..., Array]:
    """Return the policy of a fraction of all accesses, in sixteenths; of all where none is given."""
    priorities = np.uint64(0x100 | _priorities(first, second))

    def policy(fraction: Array = _ALL) -> Array:
        scaled = np.nan_to_num((fraction * np.float32(15.99)).astype(np.float64), nan=0.0)
        sixteenths = np.clip(scaled, 0, 2**32 - 1).astype(np.uint64) & np.uint64(15)
        bits: Array = (priorities | sixteenths) << np.uint64(52)
        return bits

    return policy


_ALL = np.ones(1, np.float32)


def _create_fractional(context: Context, form: RowForm) -> Lowered:
    operands = context.instruction.operands
    for fraction in operands[1:]:
        if isinstance(fraction, Float) and not 0 < context.immediate(fraction, "f64")[0] <= 1:
            context.reject("a fraction is more than 0 and at most 1", fraction)
    return computation(context, form, operands)


def _create_range(context: Context, form: RowForm) -> Step:
    """Make a policy for ``primary`` bytes from an address on, of ``total`` bytes."""
    target, where, primary, total = context.operands(4)
    if isinstance(primary, Integer) and isinstance(total, Integer) and primary.value > total.value:
        context.reject("the primary size is at most the total size", primary)
    base, offset = context.address(where)
    priorities = 0x180 | _priorities(form["first"], form["second"])
    return register_step(
        partial(_ranged, priorities, offset % (1 << 64)),
        [context.destination(target, "b64")],
        [base, context.source(primary, "u32"), context.source(total, "u32")],
    )


def _ranged(priorities: int, offset: int, base: Array, primary: Array, total: Array) -> Array:
    """Return the policy: the blocks that the primary range touches, of at least 4096 bytes each."""
    start: Array = base.astype(np.uint64) + np.uint64(offset)
    exponent = np.ceil(np.log2(np.maximum(total, 1).astype(np.float32)))
    shift = np.maximum(exponent.astype(np.int64) - 7, 12).astype(np.uint64)
    unit = np.uint64(1)
    end = start + (primary.astype(np.uint64) + (unit << shift) - unit)
    first = start >> shift
    blocks = np.minimum((end >> shift) - first, np.uint64(127))
    size = np.uint64(priorities) | (shift - np.uint64(12))
    word = (size << np.uint64(8) | first & np.uint64(127)) << np.uint64(7) | blocks
    empty = np.uint64(0x180 << 15)
    bits: Array = np.where(total == 0, empty, word) << np.uint64(37)
    return bits


def _apply(context: Context, form: RowForm) -> Step:
    """Take the hint; only its operands are checked."""
    address, size = context.operands(2)
    context.address(address)
    _require_line(context, size)
    return nothing


def _discard(context: Context, form: RowForm) -> Step:
    """Leave 128 bytes without a value: a launch lets them keep theirs, a check fills them with NaN."""
    where, size = context.operands(2)
    _require_line(context, size)
    base, offset = context.address(where)
    space = "global" if form["space"] else "generic"
    pieces = [
        Access(space, base, offset + at, 16, context.line, "discard", True)
        for at in range(0, _LINE, 16)
    ]

    def run(frame: Frame, threads: Threads) -> None:
        poison = frame.wave.watcher.poison
        for piece in pieces:
            if poison:
                scatter(piece, frame, threads, np.full(16, poison, np.uint8).view(ITEM[16]))
            else:
                parts(piece, frame, threads)

    return run


def _require_line(context: Context, size: Operand) -> None:
    if not isinstance(size, Integer) or size.value != _LINE:
        context.reject(f"{context.instruction.name} takes {_LINE} bytes, no other size", size)


_policy = partial(row, mix="cache", needs="sm_80 7.4")
_create = partial(
    _policy, first=" ".join(_PRIMARY), second=" ".join(filter(None, _SECONDARY)), fidelity="model"
)
_fractional = partial(
    _create,
    "createpolicy.fractional.<first>{.<second>}.b64",
    make=fractional,
    step=_create_fractional,
)
_fractional("f32 -> b64")
_fractional("-> b64")
_create(
    "createpolicy.range{.global}.<first>{.<second>}.b64", "[b8] u32 u32 -> b64", step=_create_range
)
_policy("createpolicy.cvt.L2.b64", "b64 -> b64", lambda policy: policy)
_policy("discard{.<space>}.L2", "[b8] #u32", step=_discard, space="global", needs="sm_80 7.4")
_policy("applypriority{.global}.L2::evict_normal", "[b8] #u32", step=_apply, fidelity="ordering")
