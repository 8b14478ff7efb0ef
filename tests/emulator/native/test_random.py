"""Random programs of all that has a native form, register by register on both engines.

Straight lines of instructions on random registers, some of them guarded, with loads and stores in
between that races decide; the registers are stored at the end.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.emulator.native import walk
from ptxlab.native import compiler
from ptxlab.toolchain import cache

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

REGISTERS = 4
THREADS = 96
ROW = REGISTERS * (4 + 8 + 4 + 8)

INTEGER = [
    "add",
    "sub",
    "mul.lo",
    "mul.hi",
    "mad.lo",
    "mad.hi",
    "min",
    "max",
    "div",
    "rem",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
    "sad",
    "setp",
    "selp",
    "set",
    "neg",
    "abs",
    "not",
    "cnot",
    "popc",
    "clz",
    "brev",
    "lop3",
    "shf",
    "bfe",
    "prmt",
    "mul.wide",
    "mad.wide",
    "cvt",
    "mov",
]
FLOAT = [
    "add",
    "sub",
    "mul",
    "fma",
    "div",
    "sqrt",
    "rcp",
    "min",
    "max",
    "neg",
    "abs",
    "setp",
    "selp",
    "set",
    "cvt",
    "mov",
]
COMPARES = ["eq", "ne", "lt", "le", "gt", "ge"]
NAMES = {"32": "r", "64": "d"}


class Program:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)

    def one(self, *of: Any) -> Any:
        return self.choose.choice(of)

    def register(self, kind: str) -> str:
        bank = {"f32": "f", "f64": "g", "pred": "p"}.get(kind) or NAMES[kind[1:]]
        return f"{bank}{self.choose.randrange(REGISTERS)}"

    def operand(self, kind: str) -> str:
        if kind[0] != "f" and self.choose.random() < 0.15:
            return str(self.one(0, 1, 7, 31, 33, 0x7FFFFFFF, -1, -128))
        return self.register(kind)

    def guard(self) -> str:
        p = self.register("pred")
        return str(self.one("", "", "", f"@{p} ", f"@!{p} "))

    def line(self) -> str:
        kind = self.choose.random()
        text = self.integer() if kind < 0.4 else self.floating() if kind < 0.8 else self.memory()
        return f"{self.guard()}{text};"

    def applied(self, name: str, *kinds: str) -> str:
        first, *rest = kinds
        return f"{name} {', '.join([self.register(first), *map(self.operand, rest)])}"

    def integer(self) -> str:
        opcode, bits = self.one(*INTEGER), self.one("32", "64")
        sign, plain = self.one("u", "s") + bits, "b" + bits
        match opcode:
            case "and" | "or" | "xor":
                return self.applied(f"{opcode}.{plain}", plain, plain, plain)
            case "not" | "cnot" | "brev":
                return self.applied(f"{opcode}.{plain}", plain, plain)
            case "popc" | "clz":
                return self.applied(f"{opcode}.{plain}", "b32", plain)
            case "shl":
                return self.applied(f"shl.{plain}", plain, plain, "u32")
            case "shr":
                return self.applied(f"shr.{sign}", sign, sign, "u32")
            case "shf":
                name = f"shf.{self.one('l', 'r')}.{self.one('wrap', 'clamp')}.b32"
                return self.applied(name, "b32", "b32", "b32", "u32")
            case "lop3":
                return self.applied("lop3.b32", *["b32"] * 4) + f", {self.choose.randrange(256)}"
            case "bfe":
                return f"bfe.u32 {', '.join(self.register('b32') for _ in range(2))}, 3, 9"
            case "prmt":
                return self.applied("prmt.b32", *["b32"] * 4)
            case "mul.wide":
                sign = self.one("u32", "s32")
                return self.applied(f"mul.wide.{sign}", "b64", sign, sign)
            case "mad.wide":
                sign = self.one("u32", "s32")
                return self.applied(f"mad.wide.{sign}", "b64", sign, sign, "b64")
            case "neg" | "abs":
                return self.applied(f"{opcode}.s{bits}", plain, plain)
            case "mad.lo" | "mad.hi" | "sad":
                return self.applied(f"{opcode}.{sign}", *[sign] * 4)
            case "cvt":
                other = self.one("u32", "s32", "u64", "s64", "f32", "f64")
                rounding = ".rn" if other[0] == "f" else ""
                return f"cvt{rounding}.{other}.{sign} {self.register(other)}, {self.register(sign)}"
        return self.common(opcode, sign, sign)

    def common(self, opcode: str, kind: str, plain: str) -> str:
        match opcode:
            case "setp":
                both = self.one("", f".{self.one('and', 'or', 'xor')}")
                last = f", {self.register('pred')}" if both else ""
                name = f"setp.{self.one(*COMPARES)}{both}.{kind}"
                p, q = self.choose.sample(range(REGISTERS), 2)
                second = self.one("", f"|p{q}")
                return f"{name} p{p}{second}, {self.operand(kind)}, {self.operand(kind)}{last}"
            case "selp":
                name = f"selp.{kind} {self.register(kind)}"
                return (
                    f"{name}, {self.operand(kind)}, {self.operand(kind)}, {self.register('pred')}"
                )
            case "set":
                name = f"set.{self.one(*COMPARES)}.u32.{kind}"
                return self.applied(name, "b32", kind, kind)
            case "mov":
                return self.applied(f"mov.{kind}", kind, kind)
        return self.applied(f"{opcode}.{plain}", kind, kind, kind)

    def floating(self) -> str:
        opcode, kind = self.one(*FLOAT), self.one("f32", "f32", "f64")
        ftz = self.one("", "", ".ftz") if kind == "f32" else ""
        sat = self.one("", "", ".sat") if kind == "f32" else ""
        rounding = self.one(".rn", ".rn", ".rn", ".rz", ".rm")
        match opcode:
            case "add" | "sub" | "mul":
                return self.applied(f"{opcode}{rounding}{ftz}{sat}.{kind}", *[kind] * 3)
            case "fma":
                return self.applied(f"fma{rounding}{ftz}{sat}.{kind}", *[kind] * 4)
            case "div":
                return self.applied(f"div{rounding}{ftz}.{kind}", *[kind] * 3)
            case "sqrt" | "rcp":
                return self.applied(f"{opcode}.rn{ftz}.{kind}", kind, kind)
            case "neg" | "abs":
                return self.applied(f"{opcode}{ftz}.{kind}", kind, kind)
            case "min" | "max":
                return self.applied(f"{opcode}{ftz}.{kind}", *[kind] * 3)
            case "cvt":
                other = self.one("u32", "s32", "u64", "s64", "f32", "f64")
                if other == kind:
                    return self.applied(f"cvt.rni.{kind}.{kind}", kind, kind)
                rounding = self.one(".rni", ".rzi", ".rmi", ".rpi")
                if other[0] == "f":
                    rounding = ".rn" if other == "f32" else ""
                return self.applied(f"cvt{rounding}.{other}.{kind}", other, kind)
        return self.common(opcode, kind, f"{kind}")

    def memory(self) -> str:
        kind = self.one("u32", "s32", "b64", "f32", "f64", "u8", "s16")
        register = self.register({"u8": "u32", "s16": "u32"}.get(kind, kind))
        size = int(kind[1:]) // 8
        space, base = self.one(("shared", "r30"), ("global", "d30"), ("global", "d31"))
        at = f"[{base}+{size * self.choose.randrange(8)}]"
        if self.choose.random() < 0.5:
            return f"ld.{space}.{kind} {register}, {at}"
        return f"st.{space}.{kind} {at}, {register}"

    def together(self) -> str:
        """Return an instruction of whole warps, or another without a native form."""
        r, f, mode = (
            self.register("b32"),
            self.register("f32"),
            self.one("up", "down", "idx", "bfly"),
        )
        matrix = "ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{r0, r1, r2, r3}}, [r25];"
        product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
        return str(
            self.one(
                f"ex2.approx.ftz.f32 {f}, {self.register('f32')};",
                f"shfl.sync.bfly.b32 {r}, {self.register('b32')}, 5, 31, -1;",
                f"shfl.sync.{mode}.b32 {r}|p{self.choose.randrange(6)}, {', '.join(self.lanes())}, -1;",
                matrix.format(self.one("", ".trans")),
                f"{product} {{f0, f1, f2, f3}}, {{r0, r1, r2, r3}}, {{r1, {r}}}, {{f3, f0, f2, {f}}};",
            )
        )

    def lanes(self) -> list[str]:
        """Return a register to read in another lane, by which number, and within which bounds."""
        first, second, third = (self.register("b32") for _ in range(3))
        return [first, self.one(second, "3"), self.one(third, "31", "0x1807")]

    def lines(self, count: int) -> str:
        return "\n".join(self.line() for _ in range(count))

    def loops(self, count: int) -> str:
        """Return lines in a loop in a loop, some behind a branch that all take in the same turns."""
        part = count // 4
        return f"""mov.u32 r27, 0;
