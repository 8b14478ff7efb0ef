"""The man page, ptxlab(1), made of what the verbs' help is made of; the build of a wheel puts it there.

python scripts/man_page.py | man -l -
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[1]
PLACE = "share/man/man1/ptxlab.1"


class ManPage(BuildHookInterface[Any]):
    """What the build calls: it adds the page to a wheel, and not to an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the page, and have it packed."""
        if version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory()
        made = Path(self.folder.name) / "ptxlab.1"
        made.write_text(page(), encoding="utf-8")
        build_data["shared_data"][str(made)] = PLACE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written."""
        if version != "editable":
            self.folder.cleanup()


def page() -> str:
    """Return the page in the language of man."""
    sys.path.insert(0, str(ROOT))  # the build runs where ptxlab is not installed
    try:
        return "\n".join(lines()) + "\n"
    finally:
        sys.path.remove(str(ROOT))


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    from ptxlab import __version__
    from ptxlab.cli.parser import Parser
    from ptxlab.cli.verbs import VERBS
    from ptxlab.main import EXIT_STATUSES, top_parser

    title = (top_parser().description or "").splitlines()[0]
    yield f'.TH PTXLAB 1 "" "ptxlab {__version__}" "User Commands"'
    yield from (".SH NAME", f"ptxlab \\- {escaped(title)}", ".SH SYNOPSIS")
    yield from (".B ptxlab", "VERB [options]", ".br", ".B ptxlab", "VERB \\-\\-help")
    yield ".SH VERBS"
    for name, summary in VERBS:
        parser = Parser(prog=f"ptxlab {name}")
        importlib.import_module(f"ptxlab.verbs.{name}.verb").configure(parser)
        yield from (f'.SS "ptxlab {name}"', escaped(summary))
        yield from verbatim(parser.description or "")
        for action in parser._actions:
            if action.help != argparse.SUPPRESS:
                yield from (".TP", spelled(action), escaped(one_line(action.help)))
    yield ".SH EXIT STATUS"
    yield from verbatim(EXIT_STATUSES.partition("\n")[2])


def verbatim(text: str) -> Iterator[str]:
    """Yield text whose lines are kept as they are."""
    yield from (".PP", ".nf", *(escaped(line) for line in text.splitlines()), ".fi")


def spelled(action: argparse.Action) -> str:
    """Return how an option or argument is written, names bold and what stands for a value slanted."""
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in action.option_strings)
    if action.nargs == 0:
        return names
    metavar = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
    return f"{names} \\fI{escaped(str(metavar))}\\fR".lstrip()


def one_line(text: str | None) -> str:
    """Return a help as argparse would print it, had it the room."""
    return " ".join((text or "").replace("%%", "%").split())


def escaped(text: str) -> str:
    """Return text whose characters mean themselves."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", plain)


if __name__ == "__main__":
    sys.stdout.write(page())
