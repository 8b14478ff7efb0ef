"""Programs whose statements, operands and words have been swapped, dropped and doubled are refused, or taken."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS
from ptxlab.syntax.lexer import tokenize
from ptxlab.syntax.tree import SourceText
from tests.time_limit import at_most

ALWAYS, SEEDS = 5, 12
OF_A_SEED = 25
SECONDS = 20
LARGEST = 1 << 16
"""Bytes of a variable that is looked at: an array may have grown to gigabytes."""

ROOT = Path(__file__).parents[2]
EVERYTHING = """
.version 9.0 .target sm_90a .address_size 64
.file 1 "x.cu"
.extern .shared .align 16 .b8 dynamic[];
.global .v2 .f32 pairs[2] = {{1.5, 0f40000000}, {-1.0, 2.0}};
.visible .const .u32 fixed[2][2] = {{1, 2}, {3}};
.extern .global .u8 data[16]; .visible .global .attribute(.managed) .u8 data[16] = {0xFF(pairs), 1};
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.func (.reg .b32 y) g (.reg .b32 x, .param .align 8 .b8 s[16]);
.func (.param .b32 y) f (.param .b32 x) { .reg .b32 a; ld.param.b32 a, [x]; st.param.b32 [y], a; ret; }
.func (.reg .b32 y) g (.reg .b32 x, .param .align 8 .b8 s[16])
{ .local .align 8 .b8 depot[8]; .reg .b64 l; mov.u64 l, depot; st.local.u32 [l+4], x; ld.param.b32 y, [s+4]; ret; }
.visible .global .align 8 .u64 table[3] = {f, generic(data)+8, 0};
.weak .func h () .noreturn { call h, (); ret; }
.visible .entry k (.param .u64 .ptr .global .align 8 out, .param .b8 s[12], .param .f32 z)
.reqntid 32, 1, 1 .minnctapersm 2
{
    .reg .pred p<4>; .reg .b16 c<3>; .reg .b32 r<9>; .reg .b64 d<9>; .reg .f32 v<9>; .reg .v4 .f32 w; .reg .b128 q;
    .shared .align 128 .b8 near[1024]; .global .u32 counter;
    .loc 1 3 5
    ld.param.u64 d0, [out]; mov.u32 r0, %tid.x; mad.wide.u32 d0, r0, 4, d0;
    setp.lt.and.u32 p0|p1, r0, 16, !p2; @p0 bra.uni over;
    { .reg .b32 r0; mov.b32 r0, WARP_SZ; add.u32 r1, r0, 1 + 2 * (3 - 1); }
over:
    mov.u64 d1, near; cvta.shared.u64 d2, near; cvta.to.global.u64 d3, d0; ld.const.u32 r2, [fixed+4];
    st.shared.v2.b32 [near+8], {r1, r2}; ld.shared.v4.f32 {v0, v1, _, v2}, [d1]; mov.b64 {r3, r4}, d2; bar.sync 0;
    { .param .b32 a0; st.param.b32 [a0+0], r1; .param .b32 r; call (r), f, (a0); ld.param.b32 r5, [r]; }
    { .param .align 8 .b8 s0[16]; st.param.b32 [s0+4], r1; call (r6), g, (r1, s0); }
again: t: .branchtargets over, again, done; u: .callprototype (.param .b32 _) _ (.param .b32 _);
    ld.global.u64 d4, [table];
    { .param .b32 a1; .param .b32 r; st.param.b32 [a1], r6; call (r), d4, (a1), u; ld.param.b32 r7, [r]; }
    @p3 brx.idx r7, t;
    fma.rn.ftz.f32 v3, v0, v1, 0f3F800000; cvt.rn.bf16.f32 c0, v3; prmt.b32 r8, r1, r2, 0x5410;
    atom.global.add.u32 r1, [counter], 1; shfl.sync.bfly.b32 r2|p1, r1, 1, 31, -1; vote.sync.ballot.b32 r3, p1, -1;
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {r4, r5}, [near]; cp.async.ca.shared.global [near], [d3], 16;
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {v0, v1, v2, v3}, {r1, r2, r3, r4}, {r5, r6}, {v0, v1, v2, v3};
    mov.f32 w.x, v3; mov.b128 q, {d0, d1}; add.cc.u32 r1, r1, r2; addc.u32 r2, r2, 0; ex2.approx.f32 v4, v3;
    .pragma "nounroll";
    st.global.u32 [d0+-4], r1;
done:
    ret;
}
.visible .entry other () { .reg .b64 a; mov.u64 a, h; exit; }
"""
TEXTS = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "ptx").glob("*.ptx"))]
NUMBERS = (
    "0",
    "1",
    "-1",
    "3",
    "16",
    "255",
    "4096",
    "0x80000000",
    "18446744073709551615",
    "1.5",
    "0f7FC00000",
)

Statement = list[str]
"""The tokens of one statement, up to its end."""


def statements(text: str) -> list[Statement]:
    parts: list[Statement] = [[]]
    for token in tokenize(SourceText(text))[:-1]:
        parts[-1].append(token.text)
        if token.text in (";", "{", "}", ":"):
            parts.append([])
    return [statement for statement in parts if statement]


def operands(statement: Statement) -> list[Statement]:
    """Split at commas; what ends the statement stays with the last."""
    parts: list[Statement] = [[]]
    for token in statement:
        if token == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def joined(parts: list[Statement]) -> Statement:
    return [token for number, part in enumerate(parts) for token in ([","] * bool(number) + part)]


def _shuffle(draw: random.Random, things: list[Statement], others: list[Statement]) -> None:
    """Swap two things, drop one, double one, or take one from elsewhere."""
    if not things:
        return
    at, to = draw.randrange(len(things)), draw.randrange(len(things))
    match draw.randrange(4):
        case 0:
            things[at], things[to] = things[to], things[at]
        case 1:
            del things[at]
        case 2:
            things.insert(to, list(things[at]))
        case 3:
            things[at] = list(draw.choice(others))


def of_statements(draw: random.Random, program: list[Statement]) -> None:
    _shuffle(draw, program, ELSEWHERE)


def of_operands(draw: random.Random, program: list[Statement]) -> None:
    at = draw.randrange(len(program))
    parts = operands(program[at])
    _shuffle(draw, parts, operands(draw.choice(program)))
    program[at] = joined(parts)


def of_words(draw: random.Random, program: list[Statement]) -> None:
    """Change a word of a statement, or a part of one behind a dot: a modifier, a type, a directive."""
    at = draw.randrange(len(program))
    words = [[word] for word in program[at]]
    if draw.random() < 0.5:
        _shuffle(draw, words, [[word] for word in draw.choice(program)] or words)
    elif words:
        number = draw.randrange(len(words))
        parts = [[part] for part in words[number][0].split(".")]
        other = draw.choice(draw.choice(program) or [";"])
        _shuffle(draw, parts, [[part] for part in other.split(".")])
        words[number] = [".".join(part for [part] in parts)]
    program[at] = [word for part in words for word in part]


def of_numbers(draw: random.Random, program: list[Statement]) -> None:
    places = [
        (s, w)
        for s, statement in enumerate(program)
        for w, word in enumerate(statement)
        if word.isdigit()
    ]
    for s, w in draw.sample(places, min(1, len(places))):
        program[s][w] = draw.choice(NUMBERS)


ELSEWHERE = statements(EVERYTHING)
CHANGES: tuple[Callable[[random.Random, list[Statement]], None], ...] = (
    of_statements, of_statements, of_operands, of_words, of_numbers,
)  # fmt: skip


def changed(draw: random.Random) -> str:
    program = statements(EVERYTHING if draw.random() < 0.6 else draw.choice(TEXTS))
    for _ in range(draw.choice((1, 1, 2, 4))):
        if program:
            draw.choice(CHANGES)(draw, program)
    return "\n".join(" ".join(statement) for statement in program)


def outcome(text: str, target: str) -> PtxlabError | None:
    """Load and ask for every kernel; anything but a PtxlabError, a warning too, leaves as it is."""
    with warnings.catch_warnings(), at_most(SECONDS, TimeoutError):
        warnings.simplefilter("error")
        try:
            module = open_device("emulator", arch=target).load(text)
            for name in module.kernels:
                module.kernel(name)
            for variable in map(module.variable, module.variables):
                if variable.nbytes <= LARGEST:
                    variable.numpy()
        except PtxlabError as error:
            return error
    return None


def test_the_programs_are_taken() -> None:
    for text in (EVERYTHING, *TEXTS):
        plain = "\n".join(" ".join(statement) for statement in statements(text))
        named = re.search(r"\.target (\w+)", text)
        assert named is not None
        error = outcome(plain, named[1])
        assert error is None, error


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=[pytest.mark.thorough] * (seed >= ALWAYS)) for seed in range(SEEDS)],
)
def test_each_change_is_refused_or_taken(seed: int) -> None:
    draw = random.Random(seed)
    refused = 0
    for _ in range(OF_A_SEED):
        text = changed(draw)
        error = outcome(text, draw.choice((*["sm_90a"] * 30, *TARGETS)))
        refused += error is not None
        assert error is None or len(str(error)) < 2000, text
        assert error is None or error.message, text
    assert refused > 0
