"""A candidate's process as a judge has it: started in milliseconds, asked, and ended with all that it has begun."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, Self

from ptxlab.errors import DeviceUnavailable
from ptxlab.judge import messages
from ptxlab.judge.candidate import error_of
from ptxlab.judge.limits import Limits

MODULES = "modules"
"""What the process that forks is told if it is to import PyTorch and Triton too."""

_KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "HOME",
    "XDG_CACHE_HOME",
    "LD_LIBRARY_PATH",
    "PTXLAB_TOOLCHAIN",
    "PTXLAB_ENGINE",
)
"""What of the environment a candidate sees: nothing that may be secret."""

_GRACE = 5.0
"""Seconds after its limit at which a keeper is waited for no more."""


class Ended(Exception):
    """The process is no more: why, in words."""


class Contained:
    """A process for one candidate, which ``ask`` asks; ``job`` says of what kind, and what else it needs."""

    def __init__(self, job: dict[str, Any], limits: Limits) -> None:
        """Start it. Raises Ended where the process that forks is gone just now; the next one has another."""
        self._connection, theirs = socket.socketpair()
        self._connection.settimeout(limits.seconds + _GRACE)
        try:
            with theirs:
                zygote(modules=job["kind"] == "module").fork(theirs)
            messages.send(self._connection, {**job, "limits": asdict(limits)})
        except OSError:
            self._connection.close()
            raise Ended("its process is gone") from None

    def ask(self, what: str, **given: Any) -> Any:
        """Return what a method of the candidate returns. Raises PtxlabError as it does, and Ended."""
        try:
            messages.send(self._connection, {"do": what, "with": given})
            reply = messages.receive(self._connection)
        except (EOFError, OSError):
            raise Ended("its process is gone") from None
        except ValueError:
            raise Ended("its process said what nobody understands") from None
        if "error" in reply:
            raise error_of(reply["error"])
        if "ended" in reply:
            raise Ended(_WORDS.get(reply["ended"], f"its process ended with {reply['ended']}"))
        return reply["result"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


_WORDS = {
    "time": "it was not at its end in time",
    "memory": "it wanted more memory than it may have",
    "SIGXFSZ": "it wrote a larger file than it may",
}


class _Zygote:
    """The process that forks; it ends with this one, whose end of the socket is then closed."""

    def __init__(self, *, modules: bool) -> None:
        self._lock = Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        home = str(Path(__file__).parents[2])
        code = f"import sys; sys.path.insert(0, {home!r}); from ptxlab.judge.zygote import main; main()"
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                code,
                str(theirs.fileno()),
                *([MODULES] if modules else []),
            ],
            env={
                **kept,
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "PTXLAB_WORKERS": "1",
            },
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,
        )
        theirs.close()
        self._commands = ours
        self.owner = os.getpid()

    @property
    def lives(self) -> bool:
        return self.owner == os.getpid() and self._process.poll() is None

    def fork(self, connection: socket.socket) -> None:
        with self._lock:
            socket.send_fds(self._commands, [b"f"], [connection.fileno()])


_zygotes: dict[bool, _Zygote] = {}
_beginning = Lock()


def zygote(*, modules: bool) -> _Zygote:
    """Return the process that forks. Raises DeviceUnavailable on a system that cannot hold a candidate."""
    if not hasattr(os, "pidfd_open"):
        raise DeviceUnavailable("candidates run in processes of Linux, and this is another system")
    with _beginning:
        known = _zygotes.get(modules)
        if known is None or not known.lives:
            known = _zygotes[modules] = _Zygote(modules=modules)
        return known
