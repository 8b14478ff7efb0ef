"""LLVM's assembly language, written value by value.

A ``FunctionBuilder`` is the text of a function as it grows; a ``VectorValue`` is one of its registers, a
number or a vector of numbers, on which Python's operators write instructions, and an address is one of type
``ptr``. Loops and branches are context managers. What the instructions mean is in the LLVM Language Reference
Manual.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ptxlab.native.arrays import DATA

_FLOATS = ("float", "double")


@dataclass(frozen=True, slots=True)
class VectorValue:
    """A register of the function: ``lanes`` numbers of LLVM type ``kind``, or where they are 0 just one."""

    code: FunctionBuilder
    kind: str
    lanes: int
    name: str

    @property
    def type(self) -> str:
        return _type(self.kind, self.lanes)

    def __add__(self, other: VectorValue | float) -> VectorValue:
        return self._both("add", other)

    def __sub__(self, other: VectorValue | float) -> VectorValue:
        return self._both("sub", other)

    def __mul__(self, other: VectorValue | float) -> VectorValue:
        return self._both("mul", other)

    def __floordiv__(self, other: VectorValue | int) -> VectorValue:
        """Divide what has no sign."""
        return self._both("udiv", other)

    def __and__(self, other: VectorValue | int) -> VectorValue:
        return self._both("and", other)

    def __or__(self, other: VectorValue | int) -> VectorValue:
        return self._both("or", other)

    def __xor__(self, other: VectorValue | int) -> VectorValue:
        return self._both("xor", other)

    def __lshift__(self, other: VectorValue | int) -> VectorValue:
        return self._both("shl", other)

    def __rshift__(self, other: VectorValue | int) -> VectorValue:
        """Shift down and fill up with zeros."""
        return self._both("lshr", other)

    def signed_shift(self, by: int) -> VectorValue:
        """Shift down and fill up with the sign."""
        return self._both("ashr", by)

    def is_(self, condition: str, other: VectorValue | float) -> VectorValue:
        """Compare: ``eq``, ``slt``, ``ugt`` of integers, ``oeq``, ``uno`` and others of floats."""
        compare = "fcmp" if self.kind in _FLOATS else "icmp"
        text = f"{compare} {condition} {self.type} {self.name}, {self._like(other)}"
        return self._made(text, "i1")

    def choose(self, yes: VectorValue | float, no: VectorValue | float) -> VectorValue:
        """Return ``yes`` where this is true and ``no`` elsewhere; one of them is a value."""
        like = yes if isinstance(yes, VectorValue) else no
        assert isinstance(like, VectorValue)
        sides = f"{like.type} {like._like(yes)}, {like.type} {like._like(no)}"
        return self._made(f"select {self.type} {self.name}, {sides}", like.kind)

    def to(self, conversion: str, kind: str) -> VectorValue:
        """Convert every number: ``sext``, ``trunc``, ``sitofp``, ``fptosi``, ``fpext``, ``fptrunc``."""
        return self._made(
            f"{conversion} {self.type} {self.name} to {_type(kind, self.lanes)}", kind
        )

    def bits(self, kind: str, lanes: int | None = None) -> VectorValue:
        """Return the same bits as another type, of ``lanes`` numbers if that changes."""
        lanes = self.lanes if lanes is None else lanes
        text = f"bitcast {self.type} {self.name} to {_type(kind, lanes)}"
        return VectorValue(self.code, kind, lanes, self.code.write(text))

    def splat(self, lanes: int) -> VectorValue:
        vector = _type(self.kind, lanes)
        one = self.code.write(f"insertelement {vector} poison, {self.type} {self.name}, i64 0")
        return VectorValue(self.code, self.kind, lanes, one).shuffle([0] * lanes)

    def shuffle(self, picks: Sequence[int], other: VectorValue | None = None) -> VectorValue:
        """Return the numbers at ``picks`` of this vector, or of this one and ``other`` behind it."""
        second = other.name if other else "poison"
        mask = ", ".join(f"i32 {pick}" for pick in picks)
        text = (
            f"shufflevector {self.type} {self.name}, {self.type} {second}, "
            f"<{len(picks)} x i32> <{mask}>"
        )
        return VectorValue(self.code, self.kind, len(picks), self.code.write(text))

    def at(self, index: VectorValue | int, size: int) -> VectorValue:
        """Return the address of a number in an array of elements of ``size`` bytes, this its address."""
        if isinstance(index, VectorValue):
            offset = f"{index.type} {(index * size if size > 1 else index).name}"
        else:
            offset = f"i64 {index * size}"
        return self._made(f"getelementptr i8, ptr {self.name}, {offset}", "ptr")

    def load(self, kind: str, lanes: int = 0, *, align: int) -> VectorValue:
        text = f"load {_type(kind, lanes)}, ptr {self.name}, align {align}"
        return VectorValue(self.code, kind, lanes, self.code.write(text))

    def store(self, value: VectorValue, *, align: int) -> None:
        self.code.line(f"store {value.type} {value.name}, ptr {self.name}, align {align}")

    def word(self, index: VectorValue | int) -> VectorValue:
        """Return a word of the array of words that this is the address of."""
        return self.at(index, 8).load("i64", align=8)

    def set(self, index: VectorValue | int, value: VectorValue) -> None:
        self.at(index, 8).store(value, align=8)

    def array(self, index: int) -> VectorValue:
        """Return the address of the data of an array of numpy, of which a word of this task is the object."""
        return self.at(index, 8).load("ptr", align=8).at(DATA, 1).load("ptr", align=8)

    def pointer(self) -> VectorValue:
        return self.to("inttoptr", "ptr")

    def integer(self) -> VectorValue:
        return self.to("ptrtoint", "i64")

    def called(self, kind: str, *given: VectorValue) -> VectorValue:
        """Return what the function at this address gives."""
        operands = ", ".join(f"{each.type} {each.name}" for each in given)
        return VectorValue(
            self.code, kind, 0, self.code.write(f"call {kind} {self.name}({operands})")
        )

    def atomic_load(self, kind: str, order: str) -> VectorValue:
        text = f"load atomic {kind}, ptr {self.name} {order}, align 8"
        return VectorValue(self.code, kind, 0, self.code.write(text))

    def atomic_store(self, value: VectorValue | int, kind: str, order: str) -> None:
        name = value.name if isinstance(value, VectorValue) else value
        self.code.line(f"store atomic {kind} {name}, ptr {self.name} {order}, align 8")

    def updated(self, operation: str, by: int, order: str) -> VectorValue:
        """Return the word at this address as it was before an operation on it."""
        text = f"atomicrmw {operation} ptr {self.name}, i64 {by} {order}"
        return VectorValue(self.code, "i64", 0, self.code.write(text))

    def exchanged(self, old: VectorValue, new: VectorValue, order: str) -> VectorValue:
        """Say whether the word at this address was ``old``, and is ``new`` now."""
        pair = self.code.write(f"cmpxchg ptr {self.name}, i64 {old.name}, i64 {new.name} {order}")
        return VectorValue(
            self.code, "i1", 0, self.code.write(f"extractvalue {{ i64, i1 }} {pair}, 1")
        )

    def pick(self, lane: int) -> VectorValue:
        text = f"extractelement {self.type} {self.name}, i64 {lane}"
        return VectorValue(self.code, self.kind, 0, self.code.write(text))

    def all(self) -> VectorValue:
        """Say whether all bits of a vector of conditions are set."""
        name = f"@llvm.vector.reduce.and.v{self.lanes}{self.kind}"
        self.code.declare(name, f"{self.kind} {name}({self.type})")
        return VectorValue(
            self.code,
            self.kind,
            0,
            self.code.write(f"call {self.kind} {name}({self.type} {self.name})"),
        )

    def like(self, number: float) -> VectorValue:
        return VectorValue(self.code, self.kind, self.lanes, self._like(number))

    def _both(self, operation: str, other: VectorValue | float) -> VectorValue:
        prefix = "f" if self.kind in _FLOATS and operation in ("add", "sub", "mul") else ""
        text = f"{prefix}{operation} {self.type} {self.name}, {self._like(other)}"
        return self._made(text, self.kind)

    def _like(self, other: VectorValue | float) -> str:
        """Return an operand: a value's name, or a number as a constant of this type."""
        if isinstance(other, VectorValue):
            return other.name
        one = "null" if self.kind == "ptr" else str(other)
        if self.kind in _FLOATS:
            one = "0x" + struct.pack(">d", other).hex().upper()
        if not self.lanes:
            return one
        return f"<{', '.join([f'{self.kind} {one}'] * self.lanes)}>"

    def _made(self, text: str, kind: str) -> VectorValue:
        return VectorValue(self.code, kind, self.lanes, self.code.write(text))


