"""The argument parser every verb uses: errors are ptxlab's own and name the nearest right word."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ptxlab.cli.formats import chosen
from ptxlab.cli.readers import suggestion
from ptxlab.errors import PtxlabError


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that keeps its help as written and raises ``PtxlabError`` (status 2)."""

    given: Sequence[str] = ()
    """What is being parsed, for an option that does all that is asked by itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )

    def error(self, message: str) -> NoReturn:
        """Raise ``message`` as a usage error."""
        raise PtxlabError(message, hint=f"{self.prog} --help")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version; argparse would keep silent about what could not be written."""
        stream = file or sys.stderr
        if stream.isatty():
            message = _fitted(message, shutil.get_terminal_size().columns)
        stream.write(message)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Parse ``args``; an option nobody knows is an error that names the nearest one."""
        self.given = args or ()
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(word)}")
        if "formats" in parsed:
            code = getattr(parsed, "code", None) is not None
            try:
                parsed.format = chosen(parsed.format, parsed.output, parsed.formats, code=code)
            except ValueError as error:
                self.error(str(error))
            if parsed.format == "png":
                from ptxlab.view.png import require  # here: few ask for it

                require()  # before any work is done
        return parsed

    def _meant(self, word: str) -> str:
        """Say which option may have been meant by one that there is not, or by a word without one."""
        if word == "--gpu" and self.has("--arch"):
            return "; here a GPU is named by its target: --arch sm_90a, or --arch h100"
        if word.startswith("-"):
            return suggestion(word, self._option_string_actions)
        for option, looks in (
            ("--arch", r"(sm|compute)_\d+"),
            ("--op", r".*m\d+n\d+|\w+matrix|w?g?mma"),
        ):
            if self.has(option) and re.match(looks, word):
                return f"; did you mean {option} {word}?"
        return ""

    def has(self, option: str) -> bool:
        """Say whether ``option`` is the name of an option."""
        return option in self._option_string_actions

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        """Read an option; what is wrong with it is said by the ValueError of its reader."""
        read: Callable[[str], Any] = self._registry_get("type", action.type, action.type)
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentError(action, str(error)) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action,
                f"no {value!r}, choose from {', '.join(choices)}{suggestion(str(value), choices)}",
            )


def _fitted(text: str, width: int) -> str:
    """Return help with its paragraphs filled anew, and what is indented folded, where they are too wide."""
    from ptxlab.view.width import folded  # here: it brings numpy, which help in a pipe can spare

    def filled(paragraph: re.Match[str]) -> str:
        lines = paragraph[0].splitlines()
        if max(map(len, lines)) <= width:
            return paragraph[0]
        return textwrap.fill(" ".join(lines), width, break_long_words=False) + "\n"

    return folded(re.sub(r"(?:^\S.*\n)+", filled, text, flags=re.MULTILINE), width)
