"""Where eight threads' items are in this process, in LLVM's assembly: checked as the array engine does.

An address is checked for all accesses of a stretch that share its base at once. What does not pass goes
to the label ``fault``, before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ptxlab.native.code import Code, Value, number

FIND = """
@nowhere = internal constant [64 x i8] zeroinitializer

; Whether an allocation holds span bytes from low behind an address on. The cache then is: the first address
; for which it does, how many such addresses there are, what makes them addresses of this process.
define internal i1 @find(ptr %table, i64 %address, i64 %low, i64 %span, i64 %writes, ptr %cache) noinline {
entry:
  %count = load i64, ptr %table
  %from = add i64 %address, %low
  br label %next
next:
  %k = phi i64 [0, %entry], [%k1, %other]
  %over = icmp uge i64 %k, %count
  br i1 %over, label %none, label %look
look:
  %at = mul i64 %k, 32
  %row = getelementptr i8, ptr %table, i64 %at
  %p0 = getelementptr i8, ptr %row, i64 8
  %p1 = getelementptr i8, ptr %row, i64 16
  %p2 = getelementptr i8, ptr %row, i64 24
  %p3 = getelementptr i8, ptr %row, i64 32
  %begin = load i64, ptr %p0
  %size = load i64, ptr %p1
  %delta = load i64, ptr %p2
  %writable = load i64, ptr %p3
  %offset = sub i64 %from, %begin
  %short = sub i64 %size, %span
  %fits = icmp uge i64 %size, %span
  %inside = icmp ule i64 %offset, %short
  %may = icmp uge i64 %writable, %writes
  %both = and i1 %fits, %inside
  %good = and i1 %both, %may
  br i1 %good, label %found, label %other
other:
  %k1 = add i64 %k, 1
  br label %next
found:
  %c1 = getelementptr i8, ptr %cache, i64 8
  %c2 = getelementptr i8, ptr %cache, i64 16
  %starts = sub i64 %begin, %low
  %many = add i64 %short, 1
  store i64 %starts, ptr %cache
  store i64 %many, ptr %c1
  store i64 %delta, ptr %c2
  ret i1 true
none:
  ret i1 false
}

; The same for eight addresses, which become those of this process, where the bits of active say so.
define internal i1 @find_all(ptr %table, ptr %addresses, i8 %active, i64 %low, i64 %span, i64 %writes, ptr %cache) noinline {
entry:
  br label %next
next:
  %k = phi i64 [0, %entry], [%k1, %on]
  %bits = phi i8 [%active, %entry], [%rest, %on]
  %over = icmp eq i64 %k, 8
  br i1 %over, label %done, label %look
look:
  %p = getelementptr i64, ptr %addresses, i64 %k
  %one = trunc i8 %bits to i1
  br i1 %one, label %search, label %on
search:
  %a = load i64, ptr %p
  %ok = call i1 @find(ptr %table, i64 %a, i64 %low, i64 %span, i64 %writes, ptr %cache)
  br i1 %ok, label %hit, label %none
hit:
  %c2 = getelementptr i8, ptr %cache, i64 16
  %delta = load i64, ptr %c2
  %here = add i64 %a, %delta
  store i64 %here, ptr %p
  br label %on
on:
  %k1 = add i64 %k, 1
  %rest = lshr i8 %bits, 1
  br label %next
done:
  ret i1 true
none:
  ret i1 false
}
"""


@dataclass(slots=True)
class Span:
    """Bytes ``low`` to ``high`` of a base address that a stretch moves, in items of these ``sizes``."""

    low: int
    high: int
    items: set[tuple[int, int]] = field(default_factory=set)

    def add(self, offset: int, nbytes: int) -> None:
        self.low, self.high = min(self.low, offset), max(self.high, offset + nbytes)
        self.items.add((offset % nbytes, nbytes))


@dataclass(slots=True)
class Located:
    """Where a base address is in this process, for the threads that are ``active`` (None: for all).

    ``same`` says that it is so for all eight, ``apart`` by item size that they follow each other.
    """

    place: Value
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


class Places:
    """Writes what finds the places of a stretch's accesses."""

    def __init__(self, code: Code, table: str) -> None:
        self.code = code
        self.table = table
        self.caches = 0

    def in_global(
        self, address: Value, span: Span, active: Value | None, *, writes: bool
    ) -> Located:
        code, c = self.code, self.caches
        self.caches += 1
        cache = f"%cache{c}"
        given = f"i64 {span.low}, i64 {span.high - span.low}, i64 {int(writes)}, ptr {cache}"
        for name in ("starts", "many", "delta"):
            offset = ("starts", "many", "delta").index(name) * 8
            code.allocas.append(f"%{name}{c} = getelementptr i8, ptr {cache}, i64 {offset}")
            code.allocas.append(f"store i64 0, ptr %{name}{c}")
        code.allocas.insert(0, f"{cache} = alloca [3 x i64]")
        if not address.wide and (active is None or not active.wide):
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
        lines.append(f"%place{n} = phi <8 x i64> [%slow{n}, %{miss}], [%fast{n}, %{hit}]")
        return Located(Value(f"%place{n}", "i64", True), active)

    def _one(
        self, address: Value, span: Span, active: Value | None, given: str, delta: str
    ) -> Located:
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
        lines.append(f"%place{n} = add {address}, %add{n}")
        return Located(Value(f"%place{n}", "i64"), active)

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
    ) -> Located:
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
        return Located(code.op("add", address, start), active)

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
    code.declared.add("declare i1 @llvm.vector.reduce.and.v8i1(<8 x i1>)")
    name = code.name()
    code.body.append(f"{name} = call i1 @llvm.vector.reduce.and.v8i1({good})")
    return Value(name, "i1")
