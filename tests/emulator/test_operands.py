"""What an instruction takes, held against ptxas: thousands of instructions, right and wrong.

Each form's operands are written as its row says; then one of them is exchanged for something else. Both
take the instruction or both refuse it, but for the exceptions listed here with their reasons.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

from ptxlab.emulator.prepare.order import leads
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.emulator.prepare.row import CARRY, ROWS, OperandClass, Row, RowForm
from ptxlab.errors import PtxlabError, PtxSyntaxError, ToolchainError
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import warp_level
from ptxlab.matrix.form import Form, SignatureOperand
from ptxlab.matrix.wgmma import WGMMA
from ptxlab.numbers.types import is_type
from ptxlab.syntax import parse
from ptxlab.toolchain.nvjitlink import link_ptx
from tests.together import in_one_test

DECLARED = re.findall(
    r"\S+", "b8 u8 s8 b16 u16 s16 f16 b32 u32 s32 f32 f16x2 b64 u64 s64 f64 pred b128"
)
HELD_AS = {
    "bf16": "b16",
    **dict.fromkeys(("bf16x2", "tf32", "u16x2", "s16x2"), "b32"),
    "f32x2": "b64",
}
HEAD = [
    ".version 9.5",
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
    {%xf32_0,%xu32_1} {%xu32_0,%xs32_1} {%xu32_0,3} {%xf32_0,3} {%xf32_0,1.5} {%tid.x,%xf32_1}
    [%xu64_1] [%xb32_1] [%xf64_1] [%xpred_1] [sm+4] [gl] [5] undeclared
    """,
)

