from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from ptxlab.gemm import ALGORITHMS
from ptxlab.gemm import explain as story
from ptxlab.gemm.facts import KernelFacts
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.reference import Comparison
from ptxlab.gemm.side_by_side import RungJob
from ptxlab.gemm.verification import Verdict
from ptxlab.main import main
from tests.gemm.rungs import made

EXPLAIN = ("gemm", "--explain")
TWO = ("--algorithm", "naive,coalescing", "--size", "32")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*EXPLAIN, *words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    output = told(capsys, *TWO)
    assert output["schema"] == "ptxlab.gemm.explain/2"
    assert (output["device"], output["arch"], output["gpu"]["name"]) == (
        "emulator",
        "sm_90a",
        "H200 SXM",
    )
    assert (output["m"], output["n"], output["k"], output["passed"]) == (32, 32, 32, True)
    naive, coalescing = output["rungs"]
    assert (naive["algorithm"], naive["after"], naive["story"]["before"]) == ("naive", None, None)
    assert (coalescing["after"], coalescing["dtype"], coalescing["acc"]) == ("naive", "f32", "f32")
    (better,) = coalescing["story"]["better"]
    factor = naive["counts"]["sectors"] / coalescing["counts"]["sectors"]
    assert better["factor"] == pytest.approx(factor)
    assert f"{factor:.3g} times fewer sectors" in coalescing["story"]["text"]
    assert naive["bounds"]["by"] == "requests of global memory"
    assert naive["bounds"]["tflops"] < coalescing["bounds"]["tflops"]
    assert 0 < naive["share"] < 1


def test_the_machine_code_is_that_of_the_verb_sass(capsys: pytest.CaptureFixture[str]) -> None:
    (rung,) = told(capsys, "--algorithm", "tiled", "--size", "32")["rungs"]
    assert main(["sass", "kernels/tiled.cu", "--arch", "sm_90a", "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["programs"][0]["kernels"]
    for name in ("registers", "shared", "stack", "spill_stores", "spill_loads", "barriers"):
        assert rung["resources"][name] == kernel[name], name
    assert rung["resources"]["dynamic_shared"] == kernel["dynamic_shared"]
    assert rung["occupancy"] == kernel["occupancy"][0]


def test_text_and_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EXPLAIN, *TWO, "--layout", "tn"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == "the ladder at 32 x 32 x 32 (m x n x k), layout tn, on sm_90a"
    assert "coalescing, after naive: the axes swapped" in text
    assert "published, not measured" not in text
    assert "Limits are no measurements" in text
    assert max(map(len, text.splitlines())) <= 130
    assert main([*EXPLAIN, *TWO, "--format", "markdown"]) == 0
    page = capsys.readouterr().out
    assert "### global memory" in page
    assert "| rung | requests | sectors | ideal |" in page


def test_the_picture_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "roofline.svg"
    assert main([*EXPLAIN, *TWO, "--gpu", "rtx 4090", "--format", "svg", "-o", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert "RTX 4090" in "".join(ElementTree.parse(file).getroot().itertext())


def test_a_gpu_brings_its_target(capsys: pytest.CaptureFixture[str]) -> None:
    output = told(capsys, *TWO, "--gpu", "A100")
    assert (output["arch"], output["gpu"]["name"]) == ("sm_80", "A100 SXM")
    output = told(capsys, *TWO, "--gpu", "h100", "--arch", "sm_90")
    assert (output["arch"], output["gpu"]["name"]) == ("sm_90", "H100 SXM")


def test_another_tile(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--algorithm", "tiled", "--size", "32", "--tile", "BM=16,BN=16", "--group", "2"]
    (rung,) = told(capsys, *words)["rungs"]
    assert rung["tile"] == {"BM": 16, "BN": 16, "BK": 32, "GROUP": 2}
    assert rung["ctas"] == 4


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--device", "cuda"], 2, "on the emulator"),
        (["--all"], 2, "--explain is not for --list or --all"),
        (["--gpu", "h300"], 2, "there is no GPU 'h300', there are t4"),
        (["--gpu", "h100", "--arch", "sm_80"], 2, "sm_90 or sm_90a, not sm_80"),
        (["--arch", "sm_103a"], 2, "no GPU that is sm_103a"),
        (["--tile", "BM=64"], 2, "for one --algorithm"),
        (["--algorithm", "naive,numpy", "--size", "8"], 2, "numpy is no kernel"),
        (["--algorithm", "naiv"], 2, "did you mean naive"),
        (["--dtype", "f16", "--acc", "f16", "--layout", "nx"], 2, "nn, nt, tn, tt"),
        (["--size", "0"], 2, "nothing to count"),
        (["--dtype", "tf32", "--acc", "f16"], 2, "no algorithm computes tf32 -> f16"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*EXPLAIN, *words]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize(
    "words", [["--gpu", "a100"], ["--format", "svg"], ["--list", "--gpu", "t4"]]
)
def test_what_is_only_for_explain(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", "--device", "emulator", "--size", "8", *words]) == 2
    assert "for --explain" in capsys.readouterr().err


def test_all_rungs_that_take_the_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a wrong result is exit status 1."""
    asked: list[tuple[str, Problem]] = []

    def facts_of(device: object, job: RungJob) -> KernelFacts:
        asked.append((job.rung.name, job.problem))
        facts = made(job.rung.name)
        return KernelFacts(
            **{
                **{field: getattr(facts, field) for field in KernelFacts.__slots__},
                "verdict": Verdict(
                    Comparison(1.0, None, None, None), 0.5 if job.rung.name == "tiled" else 1.0
                ),
            }
        )

    monkeypatch.setattr(story, "facts_of", facts_of)
    assert main([*EXPLAIN, "--m", "8", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False
    assert [name for name, _ in asked] == list(ALGORITHMS)
    assert {(p.m, p.n, p.k) for _, p in asked} == {(8, 512, 512)}
    assert [(p.dtype, p.acc) for _, p in asked] == [a.types[0] for a in ALGORITHMS.values()]
    asked.clear()
    assert main([*EXPLAIN, "--dtype", "bf16", "--layout", "tn"]) == 0
    everywhere = [name for name, _ in asked if not ALGORITHMS[name].maps]
    assert everywhere == ["naive", "tensor_core"]
    assert "WRONG" not in capsys.readouterr().out
    assert main([*EXPLAIN, "--algorithm", "tiled"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_rungs_that_the_target_lacks_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["gemm", "--explain", "--size", "16", "--dtype", "f16", "--arch", "sm_75"]
    assert main([*asked, "--algorithm", "naive,tensor_core"]) == 0
    told = capsys.readouterr()
    assert "naive" in told.out
    assert "ptxlab: without tensor_core (f16 to f32): " in told.err
    assert "requires .target sm_80 or higher" in told.err
    assert main([*asked, "--algorithm", "tensor_core"]) == 4
    assert "sm_75 has no rung of these types" in capsys.readouterr().err
