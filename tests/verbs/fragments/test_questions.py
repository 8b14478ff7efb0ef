from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ptxlab.main import main


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["fragments", *words]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert err == ""  # nothing runs, so no device is named
    return out


def ask_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    output: dict[str, Any] = json.loads(ask(capsys, *words, "--json"))
    return output


def test_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ask(capsys, "--op", "m16n8k64", "--dtype", "s4", "--trace", "9,2").splitlines()
    assert lines[2] == "D[9,2] = C[9,2] + the sum of the products"
    assert lines[3:5] == ["D[9,2]  lane 5 d2", "C[9,2]  lane 5 c2"]
    assert len(lines) == 5 + 64
    assert lines[-1] == "A[9,63]  lane 7 a3[31:28]  *  B[63,2]  lane 11 b1[31:28]"
    output = ask_json(capsys, "--op", "m16n8k64", "--dtype", "s4", "--trace", "9,2")
    last = output["matrices"][0]["terms"][-1]
    assert last["a"] == [{"lane": 7, "register": 3, "low_bit": 28, "high_bit": 31}]
    assert (output["schema"], output["layout"]) == ("ptxlab.fragments.trace/1", "isa")


def test_a_trace_of_bits_multiplies_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ask(capsys, "--op", "m16n8k256.and", "--dtype", "b1", "--trace", "3,5").splitlines()
    assert lines[2] == "D[3,5] = C[3,5] + the number of ones among the terms"
    assert lines[5] == "A[3,0]    lane 12 a0[0]   and  B[0,5]    lane 20 b0[0]"


def test_a_trace_says_what_metadata_and_scales_decide(capsys: pytest.CaptureFixture[str]) -> None:
    sparse = ask(capsys, "--op", "m16n8k32", "--dtype", "f16", "--trace", "3,5")
    assert "as metadata in lane 12 bits 1:0 says" in sparse
    assert sparse.count(" or ") == 3 * 16
    scaled = ask(capsys, "--op", "m16n8k64", "--dtype", "e2m1", "--trace", "9,2")
    assert "scale of A in lane 5 byte 1, scale of B in lane 8 byte 1" in scaled
    assert "(byte-id, thread-id 0)\n" in scaled
    assert "(sparsity selector 0)\n" in sparse


def test_a_register_with_its_bits(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ask(
        capsys, "--op", "m16n8k32", "--dtype", "e2m1", "--register", "a2", "--lane", "1"
    ).splitlines()
    assert lines[2] == "of the 8 bits of an element, bits 5 to 2 are the number"
    assert lines[3].split() == ["lane", "[7:0]", "[15:8]", "[23:16]", "[31:24]"]
    assert lines[4].split() == ["1", "0,20", "0,21", "0,22", "0,23"]
    output = ask_json(capsys, "--op", "m16n8k8", "--dtype", "tf32", "--register", "B1")
    assert output["slots"] == [
        {"low_bit": 0, "high_bit": 31, "data_low_bit": 13, "data_high_bit": 31}
    ]
    assert output["lanes"][6] == {"lane": 6, "elements": [[6, 1]]}


def test_formulas_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    text = ask(capsys, "--formula")
    assert "  row = (lane >> 2) + 8 * (register & 1)\n" in text
    assert "  lane     = (col >> 1 & 3) + 4 * (row & 7)\n" in text
    output = ask_json(capsys, "--formula")
    assert output["operands"]["A"]["element"]["row"]["fields"] == [
        {"source": "lane", "low_bit": 2, "bits": 3, "to_bit": 0},
        {"source": "register", "low_bit": 0, "bits": 1, "to_bit": 3},
    ]
    assert "def a_place(row, col):" in ask(capsys, "--code", "python")
    assert ask_json(capsys, "--code", "cuda")["code"] == ask(capsys, "--code", "cuda")
    text = ask(capsys, "--formula", "--operand", "b")
    assert [block.partition("  ")[0] for block in text.split("\n\n")[1:]] == ["B"]
    assert list(ask_json(capsys, "--formula", "--operand", "B")["operands"]) == ["B"]
    for operand in "ABCD":
        text = ask(capsys, "--operand", operand, "--code", "python")
        functions = [line.partition("(")[0] for line in text.splitlines() if line[:3] == "def"]
        assert functions == [f"def {operand.lower()}_{end}" for end in ("element", "place")]


def test_moves(capsys: pytest.CaptureFixture[str]) -> None:
    text = ask(capsys, "--moves")
    assert "a2  pack  of d1_0, d1_1 of the same lane" in text
    output = ask_json(capsys, "--op", "m16n8k16", "--moves", "m16n8k32.e4m3")
    assert output["tiles"] == 4
    assert output["registers"][0]["kinds"] == ["pack", "shuffle", "prmt"]
    assert len(output["registers"][0]["shuffles"][0]["source_lanes"]) == 32
    assert output["permuted"]["columns"][:8] == [0, 1, 8, 9, 2, 3, 10, 11]
    assert ask_json(capsys, "--moves")["permuted"] is None
    text = ask(capsys, "--op", "m16n8k8", "--dtype", "tf32", "--moves")
    assert "p = (k >> 2) + 2 * (k & 3):" in text


def test_the_layouts_of_wmma_are_said_to_be_ptxlabs_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--op", "m16n16k16", "--dtype", "f16", "--formula"]
    assert "PTX leaves this layout open" in ask(capsys, *words)
    assert ask_json(capsys, *words)["layout"] == "ptxlab"
    assert main(["fragments", *words[:-1], "--element", "3,5"]) == 0
    assert "PTX leaves this layout open" in capsys.readouterr().out
    assert "PTX leaves it open" in ask(capsys, *words[:-1], "--format", "svg")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", "9"], "--trace: '9' is not ROW,COL"),
        (["--trace", "99,1"], "D has no element 99,1: it is 16 x 8"),
        (["--register", "a9"], "it has a0 to a3, b0 to b1, c0 to c3, d0 to d3"),
        (["--register", "x"], "has no register 'x'"),
        (["--code", "rust"], "choose from cuda, ptx, python"),
        (["--formula", "--format", "svg"], "a question is answered as text or json"),
        (["--formula", "--lane", "3"], "--lane goes with --register alone"),
        (["--formula", "--ptx", "x.ptx"], "a question runs none"),
        (["--formula", "--moves"], "not allowed with argument"),
        (["--moves", "--operand", "A"], "--operand goes with --formula and --code"),
        (["--moves", "ldmatrix.x4"], "multiplies nothing"),
        (["--moves", "m16n8k99"], "no matrix instruction is m16n8k99"),
    ],
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fragments", *words]) == 2
    assert message in capsys.readouterr().err


