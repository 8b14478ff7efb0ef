"""What PTX leaves open to who compiles it: whether that explains that machine code gives other bits than its PTX.

PTX ISA, "Floating-Point Instructions": ``add``, ``sub`` and ``mul`` without a rounding modifier may be contracted to
``fma``; results of ``.approx`` and ``.full`` have an error that is bounded and no bits that are told. "Memory
Consistency Model": nothing orders atomic operations of several threads. "Special Registers": a clock counts cycles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.emulator.operations.floating import ROUNDINGS
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.numbers.exact import Number, dot, nearest
from ptxlab.numbers.formats import FORMATS
from ptxlab.observe.unmatched import Point, WarpValues
from ptxlab.observe.value_flow import slots
from ptxlab.observe.value_trace import Step, ValueTrace
from ptxlab.syntax.tree import Float, Name, Operand

_FLOATS = ("f16", "bf16", "f32", "f64")
_CLOCK = re.compile(r"%(clock|globaltimer)")
_OPEN = {"approx", "full"}
_CHECKED = 16  # sums that are tried, the first of a long chain tells


@dataclass(frozen=True, slots=True)
class Liberty:
    """A rule of PTX that ``line`` leaves something open by, in words."""

    rule: str
    line: int
    reason: str


def taken(
    trace: ValueTrace,
    points: Sequence[Point],
    unwritten: Sequence[Point],
    other: Callable[[int], WarpValues],
) -> Liberty | None:
    """Return what explains that the values at some points of PTX are others in its machine code, None for nothing."""
    steps = [(trace.steps[number], number, thread) for number, thread in points]
    for number, _ in unwritten:
        line = trace.steps[number].site.line
        return Liberty("no value", line, "a register is read that nobody has written")
    for step, number, thread in steps:
        if clock := _clock(trace, step, number, thread):
            return Liberty(
                "time",
                clock.site.line,
                "a clock is read, whose cycles are those of what ran before",
            )
        name = step.site.instruction.name
        if _OPEN & set(step.site.instruction.modifiers):
            return Liberty(
                "approximation",
                step.site.line,
                f"{name} has an error that is bounded, and no bits that are told",
            )
        if effects_of(step.site.instruction).atomic and _kind(step) in _FLOATS:
            return Liberty("order", step.site.line, f"{name} of several threads comes in any order")
    tried = 0
    for step, number, thread in steps:
        if tried < _CHECKED and _contracts(step) in ("sum", "difference"):
            tried += 1
            if any(
                _had(value, step, other(thread)) for value in _fused(trace, step, number, thread)
            ):
                return Liberty(
                    "contraction",
                    step.site.line,
                    "mul and the sum of what it gives have no rounding modifier and became one fma, "
                    "whose bits the machine code has",
                )
    return None


def _clock(trace: ValueTrace, step: Step, number: int, thread: int) -> Step | None:
    """Return the step that reads a clock, of one and those that wrote what it reads; None for none."""
    read = [
        slot for operand in step.site.instruction.operands for slot in slots(step.site, operand)
    ]
    writers = (trace.writer(number, slot, thread) for slot in read if slot in step.reads)
    for each in (step, *(trace.steps[writer] for writer in writers if writer is not None)):
        if any(
            isinstance(o, Name) and _CLOCK.match(o.text) for o in each.site.instruction.operands
        ):
            return each
    return None


def _kind(step: Step) -> str:
    """Return the type of the numbers of a step, one half of a pair of them."""
    names = (name.removesuffix("x2") for name in reversed(step.site.instruction.modifiers))
    return next((name for name in names if name in FORMATS), "")


def _contracts(step: Step) -> str:
    """Return what of a sum of products a step is that may be contracted, "" for nothing."""
    rounded = set(ROUNDINGS) & set(step.site.instruction.modifiers)
    is_open = _kind(step) in _FLOATS and not rounded
    return effects_of(step.site.instruction).contracts if is_open else ""


def _fused(trace: ValueTrace, step: Step, number: int, thread: int) -> Iterator[int]:
    """Yield the words of a sum that is computed in one with a product that it is made of."""
    instruction = step.site.instruction
    _, *terms = instruction.operands
    subtracted = _contracts(step) == "difference"
    for at, other in ((0, 1), (1, 0)):
        [slot] = slots(step.site, terms[at])
        addends = _numbers(step, terms[other], thread)
        writer = None if slot is None else trace.writer(number, slot, thread)
        if writer is None:
            continue
        product = trace.steps[writer]
        if _contracts(product) != "product":
            continue
        factors = [
            _numbers(product, operand, thread) for operand in product.site.instruction.operands[1:]
        ]
        word, at_bit = 0, 0
        for a, b, addend in zip(*factors, addends, strict=True):
            a = -a if subtracted and at == 1 else a
            addend = -addend if subtracted and at == 0 else addend
            if not np.isfinite([a, b, addend]).all():
                break
            word |= _rounded(dot([a], [b], addend), _kind(step)) << at_bit
            at_bit += 8 * FORMATS[_kind(step)].dtype.itemsize
        else:
            if addends:
                yield word


def _rounded(exact: Number, kind: str) -> int:
    if kind == "f64":
        return int(np.float64(float(exact)).view(np.uint64))
    return nearest(exact, FORMATS[kind])


def _numbers(step: Step, operand: Operand, thread: int) -> list[float]:
    """Return a register as a thread reads it in a step, both halves of a pair, or a constant; none of anything else."""
    if isinstance(operand, Float):
        bits = np.array(operand.bits, f"u{operand.width // 8}")
        return [float(bits.view(f"f{operand.width // 8}"))]
    [slot] = slots(step.site, operand)
    if slot is None or slot not in step.reads:
        return []
    value = step.reads[slot]
    own = value[[0 if len(value) == 1 else thread]]
    return own.view(FORMATS[_kind(step)].dtype).astype(np.float64).tolist()  # type: ignore[no-any-return]


def _had(word: int, step: Step, other: WarpValues) -> bool:
    """Say whether the machine code has a value in the lane of a thread."""
    size = max(value.dtype.itemsize for value in step.writes.values())
    return other.lane_has(word, size)
