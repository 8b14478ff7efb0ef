"""A program in CuTe DSL, unchanged: its results, what it prints, and the line of Python that a fault is from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxlab import cute
from ptxlab.clients.cute import ask_for, text_of
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.main import main
from ptxlab.testing import plugin
from tests.clients.needs import need

PROGRAM = Path(__file__).parent / "programs" / "cute_kernels.py"


def test_a_program_runs_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    need("nvidia_cutlass_dsl", "torch")
    command = [sys.executable, "-W", "ignore", str(PROGRAM)]
    assert main(["exec", "--arch", "sm_80", "--check", "--profile", "--", *command]) == 1
    said = capfd.readouterr()
    assert "a thread has 6.0" in said.out
    line = PROGRAM.read_text().splitlines().index("        c[at] = a[at] + b[at]") + 1
    assert re.search(
        rf"{PROGRAM.name}:{line}\b.*global store of 4 bytes at c\[90\] by .* is out of bounds",
        said.err,
    )
    assert re.search(
        r"ptxlab: 1 launch of 1 kernel on the emulator, sm_80, .*: findings in 1", said.err
    )
    assert "argument c, float32[90] (360 bytes at" in said.err
    assert "error: bounds" in said.err
    assert "cuGetExportTable" not in said.err


BESIDE = """
import ptxlab.cute
session = ptxlab.cute.use_emulator("sm_80")
import torch
import triton
import triton.language as tl


@triton.jit
def twice(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, 2 * tl.load(x + at))


x = torch.ones(32, device="cuda")
twice[(1,)](x, N=32)
assert x.tolist() == [2] * 32
assert session.usage["twice"].launches == 1
"""


def test_triton_beside_it_launches_on_the_same(tmp_path: Path) -> None:
    need("nvidia_cutlass_dsl", "torch", "triton")
    file = tmp_path / "beside.py"
    file.write_text(BESIDE)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_comes_before_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    need("nvidia_cutlass_dsl")
    monkeypatch.setitem(sys.modules, "cutlass", cute)
    with pytest.raises(PtxlabError, match="CuTe DSL was imported before"):
        cute.use_emulator("sm_80")
    monkeypatch.setattr(cute, "find_spec", lambda name: None)
    with pytest.raises(DeviceUnavailable, match="CuTe DSL is not installed"):
        cute.use_emulator("sm_80")


def test_pytest_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    opened = []
    monkeypatch.setattr(cute, "use_emulator", lambda **given: opened.append(given["session"]))
    given = {"ptxlab_triton": None, "ptxlab_cute": "sm_90a", "ptxlab_driver": None}
    options = SimpleNamespace(**given, ptxlab_check=True, numprocesses=None)
    config: Any = SimpleNamespace(known_args_namespace=options, stash=pytest.Stash())
    plugin.pytest_load_initial_conftests(config)
    assert opened == [config.stash[plugin._SESSION]]
    assert opened[0].device.target.name == "sm_90a"
    options.ptxlab_driver = "sm_80"
    with pytest.raises(pytest.UsageError, match="are to be the same GPU"):
        plugin.pytest_load_initial_conftests(config)


def test_both_compilers_keep_ptx_for_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That of cutlass.cute.experimental has variables of its own, and else gives machine code alone."""
    need("nvidia_cutlass_dsl")
    monkeypatch.setattr(os, "environ", {"CUTE_DSL_DUMP_DIR": "chosen"})
    ask_for(tmp_path / "libcuda.so.1", "sm_100a")
    for compiler, folder in (("CUTE_DSL", "chosen"), ("CUTE_EXPERIMENTAL_DSL", str(tmp_path))):
        told = {name: os.environ[f"{compiler}_{name}"] for name in ("ARCH", "KEEP_PTX", "DUMP_DIR")}
        assert told == {"ARCH": "sm_100a", "KEEP_PTX": "1", "DUMP_DIR": folder}
        first, *_ = os.environ[f"{compiler}_LIBS"].split(os.pathsep)
        assert first == str(tmp_path / "libcuda.so.1")


def test_ptx_of_thor_is_found_by_its_older_name(tmp_path: Path) -> None:
    """CuTe DSL 4.8.1 looks for the PTX of sm_110a by that name, and finds none: what wrote it says sm_101a."""
    (tmp_path / "kernel.sm_101a.ptx").write_text(".version 8.8\n.target sm_101a\n")
    assert text_of(str(tmp_path / "kernel.sm_110a.ptx")) == ".version 8.8\n.target sm_101a\n"
    assert text_of(str(tmp_path / "other.sm_110a.ptx")) == ""
    assert text_of(None) == ""
    assert text_of(".version 8.8\n") == ".version 8.8\n"
