"""``ptxlab diff --a ptx --b sass``: the program of docs/ptxas.md, with what CUDA 12.8 made of it and what is made now."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ptxlab.isa.targets import Target
from ptxlab.machine.lift.table import RULES
from ptxlab.main import main
from ptxlab.syntax import parse
from ptxlab.syntax.tree import PtxModule
from ptxlab.toolchain import link_ptx
from ptxlab.toolchain.cubin import Cubin

PAGE = Path(__file__).parents[3] / "docs" / "ptxas.md"
RECORDED = Path(__file__).with_name("distance_sm_90_cuda_12_8.cubin")
"""What nvJitLink 12.8.93 makes of the page's program for sm_90."""

ENGINES = ["--a", "ptx", "--b", "sass"]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    match = re.search(r"```ptx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert match is not None
    (tmp_path / "distance.ptx").write_text(match[1])
    monkeypatch.chdir(tmp_path)
    return "distance.ptx"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded as machine code is what CUDA 12.8 made."""

    def assembled(source: Path, target: Target, options: object) -> tuple[PtxModule, Cubin]:
        assert target.name == "sm_90"
        return parse(source.read_text(), str(source)), Cubin("sm_90", RECORDED.read_bytes(), "")

    monkeypatch.setattr("ptxlab.device.emulator.load_assembled", assembled)
    monkeypatch.setattr("ptxlab.toolchain.nvjitlink.version", lambda: "12.8.93")


@pytest.mark.usefixtures("recorded")
def test_the_negation_that_cuda_12_8_lost_is_found_as_the_page_says(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", program, *ENGINES, "--arch", "sm_90"]) == 1
    shown = re.search(r"--toolchain 12.8\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert shown is not None
    assert capsys.readouterr().out == shown[1]


@pytest.mark.usefixtures("recorded")
def test_as_json_too(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", program, *ENGINES, "--arch", "sm_90", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["verdict"], told["same"]) == (
        "ptxlab.diff.sass/1",
        "may not",
        False,
    )
    # |18 - tid| for tid of 25 and more is 7 and more, and x alone is negative there.
    assert [output["differing"] for output in told["outputs"]] == [
        sum(tid - 18 > 6 for tid in range(32))
    ]
    ptx, machine = told["first"]
    assert ptx["text"].startswith("max.s32")
    assert machine["text"].startswith("/*0070*/ VIMNMX3 R5, R0, UR4, R0")
    assert machine["origin"] == ptx["line"]
    assert (ptx["registers"]["%r5"], machine["registers"]["R5"]) == ("0x00000007", "0x00000006")


@pytest.mark.usefixtures("recorded")
def test_lines_of_cuda_stand_beside_those_of_ptx(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path(program).read_text().replace("size 64", 'size 64 .file 1 "distance.cu"')
    Path(program).write_text(text.replace("max.s32      %r5", ".loc 1 6 3 max.s32 %r5"))
    assert main(["diff", program, *ENGINES, "--arch", "sm_90"]) == 1
    first = capsys.readouterr().out.split("told below:\n")[1].splitlines()
    assert first[0].endswith("%r5 = 0x00000007   (distance.cu:6)")
    assert first[1].endswith("R5 = 0x00000006   (line 16, distance.cu:6)")


def test_machine_code_alone_has_nothing_to_be_compared_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diff", str(RECORDED), *ENGINES, "--arch", "sm_90"]) == 2
    assert "is machine code, and has no PTX to compare it with\n" in capsys.readouterr().err


@pytest.mark.parametrize("arch", ["sm_90", "sm_100a", "sm_120a"])
def test_what_is_made_now_is_right(
    program: str, arch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", program, *ENGINES, "--arch", arch]) == 0
    assert "the same to the bit" in capsys.readouterr().out


def test_variables_are_compared_and_begin_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sum in a variable, with a product that becomes one fma: the bits differ, and may."""
    source = tmp_path / "sums.ptx"
    source.write_text("""// Run: ptxlab run FILE --block 32 --arg "x=randn(32,f32)"
.version 8.0
.target sm_80
.address_size 64
.visible .global .f32 sums[32];
.visible .entry sum(.param .u64 x)
{
    .reg .b32 i; .reg .f32 v, w, s; .reg .b64 a, b;
    ld.param.u64 a, [x];
    mov.u32 i, %tid.x;
    mov.u64 b, sums;
    mad.wide.u32 a, i, 4, a; mad.wide.u32 b, i, 4, b;
    ld.global.f32 v, [a];
    ld.global.f32 s, [b];
    add.f32 w, v, 0f3F8CCCCD;
    mul.f32 v, v, w;
    add.f32 s, v, 0f3DCCCCCD;
    st.global.f32 [b], s;
    ret;
}
""")
    assert main(["diff", str(source), *ENGINES, "--arch", "sm_80", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {output["name"]: output["differing"] > 0 for output in told["outputs"]} == {
        "x": False,
        "sums": True,
    }
    assert (told["verdict"], told["liberty"]["rule"]) == ("may", "contraction")
    assert "FFMA" in told["first"][1]["text"]


@pytest.mark.parametrize(("second", "verdict"), [("n", "may"), ("0f3F800000", "may not")])
def test_another_nan_is_no_difference_and_hides_none(
    second: str,
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ptxas makes neg a sum, which gives the one NaN there is for sums; what is wrong behind it is found."""
    text = """// Run: ptxlab run FILE --block 1 --arg "out=zeros(2,f32)" --arg x=0x7fc00001
.version 8.0
.target sm_80
.address_size 64
.visible .entry negated(.param .u64 out, .param .b32 x)
{
    .reg .f32 v, w, n; .reg .b64 a;
    ld.param.u64 a, [out]; ld.param.b32 n, [x];
    neg.f32 v, n; neg.f32 w, SECOND;
    st.global.f32 [a], v; st.global.f32 [a+4], w;
    ret;
}
"""
    (tmp_path / "k.ptx").write_text(text.replace("SECOND", second))
    broken = text.replace("neg.f32 w, SECOND", "mov.b32 w, SECOND").replace("SECOND", second)
    if verdict == "may not":
        monkeypatch.setattr(
            "ptxlab.device.emulator.load_assembled",
            lambda source, *rest: (
                parse(source.read_text(), str(source)),
                link_ptx(broken, arch="sm_80"),
            ),
        )
    monkeypatch.chdir(tmp_path)
    assert main(["diff", "k.ptx", *ENGINES, "--arch", "sm_80", "--json"]) == (verdict == "may not")
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == verdict
    [output] = told["outputs"]
    if verdict == "may":
        assert (told["liberty"]["rule"], output["differing"]) == ("NaN", 2)
    else:
        assert (told["liberty"], output["differing"], output["place"]) == (None, 1, [1])


def test_what_another_lane_tells_is_followed_to_that_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lane 0 has one number on both sides, and stores what is made of lane 1's, which was contracted."""
    (
        tmp_path / "k.ptx"
    ).write_text("""// Run: ptxlab run FILE --block 32 --arg "out=zeros(1,f16)" --arg "x=@x.npy"
.version 8.0
.target sm_80
.address_size 64
.visible .entry pair(.param .u64 out, .param .u64 x)
{
    .reg .b64 a, b; .reg .b32 i, r, s; .reg .b16 v, w, c; .reg .pred p;
    ld.param.u64 a, [out]; ld.param.u64 b, [x];
    mov.u32 i, %tid.x; mad.wide.u32 b, i, 2, b;
    ld.global.b16 v, [b];
    mul.f16 w, v, v;
    mov.b16 c, 0xBC01;
    add.f16 w, w, c;
    mov.b32 r, {w, w};
    shfl.sync.bfly.b32 s, r, 1, 31, -1;
    setp.ne.u32 p, i, 0;
    @p bra END;
    mov.b32 {v, c}, s;
    mov.b16 c, 0x4200; fma.rn.f16 v, v, c, w;
    st.global.b16 [a], v;
END:
    ret;
}
""")
    x = np.ones(32, np.float16)
    x[1] += 2.0**-10
    np.save(tmp_path / "x.npy", x)
    monkeypatch.chdir(tmp_path)
    assert main(["diff", "k.ptx", *ENGINES, "--arch", "sm_80", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["liberty"]["rule"]) == ("may", "contraction")
    assert all(step["line"] for side in told["sides"] for step in side["steps"])


@pytest.mark.parametrize("sides", [("ptx", "emulator"), ("sass", "ptx"), ("ptx", "ptx")])
def test_only_ptx_and_its_machine_code_are_compared_so(
    sides: tuple[str, str], program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", program, "--a", sides[0], "--b", sides[1]]) == 2
    assert "say --a ptx --b sass" in capsys.readouterr().err


@pytest.mark.usefixtures("recorded")
def test_a_check_of_machine_code_finds_it_too(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", program, "--sass", "--arch", "sm_90"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "VIMNMX3 R5, R0, UR4, R0" in out
    assert out.endswith("\n\nfindings: 1 kernel of distance.ptx\n")
    assert main([*words, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["compared"]["verdict"]) == ("findings", "may not")


def test_a_check_of_what_is_made_now_is_clean(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", program, "--sass", "--arch", "sm_90", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["verdict"]) == ("ptxlab.check.sass/2", "clean")
    assert told["compared"]["same"]


def test_a_check_is_incomplete_where_machine_code_does_not_run(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(RULES, "VIMNMX3")
    assert main(["check", program, "--sass", "--arch", "sm_90", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["compared"]) == ("incomplete", None)
    assert "VIMNMX3 is not modelled" in told["not_compared"]


@pytest.mark.parametrize("number", [1, 2, 5])
def test_guards_that_are_lost_are_found_as_the_page_says(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the nvJitLink of the tests makes of them now is as wrong as the page has it."""
    page = PAGE.read_text(encoding="utf-8")
    text = re.findall(r"```ptx\n(.*?)```", page, re.S)[number]
    told = re.findall(r"\$ (ptxlab diff (\S+) .*?)\n(.*?)```", page, re.S)[number]
    monkeypatch.chdir(tmp_path)
    (tmp_path / told[1]).write_text(text)
    assert main(told[0].split()[1:]) == 1
    shown = capsys.readouterr().out
    version = re.compile(r"nvJitLink [\d.]+")
    assert version.sub("", shown) == version.sub("", told[2])
