"""Cubins that Triton and CuTe DSL made run without their PTX, as docs/machine_code.md says."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ptxlab.main import main
from tests.clients.needs import need
from tests.test_readme import blocks, same, sessions

RECORDED = {"product": "product_sm_80.cubin", "tile": "tile_sm_90a.cubin"}
"""What Triton 3.9.0 makes of the page's product.py, without its lines, and CuTe DSL 4.8.1 of its tile.py."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, file in RECORDED.items():
        shutil.copy(Path(__file__).with_name(file), tmp_path / f"{name}.cubin")
    for program in blocks("machine_code.md", "python"):
        (tmp_path / program.split()[1]).write_text(program)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", RECORDED)
def test_they_run_and_are_looked_at_as_shown(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [each for each in sessions("machine_code.md") if f" {name}.cubin " in f"{each[0]} "]
    assert len(shown) == {"product": 1, "tile": 4}[name]
    for command, expected in shown:
        assert main(shlex.split(command)[1:]) == 0, command
        output = capsys.readouterr().out
        assert same(expected.strip(), output.strip()), output


@pytest.mark.thorough
def test_programs_make_and_load_them_as_shown(folder: Path) -> None:
    need("triton", "nvidia_cutlass_dsl", "cuda")
    asked = {**os.environ, "CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_KEEP": "cubin"}
    for program, says in (("product", "16384"), ("launch", "True"), ("tile", "")):
        words = [sys.executable, "-W", "ignore", f"{program}.py"]
        made = subprocess.run(words, env=asked, capture_output=True, text=True, check=True)
        assert made.stdout.strip() == says
    for name in RECORDED:
        for command, _ in sessions("machine_code.md"):
            if command.startswith(f"ptxlab run {name}.cubin"):
                assert main(shlex.split(command)[1:]) == 0
