"""cp.async and its groups as machine code: where copies go is noted, and they are made when they are waited for.

All threads take part, so that all have begun as many groups. What is under way is a ring of words: a head of
``HEAD`` words, and for each of ``CAPACITY`` copies a row: where the array is that says where each thread reads,
the same of where it writes, how many bytes, and the number of its group, -1 before the commit. The functions are
those of tasks of ``ptxlab.native.cores``, of so many threads; nothing may be begun or waited for while the ring is
not open, and it closes itself when it is full.
"""

from __future__ import annotations

from functools import cache

from ptxlab.emulator.native.addresses import AddressTranslation, Span, Window, find
from ptxlab.native.arrays import load_array, load_word
from ptxlab.native.builder import FunctionBuilder, VectorValue
from ptxlab.native.code import LANES, Code, Value, number
from ptxlab.native.cores import HEADER

OPEN, GROUPS, FIRST, COUNT, BEGUN = range(5)
"""Words of the ring: whether it may be used, groups committed, the oldest copy, how many, how many were begun."""

HEAD, ROW, CAPACITY = 8, 4, 64
"""The words before the rows, those of a row, and how many rows there are, a power of two."""

RING, ALLOWED = (HEADER + at for at in range(2))
"""Words of all tasks: the ring; of a wait how many groups may be under way, -1 to wait for all that has begun."""

TABLE, SHARED, REGISTERS = (HEADER + at for at in (1, 2, 6))
"""Words of the task that begins a copy: allocations, the window of shared memory, registers with addresses."""

SOURCE, TARGET, SIZE, GROUP = range(ROW)
"""The words of a row."""


class _Ring:
    """A function of a task, and the ring that the task names."""

    def __init__(self) -> None:
        self.f = FunctionBuilder()
        self.task, self.first, self.end = self.f.task()
        self.words = self.task.word(RING).pointer()

    def row(self, index: VectorValue) -> VectorValue:
        """Return where the words of a copy are, of which ``index`` are older."""
        return self.words.at(((self.words.word(FIRST) + index) & CAPACITY - 1) * ROW + HEAD, 8)

    def stays(self, row: VectorValue) -> VectorValue:
        """Say whether a copy is not due, all that are older being so."""
        allowed, group = self.task.word(ALLOWED), row.word(GROUP)
        newest = self.words.word(GROUPS) - allowed
        return allowed.is_("sge", 0) & (group.is_("slt", 0) | group.is_("sge", newest))


def _begun(nbytes: int) -> str:
    ring = _Ring()
    words, count = ring.words, ring.words.word(COUNT)
    row, more = ring.row(count), count + 1
    row.set(SIZE, count.like(nbytes))
    row.set(GROUP, count.like(-1))
    words.set(COUNT, more)
    words.set(BEGUN, words.word(BEGUN) + 1)
    words.set(OPEN, more.is_("ult", CAPACITY).to("zext", "i64"))
    return ring.f.function("begun").text


def _commit() -> str:
    ring = _Ring()
    groups = ring.words.word(GROUPS)
    with ring.f.for_range(0, ring.words.word(COUNT)) as i:
        row = ring.row(i)
        with ring.f.when(row.word(GROUP).is_("slt", 0)):
            row.set(GROUP, groups)
    ring.words.set(GROUPS, groups + 1)
    return ring.f.function("commit").text


def _land() -> str:
    """Return the function that makes the copies that are due, each of all threads."""
    ring = _Ring()
    f = ring.f
    with f.for_range(0, ring.words.word(COUNT)) as i:
        row = ring.row(i)
        with f.when(ring.stays(row)):
            f.ret(0)
        source, target = (row.word(at).pointer() for at in (SOURCE, TARGET))
        for size in (4, 8, 16):
            with f.when(row.word(SIZE).is_("eq", size)), f.for_range(ring.first, ring.end) as k:
                item = source.word(k).pointer().load("i8", size, align=1)
                target.word(k).pointer().store(item, align=1)
    return f.function("land").text


