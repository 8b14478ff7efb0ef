"""Random programs against interpreters of the same program that know one thread at a time.

Integers are Python's, floats are fractions rounded once: nothing here shares code with the emulator.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device, Kernel

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def seeds(always: int, programs: int) -> list[Any]:
    """Return the numbers of so many programs of a kind, of which the first always run."""
    return [
        pytest.param(seed, marks=[pytest.mark.thorough] * (seed >= always))
        for seed in range(programs)
    ]


def s32(value: int) -> int:
    return value - (value >> 31 << 32)


def s64(value: int) -> int:
    return value - (value >> 63 << 64)


def execute(kernel: Kernel, rows: list[list[int]], words: int, block: int = 32) -> list[list[int]]:
    """Run a kernel (in, out) over rows of 64-bit words, one row a thread, and return its rows."""
    data = np.array(rows, np.uint64)
    grid = len(rows) // block
    device = kernel.device
    with device.upload(data) as given, device.zeros((len(rows), words), "u64") as out:
        kernel.launch(grid, block, [given, out])
        return [[int(v) for v in row] for row in out.numpy().tolist()]


def module(body: str, inputs: int, words: int, before: str = "") -> str:
    """Wrap a body in which d30 is the thread's row of input, d31 its row of output, r31 its number."""
    return f"""
.version 8.0
.target sm_80
.address_size 64
{before}
.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .pred p<9>;
    .reg .b32 r<40>;
    .reg .b64 d<40>;
    ld.param.u64 d30, [in];
    ld.param.u64 d31, [out];
    mov.u32 r30, %ctaid.x;
    mov.u32 r29, %ntid.x;
    mov.u32 r31, %tid.x;
    mad.lo.u32 r31, r30, r29, r31;
    mad.wide.u32 d30, r31, {8 * inputs}, d30;
    mad.wide.u32 d31, r31, {8 * words}, d31;
{body}
}}
"""


# ---- straight lines of integers ----------------------------------------------------------------


def shift(bits: int, operate: Callable[[int, int], int], over: Callable[[int], int]) -> Any:
    return lambda a, b: operate(a, b) if b < bits else over(a)


def byte_of(a: int, b: int, selector: int) -> int:
    return (a | b << 32) >> 8 * (selector & 7) & 0xFF


def prmt(a: int, b: int, c: int) -> int:
    result = 0
    for position in range(4):
        selector = c >> 4 * position & 0xF
        byte = byte_of(a, b, selector)
        result |= ((byte >> 7) * 0xFF if selector & 8 else byte) << 8 * position
    return result


