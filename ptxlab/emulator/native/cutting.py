"""A block cut into segments that run as machine code, and the steps between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ptxlab.emulator.native.segment import Arrays, Segment, describe
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
    staying = [instruction for instruction in block.watched if not instruction.leaves]
    leaving = [
        step for instruction in block.watched if instruction.leaves for step in instruction.steps
    ]
    lasting = block.lasting()
    literals = _literals(layout) if hot else {}
    steps: list[Step] = []
    position = 0
    forms = _forms(staying, layout, literals) if hot else [False] * len(staying)
    for run, native in _cut(staying, forms):
        position += len(run)
        after = lasting[position - 1]
        touched: set[int] = set()
        touched.update(*(instruction.site.reads | instruction.site.writes for instruction in run))
        dying = sorted(touched - after)
        plain = [step for instruction in run for step in instruction.steps]
        if dying:
            plain.append(Drop(dying))
        arrays = Arrays(run, plain)
        if native:
            steps.append(Segment(run, arrays, dying, after, literals, target))
        else:
            steps.append(arrays)
    return steps + leaving


@lru_cache(maxsize=16)
def _literals(layout: FrameLayout) -> dict[int, bytes]:
    initial: Any = layout.initial  # those of literals are arrays
    return {slot: initial[slot].tobytes() for slot in layout.literals}


@lru_cache(maxsize=4096)
def _known(*instructions: Hashable) -> list[bool]:
    """Return what is filled in by who asks first: instructions that only name other registers have the same."""
    return []


def _forms(
    bounds: Sequence[InstructionSteps], layout: FrameLayout, literals: dict[int, bytes]
) -> list[bool]:
    numbers: dict[int, int] = {}
    known = _known(*(describe(instruction, numbers, literals) for instruction in bounds))
    if len(known) != len(bounds):
        known[:] = [
            has_native_form(instruction, layout.literals, layout.initial) for instruction in bounds
        ]
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
    for instruction, is_native in zip(bounds, forms, strict=True):
        access = instruction.lowered.access if is_native and instruction.lowered else None
        sees = access is not None and not access.writes and access.space in stored
        apart = warp_operation([instruction]) is not None or warp_operation(run[-1:]) is not None
        if run and (is_native != native or sees or apart or len(run) == MOST):
            yield run, native
            run, stored = [], set()
        native = is_native
        run.append(instruction)
        if access is not None and access.writes:
            stored.add(access.space)
    if run:
        yield run, native
