"""Colour and lines that are taken back: who wants them, and when a verb says that it is at work."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path
from time import sleep

import pytest

import ptxlab
from ptxlab.cache import keep, kept
from ptxlab.cli import progress
from ptxlab.cli.terminal import moves_cursor, wants_colour
from ptxlab.main import main


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "set_", "coloured"),
    [
        (True, {}, True),
        (False, {}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "0"}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour(
    terminal: bool, set_: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    assert wants_colour(argparse.Namespace(output=None)) == coloured
    assert not wants_colour(argparse.Namespace(output="file"))
    assert moves_cursor(stream) == (terminal and set_.get("TERM") != "dumb")


def test_forced_colour_reaches_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["fragments", "--device", "emulator"]) == 0
    assert "\x1b[" in capsys.readouterr().out


COMMANDS = (
    "bench --device emulator --algorithm naive --size 16",
    "check ptx/mma_m16n8k16_bf16_f32.ptx",
    "completion bash",
    "diff ptx/mma_m16n8k16_bf16_f32.ptx --a emulator:sm_80 --b emulator:sm_90a",
    "doctor",
    "dump ptx/mma_m16n8k16_bf16_f32.ptx --at mma.sync",
    "exec -- true",
    "explain movmatrix",
    "fragments --op movmatrix",
    "gemm --algorithm naive --size 16 --device emulator",
    "interleave --size 4",
    "judge kernels/naive.cu --reference d=a@b",
    "layout 2x6",
    "numerics --a 1,0x1p-12 --b 1,0x1p-13",
    "ops --family movmatrix",
    "predict kernels/naive.cu",
    "profile ptx/mma_m16n8k16_bf16_f32.ptx",
    "run ptx/mma_m16n8k16_bf16_f32.ptx",
    "sass ptx/mma_m16n8k16_bf16_f32.ptx",
    "step ptx/mma_m16n8k16_bf16_f32.ptx",
    "trace ptx/mma_m16n8k16_bf16_f32.ptx",
)
"""One of every verb but those that serve until they are ended."""


@pytest.mark.thorough
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
@pytest.mark.parametrize("set_", [{"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_no_verb_writes_an_escape_where_none_is_wanted(
    monkeypatch: pytest.MonkeyPatch, command: str, set_: dict[str, str]
) -> None:
    """On a terminal, too: with TERM=dumb neither stream has one, with NO_COLOR only lines are taken back."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    streams = [Terminal(), Terminal()]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    main(command.split())
    out, err = (stream.getvalue() for stream in streams)
    assert out + err
    assert "\x1b" not in out + err.replace(
        progress.CLEAR, "" if set_.get("TERM") != "dumb" else progress.CLEAR
    )


def test_escapes_are_written_by_who_asks_whether_they_are_wanted() -> None:
    """Every call that makes colours stands behind ``wants_colour``."""
    package = Path(ptxlab.__file__).parent
    lines = [line for path in package.rglob("*.py") for line in path.read_text().splitlines()]
    calls = [line for line in lines if "on_terminal()" in line and not line.startswith("def ")]
    assert len(calls) == 4
    assert all("if wants_colour(args)" in line for line in calls)


def test_a_verb_says_that_it_is_at_work_until_something_better_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "ON_TERMINAL", 0.01)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.ticking("predict"):
        while not stream.getvalue():
            sleep(0.002)
        progress.quiet()
        said = stream.getvalue()
        sleep(0.03)
        assert stream.getvalue() == said
    assert said.startswith("\r\x1b[Kptxlab: predict, 1 s")
    assert said.endswith(progress.CLEAR)


def test_it_goes_on_saying_so_once_the_better_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "ON_TERMINAL", 0.001)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.ticking("step"):
        told = progress.LaunchProgress()
        told(0, 2)
        assert "ptxlab: 0 of 2 CTAs" in stream.getvalue()
        told(2, 2)
        before = len(stream.getvalue())
        while "step, 1 s" not in stream.getvalue()[before:]:
            sleep(0.002)


def test_a_command_that_is_given_again_says_how_much_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    keep("durations", (os.getcwd(), "predict", "a.cu"), b"61.2")
    for file, left in (("a.cu", ", about 61 s left"), ("b.cu", "")):
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.ticking("predict", ("predict", file)):
            while not stream.getvalue():
                sleep(0.002)
            said = stream.getvalue()
        assert said.startswith(f"\r\x1b[Kptxlab: predict, 1 s{left}")
        assert ("left" in said) == bool(left)
    monkeypatch.setattr(progress, "LONG", 0.0)
    with progress.ticking("predict", ("predict", "b.cu")):
        pass
    assert float(kept("durations", (os.getcwd(), "predict", "b.cu")) or -1) >= 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (7.4, "7 s"), (99, "99 s"), (150, "2 min"), (6000, "2 h")],
)
def test_a_duration(seconds: float, words: str) -> None:
    assert progress.duration(seconds) == words


def test_help_and_version_as_others_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-V"]) == 0
    assert capsys.readouterr().out.startswith("ptxlab ")
    assert main(["help"]) == 0
    assert "verbs:" in capsys.readouterr().out
    assert main(["help", "ops"]) == 0
    assert capsys.readouterr().out.startswith("usage: ptxlab ops")
