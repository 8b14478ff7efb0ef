"""``ptxlab fragments --ptx``: the mma of any program, beside what its arguments say that registers should hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab import find
from ptxlab.main import main
from ptxlab.verbs.dump.inferring import tile_of
from tests.together import in_one_test

GEMM = Path("ptx/gemm_m16n8k16_bf16_f32.ptx")
OURS = "ptx/mma_m16n8k16_bf16_f32.ptx"


def fragments(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["fragments", "--device", "emulator", *words])
    out, err = capsys.readouterr()
    return status, out + err


def edited(folder: Path, old: str, new: str) -> str:
    text = GEMM.read_text()
    assert old in text
    (folder / "mine.ptx").write_text(text.replace(old, new))
    return str(folder / "mine.ptx")


def first_mma() -> str:
    """Return the operands of the first mma of the GEMM, as they are written."""
    lines = GEMM.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("mma.sync"))
    return lines[at + 1].strip()


def test_every_mma_of_a_program_with_other_parameters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out = fragments(capsys, "--ptx", str(GEMM))
    assert status == 0
    assert out.count("D is right: the registers hold A @ B + C") == 8
    tiles = [line.rpartition("hold ")[2] for line in out.splitlines() if "B is right" in line]
    assert tiles == [f"b[0:16,{col}:{col + 8}]" for col in (0, 8, 16, 24)] * 2
    assert out.count("C is unknown: all of its elements are 0") == 8

    operands = first_mma()
    _, a, *_ = (part.strip("{}; ") for part in operands.split("}, {"))
    a0, a1, a2, a3 = a.split(", ")
    swapped = operands.replace(a, f"{a0}, {a2}, {a1}, {a3}")
    file = edited(tmp_path, operands, swapped)
    status, out = fragments(capsys, "--ptx", file, "--json")
    instructions = json.loads(out)["instructions"]
    assert status == 1
    assert [
        [comparison["wrong"] for comparison in each["comparisons"]] for each in instructions
    ] == [
        [128, 0, 0],
        *[[0, 0, 0]] * 7,
    ]
    wrong = instructions[0]["comparisons"][0]
    assert (wrong["operand"], wrong["expected"]) == ("A", "a[0:16,0:16]")
    assert wrong["explained"][0] == "a1 and a2 are swapped"
    line = str(instructions[1]["line"])
    status, out = fragments(capsys, "--ptx", file, "--at", line)
    assert (status, out.count("line ")) == (0, 1)


def test_a_program_as_ours_is_told_of_by_line_and_its_mismatches_are_few(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = Path(OURS).read_text()
    (tmp_path / "mine.ptx").write_text(
        text.replace("{a0, a1, a2, a3}, {b0", "{a0, a2, a1, a3}, {b0")
    )
    status, out = fragments(capsys, "--ptx", str(tmp_path / "mine.ptx"))
    assert status == 1
    told, table = (part.splitlines() for part in out.split("\n\n")[1:3])
    assert told[0] == "line 218: A is WRONG: a1 and a2 are swapped"
    assert (len(told), len(table)) == (2, 2 + 8 + 1)
    assert table[-1] == "... and 536 more; --full has them all"
    _, out = fragments(capsys, "--ptx", str(tmp_path / "mine.ptx"), "--json")
    data = json.loads(out[out.index("{") :])
    assert (data["explained"], len(data["mismatches"])) == (told, 544)


def test_with_arguments_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--arg", "d=arange(16x8,f32)", "--arg", "k=16", "--arg", "a=ones(16x16,bf16)"]
    status, out = fragments(capsys, "--ptx", OURS, *arguments)
    assert status == 0
    assert "A is unknown: all of its elements are 1: nothing tells them apart" in out
    assert "C is right: the registers hold d[0:16,0:8]" in out
    assert "D is right: the registers hold A @ B + C" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arg", "k=1"], "--arg goes with --ptx"),
        (["--at", "mma.sync"], "--at goes with --ptx"),
        (["--ptx", str(GEMM), "--op", "m16n8k16"], "--op is about one instruction"),
        (["--ptx", str(GEMM), "--lane", "3"], "--lane is about one instruction"),
        (["--ptx", str(GEMM), "--at", "99999"], "there is no instruction on line 99999"),
        (["--ptx", "ptx/mbarrier.ptx"], "mbarrier has no label or instruction mma.sync"),
        (["--ptx", OURS, "--arg", "k=0"], "comes by none of 1 instructions"),
    ],
)
def test_what_is_wrong_is_said(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    status, out = fragments(capsys, *words)
    assert status == 2
    assert message in out


# ---- which tile -----------------------------------------------------------------------------

MMA = find("m16n8k16", dtype="bf16")


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(np.uint16).astype(np.uint64)


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    random = np.random.default_rng(7)
    a = random.permutation(2**14)[: 48 * 64].astype(np.uint16).view(ml_dtypes.bfloat16)
    b = random.permutation(2**14)[: 64 * 64].astype(np.uint16).view(ml_dtypes.bfloat16)
    return {"a": a.reshape(48, 64), "b": b.reshape(64, 64), "n": 3}


@in_one_test("end", ["", ".T"])
@in_one_test("corner", [(0, 0), (5, 17), (16, 32)])
@in_one_test("name", "AB")
def test_the_tile_that_registers_hold(
    name: str, corner: tuple[int, int], end: str, arrays: dict[str, Any]
) -> None:
    layout = MMA.operand(name)
    row, col = corner
    letter = name.lower()
    sizes = (layout.cols, layout.rows) if end else (layout.rows, layout.cols)
    text = f"{letter}[{row}:{row + sizes[0]},{col}:{col + sizes[1]}]"
    tile = arrays[letter][row : row + sizes[0], col : col + sizes[1]]
    words = layout.pack(bits(tile.T if end else tile))
    assert tile_of(layout, words, arrays) == text + end
    # Registers that are exchanged, and lanes that are shifted, hold the same numbers: as many places of
    # a square are then right with it transposed.
    square = layout.rows == layout.cols
    for wrong in (words[:, ::-1], np.roll(words, 1, axis=0)):
        assert tile_of(layout, wrong, arrays) == (text if square else text + end)
    # An eighth of it from elsewhere changes nothing; all of it from elsewhere says nothing.
    spoilt = words.copy()
    spoilt[:4] = 0x7FFE7FFD
    assert tile_of(layout, spoilt, arrays) == text + end
    assert tile_of(layout, np.full_like(words, 0x7FFE7FFD), arrays) is None
    assert tile_of(layout, words, {"n": 3, "short": tile.ravel(), "small": tile[:3]}) is None


def test_exchanged_registers_hold_their_tile_and_none_that_matches_by_chance() -> None:
    numbers = np.random.default_rng(7).permutation(
        np.repeat(np.arange(1, 1025, dtype=np.uint16), 4)
    )
    b = numbers.view(ml_dtypes.bfloat16).reshape(64, 64)
    layout = MMA.operand("B")
    for row, col in ((0, 16), (16, 0), (48, 56)):
        words = layout.pack(bits(b[row : row + 16, col : col + 8]))[:, ::-1]
        assert tile_of(layout, words, {"b": b}) == f"b[{row}:{row + 16},{col}:{col + 8}]"
