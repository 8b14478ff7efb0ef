"""Bits that nobody has measured are told by each verb that shows what was computed, with their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.clients.session import Session, Usage
from ptxlab.device.protocol import LaunchResult
from ptxlab.launch_config import LaunchConfig
from ptxlab.main import main
from ptxlab.verbs.exec import text as exec_text
from ptxlab.verbs.exec.text import ProgramOutcome
from tests.emulator.blackwell.cells import device, module
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_product import issued
from tests.emulator.blackwell.test_scaled_and_sparse import issued_scaled, put_scales, scaled

DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {f0,f1,f2,f3}, {r0,r1,r2,r3}, {r4,r5}, {f0,f1,f2,f3};"
SPARSE = (
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {f0,f1,f2,f3}, {r0,r1,r2,r3}, {r4,r5,r6,r7}, "
    "{f0,f1,f2,f3}, e, 0;"
)
ZEROS = " ".join(
    [*(f"mov.b32 r{i}, 0;" for i in range(8)), *(f"mov.f32 f{i}, 0f00000000;" for i in range(4))]
)
PROGRAM = f"""// Run: ptxlab run sums.ptx --grid 1 --block 32 --arg "d=zeros(32,f32)"
.version 7.1
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 d)
{{
    .reg .f32 f<4>;
    .reg .b32 r<8>, e, t;
    .reg .b64 p;
    mov.b32 e, 0x44444444; {ZEROS}
    SUM
    mov.u32 t, %tid.x;
    ld.param.u64 p, [d];
    mad.wide.u32 p, t, 4, p;
    st.global.f32 [p], f0;
    ret;
}}
"""
LINE = 11
TOLD = "nobody has measured the bits of line 11, they are those of the nearest rule that is known"


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("sparse.ptx").write_text(PROGRAM.replace("SUM", SPARSE))
    Path("dense.ptx").write_text(PROGRAM.replace("SUM", DENSE))
    return "sparse.ptx"


@pytest.mark.parametrize(
    "words",
    [
        ("run",), ("dump", "--at", "mma"), ("check",), ("profile",), ("trace",), ("step",),
        ("diff", "--a", "emulator:sm_80", "--b", "emulator:sm_80"),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_each_verb_names_the_line(
    words: tuple[str, ...], sums: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *more = words
    if verb != "diff":
        more += ["--device", "emulator", "--arch", "sm_80"]

    def told(file: str, *also: str) -> str:
        assert main([verb, file, *more, *also]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert f"unverified: {TOLD}" in told(sums)
    assert json.loads(told(sums, "--json"))["unverified"] == [LINE]
    assert "unverified" not in told("dense.ptx")
    assert json.loads(told("dense.ptx", "--json"))["unverified"] == []


@pytest.mark.parametrize("verb", ["trace", "step"])
def test_pages_say_so(verb: str, sums: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, sums, "--arch", "sm_80", "--format", "html"]) == 0
    assert f'<p class="note">unverified: {TOLD}</p>' in capsys.readouterr().out


def test_programs_of_others_say_so() -> None:
    session = Session("sm_80")
    address = session.device.allocate(128, "d")
    for _ in range(2):
        kernel = session.load(PROGRAM.replace("SUM", SPARSE), "sums.ptx").kernel("sums")
        session.launch(kernel, LaunchConfig.of(1, 32), address.to_bytes(8, "little"))
    assert session.usage["sums"].unverified == [LINE]
    outcome = ProgramOutcome("sm_80", ["python"], 0, {**session.usage, "others": Usage(1)}, None)
    assert exec_text.text(outcome, table=False).splitlines()[0] == f"sums is unverified: {TOLD}"
    told = [kernel["unverified"] for kernel in exec_text.as_json(outcome)["kernels"]]
    assert told == [[LINE], []]


def test_instructions_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> Any:
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    for name, fidelity in (("mma.sp.m16n8k32.f32.f16", "unverified"), ("m16n8k16", "exact")):
        assert told("explain", name, "--arch", "sm_80")["fidelity"] == fidelity
        assert told("fragments", "--op", name, "--arch", "sm_80")["fidelity"] == fidelity
        assert main(["fragments", "--op", name, "--arch", "sm_80"]) == 0
        said = "nobody has measured how sums are rounded" in capsys.readouterr().out
        assert said == (fidelity == "unverified")
    listed = told("ops", "--arch", "sm_80")["instructions"]
    assert {listing["fidelity"] for listing in listed if listing["family"] == "mma.sp"} == {
        "unverified",
        "exact",
    }
    assert {listing["fidelity"] for listing in listed if listing["family"] == "mma"} == {"exact"}


@pytest.mark.parametrize(
    ("name", "measured", "borrowing", "told"),
    [
        ("m16n8k16", "sm_120a", "sm_121a", True),
        ("m16n8k16", "sm_86", "sm_87", True),
        ("m16n8k32.s32.s8.s8", "sm_120a", "sm_121a", False),
        ("mma.m8n8k4.f64", "sm_100a", "sm_103a", False),
        ("tcgen05.mma.cta_group::1.kind::tf32", "sm_100a", "sm_110a", True),
        ("tcgen05.mma.cta_group::1.kind::i8", "sm_100a", "sm_110a", False),
        ("ldmatrix.m8n8.x4", "sm_120a", "sm_121a", False),
    ],
)
def test_sums_on_a_chip_that_nobody_has_measured_are_unverified(
    name: str,
    measured: str,
    borrowing: str,
    told: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Integers and what IEEE 754 defines are exact there too; what they compile to takes long, and is not asked."""
    monkeypatch.setattr("ptxlab.fragments.support.compiled", lambda form, targets: ())

    def fidelity(*words: str) -> dict[str, str]:
        assert main([*words, "--json"]) == 0
        output = json.loads(capsys.readouterr().out)
        some = output.get("instructions", [output])
        return {instruction["instruction"]: instruction["fidelity"] for instruction in some}

    for arch, unverified in ((measured, False), (borrowing, told)):
        explained = fidelity("explain", name, "--arch", arch)
        assert [*explained.values()] == ["unverified" if unverified else "exact"]
        assert fidelity("ops", "--arch", arch).items() >= explained.items()


