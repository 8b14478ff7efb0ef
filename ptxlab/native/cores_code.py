"""The machine code of ``ptxlab.native.cores``: who takes a chunk of a task, who waits, who sleeps."""

from __future__ import annotations

import platform
from functools import cache

from ptxlab.native import dispatch_code
from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.compiler import X86
from ptxlab.native.text import ModuleFunction, module
from ptxlab.native.value import VectorValue

PATIENCE = 20_000
"""How often a core looks for work before it goes to sleep, some twenty nanoseconds each time: for as long as
Python takes from one wave to the next."""

LINE = 8
"""Words of a line of the cache: what one core writes often and others read often is apart."""

PLACES = {
    "state": 0,
    **{name: LINE + at for at, name in enumerate(("function", "task", "total", "chunk", "taken"))},
    **{name: 2 * LINE + at for at, name in enumerate(("done", "wrong"))},
    **{name: 3 * LINE + at for at, name in enumerate(("asleep", "staying", "ended"))},
    "mutex": 4 * LINE,
    "condition": 6 * LINE,
    **{name: 8 * LINE + at for at, name in enumerate(("lock", "unlock", "doze", "signal"))},
}
"""The words of a pool's memory; the last are functions of the system's threads."""

SYSTEM = {
    "lock": "pthread_mutex_lock",
    "unlock": "pthread_mutex_unlock",
    "doze": "pthread_cond_wait",
    "signal": "pthread_cond_signal",
}

# The state counts the tasks above bit 32. Below are the first chunk that is left, from bit 16 on, and the one
# behind the last. Who takes a chunk of a task changes it from what it was before the task was read: so nobody
# takes a chunk of one task for another's. The caller takes the last ones and others the first: so what a core
# wrote in one task it mostly finds in its own cache in the next.


class _Pool:
    """A function that is given the words of a pool, and what it does with them."""

    def __init__(self, result: str = "void") -> None:
        self.f = FunctionBuilder(result)
        self.words = self.f.parameter("pool", "ptr")

    def at(self, name: str) -> VectorValue:
        return self.words.at(PLACES[name], 8)

    def get(self, name: str, order: str = "monotonic") -> VectorValue:
        return self.at(name).atomic_load("i64", order)

    def put(self, name: str, value: VectorValue | int, order: str = "monotonic") -> None:
        self.at(name).atomic_store(value, "i64", order)

    def left(self, order: str) -> VectorValue:
        state = self.get("state", order)
        return (state - (state >> 16)) & 0xFFFF

    def system(self, name: str, *words: str) -> None:
        self.at(name).load("ptr", align=8).called("i32", *map(self.at, words))

    def pause(self) -> None:
        """Leave the processor's other thread more of it, where it has an instruction for that."""
        if platform.machine() in X86:
            self.f.declare("pause", "void @llvm.x86.sse2.pause()")
            self.f.call_procedure("llvm.x86.sse2.pause")

    def task(
        self, function: VectorValue, task: VectorValue, first: VectorValue | int, end: VectorValue
    ) -> VectorValue:
        from_ = first if isinstance(first, VectorValue) else end.like(first)
        return function.called("i32", task, from_, end)


def _work() -> ModuleFunction:
    """Take chunks of the task at hand until none is left: the caller the last ones, others the first."""
    p = _Pool()
    f, calls = p.f, p.f.parameter("calls", "i1")
    with f.loop_forever() as again:
        state = p.get("state", "acquire")
        with f.when(((state - (state >> 16)) & 0xFFFF).is_("eq", 0)):
            f.ret()
        function, task, total, chunk = (
            p.get(name) for name in ("function", "task", "total", "chunk")
        )
        less = state + calls.choose(state.like(-1), state.like(1 << 16))
        with f.when(p.at("state").exchanged(state, less, "acq_rel acquire").is_("eq", 0)):
            f.continue_at(again)
        first = (calls.choose(less, state >> 16) & 0xFFFF) * chunk
        end = (first + chunk).call("umin", total)
        with f.when(p.task(function.pointer(), task.pointer(), first, end).is_("ne", 0)):
            p.put("wrong", 1)
        p.at("done").updated("add", 1, "release")
    return f.function("work", internal=True)


