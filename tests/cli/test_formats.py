"""The name of a file says in which form a result is written, or is refused before any work is done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxlab.cli.formats import chosen
from ptxlab.errors import DeviceUnavailable
from ptxlab.main import main
from ptxlab.view import png as drawing

KNOWN = ("text", "json", "svg", "html", "csv", "markdown", "latex")


@pytest.mark.parametrize(
    ("asked", "path", "form"),
    [
        (None, None, "text"),
        (None, "x", "text"),
        (None, "x.log", "text"),
        (None, "X.JSON", "json"),
        (None, "x.htm", "html"),
        (None, "a.b/x.svg", "svg"),
        (None, "x.md", "markdown"),
        ("text", "x.md", "text"),
        ("json", "x.log", "json"),
        ("csv", "x", "csv"),
    ],
)
def test_the_form(asked: str | None, path: str | None, form: str) -> None:
    assert chosen(asked, path, KNOWN) == form


@pytest.mark.parametrize(
    ("asked", "path", "why"),
    [
        (None, "z.cubin", "no .cubin is written"),
        (None, "z.ptx", "no .ptx is written"),
        (None, "z.png", "no .png is written"),
        ("json", "x.svg", "x.svg is svg by its name, and json is asked for"),
        ("text", "x.html", "and text is asked for"),
        (None, "x.xml", "no form for .xml, it is one of .txt, .json"),
    ],
)
def test_what_is_refused(asked: str | None, path: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        chosen(asked, path, KNOWN)


def test_pixels_are_drawn_of_a_picture_and_go_to_a_file() -> None:
    assert chosen(None, "x.PNG", (*KNOWN, "png")) == "png"
    with pytest.raises(ValueError, match="goes to a file"):
        chosen("png", None, (*KNOWN, "png"))


@pytest.mark.parametrize("fonts", [True, False])
def test_a_png_has_letters_or_is_refused(
    fonts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of letters in a font that there is not, resvg draws none and says nothing."""
    pytest.importorskip("resvg_py")
    drawing._font.cache_clear()
    if fonts:
        try:
            drawing._font()
        except DeviceUnavailable as error:
            pytest.skip(error.message)
    else:
        monkeypatch.setattr(drawing, "_MONOSPACE", ("No Such Font",))
    picture = tmp_path / "f.png"
    status = main(["layout", "2x6", "-o", str(picture)])
    drawing._font.cache_clear()
    if fonts:
        assert status == 0
        assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    else:
        assert status == 3
        assert not picture.exists()
        assert "no font of one width is installed: No Such Font" in capsys.readouterr().err


def test_without_resvg_a_png_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    assert main(["gemm", "--explain", "-o", "x.png"]) == 3
    assert "the package resvg_py is not installed" in capsys.readouterr().err


def test_a_program_may_be_written_where_the_text_is_one() -> None:
    assert chosen(None, "layout.cuh", KNOWN, code=True) == "text"


def test_verbs_write_what_the_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["layout", "m16n8k16", "--dtype", "half"]
    assert main([*asked, "-o", "y.json"]) == 0
    assert json.loads(Path("y.json").read_text())["schema"] == "ptxlab.layout/1"
    assert main(["fragments", "-o", "f.svg"]) == 0
    assert Path("f.svg").read_text().startswith("<svg")
    assert main([*asked, "-o", "z.cubin"]) == 2
    assert "z.cubin: no .cubin is written" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.svg", "y.json"]
