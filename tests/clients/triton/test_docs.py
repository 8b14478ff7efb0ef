"""The page about clients keeps its word: its programs in Triton print what their comments say."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxlab.main import main
from tests.test_readme import blocks, same


def test_the_program_prints_what_its_comments_say(
    kernels: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *_ = blocks("clients.md", "python")
    (tmp_path / "program.py").write_text(program)
    runpy.run_path(str(tmp_path / "program.py"))
    assert capsys.readouterr().out.splitlines() == re.findall(r"# prints (.*)", program)


# A launch from a program in CuTe DSL always goes this way.
@pytest.mark.thorough
def test_exec_prints_what_is_shown(
    kernels: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of its own process, with a race that is named by its line."""
    *_, program = blocks("clients.md", "python")
    (tmp_path / "histogram.py").write_text(program)
    (session,) = (text for text in blocks("clients.md", "text") if text.startswith("$ ptxlab exec"))
    command, _, expected = session.partition("\n")
    words = command.removeprefix("$ ptxlab ").replace(" python ", f" {sys.executable} ").split()
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    shown = capfd.readouterr().err
    assert same(expected, shown), shown
