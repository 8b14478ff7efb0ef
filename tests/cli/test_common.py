from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path
from typing import NoReturn

import pytest

from ptxlab.cli.common import SLOW, add_common, emit, tell_of_faster
from ptxlab.cli.parser import Parser
from ptxlab.cli.terminal import wants_colour
from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError
from ptxlab.files import write_whole


def parse(*arguments: str, formats: tuple[str, ...] = ()) -> argparse.Namespace:
    parser = Parser(prog="ptxlab verb")
    add_common(parser, formats)
    return parser.parse_args(arguments)


def test_defaults() -> None:
    args = parse()
    assert (args.device, args.arch, args.format, args.output, args.seed) == (
        "auto",
        None,
        "text",
        None,
        0,
    )


def test_each_form_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    emit(parse(), "words", {"x": 1})
    assert capsys.readouterr() == ("words\n", "")
    emit(parse("--json"), "words", {"x": 1})
    assert json.loads(capsys.readouterr().out) == {"x": 1}
    emit(parse("--format", "svg", formats=("svg",)), "words", {"x": 1}, svg=lambda: "<svg/>\n")
    assert capsys.readouterr() == ("<svg/>\n", "")


def test_only_what_is_wanted_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    def never() -> NoReturn:
        raise AssertionError("made in vain")

    emit(parse("--json"), never, lambda: {"x": 2}, svg=never)
    assert capsys.readouterr().out == '{"x": 2}\n'
    emit(parse(), lambda: "words", never, svg=never)
    assert capsys.readouterr().out == "words\n"


def test_what_json_cannot_say_is_a_string(capsys: pytest.CaptureFixture[str]) -> None:
    emit(parse("--json"), "", {"x": float("nan"), "y": [float("-inf")]})
    assert capsys.readouterr().out == '{"x": "nan", "y": ["-inf"]}\n'


def test_output_goes_to_the_file_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    file.write_text("old and much longer than what replaces it")
    emit(parse("--json", "-o", str(file)), "words", {"x": 1})
    assert json.loads(file.read_text()) == {"x": 1}
    assert capsys.readouterr() == ("", "")
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "result.txt"
    file.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(PtxlabError, match=r"cannot write .*result\.txt: No space left on device"):
        write_whole(str(file), b"new")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    write_whole(str(link), b"through")
    assert link.is_symlink()
    assert target.read_bytes() == b"through"
    write_whole("/dev/null", b"gone")
    assert not os.path.isfile("/dev/null")


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_whole(str(tmp_path / "x"), b"")
    finally:
        os.umask(old)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


class Terminal:
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_that_wants_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert not wants_colour(parse())
    monkeypatch.setattr("sys.stdout", Terminal())
    assert wants_colour(parse())
    assert not wants_colour(parse("-o", str(tmp_path / "x")))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(parse())


def test_after_a_slow_launch_it_says_how_to_have_the_fast_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_device("emulator")

    def said(seconds: float) -> str:
        tell_of_faster(device, seconds)
        return capsys.readouterr().err

    monkeypatch.delenv("PTXLAB_ENGINE", raising=False)
    monkeypatch.setattr("ptxlab.native.compiler.available", lambda: False)
    assert said(SLOW) == ""
    assert re.fullmatch(
        "ptxlab: 12 s of emulation; with llvmlite .*: .*install .*llvmlite.*\n", said(12)
    )
    monkeypatch.setattr("sys.platform", "emscripten")
    assert said(12) == "", "where there is no llvmlite"
    monkeypatch.undo()
    monkeypatch.setenv("PTXLAB_ENGINE", "array")
    assert said(12) == "", "who asks for arrays gets them"
    monkeypatch.undo()
    monkeypatch.setattr("ptxlab.native.compiler.available", lambda: True)
    assert said(12) == ""
