"""Values of threads and the LLVM assembly that computes them, for eight threads at a time.

A value is ``per_lane``, one a thread, or a single one that all threads share. What is shared is computed
once, before the loop over the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from ptxlab.numbers.formats import F32

LANES = 8
"""Threads that the loop's body is for: numbers of 32 bits then fill a register of AVX2."""

WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}


@dataclass(frozen=True, slots=True)
class Value:
    """A number of LLVM's ``type``, named in the text; ``literal`` where it is written out there.

    Of one that is not ``canonical`` a NaN may be any: what looks at its bits must make it canonical.
    """

    text: str
    type: str
    per_lane: bool = False
    literal: bool = False
    canonical: bool = True

    @property
    def bits(self) -> int:
        return WIDTHS[self.type]

    @property
    def whole(self) -> str:
        """Its type as it is used: a vector's where it is one a thread."""
        return vector(self.type) if self.per_lane else self.type

    @property
    def is_float(self) -> bool:
        return self.type in ("float", "double")

    def __str__(self) -> str:
        return f"{self.whole} {self.text}"


def vector(type: str) -> str:
    return f"<{LANES} x {type}>"


def number(value: int, type: str) -> Value:
    if type == "i1":
        return Value("true" if value else "false", type, literal=True)
    bits = WIDTHS[type]
    value %= 1 << bits
    return Value(str(value - (value >> bits - 1 << bits)), type, literal=True)


