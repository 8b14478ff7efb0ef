"""What went wrong, said on stderr, and to a program as JSON too (schema ``ptxlab.error/1``)."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from typing import Any, NamedTuple

from ptxlab.cli.progress import CLEAR
from ptxlab.cli.terminal import moves_cursor
from ptxlab.errors import PtxlabError

SCHEMA = "ptxlab.error/1"
INTERRUPTED = 130
BROKEN_PIPE = 141
BUG = 70
LONGEST_LINE = 1000


class Failure(NamedTuple):
    """An exit status with its reason: ``kind`` in one word, and ``text`` as stderr shows it."""

    status: int
    kind: str
    text: str


def report(error: BaseException, *, as_json: bool) -> int:
    """Say on stderr what went wrong, and return the exit status it means.

    ``as_json`` an object of the schema goes to stdout, unless stdout is what failed.
    """
    if isinstance(error, BrokenPipeError):
        forget_stdout()  # the reader left
        return BROKEN_PIPE
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
        forget_stdout()
        say(f"ptxlab: cannot write the result: {error.strerror}")
        return PtxlabError.exit_status
    failure = failure_of(error)
    say(failure.text)
    if as_json:
        _print_json(error)
    return failure.status


def failure_of(error: BaseException) -> Failure:
    match error:
        case PtxlabError():
            text = str(error) if error.location else f"ptxlab: {error}"
            return Failure(error.exit_status, error.kind, text)
        case KeyboardInterrupt():
            return Failure(INTERRUPTED, "interrupted", "ptxlab: interrupted")
        case OSError(filename=str(path), strerror=str(why)):
            return Failure(PtxlabError.exit_status, "file", f"ptxlab: {path}: {why}")
        case MemoryError():
            what = "ptxlab: not enough memory on this machine\nhint: try a smaller problem"
            return Failure(3, "memory", what)
    what = (
        f"ptxlab: a bug of ptxlab: {type(error).__name__}: {error}; "
        "run again with PTXLAB_DEBUG=1 for the traceback"
    )
    return Failure(BUG, "bug", what)


def as_data(error: BaseException) -> dict[str, Any]:
    """Return the object; ``file``, ``line``, ``column`` and ``hint`` are None where there is none, ``notes`` then empty."""
    failure = failure_of(error)
    known = error if isinstance(error, PtxlabError) else None
    location = known.location if known else None
    return {
        "schema": SCHEMA,
        "kind": failure.kind,
        "message": known.message if known else failure.text.removeprefix("ptxlab: "),
        "file": location and location.path,
        "line": location and location.line,
        "column": location and location.column,
        "notes": list(known.notes) if known else [],
        "hint": known.hint if known else None,
        "status": failure.status,
    }


def _print_json(error: BaseException) -> None:
    from ptxlab.view.json import write  # here, because it brings numpy, which help can spare

    try:
        sys.stdout.write(write(as_data(error)) + "\n")
        sys.stdout.flush()
    except OSError:
        forget_stdout()


def forget_stdout() -> None:
    """Give the interpreter's last flush somewhere harmless to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Print ``text`` to stderr, over what a terminal shows of progress; nobody may be reading.

    Of a line that repeats a long argument, the beginning is shown.
    """
    text = "\n".join(
        line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
        for line in text.split("\n")
    )
    if moves_cursor(sys.stderr):
        from ptxlab.view.width import folded  # here: help can spare it

        columns = shutil.get_terminal_size().columns
        text = "\n".join(
            folded(line, columns) if line.startswith(("ptxlab: ", "hint: ")) else line
            for line in text.split("\n")
        )
    try:
        print(CLEAR * moves_cursor(sys.stderr) + text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
