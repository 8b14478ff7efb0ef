"""Which files a CUDA C source takes in: what a cached compilation depends on.

The scan reads every ``#include`` and ``__has_include`` whatever ``#if`` surrounds it, so it finds
too many files rather than too few; a change in any of them gives a new key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(
    r"""(?:^[ \t]*\#[ \t]*include|__has_include[ \t]*\()[ \t]*  # directive or operator
        (?:"(?P<quoted>[^"\n]+)" | <(?P<angled>[^>\n]+)> | (?P<computed>\w+))""",
    re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Includes:
    """The files found, with their contents, the names that were not, and whether that is all.

    ``meant`` has, by file ("" for the source), what each name in its includes means. ``complete`` is False when an include is computed by a macro: such a source is not cached.
    """

    files: tuple[tuple[str, bytes], ...]
    missing: tuple[str, ...]
    meant: dict[str, dict[str, str]]
    complete: bool

    def say(self, words: re.Pattern[str]) -> bool:
        """Whether some of these words are in a file."""
        return any(words.search(data.decode("utf-8", "replace")) for _, data in self.files)


def scan(source: str, folder: Path, include_paths: Sequence[Path]) -> Includes:
    """Follow the includes of ``source``, which lies in ``folder``, to every file they reach."""
    files: dict[Path, bytes] = {}
    missing: set[str] = set()
    complete = True
    meant: dict[str, dict[str, str]] = {}
    todo = [("", source, folder)]
    while todo:
        including, text, here = todo.pop()
        for match in _INCLUDE.finditer(text.replace("\\\n", "")):
            if match["computed"]:
                complete = False
                continue
            name = match["quoted"] or match["angled"]
            file = next(_candidates(name, here if match["quoted"] else None, include_paths), None)
            if file is None:
                missing.add(name)
                continue
            meant.setdefault(including, {})[name] = str(file)
            if file not in files:
                files[file] = file.read_bytes()
                todo.append((str(file), files[file].decode("utf-8", "replace"), file.parent))
    ordered = sorted((str(path), data) for path, data in files.items())
    return Includes(tuple(ordered), tuple(sorted(missing)), meant, complete)


def _candidates(name: str, here: Path | None, include_paths: Sequence[Path]) -> Iterator[Path]:
    for base in ([here] if here is not None else []) + list(include_paths):
        path = base / name
        if path.is_file():
            yield path
