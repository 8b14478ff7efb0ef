"""nvJitLink in a process of its own: some inputs end the process that assembles them, and it has one release.

The process is started when it is first needed and kept for the next texts, so that it costs its start
once. ``serve`` is what runs in it: requests come and answers go as pickles.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from ptxlab.toolchain.release import PACKAGE
from ptxlab.toolchain.wheels import load_library, reason_of


@dataclass(frozen=True, slots=True)
class Assembled:
    """What nvJitLink made of texts: an ``image``, None where it refused one; ``log`` is what it said.

    ``text`` is the one refused. ``absent`` says why there is no nvJitLink, ``options`` what is wrong
    with the options.
    """

    image: bytes | None = None
    log: str = ""
    text: str = ""
    absent: str = ""
    options: str = ""


class _Process:
    """The process, whose child it is, and of which ``library``: a fork of that process must have its own."""

    def __init__(self, library: str) -> None:
        self.parent, self.library = os.getpid(), library
        self._running = subprocess.Popen(
            [sys.executable, "-c", _SERVE, library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def ask(self, request: object) -> Assembled | None:
        """Return the answer; None if the process ended over it."""
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        try:
            pickle.dump(request, self._running.stdin)
            self._running.stdin.flush()
            answer: Assembled = pickle.load(self._running.stdout)
        except (EOFError, BrokenPipeError):
            return None
        return answer

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._running.kill()
        for pipe in (self._running.stdin, self._running.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        self._running.wait()


def _unlock() -> None:
    """Have a fork of this process wait for none of its threads."""
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)

_SERVE = "import sys; from ptxlab.toolchain.assembler import serve; serve(sys.argv[1])"
_lock = Lock()
_process: _Process | None = None


def assemble(
    texts: Sequence[str], options: Sequence[str], path: str, library: str = ""
) -> Assembled | None:
    """Assemble and link PTX; ``path`` is what nvJitLink calls it by. None: it crashed.

    ``library`` is its file, "" for the installed one.

    A process that has assembled other texts ends over some now and then that a new one takes
    (nvJitLink 13.5 over ``mov.b32 r4, {r3}``, one time in 45): what a new one says counts.
    """
    global _process
    with _lock:
        if _process is not None and _process.library != library:
            _process.end()
            _process = None
        used = _process is not None and _process.parent == os.getpid()
        request = (list(texts), list(options), path)
        answer = _answer(request, library)
        return _answer(request, library) if answer is None and used else answer


def _answer(request: object, library: str) -> Assembled | None:
    """Ask the process, started where there is none; one that crashed is gone afterwards."""
    global _process
    if _process is None or _process.parent != os.getpid():
        _process = _Process(library)
    answer = None
    try:
        answer = _process.ask(request)
    finally:
        # What was interrupted would answer the next question.
        if answer is None:
            _process.end()
            _process = None
    return answer


def serve(file: str) -> None:
    """Answer requests until there are no more, with the library in ``file``."""
    import signal

    if file:
        with suppress(ImportError):  # which the first answer tells
            _prefer(file)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What the library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(EOFError):
        while True:
            answer = _assembled(*pickle.load(sys.stdin.buffer))
            pickle.dump(answer, answers)
            answers.flush()


def _prefer(file: str) -> None:
    """Have the bindings load the library in this file: they take what this function of pathfinder returns."""
    import ctypes

    from cuda import pathfinder

    loaded = pathfinder.LoadedDL(file, False, ctypes.CDLL(file)._handle, "ptxlab")
    pathfinder.load_nvidia_dynamic_lib = lambda name: loaded


def library() -> Any:
    """Return the bindings, once the library behind them is loaded. Raises ImportError or RuntimeError."""
    from cuda.bindings import nvjitlink

    load_library("nvJitLink", PACKAGE)
    nvjitlink.version()
    return nvjitlink


def _assembled(texts: list[str], options: list[str], path: str) -> Assembled:
    try:
        lib = library()
    except (ImportError, RuntimeError) as error:
        return Assembled(absent=reason_of(error))
    try:
        handle = lib.create(len(options), options)
    except lib.nvJitLinkError as error:
        return Assembled(options=str(error))
    text = ""
    try:
        for text in texts:
            data = text.encode() + b"\0"
            lib.add_data(handle, lib.InputType.PTX, data, len(data), path)
        lib.complete(handle)
        image = bytearray(lib.get_linked_cubin_size(handle))
        lib.get_linked_cubin(handle, image)
        return Assembled(bytes(image), _log(handle, lib.get_info_log_size, lib.get_info_log))
    except lib.nvJitLinkError as error:
        errors = _log(handle, lib.get_error_log_size, lib.get_error_log)
        return Assembled(log=errors or str(error), text=text)
    finally:
        lib.destroy(handle)


def _log(handle: int, size: Any, get: Any) -> str:
    buffer = bytearray(size(handle))
    if buffer:
        get(handle, buffer)
    return buffer.rstrip(b"\0").decode(errors="replace").strip()
