"""The errors a user can meet, and the exit status each one means at the command line.

Every message has one shape: where it happened, the source line with a caret under the
offending text, what is wrong, and one hint.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a source text: 1-based line and column, and the text of that line."""

    path: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class PtxlabError(Exception):
    """Something a user can act on: ``message``, where (``location``), and what to do (``hint``).

    ``notes`` are lines of what else is known there. ``exit_status`` is what the command line returns: 1 a check or comparison failed, 2 usage,
    3 something needed is absent, 4 the input was rejected. ``kind`` is the reason in one word.
    """

    exit_status = 2
    kind = "usage"
    notes: tuple[str, ...] = ()

    def __init__(
        self, message: str, *, location: Location | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint

    def __str__(self) -> str:
        parts = [f"{self.location}: {self.message}" if self.location else self.message]
        if self.location and self.location.text:
            text, column = _around(self.location.text.expandtabs(1), self.location.column)
            parts += [f"    {text}", "    " + " " * (column - 1) + "^"]
        parts += self.notes
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


class PtxSyntaxError(PtxlabError):
    """PTX text that does not parse."""

    exit_status = 4
    kind = "syntax"


class Unsupported(PtxlabError):
    """Valid input that ptxlab does not model, refused by name and line instead of guessed."""

    exit_status = 4
    kind = "unsupported"


class ToolchainError(PtxlabError):
    """NVRTC, nvJitLink or nvdisasm rejected the input.

    The message has what the tool said first, ``log`` all of it where there may be more.
    """

    exit_status = 4
    kind = "toolchain"

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        hint: str | None = None,
        log: str = "",
    ) -> None:
        super().__init__(message, location=location, hint=hint)
        self.log = log


class DeviceUnavailable(PtxlabError):
    """No GPU, no driver, or a driver too old for what was asked."""

    exit_status = 3
    kind = "absent"


class WrongAccess(NamedTuple):
    """An ``address`` at which a thread may not access memory; it has that number in its CTA, and the CTA one in the grid."""

    cta: int
    thread: int
    address: int


class LaunchError(PtxlabError):
    """A kernel stopped: out of bounds, misaligned, deadlocked, trapped, or wrongly called.

    ``kind`` names the rule it broke: "bounds", "alignment", "async", "barrier", "deadlock" or "tensor memory
    leak"; "launch" is another. ``access`` is the first that is wrong, where one is.
    """

    exit_status = 4
    kind = "launch"

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        hint: str | None = None,
        kind: str = "launch",
        access: WrongAccess | None = None,
    ) -> None:
        super().__init__(message, location=location, hint=hint)
        self.kind = kind
        self.access = access

    def told_at(self, location: Location, notes: Iterable[str] = ()) -> LaunchError:
        """Return the same fault at the place in the source of an instruction, which the hint names if it is another."""
        where = self.location
        assert where is not None
        hints = [self.hint] if self.hint else []
        if location != where:
            hints.append(
                f"it is {' '.join(where.text.split())} on line {where.line} of {where.path}"
            )
        told = LaunchError(
            self.message,
            location=location,
            hint="; ".join(hints) or None,
            kind=self.kind,
            access=self.access,
        )
        told.notes = tuple(notes)
        return told


_LONGEST = 60
"""Characters of a name, token or expression that a message repeats at most."""

_ALIKE = 0.6
"""How like a known word must be to be offered, of 1: the share of letters that match, as difflib counts."""

_WIDEST = 160
"""Characters of a source line that an error shows at most."""


def _around(line: str, column: int) -> tuple[str, int]:
    """Return the part of a long line about the caret at 1-based ``column``, and the caret's column in it."""
    start = max(0, column - 1 - _WIDEST // 2) if len(line) > _WIDEST else 0
    end = start + _WIDEST
    before, behind = "…" if start else "", "…" if len(line) > end else ""
    return before + line[start:end] + behind, column - start + len(before)


def shortened(text: str) -> str:
    """Return what a message may repeat of ``text``: its first line, cut where it is long."""
    line, *more = text.split("\n", 1)
    return line[: _LONGEST - 1] + "…" if more or len(line) > _LONGEST else line


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the ``known`` words that look like ``word``, at ``most`` so many, the likest first.

    They are those of ``difflib.get_close_matches``, which compares all of them at length: a thousand names of
    one family take it a quarter of a second. Here those with the longest common subsequence come first, until
    no other can be as like. A word that differs in capitals alone is all there is to offer.
    """
    known = list(known)
    if same := [name for name in known if name.lower() == word.lower() and name != word]:
        return same[:most]
    compared = difflib.SequenceMatcher(b=word)
    bounds = [(_most_alike(name, word), name) for name in known]
    likest: list[tuple[float, str]] = []
    for bound, name in sorted(bounds, reverse=True):
        if bound < _ALIKE or (len(likest) == most and bound < likest[-1][0]):
            break
        compared.set_seq1(name)
        if (ratio := compared.ratio()) >= _ALIKE:
            likest = sorted([*likest, (ratio, name)], reverse=True)[:most]
    return [name for _, name in likest]


def _most_alike(a: str, b: str) -> float:
    """Return the most that difflib's ratio can be, by the longest common subsequence, a bit a letter of ``b``.

    Hyyrö, "Bit-parallel LCS-length computation revisited" (2004).
    """
    standing: dict[str, int] = {}
    for at, letter in enumerate(b):
        standing[letter] = standing.get(letter, 0) | 1 << at
    unmatched = everything = (1 << len(b)) - 1
    for letter in a:
        matched = unmatched & standing.get(letter, 0)
        unmatched = (unmatched + matched) | (unmatched - matched)
    length = (~unmatched & everything).bit_count()
    return 2 * length / (len(a) + len(b) or 1)


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str | None:
    """Return the hint ``did you mean X or Y?``, None where no known word looks like ``word``."""
    near = nearest(word, known, most)
    return f"did you mean {' or '.join(near)}?" if near else None
