"""LLVM's assembly language, written value by value.

A ``VectorValue`` is a register of a function, a number or a vector of numbers, on which Python's operators write
instructions, and an address is one of type ``ptr``. A ``FunctionText`` is where they are written. What the
instructions mean is in the LLVM Language Reference Manual.

In a loop over threads what is the same for all of them is computed once, before the loop, wherever it is written.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from ptxlab.native.arrays import DATA, FLAGS
from ptxlab.numbers.formats import F32

_FLOATS = {"float": 32, "double": 64}


@dataclass(frozen=True, slots=True)
class VectorValue:
    """A register of the function, or a constant: ``lanes`` numbers of LLVM type ``kind``, or where they are 0 just one.

    One that ``varies`` is known in a loop over threads only. Of one that is not ``canonical`` a NaN may be any:
    what looks at its bits must make it canonical.
    """

    code: FunctionText
    kind: str
    lanes: int
    name: str
    varies: bool = False
    canonical: bool = True

    @property
    def type(self) -> str:
        return _type(self.kind, self.lanes)

    @property
    def width(self) -> int:
        """The bits of each number."""
        return width(self.kind)

    @property
    def is_float(self) -> bool:
        return self.kind in _FLOATS

    @property
    def is_literal(self) -> bool:
        """Whether it stands in the text."""
        return self.name[0] != "%"

    @property
    def constant(self) -> int | None:
        """The number where it is an integer that stands in the text."""
        is_known = self.is_literal and not self.lanes and self.kind[0] == "i"
        return int(self.name) if is_known else None

    def __str__(self) -> str:
        return f"{self.type} {self.name}"

    # ---- one instruction for each number ----

    def __add__(self, other: VectorValue | float) -> VectorValue:
        return self.apply("fadd" if self.is_float else "add", other)

    def __sub__(self, other: VectorValue | float) -> VectorValue:
        return self.apply("fsub" if self.is_float else "sub", other)

    def __mul__(self, other: VectorValue | float) -> VectorValue:
        return self.apply("fmul" if self.is_float else "mul", other)

    def __floordiv__(self, other: VectorValue | int) -> VectorValue:
        """Divide what has no sign."""
        return self.apply("udiv", other)

    def __and__(self, other: VectorValue | int) -> VectorValue:
        return self.apply("and", other)

    def __or__(self, other: VectorValue | int) -> VectorValue:
        return self.apply("or", other)

    def __xor__(self, other: VectorValue | int) -> VectorValue:
        return self.apply("xor", other)

    def __lshift__(self, other: VectorValue | int) -> VectorValue:
        return self.apply("shl", other)

    def __rshift__(self, other: VectorValue | int) -> VectorValue:
        """Shift down and fill up with zeros."""
        return self.apply("lshr", other)

    def signed_shift(self, by: VectorValue | int) -> VectorValue:
        """Shift down and fill up with the sign."""
        return self.apply("ashr", by)

    def apply(self, opcode: str, other: VectorValue | float) -> VectorValue:
        """Return what an instruction makes of this and another value, or a number, of the same type."""
        a, b = _alike(self, self.like(other))
        return self.code.compute(a.kind, a.lanes, f"{opcode} {a}, {b.name}", a, b)

    def is_(self, condition: str, other: VectorValue | float) -> VectorValue:
        """Compare: ``eq``, ``slt``, ``ugt`` of integers, ``oeq``, ``uno`` and others of floats."""
        a, b = _alike(self, self.like(other))
        compare = "fcmp" if self.is_float else "icmp"
        return self.code.compute("i1", a.lanes, f"{compare} {condition} {a}, {b.name}", a, b)

    def choose(self, yes: VectorValue | float, no: VectorValue | float) -> VectorValue:
        """Return ``yes`` where this is true and ``no`` elsewhere; one of them is a value."""
        like = yes if isinstance(yes, VectorValue) else no
        assert isinstance(like, VectorValue)
        yes, no = like.like(yes), like.like(no)
        if yes == no or self.constant is not None:
            return yes if self.constant != 0 else no
        if yes.canonical != no.canonical:  # to make the result canonical would do so to both
            yes, no = yes.made_canonical(), no.made_canonical()
        condition, a, b = _alike(self, yes, no)
        chosen = self.code.compute(
            a.kind, a.lanes, f"select {condition}, {a}, {b}", condition, a, b
        )
        return replace(chosen, canonical=yes.canonical)

    def to(self, conversion: str, kind: str) -> VectorValue:
        """Convert every number: ``sext``, ``trunc``, ``sitofp``, ``fptosi``, ``fpext``, ``fptrunc``."""
        return self._made(f"{conversion} {self} to {_type(kind, self.lanes)}", kind)

    def extended(self, bits: int, *, signed: bool) -> VectorValue:
        """Return an integer with other many bits: the low ones, or more by its sign or zeros."""
        if bits == self.width:
            return self
        known = self.constant
        if known is not None:
            known %= 1 << self.width
            negative = signed and known >> self.width - 1
            return self.code.number(f"i{bits}", known - (negative << self.width))
        opcode = "trunc" if bits < self.width else "sext" if signed else "zext"
        return self.to(opcode, f"i{bits}")

    def frozen(self) -> VectorValue:
        """Return it, and where it is undefined any number, but always the same."""
        return self._made(f"freeze {self}", self.kind)

    # ---- the same bits in another way ----

    def bits(self, kind: str, lanes: int | None = None) -> VectorValue:
        """Return the same bits as another type, of ``lanes`` numbers if that changes."""
        lanes = self.lanes if lanes is None else lanes
        return self.code.compute(kind, lanes, f"bitcast {self} to {_type(kind, lanes)}", self)

    def as_kind(self, kind: str) -> VectorValue:
        """Return the same bits as another type of the same width, NaN as operations return it."""
        if kind == self.kind:
            return self
        value = self.made_canonical()
        known = self.code.known
        if (value.name, kind) not in known:
            cast = known[value.name, kind] = value.bits(kind)
            known[cast.name, value.kind] = value
        return known[value.name, kind]

    def as_integer(self) -> VectorValue:
        """Return the bits as they stand, NaN as operations return it."""
        return self.as_kind(f"i{self.width}")

    def made_canonical(self) -> VectorValue:
        """Return a value whose NaN is the one that operations return."""
        if self.canonical:
            return self
        known = self.code.known
        if (self.name, "canonical") not in known:
            # Chosen by bits: to LLVM all NaNs are one number, and it may return any for another.
            words = self.is_("uno", self).choose(F32.nan_word, self.bits("i32"))
            known[self.name, "canonical"] = words.bits(self.kind)
        return known[self.name, "canonical"]

    # ---- numbers of a vector ----

    def splat(self, lanes: int) -> VectorValue:
        """Return a number once in each lane."""
        if lanes == self.lanes:
            return self
        if self.is_literal:
            return replace(self, lanes=lanes, name=f"splat ({self})")
        key = self.name, lanes
        if key in self.code.known:
            return self.code.known[key]
        vector = _type(self.kind, lanes)
        first = self.code.compute(
            self.kind, lanes, f"insertelement {vector} poison, {self}, i64 0", self
        )
        spread = replace(first.shuffle([0] * lanes), canonical=self.canonical)
        if self.code.is_before_threads(self):
            self.code.known[key] = spread
        return spread

    def shuffle(self, picks: Sequence[int], other: VectorValue | None = None) -> VectorValue:
        """Return the numbers at ``picks`` of this vector, or of this one and ``other`` behind it."""
        second = other.name if other else "poison"
        mask = ", ".join(f"i32 {pick}" for pick in picks)
        text = f"shufflevector {self}, {self.type} {second}, <{len(picks)} x i32> <{mask}>"
        return self.code.compute(self.kind, len(picks), text, self, other or self)

    def pick(self, lane: int) -> VectorValue:
        return self.code.compute(self.kind, 0, f"extractelement {self}, i64 {lane}", self)

    def all(self) -> VectorValue:
        """Say whether all bits of a vector of conditions are set."""
        name = f"@llvm.vector.reduce.and.v{self.lanes}{self.kind}"
        self.code.declare(name, f"{self.kind} {name}({self.type})")
        return self.code.compute(self.kind, 0, f"call {self.kind} {name}({self})", self)

    def like(self, other: VectorValue | float) -> VectorValue:
        """Return a number as a constant of this type; a value as it is."""
        if isinstance(other, VectorValue):
            return other
        return self.code.number(self.kind, other).splat(self.lanes)

    def looked_up(self, kind: str, numbers: Sequence[int]) -> VectorValue:
        """Return what a table of the module, of integers, has at this index."""
        table = self.code.table(kind, numbers)
        if self.lanes:
            return self.code.vector(
                [self.pick(lane).looked_up(kind, numbers) for lane in range(self.lanes)]
            )
        address = table.at(self, width(kind) // 8)
        return self.code.compute(kind, 0, f"load {kind}, {address}", address)

    # ---- addresses ----

    def at(self, index: VectorValue | int, size: int) -> VectorValue:
        """Return the address of a number in an array of elements of ``size`` bytes, this its address."""
        if isinstance(index, int):
            index, size = self.code.number("i64", index * size), 1
        offset = index * size if size > 1 else index
        text = f"getelementptr i8, {self}, {offset}"
        return self.code.compute("ptr", 0, text, self, offset)

    def load(self, kind: str, lanes: int = 0, *, align: int) -> VectorValue:
        return self.code.act(kind, lanes, f"load {_type(kind, lanes)}, {self}, align {align}")

    def store(self, value: VectorValue, *, align: int) -> None:
        self.code.line(f"store {value}, {self}, align {align}")

    def word(self, index: VectorValue | int) -> VectorValue:
        """Return a word of the array of words that this is the address of."""
        return self.at(index, 8).load("i64", align=8)

    def set(self, index: VectorValue | int, value: VectorValue | int) -> None:
        word = value if isinstance(value, VectorValue) else self.code.number("i64", value)
        self.at(index, 8).store(word, align=8)

    def address(self, index: VectorValue | int) -> VectorValue:
        """Return a word of the array that is an address itself."""
        return self.at(index, 8).load("ptr", align=8)

    def array(self, index: VectorValue | int) -> VectorValue:
        """Return the address of the data of an array of numpy, of which a word is the object."""
        return self.address(index).at(DATA, 1).address(0)

    def is_whole(self, index: int) -> VectorValue:
        """Say whether that array is in one piece."""
        return self.address(index).at(FLAGS, 1).load("i32", align=4).to("trunc", "i1")

    def pointer(self) -> VectorValue:
        return self.to("inttoptr", "ptr")

    def integer(self) -> VectorValue:
        return self.to("ptrtoint", "i64")

    def called(self, kind: str, *given: VectorValue) -> VectorValue:
        """Return what the function at this address gives."""
        return self.code.act(kind, 0, f"call {kind} {self.name}({_listed(given)})")

    def atomic_load(self, kind: str, order: str) -> VectorValue:
        return self.code.act(kind, 0, f"load atomic {kind}, {self} {order}, align 8")

    def atomic_store(self, value: VectorValue | int, kind: str, order: str) -> None:
        name = value.name if isinstance(value, VectorValue) else value
        self.code.line(f"store atomic {kind} {name}, {self} {order}, align 8")

    def updated(self, operation: str, by: int, order: str) -> VectorValue:
        """Return the word at this address as it was before an operation on it."""
        return self.code.act("i64", 0, f"atomicrmw {operation} {self}, i64 {by} {order}")

    def exchanged(self, old: VectorValue, new: VectorValue, order: str) -> VectorValue:
        """Say whether the word at this address was ``old``, and is ``new`` now."""
        pair = self.code.act("i64", 0, f"cmpxchg {self}, {old}, {new} {order}")
        return self.code.act("i1", 0, f"extractvalue {{ i64, i1 }} {pair.name}, 1")

    def _made(self, text: str, kind: str) -> VectorValue:
        return self.code.compute(kind, self.lanes, text, self)


def width(kind: str) -> int:
    """Return the bits of a number of a type of LLVM's."""
    return _FLOATS.get(kind) or int(kind[1:])


