"""What instructions of the machine compute: what the PTX does that they become when they are run.

So the rules that lift an instruction, and the rows of the emulator, are all that says what it does. Here these
rows are given registers of which not all values are known: what is made of one that is not, is not either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.emulator.prepare.program import BoundFunction, BoundInstruction, Lowered
from ptxlab.errors import PtxSyntaxError, Unsupported
from ptxlab.garbage import record
from ptxlab.isa.targets import Target
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

_Key = tuple[str, str, tuple[Operand, ...]]
"""A target, the text of an instruction and its operands, which say all that it computes."""
_Named = SassRegister | SassConstant | Predicate

_CERTAIN = {TRUE: np.array([True]), FALSE: np.array([False])}
_NUMBERED: dict[str, SassRegister | Predicate] = {
    **{register(number): SassRegister(number) for number in range(PREDICATES)},
    **{predicate_name(number): Predicate(number) for number in range(UPT)},
}
_MOST = 50_000
"""So many instructions are kept."""


@record(frozen=True, slots=True, eq=False)
class Computation:
    """The steps of one instruction, over slots that begin as ``literals`` and what it ``reads``."""

    literals: Mapping[int, Array]
    reads: Sequence[tuple[int, _Named]]
    steps: Sequence[Lowered]
    writes: Sequence[tuple[int, SassRegister | Predicate]]

    def run(self, registers: Registers, where: Where) -> None:
        """Compute it for some threads; what is written is unknown where something is that it is made of."""
        slots: dict[int, Array | None] = dict(self.literals)
        for slot, operand in self.reads:
            if isinstance(operand, Predicate):
                slots[slot] = registers.predicate(operand, where)
            else:
                value = registers.value(operand, where)
                slots[slot] = None if value is None else np.atleast_1d(value)
        for step in self.steps:
            _take(step, slots)
        results = [slots[slot] for slot, _ in self.writes]
        if len(results) > 1:  # one may be a register that another is written to
            results = [None if result is None else result.copy() for result in results]
        for (_, written), result in zip(self.writes, results, strict=True):
            if isinstance(written, Predicate):
                registers.tell(written, where, result)
            else:
                word = None if result is None else result.view(np.uint32)
                registers.words.write(written.number, where, word)


def _take(step: Lowered, slots: dict[int, Array | None]) -> None:
    given = []
    for source in step.sources:
        value = slots[source.slot]
        if value is None:
            slots.update((destination.slot, None) for destination in step.destinations)
            return
        given.append(source.convert(value) if source.convert else value.view(source.dtype))
    assert step.compute is not None
    results = step.compute(*given)
    if len(step.destinations) == 1:
        results = (results,)
    for destination, result in zip(step.destinations, results, strict=True):
        slots[destination.slot] = destination.extended(result)


_known: dict[_Key, Computation | None] = {}


def computations(
    instructions: Sequence[DecodedInstruction], target: Target
) -> list[Computation | None]:
    """Return what instructions compute, None for one that is more than arithmetic, or not modelled."""
    if len(_known) > _MOST:
        _known.clear()
    keys = [(target.name, i.sass.text, i.operands) for i in instructions]
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


def _line(writer: Writer, i: DecodedInstruction) -> str:
    """Return what an instruction becomes, whatever its guard says; "" for what no rule lifts."""
    writer.lines.clear()
    writer.begin(replace(i, guard=None))
    try:
        RULES[i.sass.opcode](writer)
        writer.end()
    except (KeyError, Unsupported):
        return ""
    return " ".join(writer.lines)


def _computation(
    bound: Sequence[BoundInstruction], kernel: BoundFunction, operands: Mapping[str, _Named]
) -> Computation | None:
    """Return the steps of instructions of PTX, None where one is more than arithmetic."""
    registers = bound[0].site.scope.registers if bound else {}
    named = {registers[name].slot: operand for name, operand in operands.items()}
    certain = {registers[name].slot: value for name, value in _CERTAIN.items()} if bound else {}
    literals: dict[int, Array] = {}
    reads: dict[int, _Named] = {}
    made: dict[int, None] = {}
    steps: list[Lowered] = []
    for instruction in bound:
        step = instruction.lowered
        if step is None or step.compute is None or instruction.guard is not None:
            return None
        for slot in (source.slot for source in step.sources):
            if slot in made:
                continue
            initial = certain.get(slot, kernel.frame.initial[slot])
            if slot in named:
                reads[slot] = named[slot]
            elif isinstance(initial, np.ndarray):
                literals[slot] = initial
            else:
                return None
        made |= dict.fromkeys(destination.slot for destination in step.destinations)
        steps.append(step)
    writes = [(slot, operand) for slot in made if (operand := named.get(slot)) is not None]
    results = [(slot, o) for slot, o in writes if not isinstance(o, SassConstant)]
    return Computation(literals, [*reads.items()], steps, results)


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
