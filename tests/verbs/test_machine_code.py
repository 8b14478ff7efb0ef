"""``dump``, ``profile`` and ``step`` of the machine code of a program: its instructions, its registers, what it is made from."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ptxlab.main import main

PTX = """\
// Run: ptxlab run FILE --grid 2 --block 64 --arg x=zeros(128,s32)
.version 8.0
.target sm_80
.address_size 64
.visible .entry sum(.param .u64 x)
{
    .reg .b64 at; .reg .b32 i, n, total; .reg .pred more;
    ld.param.u64 at, [x];
    mov.u32 n, %tid.x;
    mad.wide.u32 at, n, 4, at;
    mov.u32 i, 0;
    mov.u32 total, 0;
AGAIN:
    mad.lo.u32 total, i, i, total;
    add.u32 i, i, 1;
    setp.lt.u32 more, i, n;
    @more bra AGAIN;
    st.global.u32 [at], total;
    ret;
}
"""
SASS = ["--engine", "sass", "--arch", "sm_80", "--json"]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.ptx").write_text(PTX)
    return "sum.ptx"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, *SASS]) == 0
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return output


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(PTX.splitlines(), 1) if text in line)


def store(capsys: pytest.CaptureFixture[str], program: str) -> dict[str, Any]:
    """Return the line of the profile that stores."""
    lines = told(capsys, "profile", program)["lines"]
    [line] = [line for line in lines if " STG.E " in line["text"]]
    assert isinstance(line, dict)
    return line


def test_a_line_of_machine_code_is_counted_as_one_instruction(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = told(capsys, "profile", program)["lines"]
    executed = {line["text"]: line["executed"] for line in lines}
    assert all(text.startswith("/*") for text in executed)
    # Two CTAs of two warps each do what is in no loop once: a shifted sum with its carry too.
    once = [text for text in executed if "LEA R2, P2" in text or "STG" in text or "S2R" in text]
    assert len(once) == 3
    assert [executed[text] for text in once] == [4] * 3


@pytest.mark.parametrize("before", [True, False])
def test_registers_are_looked_at_around_an_instruction_by_its_opcode_and_by_its_address(
    program: str, capsys: pytest.CaptureFixture[str], before: bool
) -> None:
    address = int(store(capsys, program)["text"][2:6], 16)
    moment = ["--before"] if before else []
    dumps = [
        told(capsys, "dump", program, "--at", at, "--warp", "1", *moment)
        for at in ("STG", f"{address:#06x}")
    ]
    assert dumps[0]["places"] == dumps[1]["places"]
    [dumped] = dumps[0]["places"]
    assert dumped["instruction"] == "STG.E"
    assert dumped["source"] == {"path": "sum.ptx", "line": line_of("st.global")}
    value = dumped["registers"][-1]
    column = dumped["registers"].index(value)
    held = [int(lane["words"][column], 16) for lane in dumps[0]["lanes"]]
    assert held == [sum(i * i for i in range(tid)) for tid in range(32, 64)]


def test_a_product_that_adds_is_looked_at_before_and_after_all_that_it_became(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """LEA is several instructions of PTX: sum and carry are there behind the last of them, and not before."""
    lines = told(capsys, "profile", program)["lines"]
    lea = next(int(line["text"][2:6], 16) for line in lines if "LEA R2, P2" in line["text"])
    after, before = (
        told(capsys, "dump", program, "--at", f"{lea:#x}", "--regs", "R2", *words)
        for words in ([], ["--before"])
    )
    first, second = (
        [int(lane["words"][0], 16) for lane in each["lanes"]] for each in (after, before)
    )
    assert {b - a for a, b in pairwise(first)} == {4}
    assert {b - a for a, b in pairwise(second)} != {4}


def test_an_address_that_is_none_is_refused(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump", program, "--at", "0x7770", *SASS]) == 2
    assert "sum has no label or instruction 0x7770" in capsys.readouterr().out


def test_what_is_stepped_through_has_the_registers_of_the_machine(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = told(capsys, "step", program)
    names = {register["name"] for register in recorded["registers"]}
    assert {"R2", "R3", "P0"} <= names
    assert all(name.lstrip("U")[0] in "RPB" and name.lstrip("URPB").isdigit() for name in names)
    stored = [i for i in recorded["instructions"] if " STG.E " in i["text"]]
    assert stored[-1]["source"] == {"path": "sum.ptx", "line": line_of("st.global")}


def test_lines_of_machine_code_need_its_engine(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", program, "--by", "sass"]) == 2
    assert "say --engine sass" in capsys.readouterr().err


def test_a_step_is_an_instruction_of_the_machine(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many of PTX it was lifted into, and each turn of a loop is one of its own."""
    recording = told(capsys, "step", program, "--warp", "0")
    texts = [each["text"] for each in recording["instructions"]]
    executed = Counter(texts[step["instruction"]] for step in recording["steps"])
    again = {text for text, count in executed.items() if count > 1}
    assert len({executed[text] for text in again}) == 1
    assert len(again) == 10
    assert sum(" LEA.HI.X " in text for text in executed) == 1


def test_a_line_of_the_listing_is_named_by_its_file(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = store(capsys, program)["line"]
    by_line, by_file = (
        told(capsys, "dump", program, "--at", at) for at in (str(stored), f"sum.sass:{stored}")
    )
    assert by_line | {"at": by_file["at"]} == by_file
    assert main(["dump", program, "--at", f"other.sass:{stored}", *SASS]) == 2
    assert f"other.sass:{stored} is no line of sum.ptx" in capsys.readouterr().err
