"""The man page says what the verbs' help says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ptxlab.cli.verbs import VERBS
from ptxlab.main import main

ROOT = Path(__file__).parents[1]
PLACE = ".data/data/share/man/man1/ptxlab.1"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a wheel, built where ptxlab is not installed, and none of what it needs."""
    folder = tmp_path_factory.mktemp("man")
    code = f"""
import sys
sys.modules.update(dict.fromkeys(("numpy", "ml_dtypes", "rich", "ptxlab.emulator")))
sys.path[:] = [path for path in sys.path if path not in ("", {str(ROOT)!r})]
import hatchling.build
print(hatchling.build.build_wheel({str(folder)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(folder / done.stdout.splitlines()[-1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(PLACE))
        return wheel.read(name).decode()


def plain(roff: str) -> str:
    """Return the words of a page, whatever they look like."""
    text = re.sub(r"^\.(PP|TP|nf|fi|br|B|SS|SH|TH)\b", "", roff, flags=re.MULTILINE)
    for written, meant in ((r"\fB", ""), (r"\fI", ""), (r"\fR", ""), (r"\&", ""), (r"\-", "-")):
        text = text.replace(written, meant)
    return " ".join(text.replace(r"\e", "\\").split())


def sections(roff: str) -> dict[str, str]:
    """Return what is said of each verb."""
    verbs, _, _ = roff.partition(".SH EXIT STATUS")
    parts = re.split(r'^\.SS "ptxlab (\w+)"$', verbs, flags=re.MULTILINE)
    return {name: plain(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def help_of(verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "1000")  # no line is folded
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([verb, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("verb", "summary"), VERBS)
def test_it_has_all_that_the_help_of_a_verb_has(
    verb: str,
    summary: str,
    page: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, (_, text) = sections(page)[verb], help_of(verb, capsys, monkeypatch).split("\n\n", 1)
    assert said.startswith(summary)
    description, options = re.split(r"\n\n(?=positional arguments|options:)", text, maxsplit=1)
    assert " ".join(description.split()) in said
    entries = re.findall(r"^  (\S.*?)(?:  +|\n +)(\S.*)$", options, re.MULTILINE)
    assert ("-h, --help", "show this help message and exit") in entries
    for names, help_text in entries:
        assert help_text in said, names
        for name in re.findall(r"(?<![\w-])--?[a-z][\w-]*", names):
            assert name in said


def test_the_comparison_would_see_what_is_missing(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--bits" in help_of("layout", capsys, monkeypatch)
    assert "--bits" in sections(page)["layout"]
    assert "--bits" not in sections(page)["ops"]
    assert sections(page).keys() == dict(VERBS).keys()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_say_against_it(page: str) -> None:
    command = ["groff", "-man", "-Tascii", "-ww"]
    done = subprocess.run(command, input=page, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "PTXLAB(1)" in done.stdout