Exceptional = tuple[str, Callable[[str, str], bool]]
EXCEPTIONS: tuple[Exceptional, ...] = (
    (
        "a variable in global memory is no mbarrier, which is refused before it runs, and on a GPU undefined",
        lambda line, other: other == "[gl]" and "mbarrier." in line.split()[0],
    ),
    (
        "ptxas takes a number in place of what mbarrier.test_wait reports, and drops it",
        lambda line, other: (
            "wait" in line and "phase_type" in line and other.lstrip("-").isdecimal()
        ),
    ),
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
        "ptxas moves the `_` in a vector, which has no value; the PTX ISA has it for results alone",
        lambda line, other: (
            "_}" in other and line.startswith("mov.") and line.endswith(f", {other};")
        ),
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
        "where the copy engine moves data is written in brackets, for ptxas it may be anything",
        lambda line, other: (
            re.search(r"mbarrier::complete_tx|bulk_group", line) is not None
            and other in re.sub(r"\{.*?\}" if "{" not in other else "$", "", line)
        ),
    ),
    (
        "a count of arrivals is one number, for ptxas also a vector",
        lambda line, other: line.startswith("mbarrier.arrive") and other.startswith("{"),
    ),
    (
        "the offset of fns is a number, for ptxas any 32 bits",
        lambda line, other: line.startswith("fns."),
    ),
    (
        "the elements of a vector of pairs of halves are no floats, for ptxas any 32 bits",
        lambda line, other: re.match(r"(red|atom)\..*\.v\d\.b?f16x2", line) is not None,
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
        "the address that mapa maps may be a special register's value, or in global memory",
        lambda line, other: line.startswith("mapa"),
    ),
    (
        "the PTX ISA has eight elements of 32 bits; ptxas takes, or ends over, those of 8 and 16",
        lambda line, other: re.match(r"(ld|st)\..*\.v8\.[bus](8|16) ", line) is not None,
    ),
    (
        "four numbers of few bits lie in one register, for ptxas also in the first of several in braces",
        lambda line, other: (
            re.match(r"(add|sub|mul|fma)\..*m\d(p4)?x4 ", line) is not None and other[0] == "{"
        ),
    ),
    (
        "redux of bits takes a number with a fraction for its bits",
        lambda line, other: line.startswith("redux.") and other.startswith("0f"),
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


MATRIX_EXCEPTIONS: tuple[Exceptional, ...] = (
    (
        "a special register is no part of a fragment, which ptxas reads, and writes, in some",
        lambda line, other: other.startswith(("%tid", "%clock")),
    ),
    (
        "ptxas takes an .f16x2 register for an integer, and predicates for 32 bits in some fragments",
        lambda line, other: re.search(r"%x(f16x2|pred)_", other) is not None,
    ),
    (
        "ptxas takes constants beside a register of plain bits, and cuts them; alone it does not",
        lambda line, other: re.match(r"\{?[-\dW]", other) is not None,
    ),
    (
        "ptxas looks at the first of several registers for metadata or scales, and at the first id",
        lambda line, other: (
            re.search(r"\.sp|block_scale", line) is not None
            and (other.startswith("{") or re.search(r"\{0, ?%x", line) is not None)
        ),
    ),
    (
        "the metadata of products of bytes into f32 is no f32 here",
        lambda line, other: other == "%xf32_1" and ".sp" in line,
    ),
    (
        "of what ptxas makes several instructions no part of D can be dropped",
        lambda line, other: other == "_",
    ),
)


def held(name: str, number: int) -> str:
    return f"%x{HELD_AS.get(name, name)}_{number}"


def written(form: RowForm) -> list[str]:
    """Return the operands of ``form`` as its row asks for them, each of its own type."""

    def operand(kind: OperandClass, name: str, number: int) -> str:
        if kind.kind == "address":
            return "[%xu64_3]"
        if kind.kind == "constant":
            return "4"
        count = form.count(kind)
        listed = ",".join(held(name, i % 4) for i in range(count))
        if kind.kind == "tensor":
            return f"[%xu64_3, {{{listed}}}]"
        return f"{{{listed}}}" if count > 1 or kind.more else held(name, number)

    results = [x for x in zip(form.row.results, form.results, strict=True) if x[1] != CARRY]
    sources = [x for x in zip(form.row.sources, form.operands, strict=True) if x[1] != CARRY]
    target = [operand(*pair, 0) for pair in results if not pair[0].optional or len(results) == 1]
    return target + [operand(*pair, number % 4) for number, pair in enumerate(sources)]


def sampled(rows: Iterator[Row], dice: random.Random) -> Iterator[RowForm]:
    for row in rows:
        named = any(kind.kind == "name" for kind in row.sources)
        if not named and not row.tabled:
            yield RowForm(row, tuple(dice.choice(slot.choices) for slot in row.slots))


def of_a_table(form: Form) -> list[str]:
    """Return the operands of a matrix instruction as its table has them, each of its own type."""

    def in_text(operand: SignatureOperand) -> str:
        if operand.role == "address":
            return "[%xu64_3]"
        listed = [held(operand.type, i % 4) for i in range(operand.count)]
        if operand.role == "constant":
            listed = [operand.value] * operand.count
        braces = operand.braces and (operand.role != "constant" or operand.count > 1)
        return f"{{{','.join(listed)}}}" if braces else listed[0]

    return [in_text(operand) for operand in form.signature]


def reordered(name: str, dice: random.Random) -> str:
    """Return the name with two neighbouring modifiers exchanged."""
    opcode, *modifiers = re.findall(r"wmma\.mma|wmma\.\w+\.\w|[\w:]+", name)
    at = dice.randrange(len(modifiers) - 1)
    modifiers[at : at + 2] = modifiers[at + 1], modifiers[at]
    return ".".join([opcode, *modifiers])


NO_ANSWER = "ptxas ends over this line, or finds fault with its own library"


def batches(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def refusals(lines: list[str], target: str, *, twice: bool = False) -> dict[int, str]:
    """Return what ptxas says of each of the ``lines`` that it refuses, by its index.

    What it makes several instructions of it looks at ``twice``, and later only if it has found no fault.
    """
    messages: dict[int, str] = {}
    waiting, later = batches(range(len(lines)), 25), list[int]()
    while waiting:
        left = waiting.pop()
        said = errors([lines[number] for number in left], target)
        own = [error for error in said or () if error.belongs]
        messages |= {left[error.line]: error.message for error in own}
        rest = [number for number in left if number not in messages]
        unclear = said is None or len(own) < len(said)
        if unclear and len(left) == 1:
            messages[left[0]] = NO_ANSWER
        elif unclear:
            # It ended, or found fault with its own library or a line near by: which one is it?
            named = {left[error.line] for error in said or () if 0 <= error.line < len(left)}
            alone = [[number] for number in rest if number in named]
            others = [number for number in rest if number not in named]
            parts = [*alone, others] if alone else [rest[::2], rest[1::2]]
            waiting += [part for part in parts if part]
        elif twice and said:
            later += rest
        if not waiting:  # making code costs as much for one as for many
            waiting, later = batches(later, 100), []
    return messages


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
        errors_told = []
        for reported, kind, message in re.findall(
            r"line (\d+); (error|fatal) *: ([^\n]*)", error.log
        ):
            line = int(reported) - len(HEAD) - 1
            named = re.search(r"instruction '(\w+)", message)
            opcode = re.match(r"\w+", lines[line]) if 0 <= line < len(lines) else None
            own = opcode is not None and (named is None or named[1] == opcode[0])
            errors_told.append(Said(line, message, own and kind == "error"))
        return errors_told
    return []


@pytest.mark.parametrize("seed", [21, pytest.param(22, marks=pytest.mark.thorough)])
def test_what_ptxas_takes_is_taken_and_nothing_else(
    accepts: Callable[[str, str], bool], seed: int
) -> None:
    dice = random.Random(seed)
    target = "sm_100a"
    rows = [row for rows in ROWS.values() for row in rows]
    forms = list(sampled(iter(rows), dice))
    known = [form for form in forms if not form.needs.missing(TARGETS[target])]
    plain = [f"{form.name} {', '.join(written(form))};" for form in forms]
    wrong = refusals(plain, target)
    sound = [form for number, form in enumerate(forms) if number not in wrong]
    assert len(sound) > len(known) * 0.8
    cases = []
    for form in sound:
        operands = written(form)
        for _ in range(4):
            other, index = dice.choice(OTHERS), dice.randrange(max(1, len(operands)))
            changed = [*operands[:index], other, *operands[index + 1 :]]
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
    assert sum(taken.values()) > 150
    assert len(refused) > 750
    assert list(refused.values()).count(NO_ANSWER) < len(cases) // 20


ORDER_EXCEPTIONS: tuple[Exceptional, ...] = (
    (
        "the types of tensormap.replace, of which one is always the same, may be exchanged for ptxas",
        lambda line, other: line.startswith("tensormap.replace"),
    ),
)


def test_modifiers_stand_where_ptxas_has_them(accepts: Callable[[str, str], bool]) -> None:
    """Forms with their modifiers shuffled, but for types, which in another order are other forms."""
    dice = random.Random(8)
    target = "sm_100a"
    rows = [row for rows in ROWS.values() for row in rows]
    forms = [form for form in sampled(iter(rows), dice) if len(form.modifiers) > 1]
    leading = [form for form in forms if any(leads(form.opcode, x) for x in form.modifiers)]
    forms = dice.sample(forms, 120) + dice.sample(leading, 120)
    plain = [f"{form.name} {', '.join(written(form))};" for form in forms]
    wrong = refusals(plain, target)
    lines = []
    for form in (form for number, form in enumerate(forms) if number not in wrong):
        shuffled = dice.sample(form.modifiers, len(form.modifiers))
        types = iter([name for name in form.modifiers if is_type(name)])
        name = ".".join([form.opcode, *(next(types) if is_type(x) else x for x in shuffled)])
        lines.append(f"{name} {', '.join(written(form))};")
    refused = refusals(lines, target)
    different = [
        f"{line} ptxas: {refused.get(number, 'taken')}"
        for number, line in enumerate(lines)
        if accepts(line, target) == (number in refused)
        and refused.get(number) != NO_ANSWER
        and not any(applies(line, "") for _, applies in ORDER_EXCEPTIONS)
    ]
    assert not different, "\n".join(different)
    assert len(refused) > 60
    assert len(lines) - len(refused) > 60


MATRIX_OTHERS = re.findall(
    r"\S+",
    """
    3 -1 300 1.5 0f3F800000 0d3FF0000000000000 %tid.x %clock64 sm gl callee undeclared
    [%xu64_1] [%xb32_1] [%xf64_1] [%xpred_1] [sm+4] [gl] [5]
    {%xb32_0} {%xu32_0} {%xf64_0} {0} {0,0} {0f00000000,0f00000000,0f00000000,0f00000000}
    {%xb32_0,%xb32_1} {%xb32_0,%xf32_1} {%xf32_0,%xu32_1} {%xb16_0,%xb16_1} {%xb32_0,_}
    {%xu32_0,%xs32_1,%xu32_2,%xb32_3} {%xf32_0,%xf32_1,%xb32_2,%xf32_3} {_,_,_,_} {_}
    """,
)
ELEMENTS = [f"%x{name}_1" for name in DECLARED] + re.findall(
    r"\S+", "3 300 1.5 0f3F800000 0d3FF0000000000000 %tid.x _ sm undeclared"
)


def varied(operands: list[str], dice: random.Random) -> tuple[list[str], str]:
    """Exchange an operand or an element of one: return the operands, and what was put there."""
    changed = list(operands)
    index = dice.randrange(len(changed))
    elements = changed[index].strip("{}").split(",")
    if changed[index].startswith("{") and dice.random() < 0.6:
        other = dice.choice(ELEMENTS)
        elements[dice.randrange(len(elements))] = other
        changed[index] = f"{{{','.join(elements)}}}"
    else:
        other = changed[index] = dice.choice([*MATRIX_OTHERS, *OTHERS[: len(DECLARED)]])
    return changed, other


@pytest.mark.parametrize(
    ("target", "tables", "count"), [("sm_120a", warp_level(), 90), ("sm_90a", WGMMA, 50)]
)
def test_matrix_instructions_take_what_ptxas_takes(
    accepts: Callable[[str, str], bool], target: str, tables: tuple[Form, ...], count: int
) -> None:
    """Each form as it is, with modifiers in another order, and with another operand."""
    dice = random.Random(3)
    forms = [form for form in tables if target in form.targets]
    cases = []
    for form in dice.sample(forms, count):
        operands = of_a_table(form)
        cases.append((f"{reordered(form.name, dice)} {', '.join(operands)};", ""))
        for _ in range(3):
            changed, other = varied(operands, dice)
            cases.append((f"{form.name} {', '.join(changed)};", other))
    refused = refusals([line for line, _ in cases], target, twice=True)
    taken = {number: accepts(line, target) for number, (line, _) in enumerate(cases)}
    different = [
        (line, refused.get(number, "taken"))
        for number, (line, other) in enumerate(cases)
        if taken[number] == (number in refused)
        and refused.get(number) != NO_ANSWER
        and not (other and any(applies(line, other) for _, applies in MATRIX_EXCEPTIONS))
    ]
    assert not different, "\n".join(f"{line} ptxas: {said}" for line, said in different)
    assert sum(taken.values()) > count
    assert len(refused) > 2 * count
    assert list(refused.values()).count(NO_ANSWER) < len(cases) // 20


MMA = "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 "
SPARSE = "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 "
D, C = "{%xf32_0,%xf32_1,%xf32_2,%xf32_3}, ", ", {%xf32_0,%xf32_1,%xf32_2,%xf32_3}"
A = "{%xb32_0,%xb32_1,%xb32_2,%xb32_3}, {%xb32_0,%xb32_1,%xb32_2,%xb32_3}"


@in_one_test(
    ("line", "at", "what", "hint"),
    [
        (
            f"{MMA}{D}{{%xb32_0,%xf32_1}}, {{%xu32_0}}{C};",
            "%xu32_0",
            "%xu32_0 is a .u32 register, {name} takes .b32",
            "b is 4 x 8 of tf32",
        ),
        (
            f"{MMA}{D}{{%xf32_0,%xf32_1}}, {{%xb32_0}}{C};",
            "%xf32_0,%xf32_1}, {%xb",
            "%xf32_0 is a .f32 register, {name} takes .b32",
            "a is 16 x 4 of tf32",
        ),
        (
            f"{MMA}{D}{{%xb32_0,%xb32_1}}, %xb32_0{C};",
            "%xb32_0, {%xf",
            "{name} takes 1 register in braces here, found none",
            "b is 4 x 8 of tf32",
        ),
        (
            f"{MMA}{D}{{%xb32_0}}, {{%xb32_0}}{C};",
            "{%xb32_0}, {%xb",
            "{name} takes 2 registers in braces here, found 1",
            "a is 16 x 4 of tf32",
        ),
        (
            f"{SPARSE}{D}{A}{C}, %xb32_0, 2;",
            "2;",
            "{name} takes 0 or 1 here, not 2",
            "f is sparsity selector, 0 to 1",
        ),
        (
            f"{SPARSE}{D}{A}{C}, %xpred_0, 0;",
            "%xpred_0",
            "%xpred_0 is a .pred register, {name} takes .b32, .u32, .s32, .f32 or .f16x2",
            "e is metadata: which 1 of 2 elements A keeps",
        ),
        (
            f"{SPARSE}{D}{A}{C}, %xb32_0;",
            "mma",
            "{name} takes 6 operands, found 5",
            None,
        ),
        (
            "add.e5m2x4.e2m1x4 %xb32_0, %xb16_0, %xu32_0;",
            "%xu32_0",
            "%xu32_0 is a .u32 register, {name} takes .b32",
            None,
        ),
        (
            "mul.e5m2x4.e2m1x4.e2m1p4x4 %xb32_0, %xb16_0, 3;",
            "3;",
            "a register is needed here",
            None,
        ),
        (
            "st.global.v2.b32 [%xu64_0], {%xf32_0,%xu32_0};",
            "{%xf32_0",
            "the elements of a vector are of different types",
            None,
        ),
    ],
)
def test_a_refusal_says_what_is_taken(line: str, at: str, what: str, hint: str | None) -> None:
    text = "\n".join([*HEAD, line, "ret;", "}"]).replace("{target}", "sm_100a")
    with pytest.raises(PtxSyntaxError) as caught:
        prepare(parse(text), TARGETS["sm_100a"], "k")
    location = caught.value.location
    assert location is not None
    assert (location.line, location.column) == (len(HEAD) + 1, line.index(at) + 1)
    assert caught.value.message == what.replace("{name}", line.split()[0])
    assert caught.value.hint == hint


@pytest.fixture
def accepts() -> Callable[[str, str], bool]:
    """Say whether the emulator prepares an instruction for a target."""

    def accept(line: str, target: str) -> bool:
        # Of the registers only those that are in the line: reading all takes most of the time.
        head = [
            declared
            for declared in HEAD
            if not declared.startswith(".reg") or declared.split()[2].removesuffix("<4>;") in line
        ]
        text = "\n".join([*head, line, "ret;", "}"]).replace("{target}", target)
        try:
            prepare(parse(text), TARGETS[target], "k")
        except PtxlabError:
            return False
        return True

    return accept
