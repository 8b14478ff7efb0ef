"""cp.async and its groups as machine code: where copies go is noted, and they are made when they are waited for.

All threads take part, so that all have begun as many groups. What is under way is a ring of words: a head of
``HEAD`` words, and for each of ``CAPACITY`` copies a row: where the array is that says where each thread reads,
the same of where it writes, how many bytes, and the number of its group, -1 before the commit. The functions are
those of tasks of ``ptxlab.native.cores``, of so many threads; nothing may be begun or waited for while the ring is
not open, and it closes itself when it is full.
"""

from __future__ import annotations

from functools import cache

from ptxlab.emulator.native.addresses import AddressTranslation, Span, Window
from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.cores import HEADER
from ptxlab.native.value import VectorValue

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


@cache
def begin(nbytes: int, target_bytes: int, target: int, origin: int) -> str:
    """Return the functions ``begin`` and ``begun``, which follow each other, of copies of so many bytes.

    Addresses in shared memory have ``target_bytes`` bytes. ``target`` and ``origin`` are added to the
    addresses.
    """
    ring = _Ring()
    f, task = ring.f, ring.task
    row = ring.row(ring.words.word(COUNT))
    sources, targets = (row.word(at).pointer() for at in (SOURCE, TARGET))
    table, window = task.array(TABLE), Window.of(f, task, SHARED)
    into, out_of = (task.array(REGISTERS + at) for at in range(2))
    with f.over_threads(ring.first, ring.end) as i:
        addresses = AddressTranslation(f, table, i)
        to = into.at(i, target_bytes).load(f"i{8 * target_bytes}", LANES, align=1)
        to = to.extended(64, signed=False)
        written = addresses.in_window(to, window, _span(target, nbytes), None)
        from_ = out_of.at(i, 8).load("i64", LANES, align=1)
        read = addresses.in_global(from_, _span(origin, nbytes), None, writes=False)
        for array, address, offset in ((sources, read, origin), (targets, written, target)):
            array.at(i, 8).store(address.address + offset, align=8)
    return "\n".join((f.function("begin").text, _begun(nbytes)))


def _span(offset: int, nbytes: int) -> Span:
    span = Span(offset, offset)
    span.add(offset, nbytes)
    return span