@pytest.mark.parametrize(("arch", "lines"), [("sm_120a", []), ("sm_121a", [LINE])])
def test_a_program_on_such_a_chip_says_so(
    arch: str, lines: list[int], sums: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "dense.ptx", "--device", "emulator", "--arch", arch, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unverified"] == lines


def launched(problem: Problem, body: str, target: str = "sm_100a") -> LaunchResult:
    gpu = device(target, "late")
    cells = problem.cells()
    if problem.packed:
        a, _, b, _ = scaled(problem, 32, "ue8m0")
        put_scales(problem, cells, a, b)
    words = np.zeros(8, np.uint64)
    words[:3] = problem.words()
    arrays = [gpu.upload(array) for array in (cells, problem.shared(), words)]
    kernel = gpu.load(module(body, 32768, problem.group, target)).kernel("k")
    return kernel.launch(problem.group, 128, arrays, cluster=problem.group)


@pytest.mark.parametrize(
    ("problem", "tail", "known"),
    [
        (Problem("f16", 128, 16, "f16", "f16"), "yes", True),
        (Problem("f16", 128, 16, "f16", "f16"), "yes, 0", True),
        (Problem("f16", 128, 16, "f16", "f16"), "yes, 3", False),
        (Problem("f16", 256, 16, "f16", "f16", group=2), "yes", True),
        (Problem("f16", 64, 64, "f16", "f16", stationary=True), "yes", True),
        (Problem("i8", 256, 32, "s8", "s8", "s32", group=2), "yes", True),
    ],
    ids=lambda value: f"{value.kind}x{value.group}" if isinstance(value, Problem) else str(value),
)
def test_products_of_tcgen05(problem: Problem, tail: str, known: bool) -> None:
    lines = launched(problem, issued(problem, tail)).unverified
    assert len(lines) == (not known)
    for target in ("sm_110a", "sm_107a")[: 1 + (problem.kind != "i8")]:  # Rubin has no i8
        elsewhere = launched(problem, issued(problem, tail), target).unverified
        assert len(elsewhere) == (problem.kind != "i8")


@pytest.mark.parametrize(("k", "target"), [("96", "sm_103a"), ("64", "sm_103a"), ("64", "sm_100a")])
def test_scaled_products_are_known_where_they_are_measured(k: str, target: str) -> None:
    """A k of 96 has only the target that nobody has measured."""
    more = {"k": k} if k == "96" else {}
    problem = Problem("mxf4", 128, 16, "e2m1", "e2m1", more=more)
    lines = launched(problem, issued_scaled(problem, ""), target).unverified
    text = module(issued_scaled(problem, ""), 32768, 1, target).split("\n")
    assert ["tcgen05.mma" in text[line - 1] for line in lines] == [True] * (target == "sm_103a")
