"""One instruction of the machine, executed for many threads at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.prediction import arithmetic as do
from ptxlab.prediction.accesses import Accesses
from ptxlab.prediction.code import Instruction
from ptxlab.prediction.launch import Launch
from ptxlab.prediction.memory import GlobalMemory
from ptxlab.prediction.operands import (
    TRUE_PREDICATE,
    UPT,
    URZ,
    ZERO_REGISTER,
    Constant,
    Immediate,
    Name,
    Operand,
    Predicate,
    Register,
)
from ptxlab.prediction.pipes import OPCODES
from ptxlab.prediction.requests import Request
from ptxlab.prediction.values import Array, Bank, Where

U32, U64 = np.uint32, np.uint64


class Executor:
    """Registers, predicates and memory of the threads of some CTAs."""

    def __init__(self, launch: Launch, ctas: Sequence[int]) -> None:
        self._special = launch.special(ctas)
        self._constants = launch.constants()
        self.threads = len(launch.alive(ctas))
        self.words = Bank(512, self.threads, np.uint32, {ZERO_REGISTER: 0, URZ: 0})
        self.predicates = Bank(16, self.threads, np.bool_, {TRUE_PREDICATE: 1, UPT: 1})
        self.memory = GlobalMemory(launch.regions)
        self._accesses = Accesses(launch, self, len(ctas))

    # ---- guards -----------------------------------------------------------------------------

    def holds(self, i: Instruction, where: Where) -> Array | bool | None:
        """Say for which threads an instruction's guard and a branch's predicates hold: all, some, or unknown."""
        found: Array | bool = True
        for predicate in (i.guard, *i.ins, *(i.outs if i.sass.opcode == "BRA" else ())):
            if predicate is not None:
                value = self.predicate(predicate, where)
                if value is None:
                    return None
                found = value if found is True else found & value
        if found is True or bool(np.all(found)):
            return True
        return found

    def execute(self, i: Instruction, where: Where) -> Request | None:
        """Run one instruction and return what it asks memory for, if it does."""
        row = OPCODES.get(i.sass.opcode)
        if row is None:
            raise Unsupported(
                f"no timing is known of '{i.sass.text}'",
                hint="the instruction is not in the table of ptxlab/prediction/pipes.py",
            )
        guard = None if i.guard is None else self.predicate(i.guard, where)
        if i.guard is not None and guard is None:
            if row.memory:
                raise Unsupported(
                    f"whether '{i.sass.text}' runs depends on data that is not computed"
                )
            self._forget(i, where)
            return None
        active = where
        if guard is not None and not guard.all():
            active = np.flatnonzero(guard) if isinstance(where, slice) else where[guard]
        if row.memory:
            return self._accesses.access(i, active)
        if isinstance(active, np.ndarray) and not len(active):
            return None
        executed = _EXECUTED.get(i.sass.opcode.removeprefix("U"))
        if executed is None:
            self._forget(i, active)
        else:
            executed(self, i, active)
        return None

    # ---- operands ---------------------------------------------------------------------------

    def predicate(self, predicate: Predicate, where: Where) -> Any:
        value = self.predicates.read(predicate.number, where)
        return ~value if value is not None and predicate.negated else value

    def value(self, operand: Operand, where: Where, *, bare: bool = False) -> Any:
        """Return an operand as words, ``bare`` without the sign in front of it; None if it is not known."""
        found: Any
        if isinstance(operand, Register):
            found = self.words.read(operand.number, where)
        elif isinstance(operand, Immediate):
            return U32(operand.value)
        elif isinstance(operand, Constant):
            found = self.constant(operand, where)
        else:
            return None
        if found is None or bare:
            return found
        if operand.inverted:
            return ~found
        return U32(0) - found if operand.negated else found

    def pair(self, operand: Operand, where: Where, *, signed: bool) -> Any:
        """Return an operand of 64 bits: two registers, two constants, or a number."""
        if isinstance(operand, Immediate):
            return do.wide(np.asarray(U32(operand.value)), signed=signed)
        lower = self.value(operand, where, bare=True)
        upper = self.value(_next(operand), where, bare=True)
        if lower is None or upper is None:
            return None
        found = do.joined(lower, upper)
        negated = isinstance(operand, Register | Constant) and operand.negated
        return U64(0) - found if negated else found

    def constant(self, constant: Constant, where: Where) -> Any:
        offset = constant.offset
        if constant.register is not None and constant.register.number not in (ZERO_REGISTER, URZ):
            register = self.words.read(constant.register.number, where)
            if register is None or register.min() != register.max():
                return None
            offset += int(register[0])
        word = self._constants.get((constant.bank, offset & ~3))
        return None if word is None else U32(word)

    # ---- results ----------------------------------------------------------------------------

    def write(self, i: Instruction, where: Where, value: Any, *, words: int = 1) -> None:
        """Write ``words`` registers: a word, or the halves of 64 bits."""
        if i.dest is None:
            return
        if words == 1:
            self.words.write(i.dest.number, where, value)
        else:
            self.words.write(i.dest.number, where, None if value is None else do.low(value))
            self._upper(i.dest.number, where, None if value is None else do.high(value))

    def _upper(self, number: int, where: Where, value: Any) -> None:
        if number not in (ZERO_REGISTER, URZ):
            self.words.write(number + 1, where, value)

    def tell(self, predicate: Predicate, where: Where, value: Any) -> None:
        self.predicates.write(predicate.number, where, value)

    def _forget(self, i: Instruction, where: Where) -> None:
        """Have what an instruction writes be unknown."""
        if i.dest is not None and i.dest.number not in (ZERO_REGISTER, URZ):
            for word in range(OPCODES[i.sass.opcode].written(i)):
                self.words.write(i.dest.number + word, where, None)
        for predicate in i.outs:
            self.tell(predicate, where, None)

    # ---- instructions -----------------------------------------------------------------------

    def _function(self, i: Instruction, where: Where) -> None:
        values = [self.value(one, where) for one in i.sources]
        known = all(value is not None for value in values)
        function = do.INTEGER[i.sass.opcode.removeprefix("U")]
        self.write(i, where, function(i, *map(np.asarray, values)) if known else None)

    def _move(self, i: Instruction, where: Where) -> None:
        self.write(i, where, self.value(i.sources[0], where))

    def _imad(self, i: Instruction, where: Where) -> None:
        a, b, c = i.sources[:3]
        if i.has("WIDE") or i.has("HI"):
            signed = not i.has("U32")
            parts = (self.value(a, where), self.value(b, where), self.pair(c, where, signed=signed))
            known = all(part is not None for part in parts)
            function = do.imad_wide if i.has("WIDE") else do.imad_hi
            found = function(i, *map(np.asarray, parts)) if known else None
            self.write(i, where, found, words=2 if i.has("WIDE") else 1)
            return
        # A product with zero is zero, whatever the other factor: that is how values are moved.
        moved = Register(ZERO_REGISTER) in (a, b) or Register(URZ) in (a, b)
        values: list[Any] = (
            [U32(0), U32(0)] if moved else [self.value(a, where), self.value(b, where)]
        )
        values += [self.value(c, where), *(self.predicate(one, where) for one in i.ins)]
        if any(value is None for value in values):
            self.write(i, where, None)
            return
        found = values[0] * values[1] + values[2]
        for carry in values[3:]:
            found = found + carry.astype(U32)
        self.write(i, where, found)

    def _iadd3(self, i: Instruction, where: Where) -> None:
        if i.has("64"):
            pairs = [self.pair(one, where, signed=True) for one in i.sources]
            known = all(pair is not None for pair in pairs)
            self.write(i, where, sum(pairs[1:], pairs[0]) if known else None, words=2)
            return
        words = [self.value(one, where, bare=_is_negated(one)) for one in i.sources]
        carries = [self.predicate(one, where) for one in i.ins] if i.has("X") else []
        if any(part is None for part in (*words, *carries)):
            self._forget(i, where)
            return
        parts = [(np.asarray(w), _is_negated(one)) for w, one in zip(words, i.sources, strict=True)]
        total = do.sum_with_carries(parts, [c for c in carries if c is not None])
        self.write(i, where, do.low(total))
        for least, predicate in enumerate(i.outs, 1):
            self.tell(predicate, where, do.high(total) >= least)

    def _lea(self, i: Instruction, where: Where) -> None:
        *sources, last = i.sources
        shift = last.value if isinstance(last, Immediate) else 0
        values = [self.value(one, where) for one in sources]
        carry = self.predicate(i.ins[0], where) if i.has("X") and i.ins else U32(0)
        if any(value is None for value in (*values, carry)):
            self._forget(i, where)
            return
        a, b = np.asarray(values[0]), np.asarray(values[1])
        if i.has("HI"):
            c = np.asarray(values[2]) if len(values) > 2 else do.high(do.wide(a, signed=True))
            found = do.lea_hi(a, b, c, shift)
            total = found.astype(U64)
        else:
            total = (a << U32(shift)).astype(U64) + b.astype(U64)
        total = total + np.asarray(carry).astype(U64)
        self.write(i, where, do.low(total))
        for predicate in i.outs:
            self.tell(predicate, where, do.high(total) >= 1)

    def _lop3(self, i: Instruction, where: Where) -> None:
        a, b, c, table = i.sources[:4]
        assert isinstance(table, Immediate)
        parts = [self.value(one, where) for one in (a, b, c)]
        if any(part is None for part in parts):
            self._forget(i, where)
            return
        x, y, z = map(np.asarray, parts)
        found = do.logic(x, y, z, table.value)
        self.write(i, where, found)
        other = self.predicate(i.ins[0], where) if i.ins else None
        for predicate in i.outs:
            self.tell(predicate, where, (found != 0) | other if other is not None else None)

    def _plop3(self, i: Instruction, where: Where) -> None:
        first, second, *inputs = i.sources
        values = [self.predicate(p, where) for p in inputs[:3] if isinstance(p, Predicate)]
        for predicate, table in zip((first, second), inputs[3:], strict=False):
            if isinstance(predicate, Predicate) and isinstance(table, Immediate):
                known = all(value is not None for value in values)
                bits = [np.where(v, U32(0xFFFFFFFF), U32(0)) for v in values] if known else []
                self.tell(
                    predicate,
                    where,
                    do.logic(bits[0], bits[1], bits[2], table.value) != 0 if known else None,
                )

    def _setp(self, i: Instruction, where: Where) -> None:
        values = [self.value(one, where) for one in i.sources]
        ins = [self.predicate(one, where) for one in i.ins]
        if any(value is None for value in (*values, *ins)):
            self._forget(i, where)
            return
        a, b = (np.asarray(value) for value in values)
        name = i.sass.modifiers[0]
        if "U32" not in i.sass.modifiers:
            a, b = a.view(np.int32), b.view(np.int32)
        found = do.compare(name, a, b)
        if i.has("EX"):
            strict = do.compare(name[:1] + "T" if name in ("LE", "GE") else name, a, b)
            equal = a == b
            found = {"EQ": equal & ins[1], "NE": ~equal | ins[1]}.get(name, strict | equal & ins[1])
        self._compared(i, where, found, ins)

    def _fsetp(self, i: Instruction, where: Where) -> None:
        values = [self._real(one, where) for one in i.sources]
        ins = [self.predicate(one, where) for one in i.ins]
        if any(value is None for value in (*values, *ins)):
            self._forget(i, where)
            return
        self._compared(i, where, do.compare(i.sass.modifiers[0], *values), ins)

    def _compared(self, i: Instruction, where: Where, found: Any, ins: Sequence[Any]) -> None:
        other = np.asarray(ins[0] if ins else True)
        for predicate, value in zip(i.outs, (found, ~found), strict=False):
            self.tell(predicate, where, do.combined(i, value, other))

    def _real(self, operand: Operand, where: Where) -> Any:
        word = self.value(operand, where, bare=True)
        if word is None:
            return None
        value = np.asarray(word).view(np.float32)
        if not isinstance(operand, Register | Constant):
            return value
        value = np.abs(value) if operand.absolute else value
        return -value if operand.negated else value

    def _select(self, i: Instruction, where: Where) -> None:
        a, b = (self.value(one, where) for one in i.sources[:2])
        chosen = self.predicate(i.ins[0], where)
        known = a is not None and b is not None and chosen is not None
        self.write(i, where, np.where(chosen, a, b) if known else None)

    def _minmax(self, i: Instruction, where: Where) -> None:
        *parts, a, b = (self.value(one, where) for one in i.sources)
        least = self.predicate(i.ins[0], where)
        if any(part is None for part in (*parts, a, b, least)):
            self._forget(i, where)
            return
        if parts:  # VIADDMNMX adds first
            a = parts[0] + a
        self.write(i, where, do.minmax(i, np.asarray(a), np.asarray(b), np.asarray(least)))

    def _special_register(self, i: Instruction, where: Where) -> None:
        name = i.sources[0].text if isinstance(i.sources[0], Name) else ""
        value = self._special.get(name)
        words = 2 if i.sass.opcode == "CS2R" and not i.has("32") else 1
        if value is None:
            self._forget(i, where)
        else:
            found = value[where]
            self.write(i, where, found.astype(U64) if words == 2 else found, words=words)

    def _load_constant(self, i: Instruction, where: Where) -> None:
        source = i.sources[0]
        words = OPCODES[i.sass.opcode].written(i)
        if not isinstance(source, Constant):
            self._forget(i, where)
            return
        number = i.dest.number if i.dest else ZERO_REGISTER
        for word in range(words):
            value = self.constant(_moved(source, 4 * word), where)
            if number not in (ZERO_REGISTER, URZ):
                self.words.write(number + word, where, value)

    def _half_constant(self, i: Instruction, where: Where) -> None:
        """A sum with minus zero is how the compiler makes a word of two halves that it knows."""
        halves = [one.real for one in i.sources if isinstance(one, Immediate)]
        zero = [one for one in i.sources if isinstance(one, Register)]
        reals = [_as_real(one) for one in i.sources if isinstance(one, Immediate)]
        if len(halves) == 2 and all(one.number == ZERO_REGISTER for one in zero):
            upper, lower = (int(np.float16(one).view(np.uint16)) for one in reals)
            self.write(i, where, U32(upper << 16 | lower))
        else:
            self._forget(i, where)

    def _vote(self, i: Instruction, where: Where) -> None:
        """Count what holds for the lanes of a warp."""
        value = self.predicate((i.ins or (Predicate(TRUE_PREDICATE),))[-1], where)
        if value is None:
            self._forget(i, where)
            return
        held, here = np.zeros((2, self.threads), bool)
        held[where], here[where] = value, True
        by_warp, present = held.reshape(-1, WARP), here.reshape(-1, WARP)
        lanes = U64(1) << np.arange(WARP, dtype=U64)
        ballot = np.repeat((by_warp * lanes).sum(axis=1).astype(U32), WARP)[where]
        self.write(i, where, ballot)
        every = (by_warp | ~present).all(axis=1) if i.has("ALL") else by_warp.any(axis=1)
        for predicate in i.outs:
            self.tell(predicate, where, np.repeat(every, WARP)[where])

    def _shuffle(self, i: Instruction, where: Where) -> None:
        """Take the word of another lane; a lane that is not there is answered with one's own."""
        a, lane, clamp = (self.value(one, where) for one in i.sources)
        if a is None or lane is None or clamp is None:
            self._forget(i, where)
            return
        mine = np.arange(WARP)
        every = [np.zeros(self.threads, np.int64) for _ in range(3)]
        for whole, part in zip(every, (a, lane, clamp), strict=True):
            whole[where] = part
        words, by, limits = (whole.reshape(-1, WARP) for whole in every)
        segment = limits >> 8 & 31
        top = mine & segment | limits & 31 & ~segment
        if i.has("IDX"):
            source = mine & segment | by & 31 & ~segment
        else:
            source = {"UP": mine - by, "DOWN": mine + by, "BFLY": mine ^ by}[i.sass.modifiers[0]]
        inside = source >= top if i.has("UP") else source <= top
        taken = np.take_along_axis(words, np.where(inside, source, mine) % WARP, axis=1)
        self.write(i, where, taken.reshape(-1)[where].astype(U32))
        for predicate in i.outs:
            self.tell(predicate, where, inside.reshape(-1)[where])

    def _to_register(self, i: Instruction, where: Where) -> None:
        """P2R: the predicates as bits, those in the mask."""
        wanted = i.sources[-1]
        values = [self.predicates.read(number, where) for number in range(TRUE_PREDICATE)]
        mask = wanted.value if isinstance(wanted, Immediate) else 127
        known = [value for number, value in enumerate(values) if mask >> number & 1]
        if any(value is None for value in known):
            self._forget(i, where)
            return
        found = np.zeros(
            np.broadcast_shapes(*(value.shape for value in known if value is not None)), U32
        )
        for number, value in enumerate(values):
            if mask >> number & 1 and value is not None:
                found |= value.astype(U32) << U32(number)
        self.write(i, where, found)

    def _from_register(self, i: Instruction, where: Where) -> None:
        """R2P: bits to predicates."""
        word = self.value(i.sources[1], where)
        wanted = i.sources[-1]
        mask = wanted.value if isinstance(wanted, Immediate) else 127
        for number in range(TRUE_PREDICATE):
            if mask >> number & 1:
                value = None if word is None else (word >> U32(number) & U32(1)).astype(bool)
                self.predicates.write(number, where, value)