def lop3(table: int) -> Callable[[int, int, int], int]:
    def result(a: int, b: int, c: int) -> int:
        return sum(
            (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i
            for i in range(32)
        )

    return result


def bfe(signed: bool) -> Callable[[int, int, int], int]:
    def result(a: int, b: int, c: int) -> int:
        position, length = b & 0xFF, c & 0xFF
        value = s32(a) if signed else a
        last = min(position + length - 1, 31)
        sign = a >> last & 1 if signed and length else 0
        field = 0
        for i in range(32):
            inside = i < length and position + i <= 31
            field |= (value >> (position + i) & 1 if inside else sign) << i
        return field

    return result


def bfi(a: int, b: int, c: int, d: int) -> int:
    for i in range(d & 0xFF):
        at = (c & 0xFF) + i
        if at < 32 and i < 32:
            b = b & ~(1 << at) | (a >> i & 1) << at
    return b


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def divide32(a: int, b: int) -> int:
    return quotient(s32(a), s32(b) or 1) & M32


def remainder64(a: int, b: int) -> int:
    x, y = s64(a), s64(b) or 1
    return (x - quotient(x, y) * y) & M64


W, D = "r", "d"
# text, register kinds (result first), model on unsigned words
INTEGER: list[tuple[str, str, Callable[..., int]]] = [
    ("add.u32", "rrr", lambda a, b: a + b),
    ("sub.s32", "rrr", lambda a, b: a - b),
    ("add.s64", "ddd", lambda a, b: a + b),
    ("sub.u64", "ddd", lambda a, b: a - b),
    ("add.sat.s32", "rrr", lambda a, b: max(-(1 << 31), min((1 << 31) - 1, s32(a) + s32(b)))),
    ("mul.lo.u32", "rrr", lambda a, b: a * b),
    ("mul.hi.u32", "rrr", lambda a, b: a * b >> 32),
    ("mul.hi.s32", "rrr", lambda a, b: s32(a) * s32(b) >> 32),
    ("mul.lo.s64", "ddd", lambda a, b: a * b),
    ("mul.hi.u64", "ddd", lambda a, b: a * b >> 64),
    ("mul.hi.s64", "ddd", lambda a, b: s64(a) * s64(b) >> 64),
    ("mul.wide.u32", "drr", lambda a, b: a * b),
    ("mul.wide.s32", "drr", lambda a, b: s32(a) * s32(b)),
    ("mad.lo.s32", "rrrr", lambda a, b, c: a * b + c),
    ("mad.hi.s32", "rrrr", lambda a, b, c: (s32(a) * s32(b) >> 32) + c),
    ("mad.wide.s32", "drrd", lambda a, b, c: s32(a) * s32(b) + c),
    ("mul24.lo.u32", "rrr", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    ("sad.u32", "rrrr", lambda a, b, c: abs(a - b) + c),
    ("sad.s32", "rrrr", lambda a, b, c: abs(s32(a) - s32(b)) + c),
    ("abs.s32", "rr", lambda a: abs(s32(a))),
    ("neg.s64", "dd", lambda a: -a),
    ("min.u32", "rrr", min),
    ("min.s32", "rrr", lambda a, b: min(s32(a), s32(b))),
    ("max.u64", "ddd", max),
    ("max.s64", "ddd", lambda a, b: max(s64(a), s64(b))),
    ("and.b32", "rrr", lambda a, b: a & b),
    ("or.b64", "ddd", lambda a, b: a | b),
    ("xor.b32", "rrr", lambda a, b: a ^ b),
    ("not.b64", "dd", lambda a: ~a),
    ("cnot.b32", "rr", lambda a: int(a == 0)),
    ("shl.b32", "rrr", shift(32, lambda a, b: a << b, lambda a: 0)),
    ("shl.b64", "ddr", shift(64, lambda a, b: a << b, lambda a: 0)),
    ("shr.u32", "rrr", shift(32, lambda a, b: a >> b, lambda a: 0)),
    ("shr.s32", "rrr", shift(32, lambda a, b: s32(a) >> b, lambda a: s32(a) >> 31)),
    ("shr.s64", "ddr", shift(64, lambda a, b: s64(a) >> b, lambda a: s64(a) >> 63)),
    ("shf.l.wrap.b32", "rrrr", lambda a, b, c: (a | b << 32) << (c & 31) >> 32),
    ("shf.r.clamp.b32", "rrrr", lambda a, b, c: (a | b << 32) >> min(c, 32)),
    ("popc.b32", "rr", lambda a: a.bit_count()),
    ("popc.b64", "rd", lambda a: a.bit_count()),
    ("clz.b32", "rr", lambda a: 32 - a.bit_length()),
    ("clz.b64", "rd", lambda a: 64 - a.bit_length()),
    ("brev.b32", "rr", lambda a: int(f"{a:032b}"[::-1], 2)),
    ("brev.b64", "dd", lambda a: int(f"{a:064b}"[::-1], 2)),
    ("bfind.u32", "rr", lambda a: a.bit_length() - 1),
    ("bfind.s32", "rr", lambda a: (~a & M32 if a >> 31 else a).bit_length() - 1),
    ("bfind.shiftamt.u32", "rr", lambda a: 32 - a.bit_length() if a else -1),
    ("bfe.u32", "rrrr", bfe(False)),
    ("bfe.s32", "rrrr", bfe(True)),
    ("bfi.b32", "rrrrr", bfi),
    ("prmt.b32", "rrrr", prmt),
    ("lop3.b32 %, %, %, %, 0x96", "rrrr", lop3(0x96)),
    ("lop3.b32 %, %, %, %, 0x1d", "rrrr", lop3(0x1D)),
    ("slct.u32.s32", "rrrr", lambda a, b, c: a if s32(c) >= 0 else b),
    ("cvt.u64.u32", "dr", lambda a: a),
    ("cvt.s64.s32", "dr", s32),
    ("cvt.u32.u64", "rd", lambda a: a),
    ("cvt.s32.s8", "rr", lambda a: (a & 0xFF) - ((a & 0x80) << 1)),
    ("cvt.sat.s32.s64", "rd", lambda a: max(-(1 << 31), min((1 << 31) - 1, s64(a)))),
    ("cvt.sat.u32.s32", "rr", lambda a: max(0, s32(a))),
    ("setp.eq.s32 p1, %3, 0; selp.b32 r32, 1, %3, p1; div.s32 %, %, r32", "rrr", divide32),
    ("setp.eq.s64 p1, %3, 0; selp.b64 d32, 1, %3, p1; rem.s64 %, %, d32", "ddd", remainder64),
    ("setp.lt.u32 p1, %2, %3; selp.b32 %, %, %, p1", "rrr", lambda a, b: a if a < b else b),
    ("setp.gt.s64 p1, %2, %3; selp.u32 %, 1, 0, p1", "rdd", lambda a, b: int(s64(a) > s64(b))),
    ("set.le.u32.s32", "rrr", lambda a, b: M32 if s32(a) <= s32(b) else 0),
    ("add.cc.u32 r33, %2, %3; addc.u32 %, 0, 0; //", "rrr", lambda a, b: a + b >> 32),
    ("sub.cc.u32 r33, %2, %3; subc.u32 %, 0, 0; //", "rrr", lambda a, b: -(a < b)),
    ("mov.b64 %, {%, %}", "drr", lambda a, b: a | b << 32),
    ("mov.b64 {r33, %}, %", "rd", lambda a: a >> 32),
]  # fmt: skip


@dataclass
class Line:
    """One instruction over numbered registers, with the model of what it does."""

    text: str
    result: tuple[str, int]
    sources: list[tuple[str, int]]
    compute: Callable[..., int]


def integer_line(choose: random.Random) -> Line:
    text, kinds, compute = choose.choice(INTEGER)
    registers = [(kind, choose.randrange(8)) for kind in kinds]
    names = [f"{kind}{number}" for kind, number in registers]
    for position, name in enumerate(names, 1):
        text = text.replace(f"%{position}", name)
    if "%" in text:
        for name in names:
            text = text.replace("%", name, 1)
    elif "//" in text:
        text = text.split("//")[0].rstrip("; ").replace("u32 ,", f"u32 {names[0]},")
    elif ";" not in text:
        text += " " + ", ".join(names)
    return Line(text, registers[0], registers[1:], compute)


def words(choose: random.Random, count: int) -> list[int]:
    """Return 64-bit words of which many are near the edges of what fits."""
    words = []
    for _ in range(count):
        value = choose.getrandbits(64) >> choose.choice((0, 0, 32, 33, 50, 59, 63))
        words.append(choose.choice((value, value, M64 - value, value << 32 & M64)))
    return words


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_straight_lines_of_integers(device: Device, seed: int) -> None:
    choose = random.Random(seed)
    lines = [integer_line(choose) for _ in range(60)]
    rows = [words(choose, 12) for _ in range(64)]
    load = "".join(f"ld.global.u64 d{i}, [d30+{8 * i}];\n" for i in range(8))
    load += "".join(f"ld.global.u32 r{i}, [d30+{64 + 4 * i}];\n" for i in range(8))
    store = "".join(f"st.global.u64 [d31+{8 * i}], d{i};\n" for i in range(8))
    store += "".join(f"st.global.u32 [d31+{64 + 4 * i}], r{i};\n" for i in range(8))
    body = load + "".join(f"    {line.text};\n" for line in lines) + store
    outputs = execute(device.load(module(body, 12, 12)).kernel(), rows, 12)
    for row, result in zip(rows, outputs, strict=True):
        state = {(D, i): row[i] for i in range(8)}
        state |= {(W, i): row[8 + i // 2] >> 32 * (i % 2) & M32 for i in range(8)}
        for line in lines:
            value = line.compute(*(state[source] for source in line.sources))
            state[line.result] = value & (M32 if line.result[0] == W else M64)
        assert result[:8] == [state[D, i] for i in range(8)]
        assert result[8:] == [state[W, 2 * i] | state[W, 2 * i + 1] << 32 for i in range(4)]


# ---- straight lines of floats ------------------------------------------------------------------

Number = Fraction | float
"""A finite value as a fraction; an infinity, NaN or a zero (which has a sign) as a float."""


def decoded(bits: int, flush: bool) -> Number:
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    if value != value or value in (float("inf"), float("-inf")) or value == 0:
        return float(value)
    if flush and bits >> 23 & 0xFF == 0:
        return -0.0 if bits >> 31 else 0.0
    return Fraction(value)


def negative(value: Number) -> bool:
    return value < 0 or (value == 0 and str(value) == "-0.0")


def rounded(value: Fraction, mode: str, flush: bool) -> int:
    """Round to f32 bits; ``value`` is not zero."""
    sign, size = int(value < 0), abs(value)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), -126)
    if exponent > -126 and size < Fraction(2) ** exponent:
        exponent -= 1
    scaled = size * Fraction(2) ** (23 - exponent)
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    half = 2 * rest - scaled.denominator
    up = {
        "rn": half > 0 or (half == 0 and whole & 1 == 1),
        "rz": False,
        "rm": sign == 1 and rest > 0,
        "rp": sign == 0 and rest > 0,
    }[mode]
    if flush and size < Fraction(1, 1 << 126) and whole + up < 1 << 23:
        return sign << 31
    magnitude = ((exponent + 126) << 23) + whole + up
    if magnitude >= 0xFF << 23:
        away = mode == "rn" or (mode == "rm" and sign) or (mode == "rp" and not sign)
        magnitude = 0xFF << 23 if away else (0xFF << 23) - 1
    return sign << 31 | magnitude


NAN = 0x7FFFFFFF


def encoded(value: Number, mode: str, flush: bool) -> int:
    if isinstance(value, Fraction) and value != 0:
        return rounded(value, mode, flush)
    if value != value:
        return NAN
    return int(struct.unpack("<I", struct.pack("<f", float(value)))[0])


def product(a: Number, b: Number) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    sign = -1.0 if negative(a) != negative(b) else 1.0
    if (
        a != a
        or b != b
        or (a == 0 and abs(b) == float("inf"))
        or (b == 0 and abs(a) == float("inf"))
    ):
        return float("nan")
    return sign * (0.0 if a == 0 or b == 0 else float("inf"))


def total(a: Number, b: Number, mode: str) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction) and a + b != 0:
        return a + b
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return -0.0 if mode == "rm" else 0.0
    if a == 0 and b == 0:
        both = negative(a) and negative(b)
        either = negative(a) or negative(b)
        return -0.0 if both or (either and mode == "rm") else 0.0
    if isinstance(a, Fraction) and b == 0:
        return a
    if isinstance(b, Fraction) and a == 0:
        return b
    if a != a or b != b:
        return float("nan")
    # One of them is infinite, or both are; a finite one counts as nothing.
    return sum(float(v) if abs(v) == float("inf") else 0.0 for v in (a, b))


def ratio(a: Number, b: Number) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    sign = -1.0 if negative(a) != negative(b) else 1.0
    infinite = [abs(v) == float("inf") for v in (a, b)]
    if a != a or b != b or all(infinite) or (a == 0 and b == 0):
        return float("nan")
    return sign * (float("inf") if infinite[0] or b == 0 else 0.0)


FLOAT: dict[str, tuple[int, Callable[..., Number]]] = {
    "add": (2, total),
    "sub": (2, lambda a, b, mode: total(a, product(b, Fraction(-1)) if b == b else b, mode)),
    "mul": (2, lambda a, b, mode: product(a, b)),
    "fma": (3, lambda a, b, c, mode: total(product(a, b), c, mode)),
    "div": (2, lambda a, b, mode: ratio(a, b)),
}  # fmt: skip


@pytest.mark.parametrize("seed", seeds(5, 16))
def test_straight_lines_of_floats(device: Device, seed: int) -> None:
    choose = random.Random(seed)
    lines = []
    for _ in range(24):
        name = choose.choice(list(FLOAT))
        mode, flush = choose.choice(("rn", "rn", "rz", "rm", "rp")), choose.random() < 0.3
        registers = [choose.randrange(8) for _ in range(FLOAT[name][0] + 1)]
        lines.append((name, mode, flush, registers))
    rows = [[float_bits(choose) for _ in range(8)] for _ in range(64)]
    body = "".join(f"ld.global.u32 r{i}, [d30+{8 * i}];\n" for i in range(8))
    body += "".join(
        f"    {name}.{mode}{'.ftz' * flush}.f32 {', '.join(f'r{r}' for r in registers)};\n"
        for name, mode, flush, registers in lines
    )
    body += "".join(f"st.global.u32 [d31+{8 * i}], r{i};\n" for i in range(8))
    outputs = execute(device.load(module(body, 8, 8)).kernel(), rows, 8)
    for row, result in zip(rows, outputs, strict=True):
        state = list(row)
        for name, mode, flush, (target, *sources) in lines:
            values = [decoded(state[source], flush) for source in sources]
            state[target] = encoded(FLOAT[name][1](*values, mode), mode, flush)
        assert result == state


def float_bits(choose: random.Random) -> int:
    """Return f32 bits: anything at all, or of a modest size, so that sums round in every way."""
    kind = choose.randrange(4)
    if kind == 0:
        return choose.getrandbits(32)
    if kind == 1:
        return choose.getrandbits(1) << 31 | choose.getrandbits(24)  # subnormal or just above
    exponent = choose.randrange(110, 145)
    return choose.getrandbits(1) << 31 | exponent << 23 | choose.getrandbits(choose.choice((5, 23)))


# ---- structured control flow -------------------------------------------------------------------


class Left(Exception):
    """A return, break or continue of the interpreted program."""


class Structured:
    """A random program of ifs, loops, breaks, returns and calls; its PTX, and its meaning."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.labels = 0
        self.program = self.statements(4, loops=0)

    def statements(self, depth: int, loops: int) -> list[Any]:
        return [self.statement(depth, loops) for _ in range(self.choose.randint(1, 4))]

    def statement(self, depth: int, loops: int) -> Any:
        kinds = ["assign", "assign", "call"]
        if depth:
            kinds += ["if", "if", "while", "switch"]
        if loops:
            kinds += ["break", "continue"]
        kind = self.choose.choice([*kinds, "return"] if self.choose.random() < 0.15 else kinds)
        registers = [self.choose.randrange(6) for _ in range(3)]
        condition = (
            self.choose.choice(("lt", "eq", "gt")),
            registers[0],
            self.choose.randrange(16),
        )
        if kind == "if":
            return (
                kind,
                condition,
                self.statements(depth - 1, loops),
                self.statements(depth - 1, loops),
            )
        if kind == "while":
            return kind, condition, 6 + loops, self.statements(depth - 1, loops + 1)
        if kind == "switch":
            return kind, registers[0], [self.statements(depth - 1, loops) for _ in range(4)]
        return kind, self.choose.choice(("add", "sub", "xor", "mad")), registers

    # meaning

    def interpret(self, state: list[int]) -> list[int]:
        with suppress(Left):
            self._run(self.program, state)
        return state

    def _run(self, statements: list[Any], state: list[int]) -> None:
        for kind, *rest in statements:
            if kind in ("return", "break", "continue"):
                raise Left(kind)
            if kind == "if":
                self._run(rest[1] if self._holds(rest[0], state) else rest[2], state)
            elif kind == "switch":
                self._run(rest[1][state[rest[0]] & 3], state)
            elif kind == "while":
                self._loop(rest[0], rest[2], state)
            elif kind == "call":
                a, b = state[rest[1][1]], state[rest[1][2]]
                while a & 7 and b != 0:
                    a, b = (a + b) & M32, b >> 1
                state[rest[1][0]] = a ^ b
            else:
                a, b = state[rest[1][1]], state[rest[1][2]]
                value = {"add": a + b, "sub": a - b, "xor": a ^ b, "mad": a * 5 + b}[rest[0]]
                state[rest[1][0]] = value & M32

    def _loop(self, condition: Any, body: list[Any], state: list[int]) -> None:
        for _ in range(5):
            if not self._holds(condition, state):
                return
            try:
                self._run(body, state)
            except Left as left:
                if left.args[0] == "return":
                    raise
                if left.args[0] == "break":
                    return

    @staticmethod
    def _holds(condition: Any, state: list[int]) -> bool:
        compare, register, value = condition
        left = state[register] & 15
        return bool({"lt": left < value, "eq": left == value, "gt": left > value}[compare])

    # PTX

    def ptx(self) -> str:
        return "\n".join([*self._emit(self.program, ""), "end:"])

    def _label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def _test(self, condition: Any, negate: str, target: str) -> list[str]:
        compare, register, value = condition
        return [
            f"and.b32 r20, r{register}, 15;",
            f"setp.{compare}.u32 p1, r20, {value};",
            f"@{negate}p1 bra {target};",
        ]

    def _emit(self, statements: list[Any], loop: str) -> Iterator[str]:
        for kind, *rest in statements:
            if kind == "return":
                yield "bra end;"
            elif kind in ("break", "continue"):
                yield f"bra {loop}{kind};"
            elif kind == "if":
                other, after = self._label(), self._label()
                yield from self._test(rest[0], "!", other)
                yield from self._emit(rest[1], loop)
                yield f"bra {after};"
                yield f"{other}:"
                yield from self._emit(rest[2], loop)
                yield f"{after}:"
            elif kind == "switch":
                cases, after = [self._label() for _ in rest[1]], self._label()
                yield f"and.b32 r20, r{rest[0]}, 3;"
                yield f"{after}t: .branchtargets {', '.join(cases)};"
                yield f"brx.idx r20, {after}t;"
                for case, body in zip(cases, rest[1], strict=True):
                    yield f"{case}:"
                    yield from self._emit(body, loop)
                    yield f"bra {after};"
                yield f"{after}:"
            elif kind == "while":
                name, counter = self._label(), f"r{rest[1]}"
                yield f"mov.u32 {counter}, 0;"
                yield f"{name}continue:"
                yield f"setp.ge.u32 p1, {counter}, 5;"
                yield f"@p1 bra {name}break;"
                yield f"add.u32 {counter}, {counter}, 1;"
                yield from self._test(rest[0], "!", f"{name}break")
                yield from self._emit(rest[2], name)
                yield f"bra {name}continue;"
                yield f"{name}break:"
            else:
                operation, (target, a, b) = rest
                text = f"{operation}.u32 r{target}, r{a}, r{b};"
                if kind == "call":
                    text = f"call (r{target}), mix, (r{a}, r{b});"
                elif operation == "mad":
                    text = f"mad.lo.u32 r{target}, r{a}, 5, r{b};"
                yield text.replace("xor.u32", "xor.b32")


MIX = """
.func (.reg .u32 out) mix(.reg .u32 a, .reg .u32 b)
{
    .reg .pred p;
    .reg .b32 t;
again:
    and.b32 t, a, 7;
    setp.eq.u32 p, t, 0;
    @p bra done;
    setp.eq.u32 p, b, 0;
    @p bra done;
    add.u32 a, a, b;
    shr.u32 b, b, 1;
    bra again;
done:
    xor.b32 out, a, b;
    ret;
}
"""


@pytest.mark.parametrize("seed", seeds(8, 40))
def test_structured_control_flow(
    device: Device, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    program = Structured(seed)
    body = "".join(f"ld.global.u32 r{i}, [d30+{8 * i}];\n" for i in range(6)) + program.ptx()
    body += "".join(f"\nst.global.u32 [d31+{8 * i}], r{i};" for i in range(6))
    text = module(body, 6, 6, MIX)
    rows = [[program.choose.getrandbits(32) for _ in range(6)] for _ in range(64)]
    expected = [program.interpret(list(row)) for row in rows]
    kernel = device.load(text).kernel()
    assert execute(kernel, rows, 6, block=64) == expected
    # Neither the shape of a block nor who else runs at the same time changes anything.
    monkeypatch.setattr("ptxlab.emulator.run.grid.WAVE_THREADS", 64)
    assert execute(kernel, rows, 6, block=16) == expected


# ---- any control flow at all -------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_graphs_of_branches_of_any_shape(device: Device, seed: int) -> None:
    # Blocks that jump anywhere, loops with many entries among them, until the fuel is used up.
    choose = random.Random(seed)
    count = choose.randint(4, 12)
    blocks = [
        (choose.randrange(2, 1 << 16), choose.choice(("if", "switch", "bra", "call", "fall")),
         [choose.randrange(count) for _ in range(3)], choose.randrange(1, 8))
        for _ in range(count)
    ]  # fmt: skip
    body = "ld.global.u32 r0, [d30];\nmov.u32 r1, 0;\n"
    for number, (value, kind, targets, mask) in enumerate(blocks):
        labels = [f"B{target}" for target in targets]
        body += f"B{number}:\nadd.u32 r1, r1, 1;\nsetp.gt.u32 p1, r1, 40;\n@p1 bra end;\n"
        body += (
            f"mad.lo.u32 r0, r0, {value}, {number};\nshr.u32 r2, r0, 7;\nand.b32 r2, r2, {mask};\n"
        )
        if kind == "if":
            body += f"setp.eq.u32 p2, r2, 0;\n@p2 bra {labels[0]};\n@!p2 bra {labels[1]};\n"
        elif kind == "switch":
            body += f"rem.u32 r2, r2, 3;\nT{number}: .branchtargets {', '.join(labels)};\n"
            body += f"brx.idx r2, T{number};\n"
        elif kind == "bra":
            body += f"bra.uni {labels[0]};\n"
        elif kind == "call":
            body += f"setp.ne.u32 p2, r2, 0;\n@p2 call (r0), mix, (r0, r2);\nbra {labels[0]};\n"
    body += "end:\nst.global.u32 [d31], r0;\nst.global.u32 [d31+4], r1;"

    def interpret(state: int) -> int:
        at, steps = 0, 0
        while True:
            steps += 1
            if steps > 40 or at == count:
                return state | (steps if at < count else steps - 1) << 32
            value, kind, targets, mask = blocks[at]
            state = (state * value + at) & M32
            chosen = state >> 7 & mask
            if kind == "call" and chosen:
                while state & 7 and chosen:
                    state, chosen = (state + chosen) & M32, chosen >> 1
                state ^= chosen
                chosen = 0
            at = {
                "if": targets[0] if chosen == 0 else targets[1],
                "switch": targets[chosen % 3],
                "fall": at + 1,
            }.get(kind, targets[0])

    rows = [[choose.getrandbits(32)] for _ in range(80)]
    result = execute(device.load(module(body, 1, 1, MIX)).kernel(), rows, 1, block=40)
    assert [row[0] for row in result] == [interpret(row[0]) for row in rows]