OUTER: {self.lines(part)} mov.u32 r26, 0;
INNER: {self.lines(part)} {self.together()}
    and.b32 r24, r26, 3; setp.eq.u32 p7, r24, 1; @p7 bra PAST;
    {self.lines(part)} {self.together()}
PAST: add.u32 r26, r26, 1; setp.lt.u32 p7, r26, 12; @p7 bra INNER;
    {self.lines(part)} bar.sync 0;
    add.u32 r27, r27, 1; setp.lt.u32 p7, r27, 3; @p7 bra OUTER;"""

    def text(self, lines: str) -> str:
        banks = (("r", 4, "u32"), ("d", 8, "u64"), ("f", 4, "f32"), ("g", 8, "f64"))
        moves = {"ld": "", "st": ""}
        at = 0
        for bank, size, kind in sorted(banks, key=lambda bank: -bank[1]):
            for i in range(REGISTERS):
                moves["ld"] += f"ld.global.{kind} {bank}{i}, [d29+{at}];\n"
                moves["st"] += f"st.global.{kind} [d29+{at}], {bank}{i};\n"
                at += size
        tests = "".join(f"setp.lt.u32 p{i}, r{i}, {1 << 6 * i};\n" for i in range(REGISTERS))
        return f"""
.version 8.3
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{{
    .reg .pred p<8>;
    .reg .b32 r<32>;
    .reg .b64 d<32>;
    .reg .f32 f<8>;
    .reg .f64 g<8>;
    .shared .align 16 .b8 s[1024];
    mov.u32 r29, %tid.x;
    ld.param.u64 d29, [data];
    add.u64 d31, d29, {THREADS * ROW};
    mad.wide.u32 d29, r29, {ROW}, d29;
    and.b32 r30, r29, 15;
    mad.wide.u32 d30, r30, 24, d31;
    mov.u32 r28, s;
    mad.lo.u32 r30, r30, 8, r28;
    and.b32 r25, r29, 31;
    mad.lo.u32 r25, r25, 16, r28;
    st.shared.u64 [r30], d29;
    st.shared.u64 [r30+64], d29;
    bar.sync 0;
{moves["ld"]}{tests}{lines}
{moves["st"]}
}}
"""


def rows(seed: int) -> Any:
    """Return the registers to begin with, and room for what races: small, near edges, and any bits."""
    choose = np.random.default_rng(seed)
    words = choose.integers(0, 1 << 32, THREADS * ROW // 4 + 256, np.uint64)
    words >>= choose.choice(np.array([0, 0, 8, 16, 28], np.uint64), words.size)
    special = np.array(
        [0, 1, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x3F800000], np.uint64
    )
    odd = choose.random(words.size) < 0.25
    return np.where(odd, choose.choice(special, words.size), words).astype(np.uint32)


def differ(monkeypatch: pytest.MonkeyPatch, seeds: range, *, loops: bool = False) -> list[int]:
    """Return the seeds of those programs that do not end alike."""
    found = []
    for seed in seeds:
        program = Program(seed)
        text = program.text(program.loops(16) if loops else program.lines(16))
        data, results, engines = rows(seed), [], ["array", "native"]
        if loops:  # half of them walk from the beginning on when they run again
            monkeypatch.setattr(walk, "WORTH", 1 + 7 * (seed % 2))
            engines += ["native"] * (1 - seed % 2)
        for engine in engines:
            monkeypatch.setenv("PTXLAB_ENGINE", engine)
            device = open_device("emulator", arch="sm_80")
            buffer = device.upload(data)
            device.load(text).kernel("k").launch(1, THREADS, [buffer])
            results.append(buffer.numpy())
        if not all(np.array_equal(results[0], other) for other in results):
            found.append(seed)
    return found


def test_random_programs_end_alike(monkeypatch: pytest.MonkeyPatch, calls: list[bool]) -> None:
    assert differ(monkeypatch, range(6)) == []
    assert all(calls)


def test_random_programs_with_loops_end_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    assert differ(monkeypatch, range(2), loops=True) == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("hundred", range(100))
def test_ten_thousand_random_programs_end_alike(
    monkeypatch: pytest.MonkeyPatch, hundred: int, loops: bool
) -> None:
    with cache.bypassed():
        seeds = range(100 * hundred, 100 * hundred + 100)
        assert differ(monkeypatch, seeds, loops=loops) == []
    compiler._loaded.cache_clear()
