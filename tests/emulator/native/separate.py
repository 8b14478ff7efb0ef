"""Functions called in a process of their own, which may die of them: that is a result as any other."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any


class Died(Exception):
    """The process has died: the text says of what."""


class Separate:
    """Calls functions in another process, one for many calls; a new one once it has died."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self._process: Any = None

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function of a module returns. Raise what it raises, and Died if its process does."""
        if self._process is None:
            self._ours, theirs = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._ours.send((function, args))
        try:
            result, error = self._ours.recv()
        except EOFError:
            code = self.end()
            raise Died(signal.Signals(-code).name if code < 0 else f"exit status {code}") from None
        if error is not None:
            raise error
        return result

    def end(self) -> int:
        """End the process, and return its exit status."""
        self._ours.close()
        self._process.join()
        code, self._process = int(self._process.exitcode), None
        return code


@contextmanager
def separate() -> Iterator[Separate]:
    process = Separate()
    try:
        yield process
    finally:
        if process._process is not None:
            process.end()


def _serve(calls: Connection) -> None:
    faulthandler.enable()
    while True:
        try:
            function, args = calls.recv()
        except EOFError:
            return
        result, error = None, None
        try:
            result = function(*args)
        except Exception as raised:
            error = raised
        calls.send((result, error))
