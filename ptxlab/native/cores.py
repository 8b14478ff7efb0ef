"""One call of machine code on all cores: chunks of it that any of them takes, in any order.

A task is an array of words of which the first are ``HEADER``: a function, how many items a chunk of its
has, the same of what follows when all of that is done, or zeros, and how many items there are. A
function ``i32 (ptr task, i64 from, i64 to)`` does the items ``from`` to ``to`` and says with anything but
0 that it cannot; then nothing follows. What it does for some items must not show in what it does for
others, as it is neither said who does them nor in which order.

The caller takes chunks too, and waits for none that nobody has begun. Cores that others use are left to
them: to wait for a chunk that the system has taken from its core costs more than all of them give.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from time import monotonic, sleep
from typing import Any

from ptxlab.native import compiler
from ptxlab.native.cores_code import LINE, PLACES, SYSTEM, text
from ptxlab.workers import idle

HEADER = 5
"""The words of a task that are the same in all."""

CHUNKS = 4
"""Chunks for each core, so that none waits long for another."""

INTERVAL = 0.005
"""For how many seconds it is taken for granted that as many processors are idle as before, in a dispatch loop too."""

Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
"""What a task's functions are."""


def functions(text: str, *names: str) -> list[Any]:
    """Return functions of a module, compiled when they are asked for first."""
    return [compiler.compile(text, name, Function) for name in names]


def address(function: Any) -> int:
    """Return where the machine code of a function is, as a task has it."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def packed(*words: int) -> bytes:
    """Return words of a task, as its functions take them behind its header."""
    return struct.pack(f"{len(words)}q", *words)


_WITH_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_WITH_OPERATIONS = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)
_WITH_COUNT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_BEGINNING = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, *[ctypes.c_int64] * 3
)
_FINISHING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_ALONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Begun:
    """A task that other cores do in so many ``chunks``, 0 if it is done; it is where it is as long as this is held."""

    task: bytes
    chunks: int


class Pool:
    """As many cores as are to work: the caller's and, for the others, a thread each.

    The threads run no Python, which they would wait for and have others wait for. Where the system's
    are not those of POSIX there are none.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores if os.name == "posix" else 1
        code = text()
        self._run = compiler.compile(code, "run", _WITH_TASK)
        self._begin = compiler.compile(code, "begin", _BEGINNING)
        self._finish = compiler.compile(code, "finish", _FINISHING)
        self._dispatch = compiler.compile(code, "dispatch", _WITH_OPERATIONS)
        self._wake = compiler.compile(code, "wake", _WITH_COUNT)
        self._serve = compiler.compile(code, "serve", _ALONE)
        self._words = (ctypes.c_uint64 * (9 * LINE))()
        self._at = ctypes.addressof(self._words)
        self._asked = 0.0
        self._process = os.getpid()
        self._threads: list[threading.Thread] = []
        self._left_out = threading.Event()
        if self.cores > 1:
            self._start_threads()

    def header(self, total: int, *stages: tuple[Any, int, int]) -> bytes:
        """Return the first words of a task of so many items, with one or two functions.

        Each comes with how many items a chunk of its has at least, and of how many it is a multiple.
        """
        words = [(address(function), self.chunk(total, *size)) for function, *size in stages]
        (first, second) = (*words, (0, 0))[:2]
        return packed(*first, *second, total)

    def task(self, total: int, *stages: tuple[Any, int, int], words: Sequence[int]) -> bytes:
        """Return a task with these words behind the header."""
        return self.header(total, *stages) + packed(*words)

    def chunk(self, total: int, least: int, whole: int = 1) -> int:
        """Return how many items a chunk has: all alike, not below ``least``, and a multiple of ``whole``."""
        many = max(1, min(CHUNKS * self.cores, total // max(1, least)))
        size = -(-total // (many * whole)) * whole
        return total if self.cores == 1 or size >= total else size

    def run(self, task: bytes) -> bool:
        """Do a task. Say whether all of it could be done."""
        self._ask(0)
        return not self._run(self._at, task)

    def begin(self, task: bytes) -> Begun:
        """Have other cores begin a task of one function, which is to be finished before the next one begins.

        Where they are at another task it is done at once.
        """
        self._ask(0)
        function, chunk, _, _, total = struct.unpack_from(f"{HEADER}q", task)
        if self.cores == 1 or not self._begin(self._at, task, function, total, chunk, 0):
            self._run(self._at, task)
            return Begun(task, 0)
        return Begun(task, -(-total // chunk))

    def is_done(self, begun: Begun) -> bool:
        """Say whether all has been done of what has begun."""
        return not begun.chunks or self._words[PLACES["done"]] == begun.chunks

    def finish(self, begun: Begun) -> None:
        """Do what nobody has begun, and wait for the rest."""
        if begun.chunks:
            self._finish(self._at)

    def dispatch(self, state: int, operations: int, registers: int) -> bool:
        """Run a dispatch loop over operations: see ``dispatch_code``. Say whether there was a way to the end.

        All three are addresses.
        """
        self._ask(0)
        if self._words[PLACES["staying"]]:
            self._left_out.set()
        try:
            return not self._dispatch(self._at, state, operations, registers)
        finally:
            self._left_out.clear()

    def _ask_again(self) -> None:
        """Ask again and again while a dispatch loop lasts that began without all threads."""
        while self._left_out.wait():
            sleep(INTERVAL)
            if self._left_out.is_set():
                self._ask(1)

    def _ask(self, asking: int) -> None:
        """Have as many threads stay asleep as find no processor idle; so many run only to ask."""
        if self.cores == 1 or monotonic() - self._asked < INTERVAL:
            return
        self._asked = monotonic()
        threads, words = self.cores - 1, self._words
        awake = threads - words[PLACES["asleep"]]
        words[PLACES["staying"]] = max(0, threads - awake - idle(asking))

    def _start_threads(self) -> None:
        """Start the threads; they end before Python frees their machine code."""
        system = ctypes.CDLL(None)
        for name, begin in (("mutex", "pthread_mutex_init"), ("condition", "pthread_cond_init")):
            getattr(system, begin)(ctypes.c_void_p(self._at + 8 * PLACES[name]), None)
        for name, function in SYSTEM.items():
            self._words[PLACES[name]] = address(getattr(system, function))
        self._threads += [
            threading.Thread(target=self._serve, args=[self._at], name="ptxlab core", daemon=True)
            for _ in range(self.cores - 1)
        ]
        asking = threading.Thread(target=self._ask_again, name="ptxlab idle cores", daemon=True)
        for thread in (*self._threads, asking):
            thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """End the threads, which a fork of their process has not: only what they held at that moment, for ever."""
        if os.getpid() != self._process:
            return
        self._words[PLACES["ended"]] = 1
        self._wake(self._at, len(self._threads))
        for thread in self._threads:
            thread.join()


@cache
def pool(cores: int) -> Pool:
    """Return the pool of so many cores, one in a process."""
    return Pool(cores)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)
