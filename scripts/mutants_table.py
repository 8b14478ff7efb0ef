"""The table of deliberate mistakes that the tests must notice, and the record of which test did.

tests/mistakes/ROOM.toml has those of a room. ``tests`` says which tests are the room's. A ``[[mistake]]``
puts ``new`` in place of ``old``, which occurs once in ``file``; ``why`` says what a user would get. The
record is tests/mistakes/seen_by.json, from which the table in docs/mistakes.md is made.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path("tests", "mistakes")
RECORD = FOLDER / "seen_by.json"
PAGE = Path("docs", "mistakes.md")
MARKS = ("<!-- from tests/mistakes/seen_by.json -->\n", "<!-- /from -->\n")

SEEN, UNSEEN, HANG, STALE = OUTCOMES = ("seen", "unseen", "hang", "stale")


class StaleError(ValueError):
    """The text that a mistake replaces is not, or not only once, in its file."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One entry of the table, with the name of its room and the room's tests."""

    room: str
    tests: tuple[str, ...]
    file: str
    old: str
    new: str
    why: str

    @property
    def key(self) -> str:
        """What the record knows the mistake by: its file, and a digest of the change."""
        change = hashlib.sha256(f"{self.old}\0{self.new}".encode()).hexdigest()
        return f"{self.file} {change[:8]}"

    def line(self, text: str) -> int:
        """Return the line of ``text``, its file, in which it begins. Raises StaleError."""
        if (times := text.count(self.old)) != 1:
            raise StaleError(f"{self.file} has {times or 'no'} times: {self.old.strip()}")
        return text.count("\n", 0, text.index(self.old)) + 1

    def put_into(self, text: str) -> str:
        """Return ``text``, its file, with the mistake. Raises StaleError."""
        self.line(text)
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mistake: its outcome, and the tests that noticed it, nearly always one."""

    room: str
    outcome: str
    tests: list[str]
    date: str


Record = dict[str, Result]


def table(root: Path) -> list[Mistake]:
    """Return all mistakes, room by room."""
    mistakes = []
    for path in sorted((root / FOLDER).glob("*.toml")):
        room = tomllib.loads(path.read_text(encoding="utf-8"))
        tests = tuple(room["tests"])
        mistakes += [Mistake(path.stem, tests, **entry) for entry in room["mistake"]]
    return mistakes


def record(root: Path) -> Record:
    """Return the last results by the keys of the mistakes; none where nothing is on record."""
    path = root / RECORD
    if not path.exists():
        return {}
    return {
        key: Result(**result)
        for key, result in json.loads(path.read_text(encoding="utf-8")).items()
    }


def keep(root: Path, results: Mapping[str, Result]) -> None:
    """Write the record, a line for each mistake, and the page made from it."""
    ordered = sorted(results.items(), key=lambda item: (item[1].room, item[0]))
    lines = [f"{json.dumps(key)}: {json.dumps(asdict(result))}" for key, result in ordered]
    (root / RECORD).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    page = root / PAGE
    page.write_text(with_summary(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def with_summary(page: str, results: Mapping[str, Result]) -> str:
    """Return ``page`` with the results between its marks. Raises ValueError where it has none."""
    before, began, rest = page.partition(MARKS[0])
    _, ended, after = rest.partition(MARKS[1])
    if not (began and ended):
        raise ValueError(f"{PAGE} has no place for results: {''.join(MARKS)}".strip())
    return f"{before}{began}{_summary(results.values())}{ended}{after}"


def _summary(results: Iterable[Result]) -> str:
    rooms: dict[str, list[Result]] = {}
    for result in results:
        rooms.setdefault(result.room, []).append(result)
    lines = ["| room | tried | seen | unseen | hang | since |", "|---|---|---|---|---|---|"]
    everything = [result for own in rooms.values() for result in own]
    for room, own in [*sorted(rooms.items()), ("all", everything)]:
        outcomes = [result.outcome for result in own]
        counts = [len(own), *(outcomes.count(outcome) for outcome in (SEEN, UNSEEN, HANG))]
        since = min((result.date for result in own), default="")
        lines.append(f"| {room} | {' | '.join(map(str, counts))} | {since} |")
    return "".join(f"{line}\n" for line in lines)
