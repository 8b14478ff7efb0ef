"""Which files a CUDA C source takes in: what a cached compilation depends on.

The scan reads every ``#include`` and ``__has_include`` whatever ``#if`` surrounds it, so it finds
too many files rather than too few; a change in any of them gives a new key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(
    r"""(?:^[ \t]*\#[ \t]*include|__has_include[ \t]*\()[ \t]*  # directive or operator
        (?:"(?P<quoted>[^"\n]+)" | <(?P<angled>[^>\n]+)>
           | (?P<computed>\w+)(?:[ \t]*\((?P<argument>[^()\n]*)\))?)""",
    re.MULTILINE | re.VERBOSE,
)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\((\w*)\))?(.*)", re.MULTILINE)
_OPTION = re.compile(r"^(?:-D|--define-macro=)(\w+)=?(.*)", re.MULTILINE)
_HEADER = re.compile(r'"([^"]+)"|<([^>]+)>')
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Includes:
    """The files found, with their contents, the names that were not, and whether that is all.

    ``meant`` has, by file ("" for the source), what each name in its includes means. ``complete`` is False when an
    include is computed by macros in a way that is not followed: such a source is not cached.
    """

    files: tuple[tuple[str, bytes], ...]
    missing: tuple[str, ...]
    meant: dict[str, dict[str, str]]
    complete: bool

    def say(self, words: re.Pattern[str]) -> bool:
        """Whether some of these words are in a file."""
        return any(words.search(data.decode("utf-8", "replace")) for _, data in self.files)


@dataclass(frozen=True, slots=True)
class _Computed:
    """An include of ``macro``, with an argument or None, in a file in the folder ``here``."""

    including: str
    here: Path
    macro: str
    argument: str | None

    def headers(self, defined: Mapping[str, Sequence[tuple[str, str]]]) -> list[re.Match[str]]:
        """Return what it may mean, "x" or <x>, by each definition there is; nothing where that takes more macros than the one."""
        headers = []
        for parameter, body in defined.get(self.macro, ()):
            if parameter and not body.lstrip().startswith('"'):
                body = re.sub(rf"\b{parameter}\b", (self.argument or "").strip(), body)
            match = _HEADER.fullmatch(body.strip())
            if match is None or (
                match[2] and not defined.keys().isdisjoint(_WORD.findall(match[2]))
            ):
                return []
            headers.append(match)
        return headers


def scan(
    source: str, folder: Path, include_paths: Sequence[Path], options: Sequence[str] = ()
) -> Includes:
    """Follow the includes of ``source``, which lies in ``folder``, to every file they reach.

    ``options`` are the compiler's, whose macros count (``-DNAME=VALUE``).
    """
    files: dict[Path, bytes] = {}
    missing: set[str] = set()
    meant: dict[str, dict[str, str]] = {}
    computed: list[_Computed] = []
    defined: dict[str, list[tuple[str, str]]] = {}
    for name, body in _OPTION.findall("\n".join(options)):
        defined.setdefault(name, []).append(("", body))
    todo = [("", source, folder)]

    def include(including: str, here: Path, quoted: str | None, angled: str | None) -> None:
        name = quoted or angled or ""
        file = next(_candidates(name, here if quoted else None, include_paths), None)
        if file is None:
            missing.add(name)
            return
        meant.setdefault(including, {})[name] = str(file)
        if file not in files:
            files[file] = file.read_bytes()
            todo.append((str(file), files[file].decode("utf-8", "replace"), file.parent))

    while todo:
        including, text, here = todo.pop()
        text = text.replace("\\\n", "")
        for name, parameter, body in _DEFINE.findall(text):
            defined.setdefault(name, []).append((parameter, body))
        for match in _INCLUDE.finditer(text):
            if match["computed"]:
                computed.append(_Computed(including, here, match["computed"], match["argument"]))
            else:
                include(including, here, match["quoted"], match["angled"])
        if not todo:  # what macros mean is known by now, if it is known at all
            for each in computed:
                for header in each.headers(defined):
                    include(each.including, each.here, header[1], header[2])
    ordered = sorted((str(path), data) for path, data in files.items())
    complete = all(each.headers(defined) for each in computed)
    return Includes(tuple(ordered), tuple(sorted(missing)), meant, complete)


def _candidates(name: str, here: Path | None, include_paths: Sequence[Path]) -> Iterator[Path]:
    for base in ([here] if here is not None else []) + list(include_paths):
        path = base / name
        if path.is_file():
            yield path
