"""Random programs of all that is machine code, for comparing engines.

Instructions on random registers, some of them guarded, with loads and stores in between that races decide; all
registers are stored at the end. Which forms there are the rows say, and which of them are machine code the engine:
each seed has forms of the next few opcodes, and others by chance. Of every other program a few lines stand there twice,
the second time of other registers, and some of the threads go past them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.forms import forms, opcodes
from ptxlab.emulator.prepare.row import CARRY, OperandClass, RowForm
from ptxlab.isa.targets import target_named
from ptxlab.numbers.types import TYPES
from tests.emulator.native.test_forms import function

LINES, NEXT, TWICE = 16, 12, 3
"""How many lines a program has, how many of them are of the next opcodes, and how many others stand there twice."""

REGISTERS = 4
BANKS = {"d": "u64", "g": "f64", "r": "u32", "f": "f32", "h": "u16", "p": "u16"}
"""The registers that begin with random bits and are stored at the end, and as what."""

TARGETS = "sm_80", "sm_90a", "sm_100a", "sm_120a"
ROW = np.dtype([(bank, f"{REGISTERS}u{TYPES[T].bytes}") for bank, T in BANKS.items()])
"""What memory holds for each thread."""

_EVERY = [f"{bank}{i}" for bank in BANKS for i in range(REGISTERS)]
_NUMBERED = re.compile(rf"(?<![.\w])({'|'.join(_EVERY)})\b")
"""One of the registers of the banks."""

_NARROW = re.compile(r"u?e\dm\d(x\d)?")
"""A number format of a few bits, of which no constant is written."""

RACED, LOCAL = 512, 64
"""Bytes behind the rows of all threads, that each writes to, and those of local memory."""

VERSION = 9, 0
HEAD = """
.version {version[0]}.{version[1]}
.target {target}
.address_size 64
"""
KERNEL = """
.visible .entry {name}(.param .u64 data)
{{
    .reg .pred p<{n}>, q<{n}>, never, half, more;
    .reg .b16 h<{n}>, short;
    .reg .b32 r<{n}>, tid, word, own_s, row_s, own_l, inner, outer;
    .reg .b64 d<{n}>, row, raced, own_g;
    .reg .f32 f<{n}>;
    .reg .f64 g<{n}>;
    .local .align 16 .b8 own[{local}];
    .shared .align 16 .b8 s[{shared}];
    mov.u32 tid, %tid.x; mov.u32 word, %ctaid.x; mad.lo.u32 word, word, {block}, tid;
    ld.param.u64 row, [data]; add.u64 raced, row, {rows}; mad.wide.u32 row, word, {row}, row;
    and.b32 word, tid, 15; mad.wide.u32 own_g, word, 16, raced;
    mov.u32 own_s, s; rem.u32 word, word, {items}; mad.lo.u32 own_s, word, 16, own_s;
    mov.u32 row_s, s; and.b32 word, tid, 31; mad.lo.u32 row_s, word, 16, row_s;
    mov.u32 own_l, own; setp.eq.u32 never, tid, 100000; setp.lt.u32 half, tid, 64;
    st.shared.u64 [own_s], row; st.local.u64 [own_l+8], row; bar.sync 0;
{body}
}}
"""
"""A kernel of a program; ``own_s``, ``own_g`` and ``own_l`` are for a few threads each, ``row_s`` is for a lane."""


@cache
def compiles(form: RowForm) -> bool:
    """Say whether a form is machine code."""
    return function("f", form) is not None


@cache
def by_opcode() -> list[list[RowForm]]:
    """Return for each opcode its forms from registers to registers that there are registers for, in any order."""
    choose = random.Random(7)
    fitting = ([form for form in forms(opcode) if _fits(form)] for opcode in opcodes())
    return [choose.sample(own, len(own)) for own in fitting if own]


def _fits(form: RowForm) -> bool:
    kinds = [TYPES[T] for T in (*form.operands, *form.results) if T != CARRY]
    return all(8 < kind.bits <= 64 or kind.name == "pred" or form.row.wider for kind in kinds)


class Program:
    """Writes one program, and says how it is launched; ``compiled`` are its opcodes that are machine code."""

    def __init__(self, seed: int, *, loops: bool = False) -> None:
        self.seed, self.draw = seed, random.Random(seed)
        self.target = target_named(self.any_of(*TARGETS))
        self.grid, self.block = self.any_of(1, 2), self.any_of(40, 64, 96, 96, 128)
        self.compiled = set[str]()
        self.shared = 1024 if loops else self.any_of(16, 48, 512, 512)
        lines = [self.loops() if loops else self.lines(LINES), *self.twice(seed % 2 * TWICE)]
        self.name, self.head = f"k{seed}", HEAD.format(version=VERSION, target=self.target.name)
        self.kernel = KERNEL.format(
            name=self.name,
            n=REGISTERS,
            local=LOCAL,
            shared=self.shared,
            items=min(16, self.shared // 16),
            block=self.block,
            row=ROW.itemsize,
            rows=self.grid * self.block * ROW.itemsize,
            body="\n".join([*_moves("ld"), *lines, *_moves("st")]),
        )
        self.text = self.head + self.kernel

    def any_of(self, *given: Any) -> Any:
        return self.draw.choice(given)

    def some(self, letter: str, count: int) -> list[str]:
        """Return several registers of a kind, each another one."""
        return [f"{letter}{i}" for i in self.draw.sample(range(REGISTERS), count)]

    # ---- operands ----

    def operand(self, kind: OperandClass, T: str, *, constants: bool = True) -> str:
        if kind.kind == "constant":
            return str(self.draw.randrange(256))
        letter, bits = letter_of(T), TYPES[T].bits
        register = letter == "p" or not TYPES[T].is_integer or bits == 8
        if register or self.draw.random() > 0.15 or not constants:
            return f"{letter}{self.draw.randrange(REGISTERS)}"
        signed = TYPES[T].kind == "signed"
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        constant = self.any_of(
            0, 1, 7, 31, 32, 33, 64, least, most, -1 if signed else 1 << bits - 1
        )
        return str(constant % kind.allowed.stop if kind.allowed else constant)

    def guarded(self, text: str) -> str:
        [p] = self.some("p", 1)
        return f"{self.any_of('', '', '', f'@{p} ', f'@!{p} ')}{text};"

    # ---- lines ----

    def lines(self, count: int) -> str:
        """Return lines: of the next opcodes the next forms, and in between them what chance draws."""
        lines = [self.guarded(self.applied(form)) for form in self.following(count * NEXT // LINES)]
        lines += [self.line() for _ in range(count - len(lines))]
        self.draw.shuffle(lines)
        return "\n".join(lines)

    def following(self, count: int) -> Iterator[RowForm]:
        """Yield of each of so many opcodes a form that is machine code: another one in another turn."""
        every = by_opcode()
        for at in range(self.seed * NEXT, self.seed * NEXT + count):
            own, turn = every[at % len(every)], at // len(every)
            turned = own[turn % len(own) :] + own[: turn % len(own)]
            yield from islice(filter(self.takes, turned), 1)

    def line(self) -> str:
        kind = self.draw.random()
        if kind < 0.01:
            return f"@never {self.memory(stray=True)};"
        if kind < 0.3:
            return self.guarded(self.memory(stray=kind < 0.015))
        return self.guarded(self.moved() if kind < 0.35 else self.computed())

    def computed(self) -> str:
        """Return a form of any opcode; now and then it may be none of machine code."""
        while True:
            form = self.draw.choice(self.draw.choice(by_opcode()))
            if self.takes(form, mostly=0.98):
                return self.applied(form)

    def takes(self, form: RowForm, mostly: float = 1) -> bool:
        """Say whether a form is machine code, and one of the target and of the program's version."""
        known = compiles(form) or self.draw.random() > mostly
        newer = form.needs.version(self.target) > VERSION
        narrow = "b8" in (*form.results, *form.operands)  # which no register here is
        return known and not newer and not narrow and not form.needs.missing(self.target)

    def applied(self, form: RowForm) -> str:
        """Return a form with registers, and constants here and there."""
        self.compiled |= {form.opcode} if compiles(form) else set()
        letters = [letter_of(T) for T in form.results if T != CARRY]
        numbers = self.draw.sample(range(REGISTERS), len(letters))
        results = [f"{letter}{i}" for letter, i in zip(letters, numbers, strict=True)]
        results = results[: self.any_of(1, len(results))]
        constants = not any(map(_NARROW.fullmatch, form.modifiers))
        given = [
            self.operand(kind, T, constants=constants)
            for kind, T in zip(form.row.sources, form.operands, strict=True)
            if T != CARRY and not (kind.optional and self.draw.random() < 0.5)
        ]
        return f"{form.name} {', '.join(['|'.join(results), *given])}"

    def twice(self, count: int) -> Iterator[str]:
        """Yield lines behind a branch, and the same of other registers behind another."""
        surely = set(self.compiled)
        lines = "\n".join(f"{self.computed()};" for _ in range(count))
        self.compiled = surely  # nobody may come behind the branch
        for label in ("FIRST", "SECOND")[:count]:
            [p] = self.some("p", 1)
            yield f"@{p} bra {label}; {lines}\n{label}:"
            drawn = [name for bank in BANKS for name in self.some(bank, REGISTERS)]
            other = dict(zip(_EVERY, drawn, strict=True))
            lines = _NUMBERED.sub(partial(_renamed, other), lines)

    def moved(self) -> str:
        """Return a mov to or from the parts of a word."""
        whole, part, count = self.any_of(("d", "r", 2), ("r", "h", 2), ("d", "h", 4))
        sides = self.some(whole, 1)[0], f"{{{', '.join(self.some(part, count))}}}"
        return f"mov.{'b64' if whole == 'd' else 'b32'} {', '.join(self.draw.sample(sides, 2))}"

    def memory(self, *, stray: bool = False) -> str:
        """Return a load or a store, perhaps of a vector: a ``stray`` one beyond all memory."""
        T = self.any_of("u8", "s8", "u16", "s16", "u32", "s32", "b32", "u64", "s64", "f32", "f64")
        count = self.draw.choice([n for n in (1, 1, 1, 2, 4) if n * TYPES[T].bytes <= 16])
        names = ", ".join(self.some(letter_of(T), count))
        data, vector = (names, "") if count == 1 else (f"{{{names}}}", f".v{count}")
        space, base, room = self.any_of(
            ("shared", "own_s", 256 if self.shared >= 512 else 16),
            ("local", "own_l", LOCAL),
            *[("global", base, RACED // 2) for base in ("own_g", "raced")],
        )
        size = TYPES[T].bytes * count
        at = size * self.draw.randrange(room // size)
        address = f"[{base}+{size * self.any_of(-64, 64, 4096) if stray else at}]"
        if self.draw.random() < 0.5:
            return f"ld.{space}{vector}.{T} {data}, {address}"
        return f"st.{space}{vector}.{T} {address}, {data}"

    # ---- loops ----

    def loops(self) -> str:
        """Return lines in a loop in a loop, some behind a branch that all take in the same turns."""
        part = LINES // 4
        return f"""mov.u32 outer, 0;
OUTER: {self.lines(part)} mov.u32 inner, 0;
INNER: {self.lines(part)} {self.together()}
    and.b32 word, inner, 3; setp.eq.u32 more, word, 1; @more bra PAST;
    {self.lines(part)} {self.together()}
PAST: add.u32 inner, inner, 1; setp.lt.u32 more, inner, 12; @more bra INNER;
    {self.lines(part)} {self.barrier()}
    add.u32 outer, outer, 1; setp.lt.u32 more, outer, 3; @more bra OUTER;"""

    def together(self) -> str:
        """Return an instruction of whole warps, or of copies that land later."""
        if self.block % 32:
            return self.barrier()
        (r, a, b, c), (f, g) = self.some("r", 4), self.some("f", 2)
        p, mode = self.some("p", 1)[0], self.any_of("up", "down", "idx", "bfly")
        trans, size = self.any_of("", ".trans"), self.any_of(4, 8, 16)
        return str(
            self.any_of(
                f"ex2.approx.ftz.f32 {f}, {g};",
                f"shfl.sync.bfly.b32 {r}, {a}, 5, 31, -1;",
                f"shfl.sync.{mode}.b32 {r}|{p}, {a}, {self.any_of(b, 3)}, {self.any_of(c, 31, '0x1807')}, -1;",
                f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{r0, r1, r2, r3}}, [row_s];",
                f"""mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
                    {{f0, f1, f2, f3}}, {{r0, r1, r2, r3}}, {{r1, {r}}}, {{f3, f0, f2, {f}}};""",
                f"""cp.async.ca.shared.global [own_s+{size}], [own_g], {size}; cp.async.commit_group;
                    {self.guarded(self.memory())} cp.async.wait_group {self.any_of(0, 0, 1)};""",
                self.barrier(),
            )
        )

    def barrier(self) -> str:
        """Return a barrier of a CTA, or of two of its warps: of two others, or none, the rest."""
        [r], [p] = self.some("r", 1), self.some("p", 1)
        pairs = "@half " if self.block == 96 and self.draw.random() < 0.9 else ""
        return str(
            self.any_of("bar.sync 0;", f"{pairs}bar.sync 1, 64;", f"bar.red.popc.u32 {r}, 2, {p};")
        )


def _renamed(other: dict[str, str], name: re.Match[str]) -> str:
    return other[name[0]]


def letter_of(T: str) -> str:
    """Return which registers are of a type, or wider."""
    named = {"pred": "p", "f32": "f", "f64": "g"}
    return named.get(T) or {8: "h", 16: "h", 32: "r", 64: "d"}[TYPES[T].bits]


def _moves(way: str) -> Iterator[str]:
    """Yield the lines that load the registers of a thread, or store them."""
    at = 0
    for bank, T in BANKS.items():
        for i in range(REGISTERS):
            operand, register = f"[row+{at}]", "short" if bank == "p" else f"{bank}{i}"
            at += TYPES[T].bytes
            if bank == "p" and way == "st":
                yield f"selp.u16 short, 1, 0, p{i};"
            yield (
                f"ld.global.{T} {register}, {operand};"
                if way == "ld"
                else f"st.global.{T} {operand}, {register};"
            )
            if bank == "p" and way == "ld":
                yield f"setp.ne.u16 p{i}, short, 0;"


EDGES = {
    "u64": (0, 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1),
    "u32": (0, 1, 31, 32, 33, 64, 2**31 - 1, 2**31, 2**32 - 1, 0x7C00FC00, 0x7F800001),
    "u16": (0, 1, 15, 16, 2**15 - 1, 2**15, 2**16 - 1, 0x7C00, 0xFC00, 0x7C01, 0x3C00, 0x3F80, 0x7F80),
    "f32": (0, 1, 2**31, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFF812345, 0x3F800000, 0x4F000000, 0x7FFFFF, 0x3F000000),
    "f64": (0, 1, 2**63, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48 | 1, 0xFFF1 << 48, 0x3FF << 52, 0x41E << 52, 0x43E << 52),
}  # fmt: skip
"""Words that arithmetic is peculiar about: limits, zeros, infinities, NaN, subnormal numbers, and ties."""


def rows(program: Program) -> Array:
    """Return the registers to begin with, and what is raced for: edges, small numbers, any bits."""
    choose, count = np.random.default_rng(program.seed), program.grid * program.block
    rows = np.zeros(count, ROW)
    for bank, T in BANKS.items():
        shape, bits = (count, REGISTERS), TYPES[T].bits
        words = choose.integers(0, (1 << bits) - 1, shape, np.uint64, endpoint=True)
        words >>= choose.choice(np.array([0, 0, bits // 2, bits - 3], np.uint64), shape)
        edge = choose.choice(np.array(EDGES[T], np.uint64), shape)
        words = np.where(choose.random(shape) < 0.4, edge, words)
        rows[bank] = words & 1 if bank == "p" else words
    raced = choose.integers(0, 256, RACED, np.uint8)
    return np.concatenate([rows.view(np.uint8), raced])
