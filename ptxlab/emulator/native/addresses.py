"""The translation of eight threads' addresses to this process's.

An address is checked as the array engine does, for all accesses of a segment that share its base at once.
Where one does not pass the function returns 1, before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property

from ptxlab.emulator.run.memory import Region
from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.text import ModuleFunction
from ptxlab.native.value import VectorValue, numbers


@cache
def _find() -> ModuleFunction:
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
    return f.function("find", internal=True)


@cache
def _find_all() -> ModuleFunction:
    """The same for eight addresses, which become those of this process, where the bits of active say so."""
    f = FunctionBuilder("i1")
    table, addresses = (f.parameter(x, "ptr") for x in ("table", "addresses"))
    active = f.parameter("active", "i8")
    span = [f.parameter(x, "i64") for x in ("low", "span", "writes")]
    cache = f.parameter("cache", "ptr")
    bits = active.to("zext", "i64")
    with f.loop(LANES) as lane, f.when(((bits >> lane) & 1).is_("ne", 0)):
        address = addresses.word(lane)
        good = f.call_function(_find(), "i1", table, address, *span, cache)
        with f.when(good.is_("eq", 0)):
            f.ret(0)
        addresses.set(lane, address + cache.word(2))
    f.ret(1)
    return f.function("find_all", internal=True)


@dataclass(slots=True)
class Span:
    """Bytes ``low`` to ``high`` of a base address that a segment moves, in items of these ``sizes``."""

    low: int
    high: int
    items: set[tuple[int, int]] = field(default_factory=set)

    def add(self, offset: int, nbytes: int) -> None:
        self.low, self.high = min(self.low, offset), max(self.high, offset + nbytes)
        self.items.add((offset % nbytes, nbytes))

    def is_aligned(
        self, address: VectorValue, good: VectorValue | None = None
    ) -> VectorValue | None:
        """Say whether it is ``good`` and all items behind a base address are aligned; None if they cannot be otherwise."""
        for rest, size in sorted(self.items):
            if size > 1:
                moved = address + rest if rest else address
                zero = (moved & size - 1).is_("eq", 0)
                good = zero if good is None else good & zero
        return good


@dataclass
class TranslatedAddress:
    """Where a base address is in this process, for the threads that are ``active`` (None: for all)."""

    address: VectorValue
    active: VectorValue | None

    @cached_property
    def first(self) -> VectorValue:
        """That of the first of eight threads."""
        return self.address.pick(0)

    @cached_property
    def is_same(self) -> VectorValue:
        """Whether it is the same for all eight."""
        return self._holds(self.address.is_("eq", self.first))

    def is_apart(self, nbytes: int) -> VectorValue:
        """Say whether eight items of so many bytes follow each other."""
        steps = numbers(self.address.code, "i64", range(0, LANES * nbytes, nbytes))
        return self._holds(self.address.is_("eq", steps + self.first))

    def _holds(self, condition: VectorValue) -> VectorValue:
        """Say whether something holds for all eight, and all are active."""
        return (condition if self.active is None else condition & self.active).all()


@dataclass(frozen=True, slots=True)
class Window:
    """A thread's own memory: where its ``data`` is, where each thread's begins, its size and first address.

    ``base`` is what a thread's own address has more than that.
    """

    data: VectorValue
    start: VectorValue
    base: VectorValue
    size: VectorValue
    first: VectorValue

    @classmethod
    def of(cls, code: FunctionBuilder, task: VectorValue, word: int) -> Window:
        """Return the window of which ``window_words`` are those of a task from this one on."""
        with code.before_threads():
            arrays = (task.array(word + i) for i in range(3))
            return cls(*arrays, *(task.word(word + i) for i in (3, 4)))

    def holds(self, address: VectorValue, low: VectorValue | int, length: int) -> VectorValue:
        """Say whether it has so many bytes from ``low`` behind an address on."""
        room = (self.size - self.first).call("usub.sat", self.size.like(length - 1))
        return (address - (self.first - low)).is_("ult", room)


WINDOW = 5
"""How many words of a task describe a thread's own memory."""


def window_words(region: Region) -> tuple[int, ...]:
    """Return these words."""
    return id(region.data), id(region.start), id(region.base), region.size, region.first


@dataclass(frozen=True, slots=True)
class AddressTranslation:
    """Writes the translation of the addresses of a segment's accesses, in the loop over threads from ``index`` on."""

    code: FunctionBuilder
    table: VectorValue
    index: VectorValue

    def in_global(
        self, address: VectorValue, span: Span, active: VectorValue | None, *, writes: bool
    ) -> TranslatedAddress:
        code = self.code
        low, length, may_write = (
            code.number("i64", x) for x in (span.low, span.high - span.low, writes)
        )
        cache = code.buffer(24)
        given = low, length, may_write, cache
        with code.before_threads():
            for word in range(3):
                cache.set(word, 0)
            if not address.lanes and (active is None or not active.lanes):
                is_inside = code.call_function(_find(), "i1", self.table, address, *given)
                self._require(span.is_aligned(address, is_inside), active)
                return TranslatedAddress(address + cache.word(2), active)
        address = address.splat(LANES)
        starts, many, delta = (cache.word(word) for word in range(3))
        inside = (address - starts).is_("ult", many)
        self._require(span.is_aligned(address), active)
        with code.branch(_of_active(inside, active).all()) as branch:
            translated = address + delta
            branch.otherwise()
            buffer = code.buffer(8 * LANES)
            buffer.store(address, align=8)
            mask = code.number("i8", -1)
            if active is not None:
                mask = active.splat(LANES).bits("i8", 0)
            good = code.call_function(_find_all(), "i1", self.table, buffer, mask, *given)
            self._require(good, None)
            looked_up = buffer.load("i64", LANES, align=8)
        return TranslatedAddress(branch.merged(translated, looked_up), active)

    def in_window(
        self, address: VectorValue, window: Window, span: Span, active: VectorValue | None
    ) -> TranslatedAddress:
        """Check addresses of the threads' own shared or local memory."""
        own = window.base.at(self.index, 8).load("i64", LANES, align=8)
        address = address.splat(LANES) - own
        inside = window.holds(address, span.low, span.high - span.low)
        self._require(span.is_aligned(address, inside), active)
        start = window.start.at(self.index, 8).load("i64", LANES, align=8)
        return TranslatedAddress(address + start + window.data.integer(), active)

    def _require(self, good: VectorValue | None, active: VectorValue | None) -> None:
        """Go on only if something is good for all that are active."""
        if good is None:
            return
        good = _of_active(good, active)
        with self.code.when((good.all() if good.lanes else good).is_("eq", 0)):
            self.code.ret(1)


def _of_active(good: VectorValue, active: VectorValue | None) -> VectorValue:
    """Return what is good, or of no thread that is active."""
    return good if active is None else good | (active ^ 1)