def _landed() -> str:
    """Return the function that takes these copies from the ring."""
    ring = _Ring()
    f, words, count = ring.f, ring.words, ring.words.word(COUNT)
    gone = f.variable(count.like(0))
    with f.loop_forever() as again:
        with (
            f.when(gone.value.is_("ult", count)),
            f.when(ring.stays(ring.row(gone.value)).is_("eq", 0)),
        ):
            gone.value = gone.value + 1
            f.continue_at(again)
        words.set(COUNT, count - gone.value)
        words.set(FIRST, words.word(FIRST) + gone.value)
        f.ret(0)
    return f.function("landed").text


@cache
def groups() -> str:
    """Return the functions ``commit``, and ``land`` and ``landed``, which follow each other in a wait."""
    return "\n".join((_commit(), _land(), _landed()))


_ROW_OF_NEXT = f"""
  %ring.p = getelementptr i64, ptr %args, i64 {RING}
  %ring = load ptr, ptr %ring.p
  %first.p = getelementptr i64, ptr %ring, i64 {FIRST}
  %first = load i64, ptr %first.p
  %count.p = getelementptr i64, ptr %ring, i64 {COUNT}
  %count = load i64, ptr %count.p
  %place = add i64 %count, %first
  %inside = and i64 %place, {CAPACITY - 1}
  %row = mul i64 %inside, {ROW}
  %word = add i64 %row, {HEAD}
  %src.p = getelementptr i64, ptr %ring, i64 %word
  %dst.p = getelementptr i64, ptr %src.p, i64 1
  %src = load ptr, ptr %src.p
  %dst = load ptr, ptr %dst.p
""".split("\n")


@cache
def begin(nbytes: int, target_bytes: int, target: int, origin: int) -> str:
    """Return the functions ``begin`` and ``begun``, which follow each other, of copies of so many bytes.

    Addresses in shared memory have ``target_bytes`` bytes. ``target`` and ``origin`` are added to the
    addresses.
    """
    code = Code()
    addresses = AddressTranslation(code, "%table")
    into = _address(code, "to", f"i{8 * target_bytes}")
    window = Window(
        Value("%bytes.a", "i64"), "%start", Value("%size", "i64"), Value("%lowest", "i64")
    )
    written = addresses.in_window(into, window, _span(target, nbytes), None)
    read = addresses.in_global(
        _address(code, "from", "i64"), _span(origin, nbytes), None, writes=False
    )
    for name, found, offset in (("src", read, origin), ("dst", written, target)):
        address = code.op("add", found.address, number(offset, "i64"))
        code.body += [
            f"%{name}.k = getelementptr i64, ptr %{name}, i64 %i",
            f"store {address}, ptr %{name}.k, align 8",
        ]
    lines = [
        "define i32 @begin(ptr %args, i64 %from, i64 %to) {",
        "entry:",
        *code.allocas,
        *_ROW_OF_NEXT,
        *load_array("table", TABLE),
        *load_array("bytes", SHARED),
        *load_array("start", SHARED + 1),
        *load_array("to.a", REGISTERS),
        *load_array("from.a", REGISTERS + 1),
        "%bytes.a = ptrtoint ptr %bytes to i64",
        *load_word("size", SHARED + 2),
        *load_word("lowest", SHARED + 3),
        "br label %begin",
        *code.emit_loop(),
        *sorted(code.declared),
        find(),
        _begun(nbytes),
    ]
    return "\n".join(lines)


def _span(offset: int, nbytes: int) -> Span:
    span = Span(offset, offset)
    span.add(offset, nbytes)
    return span


def _address(code: Code, name: str, kind: str) -> Value:
    """Return the addresses in a register, as 64 bits."""
    code.body += [
        f"%{name}.k = getelementptr {kind}, ptr %{name}.a, i64 %i",
        f"%{name}.v = load <{LANES} x {kind}>, ptr %{name}.k, align 1",
    ]
    return code.extended(Value(f"%{name}.v", kind, True), 64, signed=False)
