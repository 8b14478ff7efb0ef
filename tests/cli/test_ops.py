from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from ptxlab.cli.main import main
from ptxlab.emulator.operation import STEPS
from ptxlab.fragments import support
from ptxlab.fragments.specimen import collection, program
from ptxlab.isa import INSTRUCTIONS, LDMATRIX, STMATRIX, WMMA_MOVES
from ptxlab.isa.entry import ENTRIES, Form
from ptxlab.toolchain import link_ptx


def ops(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["ops", *words, "--json"]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "ptxlab.ops/1"
    instructions: list[dict[str, Any]] = found["instructions"]
    return instructions


def test_every_instruction_of_every_table_is_listed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = ops(capsys)
    tables: list[Form] = [*INSTRUCTIONS, *WMMA_MOVES, *LDMATRIX, *STMATRIX]
    names = [one["instruction"] for one in found]
    assert Counter(names) == Counter(
        [form.name for form in tables] + ["movmatrix.sync.aligned.m8n8.trans.b16"]
    )
    assert all(one["emulated"] for one in found)
    assert set(found[0]) >= {
        "instruction",
        "family",
        "targets",
        "min_ptx",
        "emulated",
        "hardware",
    }


def test_target_version_and_family_filter(capsys: pytest.CaptureFixture[str]) -> None:
    """PTX ISA: e4m3 with f32 since PTX 8.4 on sm_89, with f16 since 8.7; stmatrix since sm_90."""
    names = {one["instruction"] for one in ops(capsys, "--arch", "sm_89", "--ptx", "8.4")}
    assert "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" in names
    assert "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16" not in names
    assert not any(name.startswith("stmatrix") or "kind::" in name for name in names)
    later = {one["instruction"] for one in ops(capsys, "--arch", "sm_89", "--ptx", "8.10")}
    assert "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16" in later
    assert [one["family"] for one in ops(capsys, "--family", "stmatrix", "--arch", "sm_90")] == [
        "stmatrix"
    ] * 6
    assert ops(capsys, "--family", "stmatrix", "--arch", "sm_80") == []
    both = ops(capsys, "--family", "mma", "--arch", "sm_75", "--arch", "sm_120a")
    assert both == ops(capsys, "--family", "mma", "--arch", "sm_75")


def test_the_text_counts_what_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "--family", "ldmatrix", "--arch", "sm_80"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ldmatrix  6 instructions"
    assert lines[1].startswith("  ldmatrix.sync.aligned.m8n8.x1.shared.b16 ")
    assert lines[1].endswith("PTX 6.5, sm_75")
    assert lines[-1] == ("6 instructions, 6 run on the emulator, 0 proven on hardware by a receipt")


def test_what_the_emulator_lacks_is_found_by_asking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [e for e in ENTRIES if e.family in ("movmatrix", "ldmatrix", "stmatrix")]
    assert support.emulated(some) == {entry.name for entry in some}
    monkeypatch.delitem(STEPS, "ldmatrix")
    kept = support.emulated(some)
    assert kept == {entry.name for entry in some if entry.family != "ldmatrix"}


def test_every_generated_program_assembles() -> None:
    """All of them, in one module, for the newest target, which has every instruction."""
    link_ptx(collection(ENTRIES, "sm_120a"), arch="sm_120a")
    link_ptx(program(ENTRIES[0], "sm_80"), arch="sm_80")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--family", "mmm"], "no family 'mmm'.*did you mean 'mma'"),
        (["--ptx", "8"], "not a PTX version, such as 8.4"),
        (["--arch", "sm_8"], "no target 'sm_8'"),
    ],
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", *words]) == 2
    assert re.search(message, capsys.readouterr().err)