# ---- a warpgroup, and Tensor Memory ----

WGMMA = ("--op", "wgmma.m64n16k16", "--dtype", "bf16")


def test_a_trace_leads_into_shared_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """Thread 4 g + q of warp 1 has row 19 of A; line 9 of B is the second of its second eight."""
    lines = ask(capsys, *WGMMA, "--trace", "19,9").splitlines()
    assert lines[2] == "D[19,9] = D[19,9] + the sum of the products"
    assert lines[4] == "D[19,9]  thread 44 d5"
    assert lines[-1].split("  ")[-1].strip() == "start + SBO + LBO + 30"
    assert lines[-1].startswith("A[19,15]  thread 47 a2[31:16]")
    inside = ask(capsys, "--op", "wgmma.m64n16k16.ss", "--dtype", "bf16", "--trace", "19,9")
    assert inside.splitlines()[-1].startswith("A[19,15]  start + 2 SBO + LBO + 62 ")
    output = ask_json(capsys, *WGMMA, "--trace", "19,9")
    last = output["matrices"][0]["terms"][-1]
    assert last["a"] == [{"lane": 47, "register": 2, "low_bit": 16, "high_bit": 31}]
    assert last["b"] == [[{"line": 9, "unit": 1, "low_bit": 112, "high_bit": 127}]]


def test_threads_of_a_warpgroup(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ask(capsys, *WGMMA, "--register", "a2", "--lane", "77").splitlines()
    assert lines[-1].split() == ["77", "35,10", "35,11"]
    text = ask(capsys, *WGMMA, "--formula")
    assert "  thread   = (col >> 1 & 3) + 4 * (row & 7) + 32 * (row >> 4)\n" in text
    assert "true for every thread" in text
    names: dict[str, Any] = {}
    exec(ask(capsys, "--op", "wgmma.m64n24k16", "--dtype", "bf16", "--code", "python"), names)
    assert names["d_place"](35, 18) == (77, 8, 0)
    assert names["d_element"](77, 8, 0) == (35, 18)
    assert "cvt.rn.bf16x2.f32 a3, d0_7, d0_6;" in ask(capsys, *WGMMA, "--moves")
    assert main(["fragments", *WGMMA, "--lane", "128"]) == 2
    assert "no thread 128" in capsys.readouterr().err


def test_loads_from_tensor_memory_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Lanes of Tensor Memory are rows: those of a register come from where the figures of the PTX ISA say."""
    name = ("--op", "tcgen05.ld.16x256b.x2", "--device", "emulator")
    memory = ask(capsys, *name, "--lane", "5")
    assert "verified: every register of every lane is as predicted (2 generated probes)" in memory
    numbers = "1,2 18 1,3 19 9,2 146 9,3 147 1,10 26 1,11 27 9,10 154 9,11 155"
    assert ["5", *numbers.split()] in [line.split() for line in memory.splitlines()]
    output = ask_json(capsys, *name)
    assert (output["device"], output["arch"]) == ("emulator", "sm_100a")
    assert np.shape(output["operands"]["R"]["dump"]) == (32, 8)


def test_a_warpgroup_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A and B are numbered: row 49 of A begins with 784, and of 257 numbers in bf16 that is 13."""
    emulator = "--device", "emulator"
    text = ask(capsys, *WGMMA, *emulator, "--lane", "100")
    assert "verified: every register of every thread and every element in shared memory is" in text
    row = "100  49,0..1  13  14  57,0..1  141  142  49,8..9  21  22  57,8..9  149  150"
    assert row.split() in [line.split() for line in text.splitlines()]
    assert "B 16×16 bf16: in shared memory, contiguous along k or n" in text
    output = ask_json(capsys, "--op", "wgmma.m64n16k16.ss", "--dtype", "bf16", *emulator)
    assert (output["variant"], output["device"], output["arch"]) == ("ss", "emulator", "sm_90a")
    assert output["verified"]["layout"] is output["verified"]["result"] is True
    assert output["shared"]["B"]["majors"] == ["k", "mn"]
    dump = output["operands"]["D"]["dump"]
    a, b = (np.arange(n * 16) % 257 for n in (64, 16))
    product = a.reshape(64, 16) @ b.reshape(16, 16)
    assert len(dump) == 128
    assert dump[100][0] == f"{int(np.float32(product[49, 0]).view(np.uint32)):#010x}"


@pytest.mark.parametrize(("drawn", "most"), [("svg", 200_000), ("csv", 420_000), ("html", 500_000)])
def test_the_largest_is_drawn_small(
    drawn: str, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for op in ("wgmma.m64n256k16", "wgmma.m64n256k16.ss"):
        text = ask(capsys, "--op", op, "--dtype", "bf16", "--format", drawn)
        assert 10_000 < len(text) < most
