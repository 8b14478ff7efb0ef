"""Programs run by ``ptxlab exec`` that launch nothing: arguments, statuses, streams, what runs first."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ptxlab.clients.imports import AfterImport
from ptxlab.clients.session import Usage
from ptxlab.errors import LaunchError
from ptxlab.launch_config import LaunchConfig
from ptxlab.main import main
from ptxlab.verbs.exec import child, verb
from ptxlab.verbs.exec.looks import means
from ptxlab.verbs.exec.text import ProgramOutcome, as_json, text
from ptxlab.verbs.exec.verb import summed
from tests.toolchain.binaries import CUBIN, container, executable, member

PYTHON = sys.executable


def test_the_program_is_as_it_would_be_without(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arguments, streams, status, and a sitecustomize of its own."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'mine'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = "import os, sys; print(mine, os.environ['PTXLAB_ENGINE'], sys.argv[1:]); sys.exit(int(sys.argv[1]))"
    asked = ["exec", "--arch", "sm_80", "--engine", "array"]
    assert main([*asked, "--", PYTHON, "-c", program, "7", "--json"]) == 7
    shown = capfd.readouterr()
    assert shown.out == "mine array ['7', '--json']\n"
    assert shown.err == "ptxlab: no kernel was launched on the emulator, sm_80\n"


def test_json_has_stdout_for_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--json", "--check", "--", PYTHON, "-c", "print('told')"]) == 0
    shown = capfd.readouterr()
    assert shown.err == "told\n"
    assert json.loads(shown.out) == {
        "schema": "ptxlab.exec/1", "arch": "sm_90a", "command": [PYTHON, "-c", "print('told')"],
        "status": 0, "kernels": [], "checks": [], "launches": 0, "seconds": 0,
    }  # fmt: skip


def test_what_cannot_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--", "no-such-program"]) == 2
    assert "cannot run no-such-program" in capfd.readouterr().err
    assert main(["exec", "--device", "cuda", "--", PYTHON]) == 2
    assert main(["exec", "--engine", "sass", "--", PYTHON]) == 2
    assert main(["exec"]) == 2
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert main(["exec", "--", PYTHON, "-c", killed]) == 143


def test_a_compiled_cuda_program_is_refused_before_it_says_something_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its runtime would find no driver on disk; whatever status it makes of that would be taken for its own."""
    program = tmp_path / "hello"
    program.write_bytes(executable(container(member(CUBIN, 80, b"code"))))
    program.chmod(0o755)
    assert main(["exec", "--", str(program)]) == 4
    shown = capfd.readouterr().err
    assert f"{program} is linked with a CUDA runtime of its own" in shown
    assert "nvcc -cudart shared" in shown
    assert f"ptxlab run {program} --engine sass" in shown


def report(status: int = 0, checks: int = 0) -> dict[str, Any]:
    usage = {"k": {"launches": 2, "seconds": 0.5, "instructions": 1000}}
    told = [{"text": f"told {number}", "json": {"kernel": "k"}} for number in range(checks)]
    return {"usage": usage, "checks": told, "status": status, "began": True}


@pytest.mark.parametrize(
    ("ended", "reports", "status"),
    [
        (0, [], 0),
        (0, [report(), report()], 0),
        (0, [report(checks=1)], 1),
        (5, [report(checks=1)], 5),
        (1, [report()], 1),
        (1, [report(), report(status=4)], 4),
        (0, [report(status=4)], 0),  # a process of the program, which went on
    ],
)
def test_the_exit_status(ended: int, reports: list[dict[str, Any]], status: int) -> None:
    args = argparse.Namespace(arch="sm_80", command=["p"], check=True)
    assert summed(args, ended, reports).status == status


def test_a_launch_that_ends_in_a_fault_was_launched() -> None:
    args = argparse.Namespace(arch="sm_80", command=["p"], check=False)
    for began, said in ((True, "no launch came to its end"), (False, "no kernel was launched")):
        outcome = summed(args, 1, [report() | {"usage": {}, "began": began}])
        assert text(outcome, table=False) == f"ptxlab: {said} on the emulator, sm_80"


def test_a_kernel_is_called_by_its_name_in_the_source() -> None:
    args = argparse.Namespace(arch="sm_80", command=["p"], check=False)
    usage = {"_ZN1n1kILi64EEEvPf": {"launches": 1, "seconds": 0.5, "instructions": 10}}
    table = text(summed(args, 0, [report() | {"usage": usage}]), table=True)
    assert table.splitlines()[1].startswith("n::k<64>         1    0.500")


def test_processes_add_up() -> None:
    args = argparse.Namespace(arch="sm_80", command=["p"], check=True)
    outcome = summed(args, 0, [report(checks=2), report()])
    told, also, table, summary = text(outcome, table=True).split("\n\n")
    assert (told, also) == ("told 0", "told 1")
    assert table.splitlines()[:2] == [
        "kernel  launches  seconds   share  thread instructions",
        "k              4    1.000  100.0%                2,000",
    ]
    assert summary == (
        "ptxlab: 4 launches of 1 kernel on the emulator, sm_80, in 1.00 s; checked: findings in 1 kernel"
    )


def test_a_fault_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise LaunchError("it stopped", hint="look")
    except LaunchError as error:
        child._tell(LaunchError, error, error.__traceback__)
    line = f"launched from {__file__}:"
    shown = capsys.readouterr().err
    assert shown.startswith(f"ptxlab: it stopped\nhint: look\n{line}")
    assert child._failed.pop() == 4


