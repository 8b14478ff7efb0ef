"""LLVM's assembly language, written value by value.

A ``Code`` is the text of a function as it grows; a ``Value`` is one of its registers, a number or a
vector of numbers, on which Python's operators write instructions. What the instructions mean is in the
LLVM Language Reference Manual.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

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

    def __init__(self) -> None:
        self.parameters: list[str] = []
        self._lines: list[str] = []
        self._buffers: list[str] = []
        self._used: dict[str, str] = {}
        self._count = 0
        self._block = "entry"

    def parameter(self, name: str, kind: str) -> VectorValue:
        self.parameters.append(f"{kind} %{name}")
        return VectorValue(self, kind, 0, f"%{name}")

    def job(self) -> tuple[VectorValue, VectorValue, VectorValue]:
        """Return the parameters of a function of a job: its words, and from where to where it goes."""
        words = self.parameter("job", "ptr")
        return words, self.parameter("from", "i64"), self.parameter("to", "i64")

    def function(self, name: str, *, rare: bool = False) -> ModuleFunction:
        """Return all of it as a job's function, or one run ``rare``ly by it, which is kept apart."""
        linkage, attributes = ("internal void", " noinline cold") if rare else ("i32", "")
        signature = f"{linkage} @{name}({', '.join(self.parameters)}){attributes}"
        end = "  ret void" if rare else "  ret i32 0"
        body = "\n".join(["entry:", *self._buffers, *self._lines, end])
        self._used[name] = f"define {signature} {{\n{body}\n}}\n"
        return ModuleFunction(name, self._used)

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

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
        name = f"@llvm.{intrinsic}.v{first.lanes}{suffix}"
        types = ", ".join([first.type] * len(operands))
        self._used[name] = f"declare {first.type} {name}({types})"
        given = ", ".join(f"{each.type} {each.name}" for each in operands)
        return VectorValue(
            self, first.kind, first.lanes, self.write(f"call {first.type} {name}({given})")
        )

    def run(self, function: ModuleFunction, *given: VectorValue) -> None:
        self._used.update(function.used)
        operands = ", ".join(f"{each.type} {each.name}" for each in given)
        self.line(f"call void @{function.name}({operands})")

    def variable(self, first: VectorValue) -> LoopVariable:
        variable = LoopVariable(self.buffer(first.lanes * 8), first.kind, first.lanes)
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

    def _begin(self, block: str) -> None:
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
