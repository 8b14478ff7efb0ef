from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ptxlab.emulator.prepare.row import ROWS
from ptxlab.fragments import receipts, support
from ptxlab.fragments.probe_kernel import KERNEL, programs
from ptxlab.machine.sass import sass
from ptxlab.main import main
from ptxlab.matrix.catalog import MULTIPLICATIONS, families, forms
from ptxlab.matrix.form import Form
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX
from ptxlab.matrix.tcgen05 import TCGEN05
from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES
from ptxlab.matrix.wgmma import WGMMA, WGMMA_ORDER
from ptxlab.matrix.wmma import WMMA_MOVES
from ptxlab.toolchain import link_ptx


def ops(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["ops", *words, "--json"]) == 0, capsys.readouterr().err
    output = json.loads(capsys.readouterr().out)
    assert output["schema"] == "ptxlab.ops/1"
    instructions: list[dict[str, Any]] = output["instructions"]
    return instructions


def test_every_instruction_of_every_table_is_listed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = ops(capsys)
    moves: list[Form] = [*WMMA_MOVES, *LDMATRIX, *STMATRIX, MOVMATRIX]
    run = [*MULTIPLICATIONS, *moves, *WGMMA, *WGMMA_ORDER, *TCGEN05, *TENSOR_MEMORY_MOVES]
    names = Counter(row["instruction"] for row in output)
    assert names == Counter(form.name for form in run)
    assert len({(row["instruction"], row["variant"]) for row in output}) == len(output)
    emulated = {row["instruction"] for row in output if row["emulated"]}
    assert emulated == {form.name for form in run}
    assert set(output[0]) >= {
        "instruction",
        "family",
        "targets",
        "min_ptx",
        "emulated",
        "hardware",
    }


def test_target_version_and_family_filter(capsys: pytest.CaptureFixture[str]) -> None:
    """PTX ISA: e4m3 with f32 since PTX 8.4 on sm_89, with f16 since 8.7; stmatrix since sm_90."""
    names = {row["instruction"] for row in ops(capsys, "--arch", "sm_89", "--ptx", "8.4")}
    assert "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" in names
    assert "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16" not in names
    assert not any(name.startswith("stmatrix") or "kind::" in name for name in names)
    later = {row["instruction"] for row in ops(capsys, "--arch", "sm_89", "--ptx", "8.10")}
    assert "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16" in later
    assert [row["family"] for row in ops(capsys, "--family", "stmatrix", "--arch", "sm_90")] == [
        "stmatrix"
    ] * 6
    assert ops(capsys, "--family", "stmatrix", "--arch", "sm_80") == []
    both = ops(capsys, "--family", "mma", "--arch", "sm_75", "--arch", "sm_120a")
    assert both == ops(capsys, "--family", "mma", "--arch", "sm_75")


def test_the_text_counts_what_it_lists(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(receipts, "FOLDER", tmp_path)
    assert main(["ops", "--family", "ldmatrix", "--arch", "sm_80"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ldmatrix  6 instructions"
    assert lines[1].startswith("  ldmatrix.sync.aligned.m8n8.x1.shared.b16 ")
    assert lines[1].endswith("PTX 6.5, sm_75")
    assert lines[-1] == ("6 instructions, 6 run on the emulator, 0 proven on hardware by a receipt")


def test_what_the_emulator_lacks_is_found_by_asking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [e for e in forms() if e.family in ("movmatrix", "ldmatrix", "stmatrix")]
    assert support.run_by_emulator(some) == {entry.name for entry in some}
    monkeypatch.delitem(ROWS, "ldmatrix")
    kept = support.run_by_emulator(some)
    assert kept == {entry.name for entry in some if entry.family != "ldmatrix"}


MACHINE = {
    "mma": "HMMA",
    "mma.block_scale": "QMMA",
    "mma.sp": "HMMA",
    "mma.sp.block_scale": "QMMA",
    "wmma": "HMMA",
    "ldmatrix": "LDSM",
    "stmatrix": "STSM",
    "movmatrix": "MOVM",
    "wgmma": "HGMMA",
    "wgmma.sp": "HGMMA",
    "wgmma.fence": "WARPGROUP",
    "wgmma.commit_group": "WARPGROUP",
    "wgmma.wait_group": "WARPGROUP",
    "tcgen05.mma": "UTCHMMA",
    "tcgen05.mma.sp": "UTCHMMA",
    "tcgen05.mma.ws": "UTCHMMA",
    "tcgen05.mma.ws.sp": "UTCHMMA",
    "tcgen05.mma.block_scale": "UTCQMMA",
    "tcgen05.mma.sp.block_scale": "UTCQMMA",
    "tcgen05.cp": "UTCCP",
    "tcgen05.shift": "UTCSHIFT",
    "tcgen05.alloc": "UTCATOMSWS",
    "tcgen05.dealloc": "UTCATOMSWS",
    "tcgen05.relinquish_alloc_permit": "UVIRTCOUNT",
    "tcgen05.commit": "UTCBAR",
    "tcgen05.ld": "LDTM",
    "tcgen05.st": "STTM",
    "tcgen05.ld.red": "LDTM",
}
"""What executes a family, by the instruction set reference of the CUDA Binary Utilities."""

ORDER = {"tcgen05.wait", "tcgen05.fence"}
"""These order other instructions, and have none of their own."""


def by_target() -> dict[str, list[Form]]:
    """The first form of each family, by the newest target that has it."""
    firsts: dict[str, list[Form]] = {}
    for family in families():
        form = next(form for form in forms() if form.family == family)
        firsts.setdefault(form.targets[-1], []).append(form)
    return firsts


@pytest.mark.parametrize("target", by_target())
def test_a_generated_program_becomes_the_machine_instruction_of_its_family(target: str) -> None:
    """All programs for a target are kernels of one module, which costs the disassembler least."""
    of_target = by_target()[target]
    functions = sass(link_ptx(programs(of_target, target), arch=target))
    for number, form in enumerate(of_target):
        opcodes, family = functions[f"{KERNEL}{number}"].opcodes(), form.family
        assert opcodes.keys() >= ({MACHINE[family]} if family not in ORDER else set()), family
        others = {*MACHINE.values()} - {MACHINE.get(family), "HGMMA", "WARPGROUP"}
        assert others.isdisjoint(opcodes), family


def test_the_text_folds_what_differs_by_n_and_by_where_a_lies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["ops", "--family", "wgmma"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "wgmma  1092 instructions"
    (bf16,) = (line for line in lines if "bf16" in line)
    assert bf16.startswith("  wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 ")
    assert bf16.endswith("n 8 to 256 in steps of 8; A in registers or shared memory")
    assert lines[-1].startswith("1092 instructions, 1092 run on the emulator")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--family", "mmm"], "no family 'mmm'.*did you mean mma\\?"),
        (["--ptx", "8"], "not a PTX version, such as 8.4"),
        (["--arch", "sm_8"], "no target 'sm_8'"),
    ],
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", *words]) == 2
    assert re.search(message, capsys.readouterr().err)