class Code:
    """The text of a function: what comes ``before`` the loop over the threads, and the loop's ``body``.

    ``allocas`` come first. Each ends in the basic block that ``label_before`` and ``label`` name. ``declared`` are the
    functions of LLVM that it calls.
    """

    def __init__(self) -> None:
        self.allocas: list[str] = []
        self.before: list[str] = []
        self.body: list[str] = []
        self.label_before, self.label = "begin", "loop"
        self.declared: set[str] = set()
        self._names = 0
        self._spread: dict[str, Value] = {}
        self._canonical: dict[str, Value] = {}
        self._cast: dict[tuple[str, str], Value] = {}

    def name(self, stem: str = "%v") -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def emit_loop(self) -> list[str]:
        """Return the function from its block ``begin`` on: 0 after all threads, 1 where a block goes to ``fault``."""
        return [
            "begin:",
            *self.before,
            "br label %loop",
            "loop:",
            f"%i = phi i64 [%from, %{self.label_before}], [%next, %{self.label}]",
            *self.body,
            f"%next = add i64 %i, {LANES}",
            "%more = icmp ult i64 %next, %to",
            "br i1 %more, label %loop, label %done",
            "done:",
            "ret i32 0",
            "fault:",
            "ret i32 1",
            "}",
        ]

    # ---- one instruction ----

    def make(self, type: str, text: str, *values: Value) -> Value:
        """Return the result, of ``type``, of the instruction ``text`` on values.

        In it ``{0}`` is a value with its type and ``{0.text}`` without.
        """
        per_lane = any(value.per_lane for value in values)
        used = [self.spread(value) for value in values] if per_lane else values
        result = Value(self.name(), type, per_lane)
        lines = self.body if per_lane else self.before
        lines.append(f"{result.text} = {text.format(*used, result=result.whole)}")
        return result

    def op(self, opcode: str, *values: Value) -> Value:
        """Return what an instruction makes of values of one type, which is also the result's."""
        first, *rest = values
        text = ", ".join(["{0}", *(f"{{{i}.text}}" for i in range(1, len(values)))])
        return self.make(first.type, f"{opcode} {text}", first, *rest)

    def call(self, function: str, *values: Value, type: str = "", flags: str = "") -> Value:
        """Return what one of LLVM's own functions makes of values.

        ``type`` is the result's, where it is not that of the first value; ``flags`` are further arguments.
        """
        per_lane = any(value.per_lane for value in values)
        kind = type or values[0].type

        def suffix(name: str) -> str:
            short = {"float": "f32", "double": "f64"}.get(name, name)
            return f"v{LANES}{short}" if per_lane else short

        def full(name: str) -> str:
            return vector(name) if per_lane else name

        called = (
            f"@llvm.{function}." + suffix(kind) + (f".{suffix(values[0].type)}" if type else "")
        )
        extra = f", {flags}" if flags else ""
        types = [full(value.type) for value in values] + ([flags.split()[0]] if flags else [])
        self.declared.add(f"declare {full(kind)} {called}({', '.join(types)})\n")
        slots = ", ".join(f"{{{i}}}" for i in range(len(values)))
        return self.make(kind, f"call {{result}} {called}({slots}{extra})", *values)

    def compare(self, condition: str, a: Value, b: Value) -> Value:
        """Return whether a condition of LLVM, ``slt`` or ``oeq``, holds."""
        return self.make(
            "i1", f"{'f' if a.is_float else 'i'}cmp {condition} {{0}}, {{1.text}}", a, b
        )

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Return ``yes`` where a condition holds, else ``no``."""
        if yes == no:
            return yes
        if condition.literal:
            return yes if condition.text == "true" else no
        if yes.canonical != no.canonical:  # to make the result canonical would do so to both
            yes, no = self.canonical(yes), self.canonical(no)
        found = self.make(yes.type, "select {0}, {1}, {2}", condition, yes, no)
        return replace(found, canonical=yes.canonical)

    def convert(self, opcode: str, value: Value, type: str) -> Value:
        return self.make(type, f"{opcode} {{0}} to {{result}}", value)

    def look_up(self, index: Value, kind: str, numbers: Sequence[int]) -> Value:
        """Return the elements of a table of the module, by their numbers as 64 bits."""
        elements = ", ".join(f"{kind} {element}" for element in numbers)
        table = f"@table.{sha256(elements.encode()).hexdigest()[:16]}"
        self.declared.add(f"{table} = private constant [{len(numbers)} x {kind}] [{elements}]")
        if not index.per_lane:
            address = self.make("ptr", f"getelementptr {kind}, ptr {table}, {{0}}", index)
            return self.make(kind, f"load {kind}, {{0}}", address)
        found = "poison"
        for lane in range(LANES):
            at, place, element, more = (self.name() for _ in range(4))
            self.body += [
                f"{at} = extractelement {index}, i32 {lane}",
                f"{place} = getelementptr {kind}, ptr {table}, i64 {at}",
                f"{element} = load {kind}, ptr {place}",
                f"{more} = insertelement {vector(kind)} {found}, {kind} {element}, i32 {lane}",
            ]
            found = more
        return Value(found, kind, True)

    # ---- the same value in another way ----

    def spread(self, value: Value) -> Value:
        if value.per_lane:
            return value
        if value.literal:
            return replace(value, text=f"splat ({value.type} {value.text})", per_lane=True)
        found = self._spread.get(value.text)
        if found is None:
            one, all = self.name(), self.name()
            kind = vector(value.type)
            self.before.append(f"{one} = insertelement {kind} poison, {value}, i32 0")
            self.before.append(
                f"{all} = shufflevector {kind} {one}, {kind} poison, <{LANES} x i32> zeroinitializer"
            )
            found = self._spread[value.text] = replace(value, text=all, per_lane=True)
        return found

    def spread_here(self, value: Value) -> Value:
        """Return a value that only the loop's body knows, once for each thread."""
        one, all, kind = self.name(), self.name(), vector(value.type)
        self.body.append(f"{one} = insertelement {kind} poison, {value}, i32 0")
        self.body.append(
            f"{all} = shufflevector {kind} {one}, {kind} poison, <{LANES} x i32> zeroinitializer"
        )
        return replace(value, text=all, per_lane=True)

    def canonical(self, value: Value) -> Value:
        """Return a value whose NaN is the one that operations return."""
        if value.canonical:
            return value
        found = self._canonical.get(value.text)
        if found is None:
            # Chosen by bits: to LLVM all NaNs are one number, and it may return any for another.
            nan = self.compare("uno", value, value)
            bits = self.select(nan, number(F32.nan_word, "i32"), self._bitcast(value, "i32"))
            found = self._canonical[value.text] = self._bitcast(bits, value.type)
        return found

    def bits(self, value: Value) -> Value:
        """Return the bits of a number as they stand, as an integer."""
        return self._bitcast(value, f"i{value.bits}") if value.is_float else value

    def seen_as(self, value: Value, type: str) -> Value:
        """Return the bits of a value as another type of the same width."""
        if value.type == type:
            return value
        return self._bitcast(self.canonical(value), type)

    def _bitcast(self, value: Value, type: str) -> Value:
        found = self._cast.get((value.text, type))
        if found is None:
            found = self._cast[value.text, type] = self.convert("bitcast", value, type)
            if value.canonical:
                self._cast[found.text, value.type] = value
        return found

    def extended(self, value: Value, bits: int, *, signed: bool) -> Value:
        """Return an integer with other many bits: the low ones, or more by its sign or zeros."""
        if bits == value.bits:
            return value
        if value.literal and value.type != "i1":
            known = int(value.text)
            return number(known if signed else known % (1 << value.bits), f"i{bits}")
        opcode = "trunc" if bits < value.bits else "sext" if signed else "zext"
        return self.convert(opcode, value, f"i{bits}")
