from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ptxlab.main import main
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.check_report import RULES, rules
from ptxlab.toolchain import link_ptx
from ptxlab.verbs.check import verb

REVERSE = """\
// Run: ptxlab run reverse.ptx --grid 2 --block 64 --arg "data=arange(128,u32)"
.version 8.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 data)
{
    .reg .b32 i, j, x, at;
    .reg .b64 p;
    .shared .align 4 .b32 tile[64]; mov.u32 at, tile;
    ld.param.u64 p, [data]; mov.u32 i, %ctaid.x; mad.wide.u32 p, i, 256, p;
    mov.u32 i, %tid.x;
    mad.wide.u32 p, i, 4, p;
    ld.global.u32 x, [p];
    shl.b32 i, i, 2; add.u32 j, i, at;
    st.shared.u32 [j], x;
    bar.sync 0;
    sub.u32 j, 252, i; add.u32 j, j, at;
    ld.shared.u32 x, [j];
    st.global.u32 [p], x;
    ret;
}
"""
RACE = REVERSE.replace("    bar.sync 0;\n", "")
WARNING = REVERSE.replace("bar.sync 0", "bar.warp.sync -1").replace("--block 64", "--block 32")
WARNING = WARNING.replace("sub.u32 j, 252", "sub.u32 j, 124").replace("bar.warp.sync -1;", "")
UNMODELLED = REVERSE.replace("bar.sync 0;", "suq.width.b32 j, [p];")
TRAP = REVERSE.replace("bar.sync 0;", "trap;")
MISTAKE = REVERSE.replace("bar.sync 0;", "bar.sync 0")
EARLY = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry early(.param .u64 from, .param .u64 out)
{
    .reg .b32 x, at, off;
    .reg .b64 p, q, far;
    .reg .pred landed;
    .shared .align 16 .b32 word[4]; mov.u32 at, word;
    ld.param.u64 p, [from]; ld.param.u64 q, [out];
    cp.async.ca.shared.global [at], [p], 4;
    ld.shared.u32 x, [at];
    setp.eq.u32 landed, x, 1;
    selp.b32 off, 4, 0, landed;
    cvt.u64.u32 far, off;
    add.u64 q, q, far;
    st.global.u32 [q], x;
    ret;
}
"""
UNROLLED = """\
// Run: ptxlab run sum.cu --block 64 --arg "out=zeros(64,s32)"
extern "C" __global__ void sum(int* out) {
    __shared__ int values[64];
    values[threadIdx.x] = threadIdx.x;
    int total = 0;
#pragma unroll
    for (int i = 0; i < 64; i++) total += values[i];
    out[threadIdx.x] = total;
}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["check", *arguments])
    out, err = capsys.readouterr()
    return status, out or err


@pytest.mark.parametrize(
    ("text", "options", "status", "verdict"),
    [
        (REVERSE, (), 0, "clean"),
        (RACE, (), 1, "findings"),
        (RACE, ("--checks", "bounds,alignment"), 0, "clean"),
        (WARNING, (), 0, "findings"),
        (WARNING, ("--strict",), 1, "findings"),
        (UNMODELLED, (), 1, "incomplete"),
        (TRAP, (), 1, "incomplete"),
    ],
)
def test_verdict_and_exit_status(
    text: str,
    options: tuple[str, ...],
    status: int,
    verdict: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (here / "reverse.ptx").write_text(text)
    code, out = run(capsys, "reverse.ptx", "--json", *options)
    assert (code, json.loads(out)["verdict"]) == (status, verdict)
    code, out = run(capsys, "reverse.ptx", *options)
    assert code == status
    assert any(line.startswith(f"{verdict}: ") for line in out.splitlines())


def test_json_has_what_the_contract_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "reverse.ptx").write_text(RACE)
    _, out = run(capsys, "reverse.ptx", "--json")
    result: dict[str, Any] = json.loads(out)
    assert result["schema"] == "ptxlab.check/1"
    [finding] = result["findings"]
    lines = RACE.splitlines()
    assert (finding["kind"], finding["severity"]) == ("race", "error")
    assert lines[finding["line"] - 1].split() == ["ld.shared.u32", "x,", "[j];"]
    assert lines[finding["other_line"] - 1].split() == ["st.shared.u32", "[j],", "x;"]
    assert finding["count"] == 2 * 64 * 4
    assert "tile+0xfc" in finding["message"]
    assert finding["source"] is None


def test_text_shows_both_lines_with_a_caret(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "reverse.ptx").write_text(RACE)
    status, out = run(capsys, "reverse.ptx")
    assert status == 1
    assert out.splitlines() == [
        "error: race, 512 bytes",
        "reverse.ptx:17:5: RAW: thread (0, 0, 0) of CTA (0, 0, 0) reads tile+0xfc in shared memory, "
        "which thread (63, 0, 0) of CTA (0, 0, 0) wrote, and nothing orders the two",
        "        ld.shared.u32 x, [j];",
        "        ^",
        "reverse.ptx:15:5: the other",
        "        st.shared.u32 [j], x;",
        "        ^",
        "hint: a barrier of both threads between the two, as __syncthreads(), orders them",
        "",
        "findings: 1 error in kernel reverse of reverse.ptx",
    ]


