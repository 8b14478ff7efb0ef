"""``ptxlab dump --expect``: an operand beside a matrix of the arguments."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptxlab.main import main
from ptxlab.matrix.naming import named
from ptxlab.verbs.dump.expecting import patterns

PROGRAM = Path("ptx/mma_m16n8k16_bf16_f32.ptx")


def dump(
    capsys: pytest.CaptureFixture[str], file: Path, expect: str, *more: str
) -> tuple[int, str]:
    words = ["dump", str(file), "--device", "emulator", "--at", "mma.sync", "--expect", expect]
    status = main([*words, *more])
    out, err = capsys.readouterr()
    return status, out + err


@pytest.fixture
def swapped(tmp_path: Path) -> Path:
    """The program with two registers of A exchanged, as a wrong index would."""
    path = tmp_path / "swapped.ptx"
    text = PROGRAM.read_text()
    assert "{a0, a1, a2, a3}, {b0" in text
    path.write_text(text.replace("{a0, a1, a2, a3}, {b0", "{a0, a2, a1, a3}, {b0"))
    return path


@pytest.mark.parametrize("expect", ["A=a[:,0:16]", "B=b[0:16]", "b=b[:16,:]"])
def test_the_operands_are_what_they_should_be(
    capsys: pytest.CaptureFixture[str], expect: str
) -> None:
    status, out = dump(capsys, PROGRAM, expect)
    assert status == 0
    operand, _, what = expect.partition("=")
    assert f"{operand.upper()} is right: the registers hold {what}" in out


def test_a_wrong_index_is_found_by_name(capsys: pytest.CaptureFixture[str], swapped: Path) -> None:
    status, out = dump(capsys, swapped, "A=a[:,0:16]")
    assert status == 1
    assert "A is WRONG: 128 of 256 elements are not a[:,0:16]\n  a1 and a2 are swapped\n" in out
    status, out = dump(capsys, swapped, "A=a[:,0:16]", "--json")
    (expectation,) = json.loads(out)["expectations"]
    assert status == 1
    assert (expectation["operand"], expectation["wrong"], expectation["elements"]) == (
        "A",
        128,
        256,
    )
    assert expectation["explained"][0] == "a1 and a2 are swapped"


def test_a_result_may_be_rounded(capsys: pytest.CaptureFixture[str]) -> None:
    product = "D=d + a[:,:16].astype(f32) @ b[:16].astype(f32)"
    assert dump(capsys, PROGRAM, product)[0] == 1
    assert dump(capsys, PROGRAM, product, "--tolerance", "1e-5")[0] == 0


def test_what_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = dump(capsys, PROGRAM, "A=a")
    assert status == 2
    assert "the operand is 16x16, this is 16x32" in out
    assert "take a tile of it, such as a[0:16,0:16]" in out
    status, out = dump(capsys, PROGRAM, "q=a")
    assert (status, "--expect q: operands are" in out) == (2, True)
    status, out = dump(capsys, PROGRAM, "A=nothing[:16,:16]")
    assert status == 2


@pytest.mark.parametrize(("times", "status"), [("2", 0), ("0.5", 1)])
def test_a_tolerance_is_of_what_is_expected(
    capsys: pytest.CaptureFixture[str], times: str, status: int
) -> None:
    """Half as much is half of what is expected away, twice as much is all of it."""
    product = f"D=(d + a[:,:16].astype(f32) @ b[:16].astype(f32)) * {times}"
    assert dump(capsys, PROGRAM, product, "--tolerance", "0.51")[0] == status


def test_a_matrix_the_wrong_way_round_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = dump(capsys, PROGRAM, "B=a[0:8,0:16]")
    assert status == 2
    assert "the operand is 16x8, this is 8x16" in out
    assert ", or a[0:8,0:16].T" in out
    assert ".T" not in dump(capsys, PROGRAM, "B=a[0:8,0:8]")[1]


def test_warps_that_were_not_there_hold_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "leaving.ptx"
    text = PROGRAM.read_text()
    kernel, brace = text.index(".entry"), text.index("{", text.index(".entry"))
    assert kernel < brace
    leave = (
        "{ .reg .pred gone; .reg .b32 me; mov.u32 me, %tid.x; setp.ge.u32 gone, me, 32; @gone exit;"
    )
    path.write_text(text[:brace] + leave + text[brace + 1 :])
    for warp, status in (("0", 0), ("1", 2)):
        returned, out = dump(capsys, path, "A=a[:,0:16]", "--block", "64", "--warp", warp)
        assert returned == status
    assert "not all lanes of it were there" in out


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 8),
        ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", 4),
    ],
)
def test_negative_integers_have_the_bits_of_their_type(name: str, bits: int) -> None:
    form = named(name)
    assert form is not None
    layout = form.operand("A")
    numbers = np.arange(-(1 << bits - 1), 1 << bits - 1).reshape(2, -1)
    words = patterns(layout, numbers)
    assert words is not None
    assert words.tolist() == [[int(value) % (1 << bits) for value in row] for row in numbers]
    assert patterns(layout, numbers.astype(np.float32)) is None
