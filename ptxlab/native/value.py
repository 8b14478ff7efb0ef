"""LLVM's assembly language, written value by value.

A ``VectorValue`` is a register of a function, a number or a vector of numbers, on which Python's operators write
instructions, and an address is one of type ``ptr``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from ptxlab.garbage import record
from ptxlab.native.arrays import DATA, FLAGS
from ptxlab.native.text import FunctionText, is_float, literal, type_of, width
from ptxlab.numbers.formats import F32


def _operator(opcode: str, of_floats: str = "") -> Callable[[VectorValue, Any], VectorValue]:
    """Return the method that writes an instruction on a value and another one, or a number."""

    def write(self: VectorValue, other: VectorValue | float) -> VectorValue:
        return self.apply(of_floats if of_floats and self.is_float else opcode, other)

    return write


@record(frozen=True, slots=True)
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
        return type_of(self.kind, self.lanes)

    @property
    def width(self) -> int:
        """The bits of each number."""
        return width(self.kind)

    @property
    def is_float(self) -> bool:
        return is_float(self.kind)

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

    __add__ = __radd__ = _operator("add", "fadd")
    __sub__ = _operator("sub", "fsub")
    __mul__ = _operator("mul", "fmul")
    __floordiv__ = _operator("udiv")  # of what has no sign
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__ = _operator("shl")
    __rshift__ = _operator("lshr")  # which fills up with zeros
    signed_shift = _operator("ashr")

    def apply(self, opcode: str, other: VectorValue | float) -> VectorValue:
        """Return what an instruction makes of this and another value, or a number, of the same type."""
        a, b = _alike(self, self.like(other))
        return a._made(f"{opcode} {a}, {b.name}", a.kind, a.lanes, b)

    def is_(self, condition: str, other: VectorValue | float) -> VectorValue:
        """Compare: ``eq``, ``slt``, ``ugt`` of integers, ``oeq``, ``uno`` and others of floats."""
        a, b = _alike(self, self.like(other))
        compare = "fcmp" if self.is_float else "icmp"
        return a._made(f"{compare} {condition} {a}, {b.name}", "i1", a.lanes, b)

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
        text = f"select {condition}, {a}, {b}"
        chosen = condition._made(text, a.kind, a.lanes, a, b)
        return replace(chosen, canonical=yes.canonical)

    def call(self, intrinsic: str, *others: VectorValue, flags: str = "") -> VectorValue:
        """Call one of LLVM's intrinsic functions on values of one type; ``flags`` are further arguments."""
        first, *rest = _alike(self, *others)
        suffix = {"float": "f32", "double": "f64"}.get(first.kind, first.kind)
        name = f"@llvm.{intrinsic}." + (f"v{first.lanes}{suffix}" if first.lanes else suffix)
        more = [flags] if flags else []
        types = [first.type] * (1 + len(rest)) + [flag.split()[0] for flag in more]
        self.code.declare(name, f"{first.type} {name}({', '.join(types)})")
        given = ", ".join([*map(str, (first, *rest)), *more])
        return first._made(f"call {first.type} {name}({given})", first.kind, first.lanes, *rest)

    def assembled(self, instruction: str, other: VectorValue) -> VectorValue:
        """Return what an instruction of the processor makes of registers of 256 bits, $1 and $2, in $0."""
        a, b = _alike(self, other)
        lanes = 256 // a.width
        kind = type_of(a.kind, lanes)
        parts = []
        for first in range(0, a.lanes, lanes):
            x, y = (each.shuffle(range(first, first + lanes)) for each in (a, b))
            text = f'call {kind} asm "{instruction}", "=x,x,x"({x}, {y})'
            parts.append(x._made(text, a.kind, lanes, y))
        return joined(parts)

    def to(self, conversion: str, kind: str) -> VectorValue:
        """Convert every number: ``sext``, ``trunc``, ``sitofp``, ``fptosi``, ``fpext``, ``fptrunc``."""
        return self._made(f"{conversion} {self} to {type_of(kind, self.lanes)}", kind, self.lanes)

    def extended(self, bits: int, *, signed: bool) -> VectorValue:
        """Return an integer with other many bits: the low ones, or more by its sign or zeros."""
        if bits == self.width:
            return self
        known = self.constant
        if known is not None:
            known %= 1 << self.width
            negative = signed and known >> self.width - 1
            return number(self.code, f"i{bits}", known - (negative << self.width))
        opcode = "trunc" if bits < self.width else "sext" if signed else "zext"
        return self.to(opcode, f"i{bits}")

    def frozen(self) -> VectorValue:
        """Return it, and where it is undefined any number, but always the same."""
        return self._made(f"freeze {self}", self.kind, self.lanes)

    # ---- the same bits in another way ----

    def bits(self, kind: str, lanes: int | None = None) -> VectorValue:
        """Return the same bits as another type, of ``lanes`` numbers if that changes."""
        lanes = self.lanes if lanes is None else lanes
        return self._made(f"bitcast {self} to {type_of(kind, lanes)}", kind, lanes)

    def as_kind(self, kind: str) -> VectorValue:
        """Return the same bits as another type of the same width, NaN as operations return it."""
        if kind == self.kind:
            return self
        value = self.made_canonical()
        known: dict[Hashable, VectorValue] = self.code.known
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
        known: dict[Hashable, VectorValue] = self.code.known
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
        known: dict[Hashable, VectorValue] = self.code.known
        if (self.name, lanes) in known:
            return known[self.name, lanes]
        vector = type_of(self.kind, lanes)
        first = self._made(f"insertelement {vector} poison, {self}, i64 0", self.kind, lanes)
        spread = replace(first.shuffle([0] * lanes), canonical=self.canonical)
        if self.code.in_threads and not self.varies:
            known[self.name, lanes] = spread
        return spread

    def shuffle(self, picks: Sequence[int], other: VectorValue | None = None) -> VectorValue:
        """Return the numbers at ``picks`` of this vector, or of this one and ``other`` behind it."""
        second = other.name if other else "poison"
        mask = ", ".join(f"i32 {pick}" for pick in picks)
        text = f"shufflevector {self}, {self.type} {second}, <{len(picks)} x i32> <{mask}>"
        return self._made(text, self.kind, len(picks), other or self)

    def pick(self, lane: int) -> VectorValue:
        return self._made(f"extractelement {self}, i64 {lane}", self.kind, 0)

    def all(self) -> VectorValue:
        """Say whether all bits of a vector of conditions are set."""
        name = f"@llvm.vector.reduce.and.v{self.lanes}{self.kind}"
        self.code.declare(name, f"{self.kind} {name}({self.type})")
        return self._made(f"call {self.kind} {name}({self})", self.kind, 0)

    def like(self, other: VectorValue | float) -> VectorValue:
        """Return a number as a constant of this type; a value as it is."""
        if isinstance(other, VectorValue):
            return other
        return number(self.code, self.kind, other).splat(self.lanes)

    def looked_up(self, kind: str, numbers: Sequence[int]) -> VectorValue:
        """Return what a table of the module, of integers, has at this index."""
        if self.lanes:
            return vector([self.pick(lane).looked_up(kind, numbers) for lane in range(self.lanes)])
        address = table(self.code, kind, numbers).at(self, width(kind) // 8)
        return address._made(f"load {kind}, {address}", kind, 0)

    # ---- addresses ----

    def at(self, index: VectorValue | int, size: int) -> VectorValue:
        """Return the address of a number in an array of elements of ``size`` bytes, this its address."""
        if isinstance(index, int):
            if not index:
                return self
            index, size = number(self.code, "i64", index * size), 1
        offset = index * size if size > 1 else index
        return self._made(f"getelementptr i8, {self}, {offset}", "ptr", 0, offset)

    def load(self, kind: str, lanes: int = 0, *, align: int) -> VectorValue:
        return done(self.code, f"load {type_of(kind, lanes)}, {self}, align {align}", kind, lanes)

    def store(self, value: VectorValue, *, align: int) -> None:
        self.code.line(f"store {value}, {self}, align {align}")

    def word(self, index: VectorValue | int) -> VectorValue:
        """Return a word of the array of words that this is the address of."""
        return self.at(index, 8).load("i64", align=8)

    def set(self, index: VectorValue | int, value: VectorValue | int) -> None:
        word = value if isinstance(value, VectorValue) else number(self.code, "i64", value)
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
        return done(self.code, f"call {kind} {self.name}({listed(given)})", kind)

    def atomic_load(self, kind: str, order: str) -> VectorValue:
        return done(self.code, f"load atomic {kind}, {self} {order}, align 8", kind)

    def atomic_store(self, value: VectorValue | int, kind: str, order: str) -> None:
        name = value.name if isinstance(value, VectorValue) else value
        self.code.line(f"store atomic {kind} {name}, {self} {order}, align 8")

    def updated(self, operation: str, by: int, order: str) -> VectorValue:
        """Return the word at this address as it was before an operation on it."""
        return done(self.code, f"atomicrmw {operation} {self}, i64 {by} {order}", "i64")

    def exchanged(self, old: VectorValue, new: VectorValue, order: str) -> VectorValue:
        """Say whether the word at this address was ``old``, and is ``new`` now."""
        pair = self.code.defined(f"cmpxchg {self}, {old}, {new} {order}")
        return done(self.code, f"extractvalue {{ i64, i1 }} {pair}, 1", "i1")

    def _made(self, text: str, kind: str, lanes: int, *others: VectorValue) -> VectorValue:
        """Return what an instruction makes of this value and others, and of nothing else."""
        early = self.code.in_threads and not any(x.varies for x in (self, *others))
        name = self.code.defined(text, before_threads=early)
        return VectorValue(self.code, kind, lanes, name, self.code.in_threads and not early)


def done(code: FunctionText, text: str, kind: str, lanes: int = 0) -> VectorValue:
    """Return the result of an instruction that is done here, and no sooner."""
    return VectorValue(code, kind, lanes, code.defined(text), code.in_threads)


def number(code: FunctionText, kind: str, value: float) -> VectorValue:
    """Return a constant: of what is no float its low bits."""
    return VectorValue(code, kind, 0, literal(kind, value))


def numbers(code: FunctionText, kind: str, values: Sequence[int]) -> VectorValue:
    """Return a vector of constants."""
    text = ", ".join(f"{kind} {value}" for value in values)
    return VectorValue(code, kind, len(values), f"<{text}>")


def table(code: FunctionText, kind: str, values: Sequence[int]) -> VectorValue:
    """Return the address of a table of the module."""
    return VectorValue(code, "ptr", 0, code.table(kind, values))


def vector(values: Sequence[VectorValue]) -> VectorValue:
    """Return a vector of numbers, of which there are several."""
    kind, lanes = values[0].kind, len(values)
    made = VectorValue(values[0].code, kind, lanes, "poison")
    for i, value in enumerate(values):
        made = value._made(f"insertelement {made}, {value}, i64 {i}", kind, lanes, made)
    return made


def joined(parts: Sequence[VectorValue]) -> VectorValue:
    """Return vectors of one length one behind the other; how many is a power of two."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [low.shuffle(range(2 * low.lanes), high) for low, high in pairs]
    return parts[0]


def listed(given: Sequence[VectorValue]) -> str:
    return ", ".join(map(str, given))


def _alike(*values: VectorValue) -> list[VectorValue]:
    """Return values with as many lanes as the one with most."""
    lanes = max(value.lanes for value in values)
    return [value.splat(lanes) for value in values]