def test_copies_of_a_line_are_told_as_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "sum.cu").write_text(UNROLLED)
    status, out = run(capsys, "sum.cu")
    assert status == 1
    head, *_ = re.split(r"\n\n", out)
    # 64 threads read the 63 words of the others.
    assert head.startswith(f"error: race, {64 * 63 * 4} bytes\n")
    assert "for (int i = 0; i < 64; i++) total += values[i];" in head
    assert "values[threadIdx.x] = threadIdx.x;" in head
    assert out.count("error: race") == 1


def test_what_one_instruction_races_with_is_told_as_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = "    ld.shared.u32 x, [j];\n"
    assert load in RACE
    (here / "twice.ptx").write_text(RACE.replace(load, load * 3))
    assert main(["check", "twice.ptx"]) == 1
    out = capsys.readouterr().out
    assert out.count("error: race") == 1
    assert "and 2 more like it" in out
    assert "findings: 3 errors" in out


def test_json_names_both_lines_of_cuda_c(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "sum.cu").write_text(UNROLLED)
    _, out = run(capsys, "sum.cu", "--json")
    lines = UNROLLED.splitlines()
    findings = json.loads(out)["findings"]
    assert findings
    for finding in findings:
        assert {finding[name]["file"] for name in ("source", "other_source")} == {
            str(here / "sum.cu")
        }
        assert lines[finding["source"]["line"] - 1].endswith("total += values[i];")
        other = lines[finding["other_source"]["line"] - 1]
        assert other.strip() == "values[threadIdx.x] = threadIdx.x;"


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (("reverse.ptx", "--checks", "races"), 2, "did you mean race?"),
        (("reverse.ptx", "--device", "cuda"), 2, "leave out --device"),
        (("mistake.ptx",), 4, "mistake.ptx:16:15: missing ';'"),
        (("nothing.ptx",), 2, "there is no file nothing.ptx"),
    ],
)
def test_wrong_usage_and_wrong_input(
    arguments: tuple[str, ...],
    status: int,
    what: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (here / "reverse.ptx").write_text(REVERSE)
    (here / "mistake.ptx").write_text(MISTAKE)
    code, out = run(capsys, *arguments)
    assert code == status
    assert what in out


def test_examples_of_the_help(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^  ptxlab ((?:.*\\\n)*.*)$", verb.EXAMPLE, re.MULTILINE)
    assert len(commands) == 4
    without_run_line = REVERSE.partition("\n")[2]
    larger = (
        without_run_line.replace("tile[64]", "tile[128]")
        .replace("252", "508")
        .replace("256", "512")
    )
    (here / "my.ptx").write_text(larger)
    (here / "mine.cubin").write_bytes(link_ptx(REVERSE, arch="sm_86").image)
    for command in commands:
        assert main(shlex.split(command.partition("   ")[0])) == 0
        assert re.search("^clean: ", capsys.readouterr().out, re.MULTILINE)


def test_what_only_some_schedules_show(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A word past the end is read where a copy has landed: late it has not, as nobody waited for it."""
    (here / "early.ptx").write_text(EARLY)
    words = ["early.ptx", "--block", "1", "--arg", "from=ones(4,u32)", "--arg", "out=zeros(1,u32)"]
    late = run(capsys, *words, "--checks", "bounds")
    assert (late[0], late[1].splitlines()[0]) == (0, "clean: kernel early of early.ptx")
    status, out = run(capsys, *words, "--checks", "bounds", "--schedule", "all")
    assert status == 1
    assert out.count("error: bounds") == 1
    status, out = run(
        capsys, *words[:-1], "out=zeros(2,u32)", "--schedule", "all", "--checks", "bounds"
    )
    assert status == 0
    assert "on the paths it takes, with --schedule late, early, random:0" in out


def test_the_list_names_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list"]) == 0
    out = capsys.readouterr().out
    for kind, (_, named) in RULES.items():
        assert re.search(rf"^  {kind} +\w", out, re.MULTILINE)
        for names, meaning in named.items():
            assert names.replace("|", ", ") + "  " in out
            assert meaning in " ".join(out.split())


def test_a_finding_breaks_a_rule_that_has_a_name() -> None:
    assert {"RAW", "global RAW", "twice", "grid"} <= set(rules("race"))
    with pytest.raises(AssertionError, match="RWA"):
        CheckContext().find("race", "error", "RWA", 1, ("", ""))


def test_what_is_checked_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--list", "--json"], ["--json", "--list"]):
        assert main(["check", *words]) == 0
        told = json.loads(capsys.readouterr().out)
        assert [check["check"] for check in told["checks"]] == list(RULES)
        assert {
            "rules": ["twice"],
            "about": "two threads that cp.async to one place, information where both bring the same",
        } in told["checks"][0]["rules"]


def test_what_is_no_ptx_is_rejected_as_in_other_verbs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
        "    .reg .b32 r;\n    mov.u33 r, 0;\n    ret;\n}\n"
    )
    for word in ("run", "check"):
        assert main([word, str(file), "--grid", "1", "--block", "32"]) == 4
        assert f"{file}:7" in capsys.readouterr().err
