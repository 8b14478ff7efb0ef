from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.main import main

MMA, LDMATRIX = "ptx/mma_m16n8k16_bf16_f32.ptx", "ptx/ldmatrix.ptx"


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(["step", *arguments]) == status, capsys.readouterr().err
    return capsys.readouterr().out


def inflated(page: str, name: str) -> bytes:
    match = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', page, re.S)
    assert match is not None
    return zlib.decompress(base64.b64decode(match[1]))


def test_json_says_what_every_step_changed(capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, Any] = json.loads(run(capsys, LDMATRIX, "--json"))
    assert told["schema"] == "ptxlab.step/1"
    assert (told["kernel"], told["arch"], told["cta"], told["warps"]) == (
        "ldmatrix_x1", "sm_90a", [0, 0, 0], [0]
    )  # fmt: skip
    loaded = next(
        n
        for n, instruction in enumerate(told["instructions"])
        if instruction["text"].startswith("ldmatrix")
    )
    [turn] = [step for step in told["steps"] if step["instruction"] == loaded]
    assert turn["lanes"] == "0xffffffff"
    [change] = [change for change in told["changes"] if change["step"] == turn["step"]]
    assert change["values"][5] == "0x000b000a"  # as the header of the file says
    stored = {change["address"]: change["words"] for change in told["shared"]}
    assert [stored[0][word] for word in (0, 3)] == ["0x00010000", "0x00070006"]


def test_words_say_what_there_is_to_see(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, MMA)
    assert text.startswith("mma_m16n8k16_bf16_f32, CTA (0, 0, 0), on the emulator (sm_90a)\n")
    assert re.search(r"^matrices +2 instructions have fragments$", text, re.M)
    assert "these are the first 20 steps" in run(capsys, MMA, "--steps", "20")


def test_a_page_holds_everything_and_loads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, MMA, "-o", "page.html") == ""
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"(src|href)=|https?://|@import|url\(|@[a-z]+@", page)
    facts = json.loads(inflated(page, "data"))
    assert len(inflated(page, "words")) == 4 * sum(facts["sizes"].values())
    assert facts["ptx"][217].strip().startswith("mma.sync")
    assert any(
        "HMMA" in instruction["text"] and instruction["line"] == 218
        for instruction in facts["sass"]
    )
    told = json.loads(run(capsys, MMA, "--json"))
    planes = np.frombuffer(inflated(page, "words"), np.uint8)
    executed = planes[: 4 * facts["sizes"]["executed"]].reshape(4, -1).T.copy().view("<u4")[:, 0]
    steps = {step["step"]: step["instruction"] for step in told["steps"]}
    assert [steps[at] for at in range(len(executed))] == executed.tolist()


def test_the_page_of_a_kernel_is_small_and_has_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    run(capsys, "kernels/tiled.cu", "-o", str(page))
    assert page.stat().st_size < 500_000  # 32 warps, 360 steps
    facts = json.loads(inflated(page.read_text(), "data"))
    assert any(path.endswith("tiled.cu") for path in facts["sources"])
    assert isinstance(facts["sass"], list)
    named = re.findall(r'^\s*\.file\s+\d+\s+"([^"]+)"', "\n".join(facts["ptx"]), re.MULTILINE)
    assert named
    assert facts["sources"].keys() <= set(named)
    chains = [line["sources"] for line in facts["places"] if line["sources"]]
    assert any(len(chain) > 1 for chain in chains)
    assert {chain[-1][0].rsplit("/", 1)[-1] for chain in chains} == {"tiled.cu"}


def test_a_product_of_a_warpgroup_is_marked_in_machine_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ptxas gives it the line of another instruction."""
    page = tmp_path / "page.html"
    run(capsys, "ptx/wgmma_m64n8k16_ss.ptx", "-o", str(page))
    facts = json.loads(inflated(page.read_text(), "data"))
    [line] = [
        instruction["line"]
        for instruction in facts["sass"]
        if instruction["text"].startswith("HGMMA")
    ]
    assert "wgmma.mma_async" in facts["ptx"][line - 1]


def test_what_cannot_be_stepped_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["step", MMA, "--warp", "1"]) == 2
    assert "there is no warp 1, a CTA of 32 threads has 1" in capsys.readouterr().err
    assert main(["step", MMA, "--device", "cuda"]) == 2
    assert "leave out --device" in capsys.readouterr().err
    assert main(["step", MMA, "--warp", "x"]) == 2
    assert "W or W,W,..." in capsys.readouterr().err
