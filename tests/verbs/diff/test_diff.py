"""``ptxlab diff``: rounding between targets, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptxlab.errors import DeviceUnavailable
from ptxlab.main import main

MMA = "ptx/mma_m16n8k16_bf16_f32.ptx"


def test_two_targets_round_differently(capsys: pytest.CaptureFixture[str]) -> None:
    """sm_80 keeps fewer bits of a sum than sm_90 (shared by all public models of both)."""
    assert main(["diff", MMA, "--a", "emulator:sm_80", "--b", "emulator:sm_90a", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    first = report["first"]
    assert first["instruction"].startswith("mma.sync")
    assert first["verdict"] == "rounding"
    assert first["type"] == "f32"
    bits = np.array([int(word, 16) for word in first["bits"]], np.uint32).view(np.float32)
    assert [[float(value)] for value in bits] == first["values"]
    assert not report["same"]
    assert {output["name"]: output["differing"] > 0 for output in report["outputs"]} == {
        "a": False,
        "b": False,
        "d": True,
    }


APART = """\
.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred  p;
    .reg .b32   i, t, a, b;
    .reg .f32   d<4>;
    .reg .b64   o;
    mov.u32     i, %ctaid.x;
    mov.u32     t, %tid.x;
    mad.lo.u32  i, i, 96, t;
    mov.f32     d0, 0f3F800000;
    mov.f32     d1, d0;
    mov.f32     d2, d0;
    mov.f32     d3, d0;
    setp.lt.u32 p, i, 160;
    @p bra      done;
    setp.lt.u32 p, i, 164;
    selp.b32    a, 0, 0x39803980, p;
    mov.b32     b, 0x39003900;
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {d0, d1, d2, d3}, {a, a, a, a}, {b, b}, {d0, d1, d2, d3};
done:
    ld.param.u64 o, [out];
    mad.wide.u32 o, i, 4, o;
    st.global.f32 [o], d0;
    ret;
}
"""


def test_the_first_thread_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warp 2 of CTA 1 alone adds 16 times 2^-12 * 2^-13 to 1, but for rows 0 and 8 in lanes 0 to 3.

    sm_80 cuts each product at 2^-24 and has 1 left, sm_90a at 2^-25 and finds 1 + 2^-21.
    """
    file = tmp_path / "apart.ptx"
    file.write_text(APART)
    command = ["diff", str(file), "--a", "emulator:sm_80", "--b", "emulator:sm_90a"]
    command += ["--grid", "2", "--block", "96", "--arg", "out=zeros(192,f32)"]
    assert main([*command, "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    first = output["first"]
    names = ("thread", "cta", "warp", "lane", "register", "lanes")
    assert [first[name] for name in names] == [96 + 2 * 32 + 4, 1, 2, 4, "d0", 28]
    assert first["values"] == [[1.0], [1 + 2.0**-21]]
    assert output["outputs"][0]["place"] == [first["thread"]]
    assert main(command) == 1
    text = capsys.readouterr().out
    assert "register d0 of lane 4 of warp 2 of CTA 1" in text
    (row,) = (line.split() for line in text.splitlines() if line.startswith("  out "))
    assert row[3] == f"[{first['thread']}]"
    assert [np.float32(word) for word in row[4:]] == [1, 1 + 2.0**-21]


def test_the_same_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", MMA, "--a", "emulator:sm_80", "--b", "emulator:sm_86"]) == 0
    out = capsys.readouterr().out
    assert "the same to the bit" in out
    assert "first difference" not in out


def test_text_names_line_lane_register_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", MMA, "--a", "emulator:sm_80", "--b", "emulator:sm_90a"]) == 1
    out = capsys.readouterr().out
    assert f"first difference: {MMA}:" in out
    assert "register d" in out
    assert "rounding: " in out


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--device", "emulator"], 2, "two devices"),
        (["--arg", "d=zeros(1x8,f32)"], 4, f"{MMA}:"),  # the fault is in the file, not in a copy
    ],
)
def test_what_a_launch_is_refused_for(
    words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["diff", MMA, "--a", "emulator:sm_80", "--b", "emulator:sm_90a", *words]
    assert main(command) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_the_target_of_an_emulator_that_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "diff",
        MMA,
        "--a",
        "emulator",
        "--b",
        "emulator:sm_90a",
        "--arch",
        "sm_80",
        "--json",
    ]
    assert main(command) == 1
    output = json.loads(capsys.readouterr().out)
    assert (output["a"], output["b"]) == ("emulator:sm_80", "emulator:sm_90a")


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["diff", MMA, "--a", "emulator", "--b", "cuda:77"])
    assert status == 3
    assert "GPU" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["emulator:sm_12", "gpu", "cuda:x"])
def test_what_is_refused(capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert main(["diff", MMA, "--a", word]) == 2
    assert capsys.readouterr().out == ""


def test_without_a_gpu_what_can_be_compared_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: object, **__: object) -> None:
        raise DeviceUnavailable("no GPU can be used", hint="--device emulator")

    monkeypatch.setattr("ptxlab.device.opening.open_device", absent)
    assert main(["diff", "ptx/ldmatrix.ptx"]) == 3
    told = capsys.readouterr().err
    assert "--b emulator:sm_90a" in told
    assert "--device" not in told, "which diff refuses"
