"""What is hot: what has taken so long as arrays that making machine code of it pays.

It is a block, a kind of step or a matrix product, or a loop that the dispatch loop ran with profit. What was hot
stays known on disk, program by program: a launch that an earlier process has made begins with what was hot there,
and any other launch of the program comes to it sooner.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from ptxlab.cache import keep, kept
from ptxlab.emulator.prepare.program import Program
from ptxlab.launch_config import LaunchConfig

try:
    from time import thread_time_ns as clock
except ImportError:  # Python in a browser has no clock of a thread, nor other threads
    from time import perf_counter_ns as clock

__all__ = ["ANY", "PROCESS", "Heat", "Key", "clock", "program_key"]

Key = tuple[str | int, ...]
"""What something is known by. The first word is the program that it is of, ``ANY`` for what many programs have."""

ANY = ""

TOOL, FORMAT = "hot", "1"
"""What is kept on disk of a program is found by, and how it is written."""


@dataclass(slots=True)
class _Record:
    """What is kept of a program: the launches in which something got hot, and all that did."""

    launches: set[str]
    hot: set[Key]


@dataclass(slots=True)
class Heat:
    """Nanoseconds that all blocks have ``taken`` as arrays, and that each thing has ``spent``; what is ``hot``.

    The ``records`` are those of programs that have been launched, and ``earlier`` is what they say earlier
    processes have made machine code of.
    """

    taken: int = 0
    spent: Counter[Key] = field(default_factory=Counter)
    hot: set[Key] = field(default_factory=set)
    earlier: set[Key] = field(default_factory=set)
    records: dict[Key, _Record] = field(default_factory=dict)

    def is_hot(self, key: Key, cost: int) -> bool:
        """Say whether something has taken as long as making machine code of it, which costs so many nanoseconds."""
        if key in self.hot or not cost:
            return True
        if self.spent[key] < cost:
            return False
        self.hot.add(key)
        return True

    def was_hot(self, key: Key) -> bool:
        """Say whether an earlier process has made machine code of something, in whatever launch."""
        return key in self.earlier

    @contextmanager
    def of_launch(self, program: Program, config: LaunchConfig) -> Iterator[None]:
        """Begin a launch with what was hot in an earlier one like it, and have later processes know what is."""
        own = program_key(program.module.source.text)
        key = own, program.target.name, program.entry
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = _read(key)
            self.earlier |= record.hot
        launch = repr(config)
        if launch in record.launches:
            self.hot |= record.hot
        before = len(self.hot)
        yield
        if len(self.hot) > before:
            record.launches.add(launch)
            record.hot |= {key for key in self.hot if key[0] in (own, ANY)}
            keep(TOOL, _named(key), _written(record))


PROCESS = Heat()


@lru_cache(maxsize=64)
def program_key(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _named(key: Key) -> list[str]:
    return [FORMAT, *map(str, key)]


def _read(key: Key) -> _Record:
    text = kept(TOOL, _named(key))
    if text is None:
        return _Record(set(), set())
    launches, hot = json.loads(text)
    return _Record(set(launches), {tuple(key) for key in hot})


def _written(record: _Record) -> bytes:
    return json.dumps([sorted(record.launches), sorted(record.hot, key=repr)]).encode()
