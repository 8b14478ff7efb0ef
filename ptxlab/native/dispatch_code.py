"""The machine code of the dispatch loop: it runs a program of tasks, and of choices of what is next.

An operation is a row of ``WORDS`` words, the first its kind. A register is a row of ``ARRAYS`` objects: the
array that it is now, and two that its next values go to in turn. So what a task that cannot be done has
written is nowhere, and it can be done in another way.
"""

from __future__ import annotations

from ptxlab.native.arrays import DATA
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.text import ModuleFunction
from ptxlab.native.value import VectorValue

WORDS = 8
"""The words of an operation."""

ARRAYS = 3
"""The words of a register."""

TASK, END, STAND = range(3)
"""Kinds. A task: where it is, where in it arrays are named, a list of registers, how many of these it reads, how
many it writes, where a word is that is 0 as long as others are to do it, or 0. The end of a block: its instructions, the register that decides or -1, its elements, where it says
which of them count, the operation if all hold, that if none does; -1 is nowhere. To stand: nothing."""

AT, INSTRUCTIONS, BUDGET, TASKS = range(4)
"""The words of its state: the operation, and what has been done: the instructions of a thread, how many it may do,
and the tasks."""


def function() -> ModuleFunction:
    """Return the function ``dispatch``, for a module that has ``run``.

    It runs until an operation says to stand, or the budget is used up, which is 0, or there is no way, which is 1.
    """
    f = FunctionBuilder("i64")
    names = "pool", "state", "operations", "registers"
    pool, state, operations, registers = (f.parameter(name, "ptr") for name in names)
    at = f.variable(state.word(AT))

    def stop(where: VectorValue, reason: int) -> None:
        state.set(AT, where)
        f.ret(reason)

    with f.loop_forever() as head:
        here = at.value
        kind, a, b, c, d, e, other = (operations.at(here, 8 * WORDS).word(i) for i in range(7))
        with f.when(kind.is_("eq", TASK)):
            with f.when(other.is_("ne", 0)), f.when(other.pointer().word(0).is_("eq", 0)):
                stop(here, 0)
            task, named, slots, count = a.pointer(), b.pointer(), c.pointer(), d + e
            with f.for_range(0, count) as i:
                writes = i.is_("uge", d).to("zext", "i64")
                named.set(i, registers.word(slots.word(i) * ARRAYS + writes))
            with f.when(f.call_function("run", "i32", pool, task).is_("ne", 0)):
                stop(here, 1)
            with f.for_range(d, count) as i:
                now = registers.at(slots.word(i), 8 * ARRAYS)
                first, second = now.word(1), now.word(2)
                for word, value in enumerate((first, second, first)):
                    now.set(word, value)
            state.set(TASKS, state.word(TASKS) + 1)
            at.value = here + 1
            f.continue_at(head)
        with f.when(kind.is_("ne", END)):
            stop(here, 0)
        taken = f.variable(f.number("i1", 1))
        with f.when(b.is_("ne", -1)):
            data = registers.word(b * ARRAYS).pointer().at(DATA, 1).load("ptr", align=8)
            yes, no = (f.variable(f.number("i8", 0)) for _ in range(2))
            with f.for_range(0, c) as i:
                value, counts = (x.at(i, 1).load("i8", align=1) for x in (data, d.pointer()))
                yes.value = yes.value | (value & counts)
                no.value = no.value | ((value ^ 1) & counts)
            taken.value = yes.value.is_("ne", 0)
            with f.when(taken.value & no.value.is_("ne", 0)):
                stop(here, 1)
        to = taken.value.choose(e, other)
        with f.when(to.is_("eq", -1)):
            stop(here, 1)
        done = state.word(INSTRUCTIONS) + a
        state.set(INSTRUCTIONS, done)
        with f.when(done.is_("uge", state.word(BUDGET))):
            stop(to, 0)
        at.value = to
    return f.function("dispatch")