def _type(kind: str, lanes: int) -> str:
    return f"<{lanes} x {kind}>" if lanes else kind


def _alike(*values: VectorValue) -> list[VectorValue]:
    """Return values with as many lanes as the one with most."""
    lanes = max(value.lanes for value in values)
    return [value.splat(lanes) for value in values]


def _listed(given: Sequence[VectorValue]) -> str:
    return ", ".join(map(str, given))


@dataclass(frozen=True, slots=True)
class ModuleFunction:
    """A function of a module: the text of it and of all that it calls, by name."""

    name: str
    used: dict[str, str]

    @property
    def text(self) -> str:
        return "\n".join(self.used.values())


@dataclass(slots=True)
class Place:
    """Where lines are written: behind ``lines``, the last of them in a ``block``, which may have ``ended``."""

    lines: list[str] = field(default_factory=list)
    block: str = "entry"
    ended: bool = False


class FunctionText:
    """The lines of one function as they grow, and what they need of its module.

    ``known`` is what has been made of values once, where all that is behind can use it.
    """

    def __init__(self, result: str = "i32") -> None:
        self.result = result
        self.parameters: list[str] = []
        self.known: dict[Hashable, VectorValue] = {}
        self._here = Place()
        self._before_threads: Place | None = None
        self._buffers: list[str] = []
        self._used: dict[str, str] = {}
        self._count = 0

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
        if self._here.ended:
            end = ""
        body = "\n".join(["entry:", *self._buffers, *self._here.lines, end])
        self._used[name] = f"define {signature} {{\n{body}\n}}\n"
        return ModuleFunction(name, self._used)

    # ---- lines ----

    def line(self, text: str) -> None:
        if not self._here.ended:  # what follows a return is nowhere
            self._here.lines.append(f"  {text}")

    def act(self, kind: str, lanes: int, text: str) -> VectorValue:
        """Return the result of an instruction that is done here, and no sooner."""
        name = self._new("v")
        self.line(f"{name} = {text}")
        return VectorValue(self, kind, lanes, name, self._before_threads is not None)

    def compute(self, kind: str, lanes: int, text: str, *operands: VectorValue) -> VectorValue:
        """Return what an instruction makes of its operands and nothing else."""
        if self._before_threads is None or any(operand.varies for operand in operands):
            return self.act(kind, lanes, text)
        name = self._new("v")
        self._before_threads.lines.append(f"  {name} = {text}")
        return VectorValue(self, kind, lanes, name)

    def ret(self, value: VectorValue | int | None = None) -> None:
        """Return from the function."""
        name = value.name if isinstance(value, VectorValue) else value
        self.line("ret void" if name is None else f"ret {self.result} {name}")
        self._here.ended = True

    # ---- what there is besides instructions ----

    def declare(self, name: str, signature: str) -> None:
        self._used[name] = f"declare {signature}\n"

    def table(self, kind: str, numbers: Sequence[int]) -> VectorValue:
        """Return the address of a table of the module."""
        elements = ", ".join(f"{kind} {number}" for number in numbers)
        name = f"@table.{sha256(elements.encode()).hexdigest()[:16]}"
        self._used[name] = f"{name} = private constant [{len(numbers)} x {kind}] [{elements}]\n"
        return VectorValue(self, "ptr", 0, name)

    def buffer(self, nbytes: int) -> VectorValue:
        """Return the address of memory of the function's own, aligned for any vector."""
        name = self._new("b")
        self._buffers.append(f"  {name} = alloca [{nbytes} x i8], align 64")
        return VectorValue(self, "ptr", 0, name)

    def number(self, kind: str, value: float) -> VectorValue:
        """Return a constant: of what is no float its low bits."""
        if kind == "ptr":
            name = "null"
        elif kind in _FLOATS:
            name = "0x" + struct.pack(">d", value).hex().upper()
        else:
            bits = width(kind)
            word = int(value) % (1 << bits)
            name = str(word - (word >> bits - 1 << bits) if bits > 1 else word)
        return VectorValue(self, kind, 0, name)

    def numbers(self, kind: str, values: Sequence[int]) -> VectorValue:
        """Return a vector of constants."""
        text = ", ".join(f"{kind} {value}" for value in values)
        return VectorValue(self, kind, len(values), f"<{text}>")

    def vector(self, numbers: Sequence[VectorValue]) -> VectorValue:
        """Return a vector of numbers, of which there are several."""
        kind, lanes = numbers[0].kind, len(numbers)
        made = VectorValue(self, kind, lanes, "poison")
        for i, number in enumerate(numbers):
            text = f"insertelement {made}, {number}, i64 {i}"
            made = self.compute(kind, lanes, text, made, number)
        return made

    # ---- functions ----

    def call(self, intrinsic: str, *operands: VectorValue, flags: str = "") -> VectorValue:
        """Call one of LLVM's intrinsic functions on values of one type; ``flags`` are further arguments."""
        operands = tuple(_alike(*operands))
        first = operands[0]
        suffix = {"float": "f32", "double": "f64"}.get(first.kind, first.kind)
        name = f"@llvm.{intrinsic}." + (f"v{first.lanes}{suffix}" if first.lanes else suffix)
        types = [first.type] * len(operands) + ([flags.split()[0]] if flags else [])
        self.declare(name, f"{first.type} {name}({', '.join(types)})")
        given = _listed(operands) + (f", {flags}" if flags else "")
        text = f"call {first.type} {name}({given})"
        return self.compute(first.kind, first.lanes, text, *operands)

    def assembled(self, instruction: str, a: VectorValue, b: VectorValue) -> VectorValue:
        """Return what an instruction of the processor makes of registers of 256 bits, $1 and $2, in $0."""
        a, b = _alike(a, b)
        lanes = 256 // a.width
        kind = _type(a.kind, lanes)
        halves = []
        for first in range(0, a.lanes, lanes):
            x, y = (each.shuffle(range(first, first + lanes)) for each in (a, b))
            text = f'call {kind} asm "{instruction}", "=x,x,x"({x}, {y})'
            halves.append(self.compute(a.kind, lanes, text, x, y))
        low, high = halves
        return low.shuffle(range(a.lanes), high)

    def call_function(
        self, function: ModuleFunction | str, kind: str, *given: VectorValue
    ) -> VectorValue:
        """Return what a function gives, which comes with the module, or is in it already by a name."""
        return self.act(kind, 0, f"call {kind} @{self._named(function)}({_listed(given)})")

    def call_procedure(self, function: ModuleFunction | str, *given: VectorValue) -> None:
        self.line(f"call void @{self._named(function)}({_listed(given)})")

    def _named(self, function: ModuleFunction | str) -> str:
        if isinstance(function, str):
            return function
        self._used.update(function.used)
        return function.name

    # ---- places ----

    def is_before_threads(self, value: VectorValue) -> bool:
        """Say whether there is a loop over threads, and what is made of a value is made before it."""
        return self._before_threads is not None and not value.varies

    def _begin(self, block: str) -> None:
        self._here.ended = False
        self._here.lines.append(f"{block}:")
        self._here.block = block

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"%{prefix}{self._count}"
