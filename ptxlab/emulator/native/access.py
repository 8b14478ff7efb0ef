"""Loads and stores in LLVM's assembly: where eight threads' items are, checked as the array engine does.

An address is checked for all accesses of a stretch that share its base at once. What does not pass goes
to the label ``fault``, before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ptxlab.native.code import LANES, Code, Value, number, vector

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


class Memory:
    """Writes the loads of a stretch, and what its stores are to do once nothing can go wrong."""

    def __init__(self, code: Code, table: str) -> None:
        self.code = code
        self.table = table
        self.caches = 0

    # ---- addresses ----

    def in_global(
        self, address: Value, span: Span, active: Value | None, *, writes: bool
    ) -> Located:
        """Check addresses of global memory."""
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
        return self._all(good)

    def _all(self, good: Value) -> Value:
        code = self.code
        good = code.spread(good)
        code.declared.add("declare i1 @llvm.vector.reduce.and.v8i1(<8 x i1>)")
        name = code.name()
        code.body.append(f"{name} = call i1 @llvm.vector.reduce.and.v8i1({good})")
        return Value(name, "i1")

    def _require(self, good: Value) -> None:
        label = self.code.name("on")
        self.code.body += [f"br i1 {good.text}, label %{label}, label %fault", f"{label}:"]
        self.code.label = label

    # ---- how eight addresses lie ----

    def _shape(self, found: Located, nbytes: int) -> None:
        code = self.code
        if found.first is None:
            first = code.name()
            code.body.append(f"{first} = extractelement {found.place}, i32 0")
            found.first = Value(first, "i64")
            found.whole = None if found.active is None else self._all(found.active)
            spread = code.spread_here(found.first)
            found.same = self._with(found, self._all(code.compare("eq", found.place, spread)))
        if nbytes not in found.apart:
            steps = ", ".join(f"i64 {nbytes * lane}" for lane in range(LANES))
            expected = code.op(
                "add", code.spread_here(found.first), Value(f"<{steps}>", "i64", True)
            )
            apart = self._all(code.compare("eq", found.place, expected))
            found.apart[nbytes] = self._with(found, apart)

    def _with(self, found: Located, holds: Value) -> Value:
        if found.whole is None:
            return holds
        name = self.code.name()
        self.code.body.append(f"{name} = and i1 {holds.text}, {found.whole.text}")
        return Value(name, "i1")

    # ---- loads ----

    def load(self, found: Located, offset: int, kind: str, count: int) -> list[Value]:
        """Return the ``count`` elements of an item, integers of type ``kind``."""
        if not found.place.wide:
            return self._load_one(self.code.before, found.place, offset, kind, count, found.active)
        code = self.code
        size = int(kind[1:]) // 8
        self._shape(found, size * count)
        assert found.first is not None
        assert found.same is not None
        n = code.name("")
        lines, kinds = code.body, vector(kind)
        first = Value(f"%first{n}", "i64")
        lines.append(f"{first.text} = add {found.first}, {offset}")
        lines.append(f"br i1 {found.apart[size * count].text}, label %apart{n}, label %together{n}")
        lines.append(f"apart{n}:")
        lines.append(f"%row.p{n} = inttoptr i64 {first.text} to ptr")
        many = LANES * count
        lines.append(f"%row{n} = load <{many} x {kind}>, ptr %row.p{n}, align 1")
        apart = []
        for part in range(count):
            name = f"%a{n}.{part}"
            picked = ", ".join(f"i32 {lane * count + part}" for lane in range(LANES))
            lines.append(
                f"{name} = shufflevector <{many} x {kind}> %row{n}, <{many} x {kind}> poison, "
                f"<{LANES} x i32> <{picked}>"
            )
            apart.append(name)
        lines.append(f"br label %loaded{n}")
        lines.append(f"together{n}:")
        lines.append(f"br i1 {found.same.text}, label %same{n}, label %each{n}")
        lines.append(f"same{n}:")
        same = [
            code.spread_here(one).text
            for one in self._load_one(lines, found.first, offset, kind, count, None)
        ]
        lines.append(f"br label %loaded{n}")
        lines.append(f"each{n}:")
        each = self._load_each(found, offset, kind, count)
        lines.append(f"br label %loaded{n}")
        lines.append(f"loaded{n}:")
        code.label = f"loaded{n}"
        results = []
        for part in range(count):
            name = code.name()
            lines.append(
                f"{name} = phi {kinds} [{apart[part]}, %apart{n}], [{same[part]}, %same{n}], "
                f"[{each[part]}, %each{n}]"
            )
            results.append(Value(name, kind, True))
        return results

    def _load_one(
        self,
        lines: list[str],
        place: Value,
        offset: int,
        kind: str,
        count: int,
        active: Value | None,
    ) -> list[Value]:
        code, size = self.code, int(kind[1:]) // 8
        results = []
        at = code.name()
        lines.append(f"{at} = add {place}, {offset}")
        if active is not None:
            chosen = code.name()
            lines.append(
                f"{chosen} = select {active}, i64 {at}, i64 ptrtoint (ptr @nowhere to i64)"
            )
            at = chosen
        for part in range(count):
            a, p, v = (code.name() for _ in range(3))
            lines.append(f"{a} = add i64 {at}, {part * size}")
            lines.append(f"{p} = inttoptr i64 {a} to ptr")
            lines.append(f"{v} = load {kind}, ptr {p}, align 1")
            results.append(Value(v, kind))
        return results

    def _load_each(self, found: Located, offset: int, kind: str, count: int) -> list[str]:
        code, lines = self.code, self.code.body
        places = code.op("add", found.place, number(offset, "i64")) if offset else found.place
        if found.active is not None:
            nowhere = Value("splat (i64 ptrtoint (ptr @nowhere to i64))", "i64", True)
            places = code.select(found.active, places, nowhere)
        current = ["poison"] * count
        for lane in range(LANES):
            a, p, v = (code.name() for _ in range(3))
            lines.append(f"{a} = extractelement {places}, i32 {lane}")
            lines.append(f"{p} = inttoptr i64 {a} to ptr")
            item = kind if count == 1 else f"<{count} x {kind}>"
            lines.append(f"{v} = load {item}, ptr {p}, align 1")
            for part in range(count):
                one = v
                if count > 1:
                    one = code.name()
                    lines.append(f"{one} = extractelement {item} {v}, i32 {part}")
                name = code.name()
                lines.append(
                    f"{name} = insertelement {vector(kind)} {current[part]}, {kind} {one}, i32 {lane}"
                )
                current[part] = name
        return current


@dataclass(frozen=True, slots=True)
class Later:
    """A store, done behind the loop of the stretch: where it finds the places and the elements.

    ``active`` is where it finds which threads take part, "" if all do; ``elements`` are names of arrays,
    or values that all threads share.
    """

    places: str
    active: str
    elements: tuple[tuple[str, Value], ...]


def store_loop(number_: int, later: Later, following: str) -> list[str]:
    """Return the loop of a store: threads in their order, so that of several at one address the last wins."""
    s, kind = f"s{number_}", later.elements[0][1].type
    count, size = len(later.elements), int(kind[1:]) // 8
    nbytes, many = size * count, LANES * count
    lines = [
        f"store{number_}:",
        f"br label %{s}",
        f"{s}:",
        f"%{s}.i = phi i64 [%from, %store{number_}], [%{s}.next, %{s}.end]",
        f"%{s}.pp = getelementptr i64, ptr {later.places}, i64 %{s}.i",
        f"%{s}.p = load <8 x i64>, ptr %{s}.pp, align 8",
        f"%{s}.0 = extractelement <8 x i64> %{s}.p, i32 0",
    ]
    whole = "true"
    if later.active:
        lines += [
            f"%{s}.ap = getelementptr i8, ptr {later.active}, i64 %{s}.i",
            f"%{s}.a8 = load <8 x i8>, ptr %{s}.ap, align 1",
            f"%{s}.a = trunc <8 x i8> %{s}.a8 to <8 x i1>",
            f"%{s}.w = call i1 @llvm.vector.reduce.and.v8i1(<8 x i1> %{s}.a)",
        ]
        whole = f"%{s}.w"
    names = []
    for part, (array, value) in enumerate(later.elements):
        if array:
            lines += [
                f"%{s}.ep{part} = getelementptr {kind}, ptr {array}, i64 %{s}.i",
                f"%{s}.e{part} = load <8 x {kind}>, ptr %{s}.ep{part}, align 1",
            ]
        else:
            lines += [
                f"%{s}.es{part} = insertelement <8 x {kind}> poison, {value}, i32 0",
                f"%{s}.e{part} = shufflevector <8 x {kind}> %{s}.es{part}, <8 x {kind}> poison, "
                "<8 x i32> zeroinitializer",
            ]
        names.append(f"%{s}.e{part}")
    steps = ", ".join(f"i64 {nbytes * lane}" for lane in range(LANES))
    lines += [
        f"%{s}.s1 = insertelement <8 x i64> poison, i64 %{s}.0, i32 0",
        f"%{s}.s = shufflevector <8 x i64> %{s}.s1, <8 x i64> poison, <8 x i32> zeroinitializer",
        f"%{s}.x = add <8 x i64> %{s}.s, <{steps}>",
        f"%{s}.c = icmp eq <8 x i64> %{s}.p, %{s}.x",
        f"%{s}.r = call i1 @llvm.vector.reduce.and.v8i1(<8 x i1> %{s}.c)",
        f"%{s}.f = and i1 %{s}.r, {whole}",
        f"br i1 %{s}.f, label %{s}.row, label %{s}.each0",
        f"{s}.row:",
        f"%{s}.rp = inttoptr i64 %{s}.0 to ptr",
    ]
    row = names[0]
    if count > 1:
        row = f"%{s}.joined"
        lines += _interleaved(s, names, kind, row)
    lines += [f"store <{many} x {kind}> {row}, ptr %{s}.rp, align 1", f"br label %{s}.end"]
    for lane in range(LANES):
        behind = f"{s}.each{lane + 1}" if lane < LANES - 1 else f"{s}.end"
        lines.append(f"{s}.each{lane}:")
        if later.active:
            lines += [
                f"%{s}.t{lane} = extractelement <8 x i1> %{s}.a, i32 {lane}",
                f"br i1 %{s}.t{lane}, label %{s}.do{lane}, label %{behind}",
                f"{s}.do{lane}:",
            ]
        lines += [
            f"%{s}.q{lane} = extractelement <8 x i64> %{s}.p, i32 {lane}",
            f"%{s}.qp{lane} = inttoptr i64 %{s}.q{lane} to ptr",
        ]
        for part, name in enumerate(names):
            lines += [
                f"%{s}.v{lane}.{part} = extractelement <8 x {kind}> {name}, i32 {lane}",
                f"%{s}.vp{lane}.{part} = getelementptr i8, ptr %{s}.qp{lane}, i64 {part * size}",
                f"store {kind} %{s}.v{lane}.{part}, ptr %{s}.vp{lane}.{part}, align 1",
            ]
        lines.append(f"br label %{behind}")
    lines += [
        f"{s}.end:",
        f"%{s}.next = add i64 %{s}.i, {LANES}",
        f"%{s}.more = icmp ult i64 %{s}.next, %to",
        f"br i1 %{s}.more, label %{s}, label %{following}",
    ]
    return lines


def _interleaved(s: str, names: Sequence[str], kind: str, result: str) -> list[str]:
    """Return the lines that put the elements of each of eight items beside each other."""
    lines, joined, width = [], list(names), LANES
    while len(joined) > 1:
        pairs: list[str] = []
        for a, b in zip(joined[::2], joined[1::2], strict=True):
            name = f"%{s}.j{width}.{len(pairs)}"
            order = ", ".join(f"i32 {at}" for at in range(2 * width))
            lines.append(
                f"{name} = shufflevector <{width} x {kind}> {a}, <{width} x {kind}> {b}, "
                f"<{2 * width} x i32> <{order}>"
            )
            pairs.append(name)
        joined, width = pairs, 2 * width
    count = len(names)
    order = ", ".join(
        f"i32 {part * LANES + lane}" for lane in range(LANES) for part in range(count)
    )
    lines.append(
        f"{result} = shufflevector <{width} x {kind}> {joined[0]}, <{width} x {kind}> poison, "
        f"<{width} x i32> <{order}>"
    )
    return lines
