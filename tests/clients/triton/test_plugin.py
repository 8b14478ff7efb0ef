"""The options of pytest, in a run of their own with a worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.together import PLUGINS

ROOT = Path(__file__).parents[3]

TESTS = """\
import pytest
import torch
import triton
from tests.clients.triton import kernels

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@pytest.fixture
def raced():
    kernels.last_wins[(3,)](torch.zeros(1, device=DEVICE, dtype=torch.int32))


def test_right():
    x = torch.rand(500, device=DEVICE)
    out = torch.empty_like(x)
    kernels.add[(2,)](x, x, out, 500, BLOCK=256)
    assert (out == 2 * x).all()


def test_race():
    kernels.last_wins[(3,)](torch.zeros(1, device=DEVICE, dtype=torch.int32))


def test_race_of_a_fixture(raced):
    assert False, "a wrong value"


def test_nothing():
    pass


@pytest.mark.ptxlab_too_large(reason="takes a day")
def test_large():
    raise AssertionError
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-rsf", *options]
    return subprocess.run(
        [
            *command,
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(folder),
            "-c",
            "/dev/null",
            str(folder),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | PLUGINS,
    )


def test_a_suite_that_knows_nothing_of_ptxlab(kernels: Any, tmp_path: Path) -> None:
    (tmp_path / "test_kernels.py").write_text(TESTS)
    done = run(tmp_path, "--ptxlab-triton", "sm_80", "--ptxlab-check", "-n", "1")
    assert re.search(r"2 failed, 2 passed, 1 skipped", done.stdout), done.stdout + done.stderr
    assert re.findall(r"FAILED \S+::(\w+)", done.stdout) == ["test_race", "test_race_of_a_fixture"]
    assert f"{kernels.__file__}:" in done.stdout
    told, behind = done.stdout.split("findings of ptxlab")
    assert "a wrong value" in told
    for each in (told, behind):
        assert "tl.store(out, tl.program_id(0))" in each
    assert "takes a day" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"), [(["--ptxlab-triton", "sm_81"], "there is no target 'sm_81'")]
)
def test_what_cannot_be_is_said(tmp_path: Path, options: list[str], words: str) -> None:
    done = run(tmp_path, *options)
    assert (done.returncode, words in done.stderr) == (4, True), done.stdout + done.stderr
