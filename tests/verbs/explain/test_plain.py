"""Instructions that are none of matrices, and names of which one resolver says what they mean."""

from __future__ import annotations

import json
import random

import pytest

import ptxlab
from ptxlab.emulator.prepare.forms import opcodes
from ptxlab.emulator.prepare.row import ROWS
from ptxlab.errors import PtxSyntaxError
from ptxlab.main import main
from ptxlab.matrix.catalog import find, matching
from ptxlab.verbs.explain.plain import meaning
from ptxlab.verbs.explain.truth import KNOWN, expression


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words, "--arch", "sm_80"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("mma", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("mma.sync", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("mma.sp", "mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("wgmma", "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"),
        ("tcgen05", "tcgen05.mma.cta_group::1.kind::f16"),
        ("wmma.load", "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"),
    ],
)
def test_an_opcode_is_the_one_that_it_names(name: str, first: str) -> None:
    assert matching(name)[0].name == first
    if name in ("mma", "mma.sync"):
        assert find(name).name == first


def test_every_opcode_of_registers_has_a_meaning() -> None:
    assert [name for name in opcodes() if not meaning(name, ROWS[name][0])] == []


def test_lop3_has_its_truth_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = explained(capsys, "lop3.b32", "0x96")
    assert "table 0x96: d = a ^ b ^ c" in out
    rows = [line.split() for line in out.splitlines() if " bit " in line]
    assert [int(d) for _, _, _, d, _, _ in rows] == [
        (a ^ b ^ c) for a in (0, 1) for b in (0, 1) for c in (0, 1)
    ]


def test_expressions_are_what_their_tables_say() -> None:
    """Python computes each from the inputs 0xf0, 0xcc, 0xaa, which is what makes a table."""
    for table in set(range(256)) - set(KNOWN):
        made = eval(expression(table), {"a": 0xF0, "b": 0xCC, "c": 0xAA}) & 0xFF
        assert made == table, expression(table)
    a, b, c = (random.Random(1).getrandbits(8) for _ in range(3))
    assert [0xCA >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1 for i in range(8)] == [
        (b if a >> i & 1 else c) >> i & 1 for i in range(8)
    ]


def test_a_line_of_ptx_is_an_instruction(capsys: pytest.CaptureFixture[str]) -> None:
    out = explained(capsys, "@!p shfl.sync.bfly.b32 r0, r1, 16, 31, -1;")
    assert "Read a register of another lane of the warp" in out
    assert "shfl[.sync].{up,down,bfly,idx}.b32 d, a, b, c, e" in out
    data = json.loads(explained(capsys, "add.s32", "--json"))
    assert all(sum(each["operands"]) == each["result"] for each in data["examples"])
    assert data["compiled"][0]["sass"].startswith("IADD3")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["addd"], "did you mean add"),
        (["add.foo"], "no add has .foo"),
        (["lop3.b32", "0x196"], "a table of lop3 has eight bits"),
        (["HMMA"], "HMMA is an instruction of machine code"),
        (["m16n8k18"], "the nearest are mma.sync.aligned.m16n8k16.row.col"),
        (["ldmatrix.x3"], "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        (["mma", "--gpu", "t4"], "does not run on T4"),
        (["ldmatrix.x4", "--gpu", "a100"], "no rate that is published"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words, "--arch", "sm_80"]) == 2
    assert told in capsys.readouterr().err


def test_parts_of_a_name_may_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    name = explained(capsys, "mma", "m16n8k16", "half", "--arch", "sm_80").splitlines()[0]
    assert name == "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"


def test_how_fast_a_product_is(capsys: pytest.CaptureFixture[str]) -> None:
    """NVIDIA A100 data sheet: 312 TFLOP/s of bf16; two m16n8k16 are 8 cycles apart on each of four tensor cores."""
    out = explained(capsys, "mma.m16n8k16.f32.bf16", "--gpu", "a100")
    assert "  A100 SXM  8       2,048                312" in out.splitlines()


@pytest.mark.parametrize(
    "name",
    [
        "mma.sync.aligned.m16n8k16.col.col.f32.bf16.bf16.f32",
        "mma.sync.aligned.m16n8k18.row.col.f32.bf16.bf16.f32",
    ],
)
def test_what_is_no_ptx_is_said_to_be_none(name: str) -> None:
    program = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { .reg .b32 r<9>; .reg .f32 f<9>;\n"
        f"{name} {{f0,f1,f2,f3}}, {{r0,r1,r2,r3}}, {{r4,r5}}, {{f0,f1,f2,f3}}; ret; }}\n"
    )
    with (
        ptxlab.open_device("emulator", arch="sm_80") as device,
        pytest.raises(PtxSyntaxError, match=f"ptxas takes no {name}") as caught,
    ):
        device.load(program).kernel().launch(grid=1, block=32, args=[])
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(
        "the nearest are mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    )
