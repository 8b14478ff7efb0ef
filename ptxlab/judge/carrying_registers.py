"""The registers of a launch of PTX, in which every number that is rounded carries how far off it may be.

The launch itself goes its way in the kernel's own types. Beside it each instruction is computed on numbers in float64
that carry a bound (``ptxlab.judge.carried``). What looks into the bits of such a number, lets rounding decide
where threads go, or has no rule here, is refused by its name and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from ptxlab.arrays import Array, Mask
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.prepare.forms import form_of
from ptxlab.emulator.prepare.row import RowForm
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import Unsupported
from ptxlab.judge.carried import Carried
from ptxlab.judge.carried_arithmetic import CHOOSING, OPCODES, computed
from ptxlab.judge.carried_memory import KINDS, decoded
from ptxlab.judge.rounding import Bounded, Rounding
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.types import TYPES
from ptxlab.observe.value_flow import slots
from ptxlab.syntax.tree import Float, Integer, Not, Operand, Pair, Vector

BITS = "it looks into the bits of a rounded number"
NO_RULE = "it has no rule"
LOST = "lost"
"""The kind of what an atomic returns: what stands there meanwhile depends on the order."""

_UNRULED = {"sat", "relu", "xorsign", "oob"}
"""Modifiers that there are no rules for."""


@dataclass(frozen=True, slots=True)
class Held:
    """A register that holds numbers of a ``kind``, [threads, numbers] low bits first, in the threads of ``mask``."""

    kind: str
    numbers: Carried
    mask: Mask


class CarryingRegisters(Watcher):
    """Follows registers by the ``rules``; a sum makes so many ``roundings`` a term.

    A subclass has ``rules_by_mix`` more: the method for the instructions of a class, by the class.
    """

    rules_by_mix: Mapping[str, str] = {"move": "_move"}
    rules_by_opcode: Mapping[str, str] = {
        "shfl": "_shuffle", "selp": "_select", "setp": "_compare", "set": "_compare", "cvt": "_convert",
        "and": "_sign", "xor": "_sign",
    }  # fmt: skip
    """The method for an opcode of whatever types; those of floats are ``OPCODES``."""

    def __init__(self, rules: Rounding, roundings: float) -> None:
        self.rules, self.roundings = rules, roundings

    # ---- what the launch does ----

    def begin(self, wave: Wave) -> None:
        self.wave = wave
        self._frames: WeakKeyDictionary[Frame, dict[int, Held]] = WeakKeyDictionary()

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        self.site, self.passing, self._registers = site, passing, frame.registers
        self._held = self._frames.setdefault(frame, {})
        self.results: dict[int, Held] = {}
        self._given: Held | None = None
        if passing is None:
            return
        self.form = form_of(site.instruction)
        rule = self._rule(self.form)
        if rule is not None:
            with np.errstate(all="ignore"):
                getattr(self, rule)(*site.instruction.operands)
        elif self._held:
            self.want_exact(site.reads)

    def _rule(self, form: RowForm) -> str | None:
        """Return the method for an instruction, None for one of exact numbers alone."""
        rule = self.rules_by_mix.get(form.row.mix) or self.rules_by_opcode.get(form.opcode)
        if rule is not None or not any(map(number_type, (*form.results, *form.operands))):
            return rule
        if form.opcode not in OPCODES or _UNRULED.intersection(form.modifiers):
            self.refuse(NO_RULE)
        return "_arithmetic"

    def after(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        if passing is None:
            return
        whole = passing.everyone or passing.full
        for slot in site.writes:
            new, old = self.results.get(slot), None if whole else self._held.get(slot)
            if new is None and old is None:
                self._held.pop(slot, None)
                continue
            self._held[slot] = self._merged(new, old, passing)

    def _merged(self, new: Held | None, old: Held | None, passing: Threads) -> Held:
        """Return a register that threads have written, which others have as it was."""
        if old is not None:
            left = old.mask & ~passing.mask
            if new is None:
                return replace(old, mask=left)
            if left.any() and new.kind != old.kind:
                self.refuse("threads have numbers of several types in a register")
            if left.any():
                numbers = new.numbers.or_else(new.mask[:, None], old.numbers)
                return Held(new.kind, numbers, new.mask | left)
        assert new is not None
        return new

    # ---- registers ----

    def refuse(self, why: str) -> NoReturn:
        raise Unsupported(
            f"no bound follows from {self.site.instruction.name} in a trusted kernel: {why}",
            location=self.wave.locate(self.site.line),
            hint="the simplest kernel that is right is the best reference",
        )

    def want_exact(self, reads: Iterable[int | None]) -> None:
        """Refuse the instruction where a register of these is rounded."""
        for slot in reads:
            held = None if slot is None else self._held.get(slot)
            if held is None:
                continue
            here = (held.mask & self.mask)[:, None]
            if ((held.numbers.off != 0) & here).any():
                self.refuse(BITS)

    @property
    def mask(self) -> Mask:
        assert self.passing is not None
        return self.passing.mask

    def slot(self, operand: Operand) -> int | None:
        [slot] = slots(self.site, operand.first if isinstance(operand, Pair) else operand)
        return slot

    def held(self, operand: Operand) -> Held | None:
        slot = self.slot(operand)
        return None if slot is None else self._held.get(slot)

    def numbers(self, operand: Operand, kind: str) -> Carried:
        """Return an operand as numbers of a kind, [threads, numbers]."""
        held = self.held(operand)
        if held is not None and held.kind == kind and held.mask.all():
            return held.numbers
        exact = Carried.exact(decoded(self._words(operand, FORMATS[kind].dtype), kind))
        if held is None or held.kind != kind:
            self.want_exact([self.slot(operand)])
            return exact
        return held.numbers.or_else(held.mask[:, None], exact)

    def _words(self, operand: Operand, dtype: np.dtype[Any]) -> Array:
        """Return the bits of an operand: a register, or a constant of a type."""
        slot = self.slot(operand)
        if slot is not None:
            words = self._registers[slot]
        elif isinstance(operand, Float):
            bits = operand.width // 8
            words = np.array([operand.bits], f"u{bits}").view(f"f{bits}").astype(dtype)
        elif isinstance(operand, Integer):
            words = np.array([operand.value]).astype(f"u{dtype.itemsize}")
        else:
            self.refuse("an operand is neither register nor number")
        if words.itemsize % dtype.itemsize:
            self.refuse(BITS)
        return words

    def put(self, operand: Operand, kind: str, numbers: Carried, where: Mask | bool = True) -> None:
        """Have the result that an operand names hold numbers, in the threads that execute the instruction."""
        slot, width = self.slot(operand), self.wave.width
        if slot is not None:
            whole = numbers.each(lambda column: np.broadcast_to(column, (width, column.shape[1])))
            self.results[slot] = Held(kind, whole, self.mask & where)

    # ---- arithmetic ----

    def _arithmetic(self, target: Operand, *given: Operand) -> None:
        form = self.form
        kind, opcode = number_type(form.results[0]), form.opcode
        if kind not in KINDS or {*map(number_type, form.operands)} != {kind}:
            self.refuse(NO_RULE)
        numbers = [self.numbers(each, kind) for each in given]
        nan = "NaN" in form.modifiers
        result = computed(opcode, numbers, self.rules, self.roundings, nan=nan)
        self.put(target, kind, result if opcode in CHOOSING else self.narrowed(kind, result))

    def narrowed(self, kind: str, numbers: Carried) -> Carried:
        """Return numbers as they are stored in a register of a kind."""
        if kind in ("f32", "f64"):
            return numbers
        return numbers.narrowed(self.rules, FORMATS[kind].dtype)

    def _convert(self, target: Operand, *given: Operand) -> None:
        form = self.form
        kind, source = number_type(form.results[0]), number_type(form.operands[0])
        if kind not in KINDS or not source:
            self.want_exact(self.site.reads)  # an integer: rounding does not decide which
        if kind and (kind not in KINDS or _UNRULED.intersection(form.modifiers)):
            self.refuse(NO_RULE)
        if source and kind:
            parts = [self.numbers(each, source) for each in given[::-1]]  # the first is above
            self.put(target, kind, self.narrowed(kind, parts[0].each(_joined, *parts[1:])))
        elif kind:
            dtype = TYPES[form.operands[0]].dtype
            words = self._words(given[0], np.dtype(f"u{dtype.itemsize}"))
            low = words.view(f"u{words.itemsize}").astype(f"u{dtype.itemsize}")
            value = low.view(dtype).astype(np.float64)[:, None]
            rounded = Carried.whole(Bounded(value, np.abs(value - value.astype(np.float32))))
            self.put(target, kind, self.narrowed(kind, rounded))

    def _sign(self, target: Operand, value: Operand, by: Operand) -> None:
        """Compute what and leaves of a sign, and xor makes of it, as abs and neg do."""
        held, opcode = self.held(value), self.form.opcode
        if held is not None and isinstance(by, Integer) and held.kind in KINDS:
            size, count = FORMATS[held.kind].dtype.itemsize, held.numbers.value.shape[1]
            sign = sum(1 << (8 * size * (at + 1) - 1) for at in range(count))
            every = (1 << 8 * size * count) - 1
            if by.value & every == (sign if opcode == "xor" else every ^ sign):
                name = "neg" if opcode == "xor" else "abs"
                result = computed(name, [held.numbers], self.rules, self.roundings)
                self.put(target, held.kind, result, held.mask)
                return
        self.want_exact(self.site.reads)

    # ---- choices ----

    def _compare(self, target: Operand, first: Operand, second: Operand, *_: Operand) -> None:
        """Refuse a comparison that rounding may decide otherwise."""
        kind = number_type(self.form.operands[0])
        if not kind:
            self.want_exact(self.site.reads)
            return
        a, b = self.numbers(first, kind), self.numbers(second, kind)
        off = a.off + b.off
        decided = (
            (off == 0) | (np.abs(a.value - b.value) > off) | np.isnan(a.value) | np.isnan(b.value)
        )
        if (~decided & self.mask[:, None]).any():
            self.refuse("rounding decides")

    def _select(self, target: Operand, first: Operand, second: Operand, by: Operand) -> None:
        held = self.held(first) or self.held(second)
        if held is None or held.kind == LOST:
            self.want_exact(self.site.reads)
            return
        slot = self.slot(by.operand if isinstance(by, Not) else by)
        if slot is None:
            self.refuse("an operand is no predicate")
        taken = self._registers[slot][:, None] ^ isinstance(by, Not)
        a, b = (self.numbers(each, held.kind) for each in (first, second))
        self.put(target, held.kind, a.or_else(taken, b))

    # ---- moves ----

    def _move(self, target: Operand, value: Operand) -> None:
        targets, values = (
            [*each.elements] if isinstance(each, Vector) else [each] for each in (target, value)
        )
        if len(targets) == len(values):
            for into, taken in zip(targets, values, strict=True):
                self._regrouped([into], [taken])
        else:
            self._regrouped(targets, values)

    def _regrouped(self, targets: Sequence[Operand], values: Sequence[Operand]) -> None:
        """Have registers hold the numbers of others, in the same order."""
        held = [each for value in values if (each := self.held(value)) is not None]
        if not held:
            return
        kind = held[0].kind
        if kind == LOST:
            self.refuse(BITS)
        numbers = [self.numbers(value, kind) for value in values]
        joined = numbers[0].each(_joined, *numbers[1:])
        count, rest = divmod(joined.value.shape[1], len(targets))
        if rest:
            self.want_exact(self.site.reads)
            return
        for at, target in enumerate(targets):
            part = slice(at * count, (at + 1) * count)
            self.put(target, kind, joined.each(lambda column, part=part: column[:, part]))

    def _shuffle(self, target: Operand, value: Operand, *_: Operand) -> None:
        self._given = self.held(value)
        self._shuffled = target

    def exchange(self, frame: Frame, threads: Threads, source: Array, taking_part: Array) -> None:
        held, slot = self._given, self.slot(self._shuffled)
        if held is not None and slot is not None:
            source = np.broadcast_to(source, (self.wave.width,))
            numbers = held.numbers.each(lambda column: column[source])
            self.results[slot] = Held(
                held.kind, numbers, held.mask[source] & taking_part & self.mask
            )


def _joined(*columns: Array) -> Array:
    """Return [threads, numbers] of several, which may be those that all threads share."""
    width = max(len(column) for column in columns)
    wide = [np.broadcast_to(column, (width, column.shape[1])) for column in columns]
    return np.concatenate(wide, axis=1)


def number_type(name: str) -> str:
    """Return of which type a type's numbers are, "" where these are integers or bits."""
    single = TYPES.get(name.removesuffix("x2"))
    return single.name if single is not None and single.kind == "float" else ""
