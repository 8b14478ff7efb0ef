"""A program in CuTe DSL, unchanged: its results, what it prints, and the line of Python that a fault is from."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ptxlab import cute
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.main import main
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
        rf"{PROGRAM.name}:{line}\b.*global store of 4 bytes .* is out of bounds", said.err
    )
    assert re.search(
        r"ptxlab: 1 launch of 1 kernel on the emulator, sm_80, .*: findings in 1", said.err
    )
    assert "error: bounds" in said.err
    assert "cuGetExportTable" not in said.err


def test_it_comes_before_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    need("nvidia_cutlass_dsl")
    monkeypatch.setitem(sys.modules, "cutlass", cute)
    with pytest.raises(PtxlabError, match="CuTe DSL was imported before"):
        cute.use_emulator("sm_80")
    monkeypatch.setattr(cute, "find_spec", lambda name: None)
    with pytest.raises(DeviceUnavailable, match="CuTe DSL is not installed"):
        cute.use_emulator("sm_80")
