from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import ptxlab
from ptxlab import main as cli
from ptxlab.cli import failures
from ptxlab.cli.verbs import VERBS
from ptxlab.errors import DeviceUnavailable, Location, PtxSyntaxError
from ptxlab.matrix.catalog import UnknownInstruction

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "ml_dtypes", "rich", "cuda", "ptxlab.isa", "ptxlab.emulator", "ptxlab.device")
TABLES = ("mma", "wmma", "wgmma", "tcgen05", "tensor_memory")
SPARED = (*(f"ptxlab.matrix.{table}" for table in TABLES), "ptxlab.toolchain")
"""What a plain run of PTX on the emulator starts without."""


def imported_by(*arguments: str) -> set[str]:
    """Run the command in a fresh interpreter and return the modules it left imported."""
    code = (
        "import sys; from ptxlab.main import main; status = main(sys.argv[1:]); "
        "print('\\n' + ' '.join(sys.modules)); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_no_verb_and_nothing_heavy() -> None:
    modules = imported_by("--help")
    assert not modules.intersection(HEAVY)
    assert not modules.intersection(f"ptxlab.verbs.{name}" for name, _ in VERBS)


@pytest.mark.parametrize("verb", [name for name, _ in VERBS])
def test_help_of_a_verb_imports_only_it_and_nothing_heavy(verb: str) -> None:
    modules = imported_by(verb, "--help")
    assert f"ptxlab.verbs.{verb}.verb" in modules
    assert not modules.intersection(HEAVY)
    others = {f"ptxlab.verbs.{name}" for name, _ in VERBS if name != verb}
    assert not modules.intersection(others)


def test_a_rung_of_the_ladder_that_came_compiled_needs_no_compiler() -> None:
    modules = imported_by("gemm", "--algorithm", "naive", "--size", "8", "--device", "emulator")
    assert not modules.intersection(("ptxlab.toolchain.nvrtc", "ptxlab.toolchain.nvjitlink"))


def test_a_program_without_matrices_needs_no_table_of_them_and_no_toolchain() -> None:
    modules = imported_by("run", "ptx/mbarrier.ptx", "--device", "emulator")
    assert not modules.intersection(SPARED)


def test_the_counter_of_imports_would_see_what_is_heavy() -> None:
    modules = imported_by("run", "ptx/mma_m16n8k16_bf16_f32.ptx")
    assert {"numpy", "ptxlab.matrix.mma"} < modules
    assert "ptxlab.toolchain" in imported_by("sass", "ptx/mbarrier.ptx", "--arch", "sm_90a")


def test_the_table_of_verbs_has_every_folder_with_a_verb() -> None:
    folders = {path.parent.name for path in (ROOT / "ptxlab" / "verbs").glob("*/verb.py")}
    assert {name for name, _ in VERBS} == folders


@pytest.mark.parametrize("verb", [name for name, _ in VERBS])
def test_help_of_a_verb_opens_with_an_example(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    usage, example, *_ = out.split("\n\n")
    assert usage.startswith("usage:")
    assert example.startswith(f"example:\n  ptxlab {verb} ")
    for option in ("--device", "--arch", "--json", "--format", "--output", "--seed"):
        assert option in out


@pytest.mark.parametrize("verb", [name for name, _ in VERBS])
def test_the_first_example_of_the_help_runs(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ptxlab.device.opening._open_cuda", no_gpu)
    cli.main([verb, "--help"])
    first = capsys.readouterr().out.partition("example:\n")[2].splitlines()[0]
    words = shlex.split(re.split(r" {3,}", first.strip())[0])[1:]
    smaller = (
        ["--sizes", "64", "--algorithm", "naive"] if verb == "bench" else []
    )  # all of it is slow
    # They differ by rounding; there is no such script; it needs a GPU.
    statuses = {"diff": 1, "exec": 2, "interleave": 3}
    assert cli.main([*words, *smaller]) == statuses.get(verb, 0), capsys.readouterr().err


def no_gpu(ordinal: int, target: object) -> NoReturn:
    """Stand in for a GPU: the help's examples say what they do without one."""
    raise DeviceUnavailable("no GPU can be used")


def test_no_verb_is_a_usage_error_that_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "verbs:" in err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ptxlab {ptxlab.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gem"], ["no verb 'gem'", "did you mean gemm?"]),
        (["--jason"], ["--jason"]),
        (["gemm", "--algoritm", "naive"], ["--algoritm", "did you mean --algorithm?"]),
        (["ops", "sm_90a"], ["did you mean --arch sm_90a?"]),
        (["fragments", "mma.m16n8k16"], ["did you mean --op mma.m16n8k16?"]),
        (["sass", "a.cu", "--gpu", "h100"], ["named by its target: --arch sm_90a"]),
        (["gemm", "--device", "emulater"], ["emulater", "did you mean emulator?"]),
        (["gemm", "--device", "cuda:x"], ["cuda:x", "cuda:N"]),
        (["diff", "a.ptx", "--a", "b.ptx"], ["b.ptx", "emulator:ARCH, ptx or sass"]),
        (["gemm", "--gpu", "a100"], ["are for --explain", "--predict says how long"]),
        (["gemm", "--arch", "sm_90b"], ["sm_90b", "sm_80", "did you mean"]),
        (["gemm", "--format", "jsn"], ["jsn", "did you mean json?"]),
        (["gemm", "--seed", "-1"], ["-1"]),
        (["gemm", "-o", "/nowhere/at/all.json"], ["/nowhere/at"]),
        (["gemm", "-o", "/"], ["is a folder"]),
        (["gemm", "surplus"], ["surplus"]),
        (["run"], ["FILE"]),
    ],
)
def test_usage_errors(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(word in err for word in words), err
    assert "hint: " in err


def raising(error: BaseException) -> Callable[[list[str]], int]:
    def dispatch(arguments: list[str]) -> int:
        raise error

    return dispatch


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            PtxSyntaxError("no semicolon", location=Location("x.ptx", 3, 5, "    ret"), hint="add"),
            4,
            "x.ptx:3:5: no semicolon\n        ret\n        ^\nhint: add\n",
        ),
        (DeviceUnavailable("no GPU"), 3, "ptxlab: no GPU\n"),
        (UnknownInstruction("no x", ("a", "b")), 2, "ptxlab: no x\nhint: the nearest are a, b\n"),
        (KeyboardInterrupt(), 130, "ptxlab: interrupted\n"),
        (
            KeyError("x"),
            70,
            "ptxlab: a bug of ptxlab: KeyError: 'x'; run again with PTXLAB_DEBUG=1 for the "
            "traceback\n",
        ),
    ],
)
def test_every_failure_is_a_message_and_a_status(
    error: BaseException,
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PTXLAB_DEBUG", raising=False)
    monkeypatch.setattr(cli, "dispatch", raising(error))
    assert cli.main([]) == status
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize("asked", [["--json"], ["--format", "json"], ["--format=json"]])
def test_a_failure_is_an_object_for_programs(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    location = Location("x.ptx", 3, 5, "    ret")
    error = PtxSyntaxError("no semicolon", location=location, hint="add")
    monkeypatch.setattr(cli, "dispatch", raising(error))
    assert cli.main(["run", *asked]) == 4
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "schema": "ptxlab.error/1",
        "kind": "syntax",
        "message": "no semicolon",
        "file": "x.ptx",
        "line": 3,
        "column": 5,
        "notes": [],
        "hint": "add",
        "status": 4,
    }
    assert err.startswith("x.ptx:3:5: no semicolon\n")


@pytest.mark.parametrize(
    ("words", "kind", "status"),
    [
        (["gemm", "--nothing", "--json"], "usage", 2),
        (["run", "absent.ptx", "--json"], "usage", 2),
        (["explain", "mma.m1n1k1", "--json"], "usage", 2),
    ],
)
def test_command_lines_that_fail_answer_a_program(
    words: list[str], kind: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == status
    output = json.loads(capsys.readouterr().out)
    assert (output["kind"], output["status"], output["file"]) == (kind, status, None)
    assert output["message"]


def test_a_bug_is_an_object_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PTXLAB_DEBUG", raising=False)
    monkeypatch.setattr(cli, "dispatch", raising(KeyError("x")))
    assert cli.main(["--json"]) == 70
    output = json.loads(capsys.readouterr().out)
    assert (output["kind"], output["line"]) == ("bug", None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("asked", ["layout 2x2", "--version", "--help"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_an_error(asked: str, unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ptxlab", *asked.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 2
    assert done.stderr == b"ptxlab: cannot write the result: No space left on device\n"


@pytest.mark.parametrize(("closing", "status"), [("--help >&-", 0), ("nothing 2>&-", 2)])
def test_closed_streams_are_no_bug(closing: str, status: int) -> None:
    command = f"{shlex.quote(sys.executable)} -m ptxlab {closing}"
    assert subprocess.run(command, shell=True, cwd=ROOT).returncode == status


def test_a_long_argument_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["layout", "2x6", "--bits", "9" * 5000]) == 2
    first, *_ = capsys.readouterr().err.split("\n")
    assert len(first) == 1000
    assert first.startswith("ptxlab: argument --bits: '999")
    assert first.endswith("9…")


@pytest.mark.parametrize("name", ["x" * 300 + ".ptx", "ptx/" + "x" * 300 + ".ptx", "a\0b.ptx"])
def test_a_name_that_no_file_can_have(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", name]) == 2
    assert capsys.readouterr().err.startswith(f"ptxlab: there is no file {name}\n")


def test_a_file_that_cannot_be_read_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "dispatch", raising(IsADirectoryError(21, "Is a directory", "x")))
    assert cli.main([]) == 2
    assert capsys.readouterr() == ("", "ptxlab: x: Is a directory\n")


def test_markup_names_the_characters_that_a_terminal_has_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["fragments", "--format", "svg"]
    ascii = subprocess.run(
        [sys.executable, "-m", "ptxlab", *asked],
        capture_output=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        check=True,
    ).stdout.decode("ascii")
    assert cli.main(asked) == 0
    utf_8 = capsys.readouterr().out
    assert ascii.replace("&#215;", "×") == utf_8
    assert ascii != utf_8


def test_on_a_terminal_a_message_replaces_the_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    failures.say("ptxlab: interrupted")
    assert capsys.readouterr().err == "\r\x1b[Kptxlab: interrupted\n"


def test_the_traceback_is_there_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXLAB_DEBUG", "1")
    monkeypatch.setattr(cli, "dispatch", raising(KeyError("x")))
    with pytest.raises(KeyError):
        cli.main([])


def test_a_reader_that_leaves_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "ptxlab", "--help"],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (failures.BROKEN_PIPE, b"")
