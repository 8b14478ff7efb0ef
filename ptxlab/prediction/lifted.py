"""What instructions of the machine compute: what the PTX does that they become when they are run.

So the rules that lift an instruction, and the rows of the emulator, are all that says what it does. Here these
rows are given registers of which not all values are known: what is made of one that is not, is not either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.forms import form_of
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.emulator.prepare.program import BoundFunction, BoundInstruction, Lowered
from ptxlab.emulator.prepare.registers import InWave
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Watcher
from ptxlab.errors import PtxSyntaxError, Unsupported
from ptxlab.garbage import record
from ptxlab.isa.targets import WARP, Target
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.lift.banks import Emits
from ptxlab.machine.lift.code import CodeAddresses
from ptxlab.machine.lift.kernel import runs_on
from ptxlab.machine.lift.table import RULES
from ptxlab.machine.lift.writer import FALSE, TEMPORARIES, TRUE, Writer, predicate_name, register
from ptxlab.machine.operands import UPT, Operand, Predicate, SassConstant, SassRegister
from ptxlab.machine.registers import Registers
from ptxlab.machine.uses import PREDICATES
from ptxlab.machine.values import Array, Where
from ptxlab.syntax import parse

_Key = tuple[str, str, tuple[Operand, ...], Predicate | None]
"""A target, the text of an instruction, its operands, and its guard where that is one of them: all that it computes."""
_Named = SassRegister | SassConstant | Predicate

_Slots = dict[int, Any]
"""What is in registers of a frame, None where it is not known."""

_CERTAIN = {TRUE: np.array([True]), FALSE: np.array([False])}
_NUMBERED: dict[str, SassRegister | Predicate] = {
    **{register(number): SassRegister(number) for number in range(PREDICATES)},
    **{predicate_name(number): Predicate(number) for number in range(UPT)},
}
_MOST = 50_000
"""So many instructions are kept."""


@record(frozen=True, slots=True, eq=False)
class Computation:
    """The steps of one instruction, over slots that begin as ``literals``, ``special`` registers, and what it ``reads``."""

    literals: Mapping[int, Array]
    special: Sequence[tuple[int, Callable[..., Array]]]
    reads: Sequence[tuple[int, _Named]]
    steps: Sequence[BoundInstruction]
    writes: Sequence[tuple[int, SassRegister | Predicate]]

    def run(self, registers: Registers, where: Where) -> None:
        """Compute it for some threads; what is written is unknown where something is that it is made of."""
        slots = _Slots(self.literals)
        if self.special:
            wave, threads = _standing(registers, where)
            slots.update((slot, threads.pick(value(wave))) for slot, value in self.special)
        for slot, operand in self.reads:
            if isinstance(operand, Predicate):
                slots[slot] = registers.predicate(operand, where)
            else:
                value = registers.value(operand, where)
                slots[slot] = None if value is None else np.atleast_1d(value)
        for step in self.steps:
            for slot in step.site.reads:
                if slots[slot] is None:
                    slots.update(dict.fromkeys(step.site.writes))
                    break
            else:
                if isinstance(step.action, Lowered):
                    _compute(step, step.action, slots)
                else:
                    _tell_lanes(step, slots, *_standing(registers, where))
        results = [slots[slot] for slot, _ in self.writes]
        if len(results) > 1:  # one may be a register that another is written to
            results = [None if result is None else result.copy() for result in results]
        for (_, written), result in zip(self.writes, results, strict=True):
            if isinstance(written, Predicate):
                registers.tell(written, where, result)
            else:
                word = None if result is None else result.view(np.uint32)
                registers.words.write(written.number, where, word)


def _compute(step: BoundInstruction, lowered: Lowered, slots: _Slots) -> None:
    """Compute what each thread does for itself, where a guard lets it."""
    given = [source.read(slots) for source in lowered.sources]
    assert lowered.compute is not None
    results = lowered.compute(*given)
    if len(lowered.destinations) == 1:
        results = (results,)
    before = slots if step.guard is None else slots.copy()
    for destination, result in zip(lowered.destinations, results, strict=True):
        slot = destination.slot
        slots[slot] = value = destination.extended(result)
        if step.guard is not None and slot in before:
            old, passing = before[slot], step.guard.read(slots)
            if not np.all(passing):  # else nothing is left of what was there
                kept = None if old is None else np.where(passing, value, old.view(value.dtype))
                slots[slot] = kept


def _tell_lanes(step: BoundInstruction, slots: _Slots, wave: _Wave, threads: Threads) -> None:
    """Have the lanes of warps tell each other what they do."""
    frame = _Frame(wave)
    for slot in step.site.reads:
        frame.registers[slot] = threads.spread(None, slots[slot])
    assert callable(step.action)
    step.action(frame, threads)
    slots.update((slot, threads.pick(frame.registers[slot])) for slot in step.site.writes)


class _Wave:
    """What special registers, and steps of whole warps, ask of a wave: of CTAs that are followed nobody watches any.

    They are followed as if each was a cluster of its own: there the rank is part of addresses of shared memory.
    """

    watched, watcher, rank_of = False, Watcher(), 0

    def __init__(self, registers: Registers) -> None:
        self.config, self.numbers = registers.launch.config, registers.ctas
        self.ctas, self.cta_width = len(self.numbers), registers.launch.threads
        self.width = registers.threads
        self.warps = self.width // WARP


def _standing(registers: Registers, where: Where) -> tuple[_Wave, Threads]:
    """Return the wave that threads are of, and who of it stands there."""
    wave = _Wave(registers)
    return wave, Threads(wave.width, index=None if isinstance(where, slice) else where)


class _Frame:
    """The registers that a step of whole warps reads, and those that it writes."""

    def __init__(self, wave: _Wave) -> None:
        self.wave = wave
        self.registers: _Slots = defaultdict(lambda: None)


_known: dict[_Key, Computation | None] = {}


def computations(
    instructions: Sequence[DecodedInstruction], target: Target
) -> list[Computation | None]:
    """Return what instructions compute, None for one that is more than arithmetic, or not modelled."""
    if len(_known) > _MOST:
        _known.clear()
    keys = [(target.name, i.sass.text, i.operands, _told(i).guard) for i in instructions]
    missing = {key: i for key, i in zip(keys, instructions, strict=True) if key not in _known}
    if missing:
        _known.update(dict.fromkeys(missing))
        _known.update(_made(missing, target))
    return [_known[key] for key in keys]


def _made(
    instructions: Mapping[_Key, DecodedInstruction], target: Target
) -> Iterator[tuple[_Key, Computation]]:
    """Yield what instructions compute, which are the lines of a kernel that is made of them."""
    words = _ConstantWords()
    writer = Writer(target, words, CodeAddresses({}, {}, (), {}))
    lines = {key: text for key, i in instructions.items() if (text := _line(writer, i))}
    operands = {name: _NUMBERED[name] for name in writer.written - {*_CERTAIN}} | words.named
    kinds = {name: "pred" if isinstance(o, Predicate) else "b32" for name, o in operands.items()}
    kinds |= dict.fromkeys(_CERTAIN, "pred")
    kinds |= {f"{kind}<{count}>": TEMPORARIES[kind] for kind, count in writer.most.items()}
    declared = "".join(f".reg .{kind} {name}; " for name, kind in kinds.items())
    head = f"{runs_on(target)}.entry k() {{ {declared}"
    module = replace(parse("\n".join((head, *lines.values(), "ret; }"))), lifted=True)
    try:
        kernel = prepare(module, target, "k").functions["k"]
    except (Unsupported, PtxSyntaxError):
        half = len(instructions) // 2  # the others are known all the same
        for part in (list(instructions.items())[:half], list(instructions.items())[half:]):
            if half:
                yield from _made(dict(part), target)
        return
    first = head.count("\n") + 2
    bound: dict[int, list[BoundInstruction]] = {}
    for block in kernel.blocks:
        for instruction in block.instructions:
            line = instruction.site.instruction.position.line
            bound.setdefault(line - first, []).append(instruction)
    for number, key in enumerate(lines):
        computation = _computation(bound.get(number, []), kernel, operands)
        if computation is not None:
            yield key, computation


def _told(i: DecodedInstruction) -> DecodedInstruction:
    """Return an instruction without the guard that says who executes it."""
    return i if i.known.for_all else replace(i, guard=None)


def _line(writer: Writer, i: DecodedInstruction) -> str:
    """Return what an instruction becomes for who executes it; "" for what no rule lifts."""
    writer.lines.clear()
    writer.begin(_told(i))
    try:
        RULES[i.sass.opcode](writer)
        writer.end()
    except (KeyError, Unsupported):
        return ""
    return " ".join(writer.lines)


def _computation(
    bound: Sequence[BoundInstruction], kernel: BoundFunction, operands: Mapping[str, _Named]
) -> Computation | None:
    """Return the steps of instructions of PTX, None where one is more than what lanes compute and tell each other."""
    registers = bound[0].site.scope.registers if bound else {}
    named = {registers[name].slot: operand for name, operand in operands.items()}
    certain = {registers[name].slot: value for name, value in _CERTAIN.items()} if bound else {}
    literals: dict[int, Array] = {}
    special: dict[int, Callable[..., Array]] = {}
    reads: dict[int, _Named] = {}
    made: dict[int, None] = {}
    steps = [step for step in bound if step.site.writes]
    for step in steps:
        if not _is_followed(step):
            return None
        kept = step.site.writes & named.keys() if step.guard is not None else frozenset()
        for slot in (step.site.reads | kept) - made.keys():
            initial = certain.get(slot, kernel.frame.initial[slot])
            if slot in named:
                reads[slot] = named[slot]
            elif isinstance(initial, np.ndarray):
                literals[slot] = initial
            elif isinstance(initial, InWave):
                special[slot] = initial.value
            else:
                return None
        made |= dict.fromkeys(step.site.writes)
    writes = [(slot, operand) for slot in made if (operand := named.get(slot)) is not None]
    results = [(slot, o) for slot, o in writes if not isinstance(o, SassConstant)]
    return Computation(literals, [*special.items()], [*reads.items()], steps, results)


def _is_followed(step: BoundInstruction) -> bool:
    """Say whether an instruction of PTX makes something of registers alone: of a thread, or of the lanes of a warp."""
    if isinstance(step.action, Lowered):
        return step.lowered is not None and step.action.compute is not None
    of_warp = form_of(step.site.instruction).row.mix == "warp"
    return of_warp and not step.first and step.guard is None


class _ConstantWords:
    """Words of constant memory as registers, each by its name: what they hold is the launch's."""

    def __init__(self) -> None:
        self.named: dict[str, SassConstant] = {}

    def word(self, bank: int, offset: int) -> str:
        return self._name(f"c{bank}_{offset:x}", SassConstant(bank, offset))

    def indexed(self, w: Emits, bank: int, offset: int, index: str, kind: str = "b32") -> str:
        register = _NUMBERED.get(index)
        if kind != "b32" or not isinstance(register, SassRegister):
            raise w.refused("what it is of this bank is not followed")
        return self._name(f"c{bank}_{offset:x}_{index}", SassConstant(bank, offset, register))

    def address_word(self, text: str) -> str | None:
        return None

    def _name(self, name: str, constant: SassConstant) -> str:
        self.named[name] = constant
        return name
