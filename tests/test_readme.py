"""The README and docs/ keep their word: every command and program is run, every output compared."""

from __future__ import annotations

import contextlib
import doctest
import io
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ptxlab.errors import DeviceUnavailable
from ptxlab.main import main

ROOT = Path(__file__).parents[1]
PAGES = {
    page.name: page.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}

MADE_BY_OTHERS = ("product.cubin", "tile.cubin")
"""Files that compilers of other packages make: tests/clients/test_cubins.py runs what is shown of them."""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)


def sessions(page: str) -> list[tuple[str, str]]:
    """Return the (command, output) pairs of a page's console blocks."""
    shown = []
    for block in blocks(page, "console"):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.replace("\\\n", "").partition("\n")
            shown.append((command, output))
    return shown


def asked(page: str) -> list[str]:
    """Return the commands in a page's tables that no console block shows already."""
    shown = {command for each in PAGES for command, _ in sessions(each)}
    rows = re.findall(r"^\|.*\| `(ptxlab [^`]*)` \|$", PAGES[page], re.MULTILINE)
    return [command for command in rows if command not in shown]


def same(expected: str, output: str) -> bool:
    """Compare an output with the README, where ``...`` stands for anything."""
    return doctest.OutputChecker().check_output(expected, output, doctest.ELLIPSIS)


def no_gpu(ordinal: int, target: object) -> NoReturn:
    """Stand in for a GPU: the README shows a machine without one."""
    raise DeviceUnavailable("no GPU can be used: no NVIDIA driver is installed")


LONG = (
    *(
        "gemm --all",
        "--format svg -o roofline",
        "--gpu a6000",
        "fragments --ptx ptx/gemm",
        "-o atlas.html",
    ),
    *(
        "bench --tiles",
        "dump kernels/tensor_core.cu",
        "trace kernels/tensor_core.cu",
        "nvfp4 --size 64",
    ),
    *("gemm --explain", "tcgen05_pair --size", "mxfp8 --size"),
)
"""What all rungs, a large launch or a kernel of many lines has; its verb has other commands on the pages."""


def repeated(command: str, expected: str) -> Any:
    """Return a case; a thorough one of a command that takes long."""
    long = any(words in command for words in LONG)
    return pytest.param(command, expected, marks=[pytest.mark.thorough] * long)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        *(
            repeated(command, expected)
            for page in PAGES
            for command, expected in sessions(page)
            if not any(file in command for file in MADE_BY_OTHERS)
        ),
        *(repeated(command, "...") for command in asked("questions.md")),
    ],
)
def test_each_command_prints_what_is_shown(
    command: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, _, status = command.partition("    # exit status ")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ptxlab.device.opening._open_cuda", no_gpu)
    monkeypatch.setattr("ptxlab.cli.progress.PATIENCE", math.inf)  # on a slow machine too
    words = shlex.split(command)
    assert words[0] == "ptxlab"
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        assert main(words[1:]) == int(status or 0)
    assert same(expected, output.getvalue()), output.getvalue()
    for picture in (ROOT / "docs").glob("*.svg"):
        drawn = tmp_path / picture.name
        if drawn.exists():
            assert drawn.read_bytes() == picture.read_bytes(), f"run {command}, in docs"


@pytest.mark.parametrize("page", ["README.md", "workbench.md"])
def test_each_program_runs_and_prints_what_its_comments_say(page: str, tmp_path: Path) -> None:
    (program,) = blocks(page, "python")
    promised = re.findall(r"# prints (.*)$", program, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert promised
    assert done.stdout.splitlines() == promised


def test_the_first_screen_names_both_commands() -> None:
    (first,) = blocks("README.md", "sh")
    assert [line.split()[0] for line in first.splitlines()] == ["scripts/demo", "scripts/test"]


@pytest.mark.parametrize("page", PAGES)
def test_each_script_and_file_it_names_is_there(page: str) -> None:
    folder = ROOT if page == "README.md" else ROOT / "docs"
    named = re.findall(r"`((?:scripts|ptx|kernels|tests|docs|ptxlab)/[\w./]*)`", PAGES[page])
    for name in named:
        assert (ROOT / name).exists(), name
        assert not name.startswith("scripts/") or os.access(ROOT / name, os.X_OK), name
    for link in re.findall(r"\]\(([\w./]+)\)|src=\"([\w./]+)\"", PAGES[page]):
        assert (folder / (link[0] or link[1])).exists(), link


def test_each_picture_is_drawn_by_a_command() -> None:
    """So that the test above finds one that is of yesterday."""
    commands = " ".join(command for page in PAGES for command, _ in sessions(page))
    for picture in (ROOT / "docs").glob("*.svg"):
        assert f"-o {picture.name}" in commands, picture.name


def test_the_comparison_would_see_a_difference() -> None:
    assert same("a ... c\n", "a b c\n")
    assert not same("a ... c\n", "a b d\n")
