"""The translation of eight threads' addresses to this process's, in LLVM's assembly.

An address is checked as the array engine does, for all accesses of a segment that share its base at once.
What does not pass goes to the label ``fault``, before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from ptxlab.native.builder import FunctionBuilder
from ptxlab.native.code import LANES, Code, Value, number

_NOWHERE = "@nowhere = internal constant [64 x i8] zeroinitializer"


@cache
def find() -> str:
    """Return the functions that look addresses up among allocations."""
    return "\n".join((_NOWHERE, _find(), _find_all()))


def _find() -> str:
    """Whether an allocation holds span bytes from low behind an address on. The cache then is: the first address
    for which it does, how many such addresses there are, what makes them addresses of this process.
    """
    f = FunctionBuilder("i1")
    table = f.parameter("table", "ptr")
    address, low, span, writes = (
        f.parameter(x, "i64") for x in ("address", "low", "span", "writes")
    )
    cache = f.parameter("cache", "ptr")
    with f.for_range(0, table.word(0)) as k:
        begin, size, delta, writable = (table.at(k, 32).word(1 + i) for i in range(4))
        last = size - span
        fits = size.is_("uge", span) & (address + low - begin).is_("ule", last)
        with f.when(fits & writable.is_("uge", writes)):
            for word, value in enumerate((begin - low, last + 1, delta)):
                cache.set(word, value)
            f.ret(1)
    return f.function("find", linkage="internal", attributes="noinline").text


def _find_all() -> str:
    """The same for eight addresses, which become those of this process, where the bits of active say so."""
    f = FunctionBuilder("i1")
    table, addresses = (f.parameter(x, "ptr") for x in ("table", "addresses"))
    active = f.parameter("active", "i8")
    span = [f.parameter(x, "i64") for x in ("low", "span", "writes")]
    cache = f.parameter("cache", "ptr")
    bits = active.to("zext", "i64")
    with f.loop(LANES) as lane, f.when(((bits >> lane) & 1).is_("ne", 0)):
        address = addresses.word(lane)
        with f.when(f.call_function("find", "i1", table, address, *span, cache).is_("eq", 0)):
            f.ret(0)
        addresses.set(lane, address + cache.word(2))
    f.ret(1)
    return f.function("find_all", linkage="internal", attributes="noinline").text


@dataclass(slots=True)
class Span:
    """Bytes ``low`` to ``high`` of a base address that a segment moves, in items of these ``sizes``."""

    low: int
    high: int
    items: set[tuple[int, int]] = field(default_factory=set)

    def add(self, offset: int, nbytes: int) -> None:
        self.low, self.high = min(self.low, offset), max(self.high, offset + nbytes)
        self.items.add((offset % nbytes, nbytes))


@dataclass(slots=True)
class TranslatedAddress:
    """Where a base address is in this process, for the threads that are ``active`` (None: for all).

    ``same`` says that it is so for all eight, ``apart`` by item size that they follow each other.
    """

    address: Value
    active: Value | None
    same: Value | None = None
    whole: Value | None = None
    first: Value | None = None
    apart: dict[int, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """Shared or local memory as the loop sees it: values loaded before it."""

    data: Value
    start: str
    size: Value
    first: Value


class AddressTranslation:
    """Writes the translation of the addresses of a segment's accesses."""

    def __init__(self, code: Code, table: str) -> None:
        self.code = code
        self.table = table
        self.caches = 0

    def in_global(
        self, address: Value, span: Span, active: Value | None, *, writes: bool
    ) -> TranslatedAddress:
        code, c = self.code, self.caches
        self.caches += 1
        cache = f"%cache{c}"
        given = f"i64 {span.low}, i64 {span.high - span.low}, i64 {int(writes)}, ptr {cache}"
        for name in ("starts", "many", "delta"):
            offset = ("starts", "many", "delta").index(name) * 8
            code.allocas.append(f"%{name}{c} = getelementptr i8, ptr {cache}, i64 {offset}")
            code.allocas.append(f"store i64 0, ptr %{name}{c}")
        code.allocas.insert(0, f"{cache} = alloca [3 x i64]")
        if not address.per_lane and (active is None or not active.per_lane):
            return self._one(address, span, active, given, f"%delta{c}")
        address = code.spread(address)
        active = None if active is None else code.spread(active)
        buffer = f"%buffer{c}"
        code.allocas.insert(0, f"{buffer} = alloca <8 x i64>")
        lines, n = code.body, code.name("")
        for name in ("starts", "many", "delta"):
            lines.append(f"%{name}{n}.s = load i64, ptr %{name}{c}")
        starts, many, delta = (
            code.spread_here(Value(f"%{name}{n}.s", "i64")) for name in ("starts", "many", "delta")
        )
        inside = code.compare("ult", code.op("sub", address, starts), many)
        self._aligned(address, span, active)
        good = self._reduced(inside, active)
        hit, miss, join = f"hit{n}", f"miss{n}", f"found{n}"
        lines.append(f"br i1 {good.text}, label %{hit}, label %{miss}")
        lines.append(f"{miss}:")
        bits = "-1"
        if active is not None:
            bits = f"%bits{n}"
            lines.append(f"{bits} = bitcast {active} to i8")
        lines.append(f"store {address}, ptr {buffer}")
        lines.append(
            f"%ok{n} = call i1 @find_all(ptr {self.table}, ptr {buffer}, i8 {bits}, {given})"
        )
        lines.append(f"%slow{n} = load <8 x i64>, ptr {buffer}")
        lines.append(f"br i1 %ok{n}, label %{join}, label %fault")
        lines.append(f"{hit}:")
        lines.append(f"%fast{n} = add {address}, {delta.text}")
        lines.append(f"br label %{join}")
        lines.append(f"{join}:")
        code.label = join
        lines.append(f"%translated{n} = phi <8 x i64> [%slow{n}, %{miss}], [%fast{n}, %{hit}]")
        return TranslatedAddress(Value(f"%translated{n}", "i64", True), active)

    def _one(
        self, address: Value, span: Span, active: Value | None, given: str, delta: str
    ) -> TranslatedAddress:
        """Check an address that all threads share, before the loop."""
        code, n = self.code, self.code.name("")
        lines = code.before
        lines.append(f"%ok{n} = call i1 @find(ptr {self.table}, {address}, {given})")
        wrong = [f"%no{n}"]
        lines.append(f"%no{n} = xor i1 %ok{n}, true")
        lines += self._unaligned(address, span, wrong)
        bad = self._any(lines, wrong)
        if active is not None:
            lines.append(f"%bad{n} = and i1 {bad}, {active.text}")
            bad = f"%bad{n}"
        lines.append(f"br i1 {bad}, label %fault, label %found{n}")
        lines.append(f"found{n}:")
        code.label_before = f"found{n}"
        lines.append(f"%add{n} = load i64, ptr {delta}")
        lines.append(f"%translated{n} = add {address}, %add{n}")
        return TranslatedAddress(Value(f"%translated{n}", "i64"), active)

    def _unaligned(self, address: Value, span: Span, wrong: list[str]) -> list[str]:
        lines = []
        for rest, size in sorted(span.items):
            if size > 1:
                a, b, c = (self.code.name() for _ in range(3))
                lines += [
                    f"{a} = add {address}, {rest}",
                    f"{b} = and i64 {a}, {size - 1}",
                    f"{c} = icmp ne i64 {b}, 0",
                ]
                wrong.append(c)
        return lines

    def _any(self, lines: list[str], wrong: Sequence[str]) -> str:
        found = wrong[0]
        for one in wrong[1:]:
            name = self.code.name()
            lines.append(f"{name} = or i1 {found}, {one}")
            found = name
        return found

    def in_window(
        self, address: Value, window: Window, span: Span, active: Value | None
    ) -> TranslatedAddress:
        """Check addresses of the threads' own shared or local memory."""
        code = self.code
        address = code.spread(address)
        active = None if active is None else code.spread(active)
        lowest = code.op("sub", window.first, number(span.low, "i64"))
        room = code.op("sub", window.size, window.first)
        length = number(span.high - span.low, "i64")
        fits = code.compare("uge", room, length)
        most = code.op("add", code.op("sub", room, length), number(1, "i64"))
        many = code.select(fits, most, number(0, "i64"))
        inside = code.compare("ult", code.op("sub", address, lowest), many)
        self._aligned(address, span, active)
        self._require(self._reduced(inside, active))
        start = code.make("i64", "add {0}, {1.text}", self._start(window), window.data)
        return TranslatedAddress(code.op("add", address, start), active)

    def _start(self, window: Window) -> Value:
        name = self.code.name()
        self.code.body.append(f"{name}.p = getelementptr i64, ptr {window.start}, i64 %i")
        self.code.body.append(f"{name} = load <8 x i64>, ptr {name}.p, align 8")
        return Value(name, "i64", True)

    def _aligned(self, address: Value, span: Span, active: Value | None) -> None:
        code = self.code
        good: Value | None = None
        for rest, size in sorted(span.items):
            if size > 1:
                moved = code.op("add", address, number(rest, "i64")) if rest else address
                low = code.op("and", moved, number(size - 1, "i64"))
                zero = code.compare("eq", low, number(0, "i64"))
                good = zero if good is None else code.op("and", good, zero)
        if good is not None:
            self._require(self._reduced(good, active))

    def _reduced(self, good: Value, active: Value | None) -> Value:
        """Return whether it is good for all eight that are active."""
        code = self.code
        if active is not None:
            good = code.op("or", good, code.op("xor", active, number(1, "i1")))
        return all_of(code, good)

    def _require(self, good: Value) -> None:
        label = self.code.name("on")
        self.code.body += [f"br i1 {good.text}, label %{label}, label %fault", f"{label}:"]
        self.code.label = label


def all_of(code: Code, good: Value) -> Value:
    good = code.spread(good)
    code.declared.add("declare i1 @llvm.vector.reduce.and.v8i1(<8 x i1>)\n")
    name = code.name()
    code.body.append(f"{name} = call i1 @llvm.vector.reduce.and.v8i1({good})")
    return Value(name, "i1")
