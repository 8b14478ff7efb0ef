"""Colour and lines that are taken back: who wants them, and when a verb says that it is at work."""

from __future__ import annotations

import argparse
import io
import sys
from time import sleep

import pytest

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


def test_a_verb_says_that_it_is_at_work_until_something_better_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
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
