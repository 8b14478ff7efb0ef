"""No test can hang the suite: one that does not end fails, by name, and the others still run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The others have no limit: reached while a worker tells what came of a test, it would end the worker.
SLEEPS = """
import signal, subprocess, sys, time
import pytest

@pytest.mark.timeout(0)
def test_before():
    pass

def test_that_sleeps():
    time.sleep(60)

@pytest.mark.timeout(0)
def test_after():
    pass
"""
WAITS_FOR_A_CHILD = SLEEPS.replace(
    "time.sleep(60)", 'subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"])'
)
HEARS_NO_SIGNAL = SLEEPS.replace(
    "time.sleep", "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}); time.sleep"
)


def outcome(folder: Path, program: str, *options: str) -> tuple[int, str]:
    """Run tests as this project does, but with limits of two and of five seconds; it says where it stands if it does not end."""
    (folder / "test_program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    limits = ["-o", "timeout=2", "-o", "faulthandler_timeout=5"]
    with subprocess.Popen(
        [*command, *limits, *options, str(folder)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            out, _ = process.communicate(timeout=50)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler prints where all threads are
            out, _ = process.communicate()
    return process.returncode, out


def test_pytest_within_pytest_keeps_to_this_runs_folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = str(tmp_path_factory.getbasetemp())
    program = f"def test_it(tmp_path):\n    assert tmp_path.is_relative_to({folder!r})"
    status, out = outcome(tmp_path, program)
    assert status == 0, out


def test_there_are_limits(pytestconfig: pytest.Config) -> None:
    first, second = (
        float(pytestconfig.getini(name)) for name in ("timeout", "faulthandler_timeout")
    )
    assert 0 < first < second <= 600
    assert pytestconfig.getini("timeout_method") == "signal"
    assert pytestconfig.getini("faulthandler_exit_on_timeout")


@pytest.mark.parametrize(("program", "workers"), [(SLEEPS, "0"), (WAITS_FOR_A_CHILD, "1")])
def test_a_test_that_does_not_end_fails_by_name(tmp_path: Path, program: str, workers: str) -> None:
    status, out = outcome(tmp_path, program, "-n", workers)
    assert status == 1, out
    assert "test_program.py::test_that_sleeps" in out
    assert "Timeout" in out
    assert "1 failed, 2 passed" in out


def test_a_worker_that_hears_no_signal_is_ended(tmp_path: Path) -> None:
    status, out = outcome(tmp_path, HEARS_NO_SIGNAL, "-n", "1")
    assert status == 1, out
    assert "crashed while running" in out
    assert "test_program.py::test_that_sleeps" in out
    assert "1 failed, 2 passed" in out


def test_without_workers_the_last_limit_ends_all_and_shows_where(tmp_path: Path) -> None:
    status, out = outcome(tmp_path, HEARS_NO_SIGNAL)
    assert status != 0
    assert "test_program.py" in out
    assert "in test_that_sleeps" in out
