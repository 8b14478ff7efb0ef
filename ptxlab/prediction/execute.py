"""One instruction of the machine, executed for many threads at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.machine.control import INSTRUCTION_BYTES
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import GlobalWords
from ptxlab.machine.operands import Operand, SassAddress
from ptxlab.machine.registers import Registers
from ptxlab.machine.uses import PREDICATES
from ptxlab.machine.values import Array, Where
from ptxlab.prediction.accesses import Accesses
from ptxlab.prediction.asynchronous import AsynchronousCopies
from ptxlab.prediction.lifted import Computation, computations
from ptxlab.prediction.requests import Request
from ptxlab.prediction.warps import Asked


class Executor:
    """Registers and memory of the threads of some CTAs, and what instructions do to them."""

    def __init__(self, launch: Launch, ctas: Sequence[int], pairs: bool = False) -> None:
        self._registers = Registers(launch, ctas)
        self._floats = launch.floats
        self._target = launch.target
        self._computations: dict[int, Computation | None] = {}
        self.memory = GlobalWords(launch.regions)
        self._accesses = Accesses(launch, self._registers, self.memory, len(ctas))
        self.asynchronous = AsynchronousCopies(launch, self._registers, self._accesses, ctas, pairs)

    def held(self, bits: Sequence[int], where: Where) -> dict[int, Array | None]:
        """Return what threads hold of some words and predicates, by the bits of ``machine.uses``; None what is not known."""
        banks = (self._registers.words, self._registers.predicates)
        held = {bit: banks[bit >= PREDICATES].read(bit % PREDICATES, where) for bit in bits}
        return {bit: None if value is None else value.copy() for bit, value in held.items()}

    def value(self, operand: Operand, where: Where) -> Array | None:
        """Return an operand as words, None if it is not known."""
        value: Array | None = self._registers.value(operand, where)
        return value

    def put(self, held: Mapping[int, Array | None], where: Where) -> None:
        """Have threads hold what ``held`` said."""
        banks = (self._registers.words, self._registers.predicates)
        for bit, value in held.items():
            banks[bit >= PREDICATES].write(bit % PREDICATES, where, value)

    def holds(self, i: DecodedInstruction, where: Where) -> Array | bool | None:
        """Say for which threads an instruction's guard and a branch's predicates hold: all, some, or unknown."""
        holding: Array | bool = True
        for predicate in (i.guard, *i.ins):
            if predicate is not None:
                value = self._registers.predicate(predicate, where)
                if value is None:
                    return None
                holding = value if holding is True else holding & value
        if holding is True or bool(np.all(holding)):
            return True
        return holding

    def execute(self, i: DecodedInstruction, where: Where) -> None:
        row = i.row
        if row is None or not row.timed:
            raise Unsupported(
                f"no timing is known of '{i.sass.text}'",
                hint="the instruction is not in the tables of ptxlab/machine/operations",
            )
        active = self._asking(i, where) if row.space else self._active(i, where)
        if active is None:
            self._registers.forget(i, where)
        elif isinstance(active, np.ndarray) and not len(active):
            return
        elif row.asynchronous:
            self.asynchronous.run(i, active, self.asked(i, active))
        elif row.space:
            self._accesses.move(i, active)
        else:
            self._compute(i, active)

    def _compute(self, i: DecodedInstruction, active: Where) -> None:
        """Have the registers be what an instruction makes them, unknown where nothing computes it."""
        self.lift([i])
        computation = self._computations.get(i.number)
        if computation is None:
            self._registers.forget(i, active)
        else:
            computation.run(self._registers, active)

    def lift(self, instructions: Sequence[DecodedInstruction]) -> None:
        """Find out what instructions compute, which takes less time of many at once."""
        missing = [
            i
            for i in instructions
            if i.number not in self._computations and i.computed(self._floats)
        ]
        made = computations(missing, self._target) if missing else ()
        self._computations.update(zip((i.number for i in missing), made, strict=True))

    def address(self, i: DecodedInstruction, where: Array) -> Array:
        """Return the number of the instruction that each thread returns to."""
        back = self._registers.value(i.sources[0], where)
        if back is None:
            raise Unsupported(f"where '{i.sass.text}' goes depends on data that is not computed")
        numbers: Array = np.broadcast_to(back, where.shape) // INSTRUCTION_BYTES
        return numbers

    def request(self, i: DecodedInstruction, where: Where) -> Request | Asked:
        """Return what an instruction asks memory for, or of mbarriers."""
        active = self._asking(i, where)
        if i.known.asynchronous:
            return self.asked(i, active)
        return self._accesses.request(i, active)

    def asked(self, i: DecodedInstruction, active: Where) -> Asked:
        """Return what an instruction asks of mbarriers, or of the tensor memory accelerator."""

        def address(operand: SassAddress) -> Array:
            return self._accesses.address(i, operand, active)

        return self.asynchronous.ask(i, active, address)

    def named(self, i: DecodedInstruction, where: Where) -> Asked:
        """Return which barrier of the CTA each warp means by a register."""
        return self.asynchronous.named(i, where)

    def waits(self, i: DecodedInstruction, where: Where) -> Asked:
        """Do what an instruction asks of mbarriers, and return it; what it waits for is told to have ended."""
        active = self._asking(i, where)
        asked = self.asked(i, active)
        self.asynchronous.run(i, active, asked)
        return asked

    def _asking(self, i: DecodedInstruction, where: Where) -> Where:
        """Return the threads for which an instruction of memory runs."""
        active = self._active(i, where)
        if active is None:
            raise Unsupported(f"whether '{i.sass.text}' runs depends on data that is not computed")
        return active

    def _active(self, i: DecodedInstruction, where: Where) -> Where | None:
        """Return the threads for which an instruction's guard holds, None where it is not known."""
        if i.guard is None or i.known.for_all:
            return where
        guard = self._registers.predicate(i.guard, where)
        if guard is None:
            return None
        if guard.all():
            return where
        return np.flatnonzero(guard) if isinstance(where, slice) else where[guard]
