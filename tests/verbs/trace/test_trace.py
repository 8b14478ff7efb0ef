from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ptxlab.main import main
from tests.observe.pipelines import MEET, RING


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.ptx").write_text(RING)
    return "ring.ptx"


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(["trace", *arguments]) == status, capsys.readouterr().err
    return capsys.readouterr().out


def test_json_has_every_event(ring: str, capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, Any] = json.loads(run(capsys, ring, "--json"))
    assert told["schema"] == "ptxlab.trace/1"
    assert (told["kernel"], told["device"], told["arch"]) == ("ring", "emulator", "sm_90a")
    assert (told["grid"], told["block"], told["ctas"]) == ([1, 1, 1], [160, 1, 1], [[0, 0, 0]])
    assert (told["warps"], told["cut"], told["fault"]) == (5, False, None)
    assert len(told["executed"]) == len(told["who"])
    landings = told["executed"].count(-1)
    assert landings == sum(flight["queue"] == "signals" for flight in told["flights"]) == 32
    assert max(told["executed"]) == len(told["instructions"]) - 1
    for instruction in told["instructions"]:
        line = RING.splitlines()[instruction["line"] - 1]
        assert instruction["text"].split()[-1] == line.split("//")[0].split()[-1]
    assert [tile["name"] for tile in told["tiles"]][:2] == ["tiles", "tiles+0x900"]
    assert told["mbarriers"][0]["states"][0] == {"at": 5, "phase": 0, "pending": 1, "tx": 0}


@pytest.mark.parametrize(
    "name", ["mbarrier", "tma_load_swizzle", "wgmma_m64n8k16_ss", "cluster_exchange"]
)
def test_warps_of_shipped_programs_execute_what_is_counted(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told: dict[str, Any] = json.loads(run(capsys, f"ptx/{name}.ptx", "--json"))
    assert main(["profile", f"ptx/{name}.ptx", "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    executed = sum(len(told["together"][who]) for who in told["who"])
    clusters = counted["totals"]["ctas"] // len(told["ctas"])
    assert counted["instructions"] == clusters * executed


def test_words_say_what_there_was_of_each(ring: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, ring)
    assert text.startswith("ring, CTA 0, on the emulator (sm_90a)\n")
    assert re.search(
        r"^copies +32 of 36,864 bytes, at most 9,216 on their way at once$", text, re.M
    )
    assert re.search(r"^mbarrier empty\+0x18 +4 phases complete$", text, re.M)
    waiting = next(n for n, line in enumerate(RING.split("\n"), 1) if "[is_empty], parity" in line)
    assert re.search(rf"in steps of others\nline {waiting} +\d+  mbarrier.try_wait", text)
    early = run(capsys, ring, "--schedule", "early")
    assert "at most 2,048 on their way at once" in early
    assert "the first 50 steps" in run(capsys, ring, "--steps", "50")


def test_a_page_is_written_to_a_file_of_that_name(
    ring: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, ring, "-o", "page.html") == ""
    page = (tmp_path / "page.html").read_text()
    assert page == run(capsys, ring, "--format", "html")
    assert "<title>ring, CTA 0, on the emulator (sm_90a)</title>" in page
    assert not re.search(r"(src|href)=|https?://|@import|url\(|@[a-z]+@", page)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert data is not None
    told = json.loads(run(capsys, ring, "--json"))
    embedded = json.loads(data[1])
    assert {name: embedded[name] for name in told} == told
    assert embedded["text"][str(told["instructions"][0]["line"])] == "    mov.u32 t, %tid.x;"


def test_a_launch_that_stops_has_a_page_and_the_status_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = MEET.format(kind="sync", count=3).replace(
        "bar.sync 2, 64;\n    ret;\nwork", "ret;\nwork"
    )
    Path("alone.ptx").write_text(text)
    told = run(capsys, "alone.ptx", "--block", "64", status=1)
    assert "the launch stopped: alone.ptx:" in told
    assert "deadlock" in told
    assert main(["trace", "alone.ptx", "--block", "64", "-o", "page.html"]) == 1
    assert "the launch stopped, and page.html has what came before" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["trace", "step"])
def test_a_launch_of_cuda_c_that_stops_is_told_by_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("far.cu").write_text(
        'extern "C" __global__ void far(float* x)\n{\n    x[threadIdx.x + 1] = 2.0f;\n}\n'
    )
    assert (
        main([verb, "far.cu", "--block", "32", "--arg", "x=zeros(32,f32)", "-o", "page.html"]) == 1
    )
    told = capsys.readouterr().err
    assert "far.cu:3:5: global store of 4 bytes" in told
    assert re.search(r"it is st\.global\.[bu]32 .*; on line \d+ of far.cu \(PTX\)", told)


def test_what_cannot_be_traced_is_refused(ring: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", ring, "--cta", "0,1"]) == 2
    assert "there is no CTA (0, 1, 0) in a grid of (1, 1, 1)" in capsys.readouterr().err
    assert main(["trace", ring, "--device", "cuda"]) == 2
    assert "leave out --device" in capsys.readouterr().err


def test_a_gpu_is_a_second_axis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "ptx/mbarrier.ptx", "--gpu", "h100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["predicted"]
    assert (told["gpu"], told["arch"], told["left_out"]) == ("H100 SXM", "sm_90a", 0)
    issues = list(zip(*told["issues"].values(), strict=True))
    cycles = [cycle for _, _, cycle, _, _ in issues]
    assert cycles == sorted(cycles)
    for warp in (0, 1):
        own = [issue for issue in issues if issue[0] == warp]
        assert all(a[2] < b[2] for a, b in pairwise(own))  # one instruction a cycle at most
        assert all(b[2] - b[3] > a[2] for a, b in pairwise(own))  # it waits after the one before
        addresses = [told["code"][number]["address"] for _, number, _, _, _ in own]
        assert addresses[0] == 0
        assert told["code"][own[-1][1]]["text"] == "EXIT"
    # Each of the six rounds waits once for data and once for room.
    assert sum(told["reasons"][reason] == "mbarrier" for *_, reason in issues) >= 6


def test_a_prediction_says_what_it_is_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "ptx/mbarrier.ptx", "--gpu", "h100"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "cycles of H100 SXM at 1,980 MHz, with 1 CTA on its SM" in out
    assert main(["trace", "ptx/mbarrier.ptx", "--gpu", "a100"]) == 4
    assert "GPUs that run it" in capsys.readouterr().err
