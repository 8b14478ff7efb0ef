"""One instruction of the machine, executed for many threads at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.garbage import record
from ptxlab.isa.targets import WARP
from ptxlab.layouts.local_memory import WORD
from ptxlab.machine.control import INSTRUCTION_BYTES
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import GlobalWords, Rows
from ptxlab.machine.operands import Operand
from ptxlab.machine.registers import Registers
from ptxlab.machine.uses import PREDICATES, each, written
from ptxlab.machine.values import Array, Bank, Held, Where, numbers
from ptxlab.prediction.following.accesses import Accesses
from ptxlab.prediction.following.asynchronous import Asking, AsynchronousCopies
from ptxlab.prediction.following.lifted import Computation, Demand, Results, computations
from ptxlab.prediction.following.program_slice import SPILLED, STACK_POINTER
from ptxlab.prediction.refusal import Undecided
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.warps import Asked


@record(frozen=True, slots=True)
class _Way:
    """How an instruction is executed: whether it ``asks`` memory, or what is done beside the threads, for something.

    Where it does not, and some may not execute it, it is ``guarded``; its ``arithmetic`` is None where nothing computes what it
    ``writes``.
    """

    asks: bool
    guarded: bool
    arithmetic: Computation | None
    writes: tuple[int, ...]


class Executor:
    """Registers and memory of the threads of some CTAs, and what instructions do to them."""

    def __init__(self, launch: Launch, ctas: Sequence[int], pairs: bool = False) -> None:
        self._registers = Registers(launch, ctas)
        self._floats = launch.floats
        self.threads_of_cta = launch.threads
        self._target = launch.target
        self._computations: dict[int, Computation | None] = {}
        self._ways: dict[int, _Way] = {}
        self.memory = GlobalWords(launch.regions)
        self._accesses = Accesses(launch, self._registers, self.memory, len(ctas))
        self.taken = self._accesses.taken
        self.asynchronous = AsynchronousCopies(launch, self._registers, self._accesses, ctas, pairs)

    def watch(self) -> None:
        """Take note of what changes in memory from now on, so that it can be taken back."""
        self._accesses.watch()

    def settle(self, taken_back: bool) -> None:
        """Watch no more, with what has changed ``taken_back`` or not."""
        self._accesses.settle(taken_back)

    def stored(self, bits: Iterable[int], where: Where) -> dict[int, Held]:
        """Return what threads hold, known or not, by the bits of ``machine.uses`` and behind them words that were spilled."""
        places = ((bit, *self._place(bit, where)) for bit in bits)
        return {bit: bank.held(row, where) for bit, bank, row in places}

    def restore(self, stored: Mapping[int, Held], where: Where) -> None:
        """Have threads hold what ``stored`` said."""
        for bit, held in stored.items():
            bank, row = self._place(bit, where)
            bank.put(row, where, held)

    def _place(self, bit: int, where: Where) -> tuple[Bank | Rows, int]:
        """Return where it is held what a bit stands for, and which row of that it is: of what was spilled it follows from the stack pointer."""
        if bit >= SPILLED:
            pointer = self._registers.words.read(STACK_POINTER, where)
            assert pointer is not None
            return self._accesses.spilled, int(pointer[0]) // WORD + bit - SPILLED
        predicate = bit >= PREDICATES
        return (self._registers.words, self._registers.predicates)[predicate], bit % PREDICATES

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
        return self._registers.holding(i.number, (i.guard, *i.ins), where)

    def execute(self, i: DecodedInstruction, where: Where, told: bool = True) -> Asked:
        """Do what an instruction does, and return what it asks of mbarriers, or has done beside the threads.

        Where nobody is ``told`` that lacks the sectors of boxes, and who asks.
        What is waited for is told to have ended.
        """
        way = self._ways.get(i.number) or self._way(i)
        if way.asks:
            return self._demanded(i, self._asking(i, where), told)
        active = self._active(i, where) if way.guarded else where
        if active is None:
            self._registers.forget(way.writes, where)
        elif isinstance(active, slice) or len(active):
            if way.arithmetic is None:
                self._registers.forget(way.writes, active)
            else:
                way.arithmetic.run(self._registers, active)
        return ()

    def _way(self, i: DecodedInstruction) -> _Way:
        """Return how an instruction is executed. Raises Unsupported where nobody knows it."""
        row = i.row
        if row is None or not row.timed:
            raise Unsupported(
                f"no timing is known of '{i.sass.text}'",
                hint="the instruction is not in the tables of ptxlab/machine/operations",
            )
        computation = None if row.asks else self._lifted(i)
        known = computation is not None and computation.computes
        self._ways[i.number] = way = _Way(
            row.asks,
            i.guard is not None and not row.for_all,
            computation if known else None,
            tuple(each(written(i))),
        )
        return way

    def _demanded(self, i: DecodedInstruction, active: Where, told: bool) -> Asked:
        """Do what an instruction does to memory, or has done beside the threads, and return that."""
        asked: list[Asking] = []

        def answer(demand: Demand) -> Results | None:
            if not i.known.asynchronous:
                return self._accesses.answer(i, demand)
            orders = self.asynchronous.orders(i, demand, told)
            asked.extend(orders)
            return self.asynchronous.do(demand, orders)

        threads = numbers(active, self._registers.threads)
        if len(threads) and i.does == "tensor product":
            asked = self.asynchronous.products(i, threads)
        elif len(threads):
            self._known(i).run(self._registers, active, answer)
        return self.asynchronous.asked(asked, told) if i.known.asynchronous else ()

    def _known(self, i: DecodedInstruction) -> Computation:
        """Return what an instruction is as PTX. Raises Unsupported where no rule says so."""
        computation = self._lifted(i)
        if computation is None:
            raise Unsupported(f"'{i.sass.text}' is not in the model of time")
        return computation

    def _lifted(self, i: DecodedInstruction) -> Computation | None:
        if i.number not in self._computations:
            self.lift([i])
        return self._computations.get(i.number)

    def lift(self, instructions: Sequence[DecodedInstruction]) -> None:
        """Find out what instructions compute, which takes less time of many at once."""
        missing = [
            i
            for i in instructions
            if i.number not in self._computations
            and (i.computed(self._floats) or (i.known.asks and i.does != "tensor product"))
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

    def request(self, i: DecodedInstruction, where: Where) -> Request:
        """Return what an instruction asks memory for."""
        active = self._asking(i, where)
        if isinstance(active, np.ndarray) and not len(active):
            return Request(np.zeros(self._registers.threads // WARP, np.int64))
        (demand,) = self._known(i).demands(self._registers, active)
        return self._accesses.request(i, demand)

    def named(self, i: DecodedInstruction, where: Where) -> Asked:
        """Return which barrier of the CTA each warp means by a register."""
        return self.asynchronous.named(i, where)

    def _asking(self, i: DecodedInstruction, where: Where) -> Where:
        """Return the threads for which an instruction of memory runs."""
        active = self._active(i, where)
        if active is None:
            raise Undecided(f"whether '{i.sass.text}' runs depends on data that is not computed")
        return active

    def _active(self, i: DecodedInstruction, where: Where) -> Where | None:
        """Return the threads for which an instruction's guard holds, None where it is not known."""
        holding = True if i.known.for_all else self._registers.holding(i.number, (i.guard,), where)
        if holding is None or holding is True:
            return where if holding else None
        return np.flatnonzero(holding) if isinstance(where, slice) else where[holding]