def test_imports_are_as_they_were_behind_the_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooked_package.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[Any] = []

    def hook(module: Any) -> None:
        seen.append(module.value)

    finder = AfterImport({"hooked_package": hook, "absent_package": hook})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with pytest.raises(ModuleNotFoundError):
        __import__("absent_package")
    assert find_spec("hooked_package")  # who asks only whether it is there takes nothing away
    for _ in range(2):
        assert __import__("hooked_package").value == 3
    assert seen == [3]


def test_a_forked_process_leaves_to_its_parent_what_that_has_launched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = child.Options("sm_80", check=False, timeout=0, folder=str(tmp_path))
    monkeypatch.setenv(child.VARIABLE, json.dumps(asdict(options)))
    child.session.cache_clear()
    child._forget()  # nothing was launched: no session is opened for it
    assert child.session.cache_info().currsize == 0
    try:
        session = child.session()
        session.usage["k"] = Usage(3, 1.0, 5)
        session.reports.append(None)  # type: ignore[arg-type]
        child._forget()
        assert child.session() is session
        assert (session.usage, session.reports) == ({}, [])
        child._report()
        [report] = tmp_path.iterdir()
        assert json.loads(report.read_text())["usage"] == {}
    finally:
        child.session.cache_clear()


SETS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry {name}(.param .u32 value)
{{
    .reg .b32 v;
    ld.param.u32 v, [value];
    add.u32 v, v, 1;
    ret;
}}
"""


def looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[ProgramOutcome, list[bool]]:
    """Launch ``first``, ``second_a``, ``second_b`` and ``first`` in this process, as a program of ``ptxlab exec`` does.

    Return what is then told, and which launches were checked.
    """
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    args = parser.parse_args([*words, "--arch", "sm_80", "--", "program"])
    checked: list[bool] = []

    def launch_all(args: argparse.Namespace, folder: str) -> int:
        monkeypatch.setenv(child.VARIABLE, json.dumps(asdict(verb.child_options(args, folder))))
        try:
            session = child.session()
            for name in ("first", "second_a", "second_b", "first"):
                kernel = session.load(SETS.format(name=name), f"{name}.ptx").kernel(name)
                session.launch(kernel, LaunchConfig.of(1, 32), bytes(4))
                checked.append(session.check)
            child._report()
        finally:
            child.session.cache_clear()
            child._looking.cache_clear()
        return 0

    monkeypatch.setattr(verb, "run", launch_all)
    monkeypatch.chdir(tmp_path)
    return verb.outcome_of(args), checked


@pytest.mark.parametrize(
    ("which", "number", "kernel", "checked"),
    [
        ("3", 3, "second_b", [False, False, True, False]),
        ("second_*", 2, "second_a", [False, True, True, False]),
        ("first", 1, "first", [True, False, False, True]),
    ],
)
def test_a_launch_is_looked_into_by_number_name_or_pattern(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    number: int,
    kernel: str,
    checked: list[bool],
) -> None:
    words = ["--check", "--trace", "page.html", "--step", "-", "--json", "--launch", which]
    outcome, were_checked = looked_into(tmp_path, monkeypatch, *words)
    assert were_checked == checked
    assert outcome.status == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    said = text(outcome, table=False)
    assert f"trace of launch {number}, {kernel}: page.html\n" in said
    assert f"step of launch {number}, {kernel}\n{kernel}, CTA (0, 0, 0)" in said
    assert said.endswith(f"; checked launch {which}: nothing found")
    looked = as_json(outcome)["looked"]
    assert (looked["number"], looked["kernel"]) == (number, kernel)
    assert [looked[name]["schema"] for name in ("trace", "step")] == [
        "ptxlab.trace/1", "ptxlab.step/1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "kernel"),
    [
        ("scale", "__main__::scale"),
        ("sc*", "__main__::scale"),
        ("__main__::scale", "__main__::scale"),
        ("k", "_ZN1n1kILi64EEEvPf"),
        ("k<64>", "_ZN1n1kILi64EEEvPf"),
        ("n::k<64>", "_ZN1n1kILi64EEEvPf"),
        ("_ZN1n1k*", "_ZN1n1kILi64EEEvPf"),
    ],
)
def test_a_kernel_is_meant_by_what_the_source_calls_it(wanted: str, kernel: str) -> None:
    assert means(wanted, 1, kernel)
    assert not means(wanted.replace("k", "m").replace("sc", "c"), 1, kernel)


def test_a_launch_that_there_was_not_and_a_look_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, _ = looked_into(tmp_path, monkeypatch, "--check", "--trace", "t.txt", "--launch", "5")
    assert outcome.status == 2
    said = text(outcome, table=False)
    assert said.startswith(
        "ptxlab: the program made no launch 5\n"
        "hint: it made 4 launches: first from 1 on, second_a from 2 on, second_b from 3 on\n"
    )
    assert "checked" not in said
    assert not (tmp_path / "t.txt").exists()
    outcome, _ = looked_into(tmp_path, monkeypatch, "--diff", "sm_75", "--trace", "t.txt")
    assert outcome.status == 4
    assert "sm_80 does not run on sm_75" in text(outcome, table=False)
    assert (tmp_path / "t.txt").read_text().startswith("first, CTA 0, on the emulator (sm_80)")


def test_looks_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--launch", "3", "--", PYTHON]) == 2
    assert "nothing is to look" in capsys.readouterr().err
    assert main(["exec", "--predict", "h101", "--", PYTHON]) == 2
    assert "h101" in capsys.readouterr().err
    assert main(["exec", "--trace", "no/such/folder/page.html", "--", PYTHON]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_what_is_a_library_and_what_the_program() -> None:
    for path, library in (
        ("/venv/lib/python3.12/site-packages/triton/runtime.py", True),
        (child.__file__, True),
        (json.__file__, True),
        ("/home/me/train.py", False),
        ("script.py", False),
    ):
        assert child._is_library(path) is library
