"""What instructions of the machine compute: what the PTX does that they become when they are run.

So the rules that lift an instruction, and the rows of the emulator, are all that says what it does. Here these
rows are given registers of which not all values are known: what is made of one that is not, is not either. What
more than arithmetic an instruction is, of memory and of what is done beside the threads, the PTX says by its form
and its operands: who follows the program does it, and says what comes of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ptxlab.emulator.prepare.context import SINK
from ptxlab.emulator.prepare.forms import form_of
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.emulator.prepare.program import BoundFunction, BoundInstruction, Lowered
from ptxlab.emulator.prepare.registers import InWave
from ptxlab.emulator.prepare.row import RowForm
from ptxlab.emulator.prepare.scope import Site
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
from ptxlab.machine.values import Array, Where, numbers
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import parse
from ptxlab.syntax.tree import Address, Integer, Name, Pair, Vector

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
class Demand:
    """An instruction of PTX that is more than arithmetic: its form, who executes it, and its sources as they have them.

    A source is an array with a value for each of the ``threads`` [n], or for all of them; of an address where
    that is, of several registers, or a tensor map and coordinates, a tuple. None is what is not known.
    """

    form: RowForm
    threads: Array
    sources: Sequence[Any]

    def known(self, number: int) -> Any:
        """Return a source. Raises Unsupported where it is not known."""
        source = self.sources[number]
        if _lacks(source):
            self._refuse(number)
        return source

    def _refuse(self, number: int) -> NoReturn:
        given = self.form.row.sources[number].kind == "address"
        name = self.form.name
        what = f"{name} has an address that" if given else f"what {name} is given"
        raise Unsupported(
            f"{what} depends on data that is not computed",
            hint="a prediction needs addresses that follow from sizes, arguments and index arrays",
        )

    def at(self, number: int, lanes: Sequence[int] | Array) -> list[Any]:
        """Return what a source is for some of the threads, by their place among them: of several registers tuples."""
        return _picked(self.known(number), lanes)

    def maps_at(self, number: int, lanes: Sequence[int] | Array) -> list[int]:
        """Return the addresses alone of a source that is tensor maps and coordinates, which need not be known."""
        maps, _ = self.sources[number]
        return _picked(maps, lanes) if maps is not None else self._refuse(number)


def _lacks(value: Any) -> bool:
    """Say whether something of a source is not known."""
    return value is None or (isinstance(value, tuple) and any(map(_lacks, value)))


def _picked(value: Any, lanes: Sequence[int] | Array) -> list[Any]:
    if isinstance(value, tuple):
        return [*zip(*(_picked(each, lanes) for each in value), strict=True)]
    words: list[Any] = value.tolist() * len(lanes) if len(value) == 1 else value[lanes].tolist()
    return words


_Read = Callable[[_Slots], Any]

Results = Sequence["Array | None"]
"""What an instruction of PTX writes, register by register, wanted or not; None for what is not known."""

Answer = Callable[[Demand], "Results | None"]
"""Does what is demanded, and returns what comes of it, None where nobody knows."""


@record(frozen=True, slots=True, eq=False)
class Demanding:
    """A step of which ``form`` says what it demands, and the numbers of the registers that it writes."""

    form: RowForm
    step: BoundInstruction
    sources: Sequence[_Read]
    writes: Sequence[int]

    def run(self, slots: _Slots, threads: Array, answer: Answer) -> None:
        guard = self.step.guard
        given = [read(slots) for read in self.sources]
        if guard is not None:
            if slots[guard.slot] is None:
                raise Unsupported(
                    f"whether {self.form.name} runs depends on data that is not computed"
                )
            passing = np.flatnonzero(np.broadcast_to(guard.read(slots), threads.shape))
            threads, given = threads[passing], [_some(value, passing) for value in given]
        results = answer(Demand(self.form, threads, given))
        if results is None or guard is not None:
            results = [None] * len(self.writes)
        action = self.step.action
        for number, (slot, result) in enumerate(zip(self.writes, results, strict=False)):
            if result is not None and isinstance(action, Lowered):
                result = action.destinations[number].extended(result)
            slots[slot] = result


def _some(value: Any, lanes: Array) -> Any:
    """Return what some of the threads have of a source."""
    if isinstance(value, tuple):
        return tuple(_some(each, lanes) for each in value)
    return value if value is None or len(value) == 1 else value[lanes]


def _read(site: Site, operand: Any) -> _Read:
    """Return what reads a source of registers as they are: None is what is not known."""
    match operand:
        case Integer(value=value):
            constant = np.array([value])
            return lambda slots: constant
        case Name(text=text) if register := site.register(text):
            named = register.slot
            return lambda slots: slots.get(named)
        case Address(base=Name(text=text), offset=offset, extra=extra) if register := site.register(
            text
        ):
            others, slot = [_read(site, each) for each in extra], register.slot
            far = np.array([offset]).astype(TYPES[register.type].dtype)

            def place(slots: _Slots) -> Any:
                begin = slots.get(slot)
                where = None if begin is None else begin.view(far.dtype) + far
                return (where, *(other(slots) for other in others)) if others else where

            return place
        case Vector(elements=elements):
            parts = [_read(site, element) for element in elements]
            return lambda slots: tuple(part(slots) for part in parts)
    return lambda slots: None


@record(frozen=True, slots=True, eq=False)
class Computation:
    """The steps of one instruction, over slots that begin as ``literals``, ``special`` registers, and what it reads.

    That are ``words`` and ``predicates`` of threads, by their numbers, and ``constants``.
    """

    literals: Mapping[int, Array]
    special: Sequence[tuple[int, Callable[..., Array]]]
    words: Sequence[tuple[int, int]]
    predicates: Sequence[tuple[int, int]]
    constants: Sequence[tuple[int, SassConstant]]
    steps: Sequence[BoundInstruction | Demanding]
    writes: Sequence[tuple[int, SassRegister | Predicate]]
    computes: bool
    """Whether it is arithmetic alone."""

    def demands(self, registers: Registers, where: Where) -> list[Demand]:
        """Return what it demands of some threads, and do nothing of it."""
        demands: list[Demand] = []
        self._done(registers, where, demands.append)
        return demands

    def run(self, registers: Registers, where: Where, answer: Answer = lambda _: None) -> None:
        """Compute it for some threads; what is written is unknown where something is that it is made of."""
        slots = self._done(registers, where, answer)
        results = [slots[slot] for slot, _ in self.writes]
        if len(results) > 1:  # one may be a register that another is written to
            results = [None if result is None else result.copy() for result in results]
        for (_, written), result in zip(self.writes, results, strict=True):
            if isinstance(written, Predicate):
                registers.tell(written, where, result)
            else:
                word = None if result is None else result.view(np.uint32)
                registers.words.write(written.number, where, word)

    def _done(self, registers: Registers, where: Where, answer: Answer) -> _Slots:
        """Return what is in the registers of PTX when its steps are done."""
        slots = _Slots(self.literals)
        if self.special:
            wave, threads = _standing(registers, where)
            slots.update((slot, threads.pick(value(wave))) for slot, value in self.special)
        read, lacking = registers.words.read, not self.computes
        for slot, number in self.words:
            slots[slot] = value = read(number, where)
            lacking |= value is None
        read = registers.predicates.read
        for slot, number in self.predicates:
            slots[slot] = value = read(number, where)
            lacking |= value is None
        for slot, constant in self.constants:
            slots[slot] = value = registers.constant(constant, where)
            lacking |= value is None
        for step in self.steps:
            if isinstance(step, Demanding):
                step.run(slots, numbers(where, registers.threads), answer)
            elif lacking and any(slots[slot] is None for slot in step.site.reads):
                slots.update(dict.fromkeys(step.site.writes))
            elif isinstance(step.action, Lowered):
                _compute(step, step.action, slots)
            else:
                _tell_lanes(step, slots, *_standing(registers, where))
        return slots


def _compute(step: BoundInstruction, lowered: Lowered, slots: _Slots) -> None:
    """Compute what each thread does for itself, where a guard lets it."""
    assert lowered.compute is not None
    results = lowered.compute(*[source.read(slots) for source in lowered.sources])
    if len(lowered.destinations) == 1:
        if step.guard is None:
            (destination,) = lowered.destinations
            slots[destination.slot] = destination.extended(results)
            return
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
    """Return what instructions compute and demand, None for one that is not modelled."""
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
    writer = _OfLeaders(target, words, CodeAddresses({}, {}, (), {}))
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
    """Return the steps of instructions of PTX, None where one needs a register that is none of the machine's."""
    registers = bound[0].site.scope.registers if bound else {}
    named = {registers[name].slot: operand for name, operand in operands.items()}
    certain = {registers[name].slot: value for name, value in _CERTAIN.items()} if bound else {}
    literals: dict[int, Array] = {}
    special: dict[int, Callable[..., Array]] = {}
    reads: dict[int, _Named] = {}
    made: dict[int, None] = {}
    steps = [
        (step, demanding) for step in bound if (demanding := _demanding(step)) or step.site.writes
    ]
    for step, _ in steps:
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
    done = [demanding or step for step, demanding in steps]
    computes = not any(demanding for _, demanding in steps)
    return Computation(
        literals,
        [*special.items()],
        [(slot, o.number) for slot, o in reads.items() if isinstance(o, SassRegister)],
        [(slot, o.number) for slot, o in reads.items() if isinstance(o, Predicate)],
        [(slot, o) for slot, o in reads.items() if isinstance(o, SassConstant)],
        done,
        results,
        computes,
    )


