"""Text fits its terminal, and is whole in a pipe."""

from __future__ import annotations

import io
import re
import sys

import pytest

from ptxlab.main import main
from ptxlab.view.width import beside, fitted, folded, shortened, stacked

ROWS = [("name", "value", "remark"), ("a", "1", "nothing much"), ("b", "22", "more than that")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, columns: int, *words: str) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("ptxlab.cli.progress.PATIENCE", 1e9)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(words) == 0
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in terminal.getvalue().splitlines()]


@pytest.mark.parametrize(
    "command",
    [
        "fragments --op m16n8k16 --dtype bf16",
        "fragments --op m16n8k16 --dtype bf16 --full",
        "fragments --op wgmma.m64n128k16.ss --dtype bf16 --full",
        "gemm --list",
        "profile ptx/mma_m16n8k16_bf16_f32.ptx",
        "sass ptx/mma_m16n8k16_bf16_f32.ptx --arch sm_80 --arch sm_90a",
        "dump ptx/mma_m16n8k16_bf16_f32.ptx --at mma.sync --regs A,D",
        "explain mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    ],
)
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    words = command.split()
    assert max(map(len, shown(monkeypatch, 80, *words))) <= 80


@pytest.mark.parametrize("words", [["check", "--list"], ["dump", "--help"], ["layout", "--help"]])
def test_help_fits_too(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    lines = shown(monkeypatch, 80, *words)
    assert len(lines) > 20
    assert max(map(len, lines)) <= 80


def test_a_pipe_gets_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", "--list"]) == 0
    out = capsys.readouterr().out
    assert "published" in out
    assert max(map(len, out.splitlines())) > 200


def test_what_a_narrow_table_leaves_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (shown(monkeypatch, columns, "gemm", "--list") for columns in (80, 220))
    assert narrow[-1] == "not shown for the terminal's width: published, launch, tile"
    assert wide[-1] == "not shown for the terminal's width: published"


def test_the_last_column_stands_below_the_one_before_it_where_it_has_no_room() -> None:
    assert fitted(ROWS, 80, below=True) == fitted(ROWS, None)
    assert fitted([("a", "bc", "defgh"), ("i", "j", "k")], 8, below=True) == [
        "a  bc", "   defgh", "i  j", "   k",
    ]  # fmt: skip


def test_columns_go_in_the_order_given() -> None:
    assert fitted(ROWS, None, ["value"]) == fitted(ROWS, 80, ["value"])
    assert fitted(ROWS, 22, ["value", "remark"]) == [
        "name  remark",
        "a     nothing much",
        "b     more than that",
        "not shown for the terminal's width: value",
    ]
    assert fitted(ROWS, 20, cut=4)[-1] == "b     22     more t…"
    assert shortened("word", 4) == "word"


def test_wide_tables_go_on_below() -> None:
    assert stacked(ROWS, 13) == [
        "name  value",
        "   a      1",
        "   b     22",
        "",
        "name          remark",
        "   a    nothing much",
        "   b  more than that",
    ]


def test_blocks_stand_side_by_side_where_both_fit() -> None:
    left, right = ["\x1b[31maa\x1b[0m", "b"], ["c"]
    assert beside([left, right], 6) == ["\x1b[31maa\x1b[0m   c", "b"]
    assert beside([left, right], 5) == [*left, "", *right]


def test_long_lines_are_folded_below_their_value() -> None:
    assert folded("name  one two three", 12) == "name  one\n      two\n      three"
    assert folded("  one two three", 12) == "  one two\n    three"
    assert folded("name  one\nshort", 12) == "name  one\nshort"
