"""The table of deliberate mistakes that the tests must notice, and the record of which test did.

tests/mistakes/ROOM.toml has those of a room. ``tests`` says which tests are the room's. A ``[[mistake]]``
puts ``new`` in place of ``old``, an expression or statements that stand once ``within`` a function, class
or table of ``file`` (without ``within``: outside of them), or, where ``file`` is not Python, a text that it
has once; ``why`` says what a user would get. The record is tests/mistakes/seen_by.json, from which the
table in docs/mistakes.md is made.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts import mutants_code
from scripts.mutants_code import StaleError

FOLDER = Path("tests", "mistakes")
RECORD = FOLDER / "seen_by.json"
PAGE = Path("docs", "mistakes.md")
MARKS = ("<!-- from tests/mistakes/seen_by.json -->\n", "<!-- /from -->\n")

SEEN, UNSEEN, HANG, STALE = OUTCOMES = ("seen", "unseen", "hang", "stale")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One entry of the table, with the name of its room and the room's tests."""

    entry: str  # the file and the line that it begins in
    room: str
    tests: tuple[str, ...]
    file: str
    old: str
    new: str
    why: str
    within: str = ""

    @property
    def key(self) -> str:
        """What the record knows the mistake by: the name of its function, and a digest of the change."""
        change = hashlib.sha256(f"{self.old.strip()}\0{self.new.strip()}".encode()).hexdigest()
        return f"{self.within or self.file} {change[:8]}"

    def line(self, text: str) -> int:
        """Return the line of ``text``, its file, in which it begins. Raises StaleError."""
        with self._blamed():
            if not self.file.endswith(".py"):
                return text.count("\n", 0, self._once(text)) + 1
            old, _ = mutants_code.change(self.old, self.new)
            return mutants_code.site(text, self.within, old).line

    def put_into(self, text: str) -> str:
        """Return ``text``, its file, with the mistake. Raises StaleError."""
        with self._blamed():
            if not self.file.endswith(".py"):
                at = self._once(text)
                return text[:at] + self.new + text[at + len(self.old) :]
            old, new = mutants_code.change(self.old, self.new)
            return mutants_code.replaced(text, self.within, old, new)

    def _once(self, text: str) -> int:
        if (times := text.count(self.old)) != 1:
            raise StaleError(f"it is there {times or 'no'} times: {self.old.strip()}")
        return text.index(self.old)

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Name the entry and the file in what is raised."""
        try:
            yield
        except StaleError as error:
            raise StaleError(f"{self.entry}: {self.file}: {error}") from None


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
        text = path.read_text(encoding="utf-8")
        room = tomllib.loads(text)
        lines = [n for n, line in enumerate(text.splitlines(), 1) if line == "[[mistake]]"]
        for line, fields in zip(lines, room["mistake"], strict=True):
            entry = f"{FOLDER / path.name}:{line}"
            mistakes.append(Mistake(entry, path.stem, tuple(room["tests"]), **fields))
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
