"""What an instruction takes, held against ptxas: thousands of instructions, right and wrong.

Each form's operands are written as its row says; then one of them is exchanged for something else. Both
take the instruction or both refuse it, but for the exceptions listed here with their reasons.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from ptxlab.emulator.prepare.row import ANY, CARRY, ROWS, Form, OperandClass, Row
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.isa.targets import TARGETS
from ptxlab.toolchain.nvjitlink import link_ptx

DECLARED = re.findall(
    r"\S+", "b8 u8 s8 b16 u16 s16 f16 b32 u32 s32 f32 f16x2 b64 u64 s64 f64 pred b128"
)
HELD_AS = {
    **dict.fromkeys(("bf16",), "b16"),
    **dict.fromkeys(("bf16x2", "tf32", "u16x2", "s16x2"), "b32"),
    "f32x2": "b64",
}
HEAD = [
    ".version 9.0",
    ".target {target}",
    ".address_size 64",
    ".global .align 16 .b8 gl[256];",
    ".func callee() { ret; }",
    ".visible .entry k(.param .u64 p) {",
    *(f".reg .{name} %x{name}_<4>;" for name in DECLARED),
    ".shared .align 128 .b8 sm[1024];",
]
OTHERS = [f"%x{name}_1" for name in DECLARED] + re.findall(
    r"\S+",
    """
    3 -3 300 5000000000 1.5 0f3F800000 0d3FF0000000000000 WARP_SZ 0x80000000
    !%xpred_1 -%xs32_1 %tid.x %ntid.y %clock64 %lanemask_lt %laneid sm gl sm+4 callee _
    {%xb32_0,%xb32_1} {%xb32_0,%xf32_1} {%xb16_0,%xb16_1} {%xb32_0,_} %xb32_0|%xpred_1
    [%xu64_1] [%xb32_1] [%xf64_1] [%xpred_1] [sm+4] [gl] [5] undeclared
    """,
)

Exception_ = tuple[str, Callable[[str, str], bool]]
EXCEPTIONS: tuple[Exception_, ...] = (
    (
        "ptxas takes an .f16x2 register for an integer or a predicate; the PTX ISA's table does not",
        lambda line, other: other == "%xf16x2_1",
    ),
    (
        "a .b128 register that holds something narrower is not modelled, nor an address of 128 bits",
        lambda line, other: (
            (other == "%xb128_1" and line.startswith(("ld", "st", "cvt"))) or ".b128" in line
        ),
    ),
    (
        "ptxas takes a function's name for any number; there is no value that it could stand for",
        lambda line, other: other == "callee",
    ),
    (
        "ptxas has `_` as an address of red, and as a first result where a second is not asked for",
        lambda line, other: other == "_" and line.startswith(("red.", "match.", "lop3.")),
    ),
    (
        "video instructions: ptxas writes results to constants, and counts of constants it may refuse",
        lambda line, other: re.match(r"v(abs|add|sub|m|set|sh|avrg)", line) is not None,
    ),
    (
        "ptxas takes 32 bits for an address of shared::cluster alone",
        lambda line, other: line.startswith("isspacep."),
    ),
    (
        "comparisons of halves take no constant for the predicate that they are joined with",
        lambda line, other: (
            re.match(r"setp?\..*(f16|bf16)", line) is not None and line.endswith(f", {other};")
        ),
    ),
    (
        "a cache policy is no address and no number with a fraction",
        lambda line, other: "L2::cache_hint" in line and line.endswith(f", {other};"),
    ),
    (
        "a cache policy is a word of integers",
        lambda line, other: line.startswith("createpolicy."),
    ),
    (
        "mov of vectors takes no scalar, which ptxas gives to every element",
        lambda line, other: re.match(r"mov\.v\d", line) is not None and other[0] not in "{[",
    ),
    (
        "the random bits of cvt.rs are a register",
        lambda line, other: line.startswith("cvt.rs.") and line.endswith(f", {other};"),
    ),
    (
        "prefetchu takes no variable, and some prefetches of one are an internal error of ptxas",
        lambda line, other: line.startswith("prefetch"),
    ),
    (
        "addresses of 32 bits are not modelled",
        lambda line, other: re.match(r"cvta\..*32 ", line) is not None,
    ),
    (
        "atom without a result is red, which has the vectors",
        lambda line, other: other == "_" and re.match(r"atom\..*\.v\d", line) is not None,
    ),
    (
        "ptxas looks at the constants of these only when it makes code, and its library fails on some",
        lambda line, other: (
            re.match(r"cvta|cvt\.rna|div|rem|rcp|sqrt|abs\.s16", line) is not None
            and not other.startswith("%x")
        ),
    ),
)


def held(name: str, number: int) -> str:
    return f"%x{HELD_AS.get(name, name)}_{number}"


def written(form: Form) -> list[str]:
    """Return the operands of ``form`` as its row asks for them, each of its own type."""

    def one(kind: OperandClass, name: str, number: int) -> str:
        if kind.kind == "address":
            return "[%xu64_3]"
        if kind.kind == "constant":
            return "4"
        count = int(form[kind.vector][1:] or 1) if kind.vector else 1
        listed = ",".join(held(name, i % 4) for i in range(count))
        return f"{{{listed}}}" if count > 1 else held(name, number)

    results = [x for x in zip(form.row.results, form.results, strict=True) if x[1] != CARRY]
    sources = [x for x in zip(form.row.sources, form.operands, strict=True) if x[1] != CARRY]
    target = [one(*pair, 0) for pair in results if not pair[0].optional or len(results) == 1]
    return target + [one(*pair, number % 4) for number, pair in enumerate(sources)]


def sampled(rows: Iterator[Row], dice: random.Random) -> Iterator[Form]:
    for row in rows:
        named = any(kind.kind == "name" for kind in row.sources)
        if not named and not (row.slots and row.slots[0].name == ANY):
            yield Form(row, tuple(dice.choice(slot.choices) for slot in row.slots))


NO_ANSWER = "ptxas ends over this line, or finds fault with its own library"


def refusals(lines: list[str], target: str) -> dict[int, str]:
    """Return what ptxas says of each of the ``lines`` that it refuses, by its index."""
    found: dict[int, str] = {}
    waiting = [list(range(first, len(lines), 50)) for first in range(50)]
    while waiting:
        left = waiting.pop()
        said = errors([lines[number] for number in left], target)
        found |= {left[error.line]: error.message for error in said or () if error.belongs}
        if said is None or any(not error.belongs for error in said):
            # It ended, or found fault with its own library or a line near by: which one is it?
            if len(left) == 1:
                found[left[0]] = NO_ANSWER
            rest = [number for number in left if number not in found]
            waiting += [part for part in (rest[::2], rest[1::2]) if part]
    return found


class Said(NamedTuple):
    line: int
    message: str
    belongs: bool


def errors(lines: list[str], target: str) -> list[Said] | None:
    """Return what ptxas says up to the first fatal error, None if it ends over the ``lines``."""
    text = "\n".join([*HEAD, *lines, "ret;", "}"]).replace("{target}", target)
    try:
        link_ptx(text, arch=target, options=("-O0",))
    except ToolchainError as error:
        if "itself ended" in error.message:
            return None
        found = []
        for place, kind, message in re.findall(r"line (\d+); (error|fatal) *: ([^\n]*)", error.log):
            line = int(place) - len(HEAD) - 1
            named = re.search(r"instruction '(\w+)", message)
            opcode = re.match(r"\w+", lines[line]) if 0 <= line < len(lines) else None
            own = opcode is not None and (named is None or named[1] == opcode[0])
            found.append(Said(line, message, own and kind == "error"))
        return found
    return []


def test_what_ptxas_takes_is_taken_and_nothing_else(accepts: Callable[[str, str], bool]) -> None:
    dice = random.Random(21)
    target = "sm_100a"
    rows = [row for rows in ROWS.values() for row in rows]
    forms = [form for _ in range(3) for form in sampled(iter(rows), dice)]
    plain = [f"{form.name} {', '.join(written(form))};" for form in forms]
    wrong = refusals(plain, target)
    sound = [form for number, form in enumerate(forms) if number not in wrong]
    assert len(sound) > len(forms) * 0.8
    cases = []
    for form in sound:
        operands = written(form)
        for _ in range(4):
            other, place = dice.choice(OTHERS), dice.randrange(max(1, len(operands)))
            changed = [*operands[:place], other, *operands[place + 1 :]]
            cases.append((f"{form.name} {', '.join(changed)};", other))
    refused = refusals([line for line, _ in cases], target)
    taken = {number: accepts(line, target) for number, (line, _) in enumerate(cases)}
    different = [
        (line, refused.get(number, "taken"))
        for number, (line, other) in enumerate(cases)
        if taken[number] == (number in refused)
        and refused.get(number) != NO_ANSWER
        and not any(applies(line, other) for _, applies in EXCEPTIONS)
    ]
    assert not different, "\n".join(f"{line} ptxas: {said}" for line, said in different)
    assert sum(taken.values()) > 300
    assert len(refused) > 1500
    assert list(refused.values()).count(NO_ANSWER) < len(cases) // 20


@pytest.fixture
def accepts() -> Callable[[str, str], bool]:
    """Say whether the emulator prepares an instruction for a target."""
    from ptxlab.emulator.prepare.preparation import prepare
    from ptxlab.syntax import parse

    def accept(line: str, target: str) -> bool:
        text = "\n".join([*HEAD, line, "ret;", "}"]).replace("{target}", target)
        try:
            prepare(parse(text), TARGETS[target], "k")
        except PtxlabError:
            return False
        return True

    return accept
