"""Generated instructions, right and wrong, are refused with a place or run; nothing else happens."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator

import pytest

import ptxlab.emulator.operations  # noqa: F401  (registers every operation)
from ptxlab.device.opening import open_device
from ptxlab.emulator.prepare.row import ROWS, OperandClass, Row, RowForm
from ptxlab.errors import PtxlabError
from ptxlab.matrix.catalog import MULTIPLICATIONS
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX
from ptxlab.matrix.wmma import WMMA_MOVES
from ptxlab.numbers.types import TYPES
from tests.time_limit import at_most
from tests.together import thorough

ALWAYS, PROGRAMS = 8, 40
IN_A_PROGRAM = 40
SECONDS = 20

DECLARED = """
.global .align 16 .b8 memory[4096];
.const .align 16 .b8 fixed[256];
.shared .align 128 .b8 near[4096];
.func (.param .b32 out) twice(.param .b32 x) { ret; }
.func bare() { ret; }
"""
REGISTERS = """
.reg .pred p<4>; .reg .b8 c<4>; .reg .b16 h<6>; .reg .b32 r<9>; .reg .b64 d<9>; .reg .b128 q<3>;
.reg .f16 fh<4>; .reg .f16x2 fx<4>; .reg .f32 f<9>; .reg .f64 g<9>; .reg .s32 i<4>; .reg .u64 u<4>; .reg .v4 .f32 v;
.local .align 16 .b8 own[256]; .param .b32 passed;
mov.u64 d1, memory; mov.u64 d2, near; mov.u32 r1, near; cvta.shared.u64 d3, d2;
"""
BY_TYPE = {
    "pred": "p", "b8": "c", "u8": "c", "s8": "c", "b16": "h", "u16": "h", "s16": "h", "f16": "fh", "bf16": "h",
    "b32": "r", "u32": "r", "s32": "i", "f32": "f", "b64": "d", "u64": "d", "s64": "d", "f64": "g", "b128": "q",
    "f16x2": "fx",
}  # fmt: skip
BITS = {1: "p", 8: "c", 16: "h", 32: "r", 64: "d", 128: "q"}
ODD = (
    *["0", "1", "-1", "31", "32", "64", "255", "65536", "0x8000000000000000", "1.5", "0f7F800000", "0d7FF8000000000000", "nothing", "_", "k", "memory", "near", "twice"],
    *["!p1", "-r1", "r1|p1", "p1|p2", "v", "v.x", "own", "passed", "%tid.x", "%clock64", "%laneid", "%warpid", "%envreg1", "%nothing", "fixed", "WARP_SZ", "memory+4"],
    *["[memory]", "[d1]", "[d2+4]", "[r1]", "[r1+-4]", "[0]", "[h1]", "[p1]", "[out]", "[passed]", "[own+8]", "[nothing]", "[twice]", "[d1+1]", "[fixed]"],
    "{r1, r2}", "{r1, r2, r3}", "{f1, f2, f3, f4}", "{h1, h2}", "{_, _}", "{d1}", "{p1, p2}", "{1, 2, 3, 4}", "{}",
    "(r1)", "(passed)", "[d1, {r1, r2}]", "[d1+99999999999]", "{r0, r1, r2, r3, r4, r5, r6, r7}",
)  # fmt: skip
ROWS_IN_ORDER = [row for rows in ROWS.values() for row in rows]
MATRIX = [
    form.name for form in (*MULTIPLICATIONS[::7], *WMMA_MOVES[::5], *LDMATRIX, *STMATRIX, MOVMATRIX)
]
GUARDS = ("", "", "", "", "@p1 ", "@!p2 ", "@r1 ", "@%tid.x ")


def instruction(draw: random.Random) -> str:
    """Return an instruction: a form of any row, with what it takes, or with something odd among it."""
    row = draw.choice(ROWS_IN_ORDER)
    guard = draw.choice(GUARDS) if draw.random() < 0.3 else ""
    if row.tabled:
        name = draw.choice(MATRIX)
        operands = [_vector(draw, draw.choice("rfhd"), draw.choice((1, 2, 4, 8))) for _ in range(4)]
        return f"{guard}{name} {', '.join(operands[: draw.randint(2, 4)])};"
    form = RowForm(row, tuple(draw.choice(slot.choices) for slot in row.slots))
    operands = list(_operands(draw, row, form))
    for _ in range(draw.choice((0, 0, 0, 1, 1, 2))):
        at = draw.randrange(len(operands) + 1)
        operands[at : at + draw.randint(0, 1)] = [draw.choice(ODD)] * draw.randint(0, 1)
    return f"{guard}{form.name} {', '.join(operands)};"


def _operands(draw: random.Random, row: Row, form: RowForm) -> Iterator[str]:
    halves: list[str] = []
    for kind, name in zip(row.results, form.results, strict=True):
        if name in TYPES:
            halves.append(_operand(draw, kind, name, form))
    if halves:
        yield "|".join(halves[: draw.choice((1, 2))])
    for kind, name in zip(row.sources, form.operands, strict=True):
        if kind.kind == "name":
            yield draw.choice(("ahead", "bare", "(passed), twice, (passed)", "d1"))
        elif name in TYPES and not (kind.optional and draw.random() < 0.5):
            yield _operand(draw, kind, name, form)


def _operand(draw: random.Random, kind: OperandClass, name: str, form: RowForm) -> str:
    if kind.kind == "address":
        space = "d2" if any(part.startswith("shared") for part in form.modifiers) else "d1"
        return f"[{space}+{draw.choice((0, 0, 16, 64, 4, 1))}]"
    if kind.kind == "constant":
        return str(draw.choice((0, 1, 3, 16)))
    letter = BY_TYPE.get(name) or BITS.get(TYPES[name].bits, "r")
    if kind.vector:
        return _vector(draw, letter, form.count(kind))
    return f"{letter}{draw.randrange(3)}"


def _vector(draw: random.Random, letter: str, count: int) -> str:
    names = [f"{letter}{n}" for n in range(count)]
    return names[0] if count == 1 else f"{{{', '.join(names)}}}"


def program(instructions: list[str], target: str) -> str:
    return (
        f".version 8.7\n.target {target}\n{DECLARED}.visible .entry k(.param .u64 out)\n{{{REGISTERS}"
        + "\n".join(instructions)
        + "\nahead: ret;\n}\n"
    )


def outcome(text: str, target: str) -> PtxlabError | None:
    """Load and run; anything but a PtxlabError, a warning too, leaves as it is."""
    with warnings.catch_warnings(), at_most(SECONDS, TimeoutError):
        warnings.simplefilter("error")
        device = open_device("emulator", arch=target, console=lambda text: None)
        try:
            device.load(text).kernel("k").launch(1, 40, [0])
        except PtxlabError as error:
            return error
    return None


def sound(seed: int) -> tuple[list[str], str]:
    """Return instructions each of which is accepted, and the target."""
    draw = random.Random(seed)
    target = draw.choice(("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"))
    accepted = []
    for _ in range(IN_A_PROGRAM):
        drawn = instruction(draw)
        error = outcome(program([drawn], target), target)
        assert error is None or len(str(error)) < 1000, drawn
        if error is None:
            accepted.append(drawn)
    return accepted, target


@pytest.mark.parametrize(
    "seed",
    [
        *range(ALWAYS),
        *thorough(range(ALWAYS, PROGRAMS)),
    ],
)
def test_each_is_refused_or_runs_and_so_do_those_that_run_together(seed: int) -> None:
    accepted, target = sound(seed)
    outcome(program(accepted, target), target)