def _demanding(step: BoundInstruction) -> Demanding | None:
    """Return what an instruction of PTX demands; None where it makes something of registers alone: of a thread, or of a warp's lanes."""
    form = form_of(step.site.instruction)
    computes = step.lowered is not None and step.lowered.compute is not None
    if computes or (form.row.mix == "warp" and not step.first and step.guard is None):
        return None
    operands = step.site.instruction.operands
    named = [each for each in _parts(operands[0]) if isinstance(each, Name)] if operands else []
    slots = [register.slot for each in named if (register := step.site.register(each.text))]
    written = [slot for slot in slots if slot in step.site.writes]
    behind = operands[bool(written or Name(SINK) in named) :]
    return Demanding(form, step, [_read(step.site, source) for source in behind], written)


def _parts(operand: Any) -> Sequence[Any]:
    """Return the registers that an operand is made of."""
    if isinstance(operand, Pair):
        return operand.first, operand.second
    return operand.elements if isinstance(operand, Vector) else (operand,)


class _OfLeaders(Writer):
    """Writes what a lane does for all of its warp as what each does: who follows it asks the first of them."""

    @contextmanager
    def once(self, condition: str = TRUE) -> Iterator[None]:
        guard, self._guard = self._guard, self._guard if condition == TRUE else f"@{condition} "
        yield
        self._guard = guard


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
