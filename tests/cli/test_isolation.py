"""Launches in a child process: with a driver made of host memory, and with children that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ptxlab.cli import isolation
from ptxlab.main import main

ROOT = Path(__file__).parents[2]

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x)
{
    ret;
}
"""

CHILD = """
import ctypes, os, signal, sys
sys.path[:0] = [{root!r}, {root!r} + "/tests/device"]
from fake_driver import FakeDriver
from ptxlab.device import cuda_driver
from ptxlab.main import main
driver = FakeDriver()
driver.on_launch = lambda pointers: {kernel}
cuda_driver._find_driver = lambda: (driver, "")
sys.exit(main(sys.argv[1:]))
"""
"""A child on a GPU that is none. PyDLL keeps the interpreter's lock, as no driver should."""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "k.ptx"
    path.write_text(PTX)
    return str(path)


def on_gpu(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Let ``main`` believe in a GPU, whose kernels do what the Python expression says."""
    monkeypatch.delenv(isolation.CHILD)
    monkeypatch.setattr(isolation, "_has_gpu", lambda: True)
    code = CHILD.format(root=str(ROOT), kernel=kernel)
    monkeypatch.setattr(isolation, "command", lambda: [sys.executable, "-c", code])


def arguments(file: str, *more: str) -> list[str]:
    return ["run", file, "--block", "32", "--arg", "x=zeros(4,u32)", *more]


def test_the_result_of_the_child_is_passed_through(
    file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on_gpu(monkeypatch, "None")
    assert main(arguments(file, "--json", "--time", "--cluster", "1")) == 0
    out, err = capfd.readouterr()
    output = json.loads(out)
    assert (output["device"], output["kernel"], output["arch"]) == ("cuda", "k", "sm_90a")
    assert output["timing"]["launches"] in (400, 401), "2.5 ms each, for a second"
    assert [output["timing"][name] for name in ("median", "p20", "p80")] == [0.0025] * 3
    assert err == "ptxlab: on Fake GPU\n"
    assert main(arguments(file, "--expect", "x=1", "--device", "cuda")) == 1
    assert "x is wrong: 4 of 4" in capfd.readouterr().out
    assert main(arguments(file, "--kernel", "q", "--device", "cuda")) == 2
    assert "has no kernel q" in capfd.readouterr().err


@pytest.mark.parametrize("hang", ["ctypes.PyDLL(None).pause()", "ctypes.CDLL(None).pause()"])
def test_a_kernel_that_hangs_is_ended(
    hang: str, file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on_gpu(monkeypatch, hang)
    assert main(arguments(file, "--timeout", "0.3", "-o", f"{file}.out")) == 4
    out, err = capfd.readouterr()
    assert out == ""
    assert f"ptxlab: kernel k of {file}, given 0.3 s, did not end" in err
    assert "Traceback" not in err
    assert os.listdir(Path(file).parent) == ["k.ptx"], "no part of an output"


def test_a_kernel_that_takes_the_process_with_it(
    file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on_gpu(monkeypatch, "os.kill(os.getpid(), signal.SIGSEGV)")
    assert main(arguments(file)) == 4
    err = capfd.readouterr().err
    assert f"died of SIGSEGV (exit status -11) while running kernel k of {file}" in err


def test_a_process_that_dies_without_a_launch(
    file: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on_gpu(monkeypatch, "None")
    code = "import os; os.kill(os.getpid(), 9)"
    monkeypatch.setattr(isolation, "command", lambda: [sys.executable, "-c", code])
    assert main(arguments(file)) == 4
    assert "died of SIGKILL (exit status -9) outside any launch" in capfd.readouterr().err


def test_only_what_launches_on_a_gpu_has_a_child(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_gpu(monkeypatch, "None")
    monkeypatch.setattr(isolation, "run", lambda arguments: 99)
    assert main(arguments(file)) == 99
    assert main(arguments(file, "--device", "cuda:1")) == 99
    assert main(arguments(file, "--device", "emulator")) == 0
    assert main(["ops", "--arch", "sm_80"]) == 0
    monkeypatch.setattr(isolation, "_has_gpu", lambda: False)
    assert main(arguments(file, "--device", "emulator")) == 0
    monkeypatch.setattr(isolation, "_has_gpu", lambda: True)
    monkeypatch.setenv(isolation.CHILD, "")
    assert main(arguments(file, "--device", "emulator")) == 0


def test_the_command_of_a_child_is_this_ptxlab(tmp_path: Path) -> None:
    (tmp_path / "ptxlab").mkdir()
    (tmp_path / "ptxlab" / "__init__.py").write_text("raise SystemExit('not this one')")
    done = subprocess.run(
        [*isolation.command(), "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ptxlab ")


def test_an_interrupt_ends_the_child_too(file: str, tmp_path: Path) -> None:
    note = tmp_path / "child"
    kernel = f"(open({str(note)!r}, 'w').write(str(os.getpid())), ctypes.CDLL(None).pause())"
    code = CHILD.format(root=str(ROOT), kernel=kernel)
    parent = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from ptxlab.cli import isolation\n"
        f"from ptxlab.main import main\nisolation._has_gpu = lambda: True\n"
        f"isolation.command = lambda: [sys.executable, '-c', {code!r}]\n"
        f"sys.exit(main({arguments(file)!r}))"
    )
    environment = {name: value for name, value in os.environ.items() if name != isolation.CHILD}
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for _ in range(300):
        if note.exists() and note.read_text():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "ptxlab: interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
