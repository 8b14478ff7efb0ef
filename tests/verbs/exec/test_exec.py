"""Programs run by ``ptxlab exec`` that launch nothing: arguments, statuses, streams, what runs first."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ptxlab.clients.imports import AfterImport
from ptxlab.clients.session import Usage
from ptxlab.errors import LaunchError
from ptxlab.main import main
from ptxlab.verbs.exec import child
from ptxlab.verbs.exec.text import text
from ptxlab.verbs.exec.verb import summed
from tests.toolchain.binaries import CUBIN, container, executable, member

PYTHON = sys.executable


def test_the_program_is_as_it_would_be_without(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arguments, streams, status, and a sitecustomize of its own."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'mine'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = "import sys; print(mine, sys.argv[1:]); sys.exit(int(sys.argv[1]))"
    assert main(["exec", "--arch", "sm_80", "--", PYTHON, "-c", program, "7", "--json"]) == 7
    shown = capfd.readouterr()
    assert shown.out == "mine ['7', '--json']\n"
    assert shown.err == "ptxlab: no kernel was launched on the emulator, sm_80\n"


def test_json_has_stdout_for_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--json", "--check", "--", PYTHON, "-c", "print('told')"]) == 0
    shown = capfd.readouterr()
    assert shown.err == "told\n"
    assert json.loads(shown.out) == {
        "schema": "ptxlab.exec/1", "arch": "sm_90a", "command": [PYTHON, "-c", "print('told')"],
        "status": 0, "kernels": [], "checks": [],
    }  # fmt: skip


def test_what_cannot_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--", "no-such-program"]) == 2
    assert "cannot run no-such-program" in capfd.readouterr().err
    assert main(["exec", "--device", "cuda", "--", PYTHON]) == 2
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
    assert f"{program} is a compiled CUDA program" in shown
    assert f"ptxlab run {program} --engine sass" in shown


def report(status: int = 0, checks: int = 0) -> dict[str, Any]:
    usage = {"k": {"launches": 2, "seconds": 0.5, "instructions": 1000}}
    told = [{"text": f"told {number}", "json": {"kernel": "k"}} for number in range(checks)]
    return {"usage": usage, "checks": told, "status": status}


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


def test_what_is_a_library_and_what_the_program() -> None:
    for path, library in (
        ("/venv/lib/python3.12/site-packages/triton/runtime.py", True),
        (child.__file__, True),
        (json.__file__, True),
        ("/home/me/train.py", False),
        ("script.py", False),
    ):
        assert child._is_library(path) is library
