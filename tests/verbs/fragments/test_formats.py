"""``ptxlab fragments`` in the formats that draw a layout and run nothing."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ptxlab.main import main
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.verbs.fragments import atlas, svg, tables
from ptxlab.verbs.fragments.runs import Selection
from ptxlab.verbs.fragments.svg_operands import operand_svg

S4 = multiplication("m16n8k64", "s4")
LANE = Selection(lane=6)
FORMATS = ("svg", "csv", "markdown", "latex", "html")
ASKED = ["fragments", "--op", "m16n8k64", "--dtype", "s4"]


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*args: object, **options: object) -> None:
        raise AssertionError("a device was opened")

    monkeypatch.setattr("ptxlab.device.opening.open_device", opened)


@cache
def expected(name: str) -> str:
    if name == "html":
        return atlas.page(MULTIPLICATIONS, S4)
    draw = svg.svg if name == "svg" else getattr(tables, name)
    return str(draw(S4, LANE))


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_what_the_view_draws(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name != "html":  # which the next test prints
        assert main([*ASKED, "--lane", "6", "--format", name]) == 0
        assert capsys.readouterr().out == expected(name)
    file = tmp_path / "result"
    assert main([*ASKED, "--lane", "6", "--format", name, "-o", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == expected(name)
    assert capsys.readouterr() == ("", "")


def test_all_is_drawn_when_nothing_is_selected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--format", "svg"]) == 0
    assert capsys.readouterr().out == svg.svg(S4) != expected("svg")
    assert main([*ASKED, "--html"]) == 0
    assert capsys.readouterr().out == expected("html")


def test_one_operand_is_drawn_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--operand", "B", "--format", "svg"]) == 0
    assert capsys.readouterr().out == operand_svg(S4.operand("B"))
    assert main([*ASKED, "--operand", "b", "--lane", "6", "--format", "svg"]) == 0
    assert capsys.readouterr().out == operand_svg(S4.operand("B"), LANE)
    assert main([*ASKED, "--operand", "E", "--format", "svg"]) == 2
    assert main([*ASKED, "--operand", "B", "--html"]) == 2
    assert "draws all operands" in capsys.readouterr().err


def test_a_program_is_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--format", "svg", "--ptx", "mine.ptx"]) == 2
    assert "--ptx goes with --format text and json" in capsys.readouterr().err
    assert main([*ASKED, "--format", "svg", "--lane", "32"]) == 2
    assert "no lane 32" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom ptxlab.main import main\nmain(['fragments', '--help'])\n"
        "assert not {'numpy', 'rich', 'cuda', 'ptxlab.view'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr
    assert "--format text|json|csv|markdown|svg|latex|html" in done.stdout