def _begin() -> ModuleFunction:
    """Have others begin what a function does of a task; 0 where they are at one.

    For ``spared`` of the chunks nobody is woken: the caller takes as many at once.
    """
    p = _Pool("i32")
    f = p.f
    task, function = (f.parameter(name, "ptr") for name in ("task", "function"))
    total, chunk, spared = (f.parameter(name, "i64") for name in ("total", "chunk", "spared"))
    with f.when(
        p.at("taken").exchanged(total.like(0), total.like(1), "acquire monotonic").is_("eq", 0)
    ):
        f.ret(0)
    begun = {"function": function.integer(), "task": task.integer(), "total": total, "chunk": chunk}
    for name, word in (begun | {"done": 0, "wrong": 0}).items():
        p.put(name, word)
    chunks = (total + chunk - 1) // chunk
    p.put("state", ((p.get("state") >> 32) + 1 << 32) | chunks, "seq_cst")
    free = p.get("asleep", "seq_cst").call("usub.sat", p.get("staying"))
    many = (chunks - spared).call("umin", free)
    with f.when(many.is_("ne", 0)):
        f.call_procedure("wake", p.words, many)
    f.ret(1)
    return f.function("begin")


def _finish() -> ModuleFunction:
    """Do what is left of the task that has begun, and wait for the others."""
    p = _Pool("i32")
    f = p.f
    total, chunk = p.get("total"), p.get("chunk")
    chunks = (total + chunk - 1) // chunk
    f.call_procedure("work", p.words, f.number("i1", 1))
    with f.loop_forever():
        with f.when(p.get("done", "acquire").is_("eq", chunks)):
            wrong = p.get("wrong")
            p.put("taken", 0, "release")
            f.ret(wrong.to("trunc", "i32"))
        p.pause()
    return f.function("finish")


def _shared() -> ModuleFunction:
    """Do a task with all that are free, or alone where it is one chunk or others are at one."""
    p = _Pool("i32")
    f = p.f
    task, function = (f.parameter(name, "ptr") for name in ("task", "function"))
    total, chunk = (f.parameter(name, "i64") for name in ("total", "chunk"))
    alone = f.variable(chunk.is_("uge", total))
    with f.when(alone.value.is_("eq", 0)):
        begun = f.call_function(
            "begin", "i32", p.words, task, function, total, chunk, total.like(1)
        )
        alone.value = begun.is_("eq", 0)
    with f.when(alone.value):
        f.ret(p.task(function, task, 0, total))
    f.ret(f.call_function("finish", "i32", p.words))
    return f.function("shared", internal=True)


def _run() -> ModuleFunction:
    """Do a task, and what follows it if all of it could be done."""
    p = _Pool("i32")
    f, task = p.f, p.f.parameter("task", "ptr")
    function, chunk, second, chunk_after, total = (task.word(i) for i in range(5))
    status = f.call_function("shared", "i32", p.words, task, function.pointer(), total, chunk)
    with f.when(status.is_("eq", 0) & second.is_("ne", 0)):
        f.ret(f.call_function("shared", "i32", p.words, task, second.pointer(), total, chunk_after))
    f.ret(status)
    return f.function("run")


def _wake() -> ModuleFunction:
    p = _Pool()
    many = p.f.parameter("many", "i64")
    p.system("lock", "mutex")
    with p.f.for_range(0, many):
        p.system("signal", "condition")
    p.system("unlock", "mutex")
    return p.f.function("wake")


def _serve() -> ModuleFunction:
    """Look for work, and sleep where there is none for long, or as many are to."""
    p = _Pool()
    f = p.f
    turn = f.variable(f.number("i64", 0))
    with f.loop_forever() as again:
        with f.when(p.get("asleep").is_("uge", p.get("staying"))):
            with f.when(p.left("acquire").is_("ne", 0)):
                f.call_procedure("work", p.words, f.number("i1", 0))
                turn.value = turn.value.like(0)
                f.continue_at(again)
            p.pause()
            turn.value = turn.value + 1
            with f.when(turn.value.is_("ult", PATIENCE)):
                f.continue_at(again)
        p.system("lock", "mutex")
        before = p.at("asleep").updated("add", 1, "seq_cst")
        wanted = before.is_("uge", p.get("staying")) & p.left("seq_cst").is_("ne", 0)
        with f.when((wanted | p.get("ended").is_("ne", 0)).is_("eq", 0)):
            p.system("doze", "condition", "mutex")
        p.at("asleep").updated("sub", 1, "seq_cst")
        over = p.get("ended")
        p.system("unlock", "mutex")
        with f.when(over.is_("ne", 0)):
            f.ret()
        turn.value = turn.value.like(0)
    return f.function("serve")


@cache
def text() -> str:
    """Return the module, with the functions of a pool that ``ptxlab.native.cores`` calls."""
    return module(
        _work(), _begin(), _finish(), _shared(), _run(), _wake(), _serve(), dispatch_code.function()
    )