@dataclass(frozen=True, slots=True)
class ModuleFunction:
    """A function of a module: the text of it and of all that it calls, by name."""

    name: str
    used: dict[str, str]

    @property
    def text(self) -> str:
        return "\n".join(self.used.values())


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


class FunctionBuilder:
    """The body of one function as it grows."""

    def __init__(self, result: str = "i32") -> None:
        self.result = result
        self.parameters: list[str] = []
        self._lines: list[str] = []
        self._buffers: list[str] = []
        self._used: dict[str, str] = {}
        self._count = 0
        self._block = "entry"
        self._ended = False

    def parameter(self, name: str, kind: str) -> VectorValue:
        self.parameters.append(f"{kind} %{name}")
        return VectorValue(self, kind, 0, f"%{name}")

    def task(self) -> tuple[VectorValue, VectorValue, VectorValue]:
        """Return the parameters of a function of a task: its words, and from where to where it goes."""
        words = self.parameter("task", "ptr")
        return words, self.parameter("from", "i64"), self.parameter("to", "i64")

    def function(
        self, name: str, *, rare: bool = False, linkage: str = "", attributes: str = ""
    ) -> ModuleFunction:
        """Return all of it as a task's function, or one run ``rare``ly by it, which is kept apart."""
        result = "internal void" if rare else f"{linkage} {self.result}"
        attributes = " noinline cold" if rare else f" {attributes}"
        signature = f"{result} @{name}({', '.join(self.parameters)}){attributes}"
        end = "  ret void" if "void" in result else f"  ret {self.result} 0"
        if self._ended:
            end = ""
        body = "\n".join(["entry:", *self._buffers, *self._lines, end])
        self._used[name] = f"define {signature} {{\n{body}\n}}\n"
        return ModuleFunction(name, self._used)

    def line(self, text: str) -> None:
        if not self._ended:  # what follows a return is nowhere
            self._lines.append(f"  {text}")

    def ret(self, value: VectorValue | int | None = None) -> None:
        """Return from the function."""
        name = value.name if isinstance(value, VectorValue) else value
        self.line("ret void" if name is None else f"ret {self.result} {name}")
        self._ended = True

    def declare(self, name: str, signature: str) -> None:
        self._used[name] = f"declare {signature}\n"

    def numbers(self, kind: str, values: Sequence[int]) -> VectorValue:
        """Return a vector of constants."""
        text = ", ".join(f"{kind} {value}" for value in values)
        return VectorValue(self, kind, len(values), f"<{text}>")

    def number(self, kind: str, value: int) -> VectorValue:
        return VectorValue(self, kind, 0, str(value))

    def write(self, text: str) -> str:
        name = self._new("v")
        self.line(f"{name} = {text}")
        return name

    def buffer(self, nbytes: int) -> VectorValue:
        """Return the address of memory of the function's own, aligned for any vector."""
        name = self._new("b")
        self._buffers.append(f"  {name} = alloca [{nbytes} x i8], align 64")
        return VectorValue(self, "ptr", 0, name)

    def vector(self, numbers: Sequence[VectorValue]) -> VectorValue:
        kind, lanes, name = numbers[0].kind, len(numbers), "poison"
        for i, one in enumerate(numbers):
            text = f"insertelement {_type(kind, lanes)} {name}, {one.type} {one.name}, i64 {i}"
            name = self.write(text)
        return VectorValue(self, kind, lanes, name)

    def call(self, intrinsic: str, *operands: VectorValue) -> VectorValue:
        """Call one of LLVM's intrinsic functions on values of one type."""
        first = operands[0]
        suffix = {"float": "f32", "double": "f64"}.get(first.kind, first.kind)
        name = f"@llvm.{intrinsic}." + (f"v{first.lanes}{suffix}" if first.lanes else suffix)
        types = ", ".join([first.type] * len(operands))
        self._used[name] = f"declare {first.type} {name}({types})\n"
        given = ", ".join(f"{each.type} {each.name}" for each in operands)
        return VectorValue(
            self, first.kind, first.lanes, self.write(f"call {first.type} {name}({given})")
        )

    def call_function(self, name: str, kind: str, *given: VectorValue) -> VectorValue:
        """Return what a function of the same module gives."""
        operands = ", ".join(f"{each.type} {each.name}" for each in given)
        return VectorValue(self, kind, 0, self.write(f"call {kind} @{name}({operands})"))

    def call_procedure(self, name: str, *given: VectorValue) -> None:
        operands = ", ".join(f"{each.type} {each.name}" for each in given)
        self.line(f"call void @{name}({operands})")

    def run(self, function: ModuleFunction, *given: VectorValue) -> None:
        self._used.update(function.used)
        operands = ", ".join(f"{each.type} {each.name}" for each in given)
        self.line(f"call void @{function.name}({operands})")

    def variable(self, first: VectorValue) -> LoopVariable:
        variable = LoopVariable(self.buffer(max(1, first.lanes) * 8), first.kind, first.lanes)
        variable.value = first
        return variable

    @contextmanager
    def loop(self, count: VectorValue | int) -> Iterator[VectorValue]:
        """Repeat what is written inside for every index below ``count``, at least once."""
        head, done = self._new("loop")[1:], self._new("done")[1:]
        index, following, before = self._new("i"), self._new("i"), self._block
        at = len(self._lines) + 2
        self.line(f"br label %{head}")
        self._begin(head)
        yield VectorValue(self, "i64", 0, index)
        self._lines.insert(at, f"  {index} = phi i64 [0, %{before}], [{following}, %{self._block}]")
        self.line(f"{following} = add nuw i64 {index}, 1")
        limit = count.name if isinstance(count, VectorValue) else count
        self.line(f"{following}.more = icmp ult i64 {following}, {limit}")
        self.line(f"br i1 {following}.more, label %{head}, label %{done}")
        self._begin(done)

    @contextmanager
    def branch(self, condition: VectorValue) -> Iterator[Branch]:
        """Write what is done where ``condition`` holds, and after ``otherwise`` what is done elsewhere."""
        branch = Branch(self, *(self._new(name)[1:] for name in ("yes", "no", "end")))
        self.line(f"br i1 {condition.name}, label %{branch.yes}, label %{branch.no}")
        self._begin(branch.yes)
        yield branch
        self.line(f"br label %{branch.end}")
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
        self._ended = True

    @contextmanager
    def for_range(
        self, first: VectorValue | int, end: VectorValue, step: int = 1
    ) -> Iterator[VectorValue]:
        """Repeat what is written inside from ``first`` to before ``end``, where there is any."""
        begin = first if isinstance(first, VectorValue) else end.like(first)
        with self.when(begin.is_("ult", end)):
            at = self.variable(begin)
            head = self._new("each")[1:]
            self.line(f"br label %{head}")
            self._begin(head)
            yield at.value
            at.value = following = at.value + step
            more, done = following.is_("ult", end), self._new("done")[1:]
            self.line(f"br i1 {more.name}, label %{head}, label %{done}")
            self._begin(done)

    def _begin(self, block: str) -> None:
        self._ended = False
        self._lines.append(f"{block}:")
        self._block = block

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"%{prefix}{self._count}"


@dataclass(frozen=True, slots=True)
class Branch:
    """The blocks of a condition."""

    code: FunctionBuilder
    yes: str
    no: str
    end: str

    def otherwise(self) -> None:
        """End what is done where the condition holds."""
        self.code.line(f"br label %{self.end}")
        self.code._begin(self.no)


def _type(kind: str, lanes: int) -> str:
    return f"<{lanes} x {kind}>" if lanes else kind
