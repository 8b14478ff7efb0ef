"""Functions of machine code, written with their loops and branches as context managers.

The language is that of ``ptxlab.native.value``. In a loop over threads a body is written for eight of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ptxlab.native.text import FunctionText, InsertionPoint, ModuleFunction
from ptxlab.native.value import VectorValue, done, listed, number

LANES = 8
"""Threads that the body of a loop over threads is for: numbers of 32 bits then fill a register of AVX2."""


@dataclass(slots=True)
class LoopVariable:
    """A value that changes from one turn of a loop to the next."""

    address: VectorValue
    kind: str
    lanes: int

    @property
    def value(self) -> VectorValue:
        return self.address.load(self.kind, self.lanes, align=64)

    @value.setter
    def value(self, new: VectorValue) -> None:
        self.address.store(new, align=64)


class FunctionBuilder(FunctionText):
    """The body of one function as it grows."""

    def parameter(self, name: str, kind: str) -> VectorValue:
        self.parameters.append(f"{kind} %{name}")
        return VectorValue(self, kind, 0, f"%{name}")

    def task(self) -> tuple[VectorValue, VectorValue, VectorValue]:
        """Return the parameters of a function of a task: its words, and from where to where it goes."""
        words = self.parameter("task", "ptr")
        return words, self.parameter("from", "i64"), self.parameter("to", "i64")

    def number(self, kind: str, value: float) -> VectorValue:
        return number(self, kind, value)

    def buffer(self, nbytes: int) -> VectorValue:
        """Return the address of memory of the function's own, aligned for any vector."""
        name = self._new("b")
        self._buffers.append(f"  {name} = alloca [{nbytes} x i8], align 64")
        return VectorValue(self, "ptr", 0, name)

    def call_function(
        self, function: ModuleFunction | str, kind: str, *given: VectorValue
    ) -> VectorValue:
        return done(self, f"call {kind} @{self.named(function)}({listed(given)})", kind)

    def call_procedure(self, function: ModuleFunction | str, *given: VectorValue) -> None:
        self.line(f"call void @{self.named(function)}({listed(given)})")

    def ret(self, value: VectorValue | int | None = None) -> None:
        """Return from the function."""
        name = value.name if isinstance(value, VectorValue) else value
        self.line("ret void" if name is None else f"ret {self.result} {name}")
        self._here.ended = True

    def variable(self, first: VectorValue) -> LoopVariable:
        variable = LoopVariable(self.buffer(max(1, first.lanes) * 8), first.kind, first.lanes)
        variable.value = first
        return variable

    @contextmanager
    def _turns(self, first: VectorValue, end: VectorValue, step: int) -> Iterator[VectorValue]:
        """Repeat what is written inside for every ``step``th index from ``first`` to before ``end``, at least once."""
        head, done, index = self._new("turn")[1:], self._new("done")[1:], self._new("i")
        before, self._here = self._here, InsertionPoint(block=head)
        yield VectorValue(self, "i64", 0, index, self.in_threads)
        self.line(f"{index}.next = add nuw i64 {index}, {step}")
        self.line(f"{index}.more = icmp ult i64 {index}.next, {end.name}")
        self.line(f"br i1 {index}.more, label %{head}, label %{done}")
        body, self._here = self._here, before
        self.line(f"br label %{head}")
        came = f"[{first.name}, %{before.block}], [{index}.next, %{body.block}]"
        before.lines += [f"{head}:", f"  {index} = phi i64 {came}", *body.lines]
        self._begin(done)

    @contextmanager
    def thread_loop(self, first: VectorValue, end: VectorValue) -> Iterator[VectorValue]:
        """Repeat what is written inside for eight threads at a time, of which there are some."""
        self._before_threads = self._here
        with self._turns(first, end, LANES) as index:
            yield index
        self._before_threads = None

    @contextmanager
    def before_threads(self) -> Iterator[None]:
        """Write what is inside before the loop over threads, if this is one."""
        inside, before = self._here, self._before_threads
        self._here, self._before_threads = before or inside, None
        yield
        self._here, self._before_threads = inside, before

    @contextmanager
    def loop(self, count: VectorValue | int) -> Iterator[VectorValue]:
        """Repeat what is written inside for every index below ``count``, at least once."""
        zero = self.number("i64", 0)
        with self._turns(zero, zero.like(count), 1) as index:
            yield index

    def fold(
        self,
        first: VectorValue,
        indices: range,
        step: Callable[[VectorValue, VectorValue], VectorValue],
    ) -> VectorValue:
        """Return what a ``step`` after the other makes of what the one before has made, and of an index each."""
        made = self.variable(first)
        with self.loop(len(indices)) as index:
            made.value = step(made.value, index + indices.start if indices.start else index)
        return made.value

    @contextmanager
    def branch(self, condition: VectorValue) -> Iterator[Branch]:
        """Write what is done where ``condition`` holds, and after ``otherwise`` what is done elsewhere."""
        yes, no, end = (self._new(name)[1:] for name in ("yes", "no", "end"))
        branch = Branch(self, yes, no, end)
        self.line(f"br i1 {condition.name}, label %{branch.yes}, label %{branch.no}")
        self._begin(branch.yes)
        yield branch
        branch.leave()
        self._begin(branch.end)

    @contextmanager
    def when(self, condition: VectorValue | None) -> Iterator[None]:
        """Write what is done where ``condition`` holds, always for None."""
        if condition is None:
            yield
            return
        with self.branch(condition) as branch:
            yield
            branch.otherwise()

    @contextmanager
    def loop_forever(self) -> Iterator[str]:
        """Repeat what is written inside, until it returns; ``continue_at`` goes back to the block that it is given."""
        head = self._new("turn")[1:]
        self.line(f"br label %{head}")
        self._begin(head)
        yield head
        self.continue_at(head)

    def continue_at(self, head: str) -> None:
        self.line(f"br label %{head}")
        self._here.ended = True

    @contextmanager
    def for_range(
        self, first: VectorValue | int, end: VectorValue, step: int = 1
    ) -> Iterator[VectorValue]:
        """Repeat what is written inside from ``first`` to before ``end``, where there is any."""
        begin = end.like(first)
        with self.when(begin.is_("ult", end)), self._turns(begin, end, step) as index:
            yield index


@dataclass(slots=True)
class Branch:
    """The blocks of a condition, and from which of them its ``end`` is reached."""

    code: FunctionBuilder
    yes: str
    no: str
    end: str
    sides: list[str] = field(default_factory=list)

    def otherwise(self) -> None:
        """End what is done where the condition holds."""
        self.leave()
        self.code._begin(self.no)

    def leave(self) -> None:
        self.sides.append(self.code._here.block)
        self.code.line(f"br label %{self.end}")

    def merged(self, yes: VectorValue, no: VectorValue) -> VectorValue:
        """Return, right behind it, the value that one of the sides has made."""
        sides = zip((yes, no), self.sides, strict=True)
        text = ", ".join(f"[{value.name}, %{block}]" for value, block in sides)
        return done(self.code, f"phi {yes.type} {text}", yes.kind, yes.lanes)
