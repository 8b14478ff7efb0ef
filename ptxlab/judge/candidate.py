"""What a candidate's process does: it answers requests, one after another, until nobody asks any more."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ptxlab.errors import Location, PtxlabError
from ptxlab.judge import messages
from ptxlab.observe.check_report import CheckReport, Finding
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.tree import SourceText

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What tells a terminal in which colour to write."""

LONGEST = 4000
"""Characters of a message or a log that a candidate may have told."""


def answer(
    connection: socket.socket, kind: Callable[[dict[str, Any]], Any], job: dict[str, Any]
) -> None:
    """Make a candidate of its ``kind`` and have it answer ``{"do": method, "with": arguments}``."""
    candidate = None
    while True:
        try:
            request = messages.receive(connection)
        except (EOFError, OSError):
            return
        try:
            if candidate is None:
                candidate = kind(job)
            reply = {"result": getattr(candidate, request["do"])(**request["with"])}
        except PtxlabError as error:
            reply = {"error": plain_error(error)}
        except MemoryError:
            reply = {"ended": "memory"}
        except Exception as error:  # of a module: a judge is told whatever it is
            message = "\n".join(
                [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])]
            )
            message = _COLOURS.sub("", message)[:LONGEST]
            reply = {
                "error": {"kind": "exception", "message": message, "where": _where(error, job)}
            }
        messages.send(connection, reply)


def _where(error: BaseException, job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the last line of the candidate's own file that an error passed."""
    trace, last = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == job.get("file"):
            last = {"path": job["file"], "line": trace.tb_lineno, "column": 1, "text": ""}
        trace = trace.tb_next
    return last


def plain_error(error: PtxlabError) -> dict[str, Any]:
    where = error.location and asdict(error.location)
    told = {
        "kind": error.kind,
        "message": error.message[:LONGEST],
        "where": where,
        "hint": error.hint,
    }
    return told | {"log": getattr(error, "log", "")[:LONGEST]}


def error_of(plain: dict[str, Any]) -> PtxlabError:
    where = plain.get("where")
    error = PtxlabError(
        str(plain["message"]), location=Location(**where) if where else None, hint=plain.get("hint")
    )
    error.kind = str(plain["kind"])
    return error


def plain_report(report: CheckReport) -> dict[str, Any]:
    return asdict(report)


def report_of(plain: dict[str, Any]) -> CheckReport:
    source = SourceText(plain["source"]["text"], plain["source"]["path"])
    findings = [
        Finding(**{**each, **{key: each[key] and SourceLine(*each[key]) for key in _LINES}})
        for each in plain["findings"]
    ]
    lists = {key: tuple(plain[key]) for key in ("checks", "unchecked", "caveats", "unverified")}
    return CheckReport(kernel=plain["kernel"], source=source, findings=tuple(findings), **lists)


_LINES = ("source", "other_source")
