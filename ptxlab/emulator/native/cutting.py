"""A block cut into segments that run as machine code, and the steps between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ptxlab.emulator.native.segment import Arrays, Segment, described
from ptxlab.emulator.native.warp_operation import warp_operation
from ptxlab.emulator.native.writer import has_native_form
from ptxlab.emulator.prepare.registers import FrameLayout
from ptxlab.emulator.run.code import BasicBlock, InstructionSteps, Step
from ptxlab.emulator.run.steps import Drop
from ptxlab.native.arrays import sees_arrays

MOST = 400
"""Instructions of one function: compiling takes longer than in proportion."""


def steps_of(
    block: BasicBlock, layout: FrameLayout, target: str, *, hot: bool = True
) -> Sequence[Step]:
    """Return the steps of a block with its segments as steps of their own, none if it is not ``hot``.

    They are machine code for a ``target``.
    """
    if not sees_arrays():
        return block.steps
    staying = [one for one in block.watched if not one.leaves]
    leaving = [step for one in block.watched if one.leaves for step in one.steps]
    lasting = block.lasting()
    literals = {slot: _bytes(layout.initial[slot]) for slot in layout.literals} if hot else {}
    steps: list[Step] = []
    position = 0
    for run, native in _cut(staying, _forms(staying, layout) if hot else [False] * len(staying)):
        position += len(run)
        after = lasting[position - 1]
        touched: set[int] = set()
        touched.update(*(one.site.reads | one.site.writes for one in run))
        dying = sorted(touched - after)
        plain = [step for one in run for step in one.steps]
        if dying:
            plain.append(Drop(dying))
        arrays = Arrays(run, plain)
        if native:
            steps.append(Segment(run, arrays, dying, after, literals, target))
        else:
            steps.append(arrays)
    return steps + leaving


def _bytes(value: Any) -> bytes:
    assert isinstance(value, np.ndarray)
    return value.tobytes()


@lru_cache(maxsize=4096)
def _known(*instructions: Hashable) -> list[bool]:
    """Return what is filled in by who asks first: a program that is loaded again has the same."""
    return []


def _forms(bounds: Sequence[InstructionSteps], layout: FrameLayout) -> list[bool]:
    known = _known(*map(described, bounds))
    if len(known) != len(bounds):
        known[:] = [has_native_form(one, layout.literals, layout.initial) for one in bounds]
    return known


def _cut(
    bounds: Sequence[InstructionSteps], forms: Sequence[bool]
) -> Iterator[tuple[list[InstructionSteps], bool]]:
    """Cut a block into segments, each with True, and what lies between them.

    A segment has no load that could see one of its own stores: these come last.
    """
    run: list[InstructionSteps] = []
    stored: set[str] = set()
    native = True
    for one, is_native in zip(bounds, forms, strict=True):
        access = one.lowered.access if is_native and one.lowered else None
        sees = access is not None and not access.writes and access.space in stored
        apart = warp_operation([one]) is not None or warp_operation(run[-1:]) is not None
        if run and (is_native != native or sees or apart or len(run) == MOST):
            yield run, native
            run, stored = [], set()
        native = is_native
        run.append(one)
        if access is not None and access.writes:
            stored.add(access.space)
    if run:
        yield run, native