def _is_negated(operand: Operand) -> bool:
    return isinstance(operand, Register | Constant) and operand.negated


def _next(operand: Operand) -> Operand:
    """Return the upper word of an operand of 64 bits."""
    if isinstance(operand, Register):
        zero = operand.number in (ZERO_REGISTER, URZ)
        return operand if zero else Register(operand.number + 1)
    return _moved(operand, 4) if isinstance(operand, Constant) else operand


def _moved(constant: Constant, by: int) -> Constant:
    return Constant(constant.bank, constant.offset + by, constant.register)


def _as_real(immediate: Immediate) -> float:
    """Return a literal as a number; whole ones are written without a point."""
    return float(immediate.value) if immediate.real is None else immediate.real


_EXECUTED: dict[str, Callable[[Executor, Instruction, Where], None]] = {
    **dict.fromkeys(do.INTEGER, Executor._function),
    **dict.fromkeys(("MOV", "R2UR"), Executor._move),
    **dict.fromkeys(("IADD3", "IADD", "VIADD", "VIADD3"), Executor._iadd3),
    **dict.fromkeys(("IMNMX", "VIMNMX", "VIADDMNMX"), Executor._minmax),
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), Executor._special_register),
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), Executor._load_constant),
    **dict.fromkeys(("VOTE", "VOTEU"), Executor._vote),
    **dict.fromkeys(("HFMA2", "HADD2"), Executor._half_constant),
    "IMAD": Executor._imad,
    "LEA": Executor._lea,
    "LOP3": Executor._lop3,
    "PLOP3": Executor._plop3,
    "ISETP": Executor._setp,
    "FSETP": Executor._fsetp,
    "SEL": Executor._select,
    "SHFL": Executor._shuffle,
    "P2R": Executor._to_register,
    "R2P": Executor._from_register,
}
"""By opcode, of which the uniform ones, ``UIADD3``, are the same with a U before."""
