"""A process that has imported everything and does nothing but fork: one contained process a candidate.

    python -m ptxlab.judge.zygote FD [modules]

FD is a socket; each message on it brings a socket of its own, on which the candidate's process then answers. To
fork takes milliseconds where to import takes seconds, and what a candidate breaks is gone with its process.
Between the two stands a keeper, which ends the candidate, and all that it has forked, when its time is up.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import Any

from ptxlab.cache import directory
from ptxlab.judge import messages
from ptxlab.judge.candidate import answer
from ptxlab.judge.contained import MODULES
from ptxlab.judge.containment import apart, confine, die_with_parent, limit
from ptxlab.judge.kernel_candidate import KernelCandidate, preload
from ptxlab.judge.limits import Limits

_READABLE = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/sys", "/dev", "/opt"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/sys"),
)
"""What every program of a system reads, but nothing of other processes."""

_TICK = 0.5
"""Seconds after which a keeper looks whether anybody still listens."""


def serve(commands: socket.socket) -> None:
    """Fork a keeper for each message, until there are no more, and wait until all of them have cleared up."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, descriptors, _, _ = socket.recv_fds(commands, 1 << 16, 1)
        if not data or not descriptors:
            break
        if os.fork() == 0:
            try:
                commands.close()
                _keep(socket.socket(fileno=descriptors[0]))
            finally:
                os._exit(0)
        os.close(descriptors[0])
    with suppress(
        ChildProcessError
    ):  # raised when the last one is gone, as nobody asks how they ended
        os.wait()


def _keep(connection: socket.socket) -> None:
    """Run a candidate in a process of its own, and end it at its time, or when nobody listens any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    die_with_parent(signal.SIGTERM)
    try:
        job = messages.receive(connection)
    except (EOFError, ValueError, OSError):
        return
    limits = Limits(**job["limits"])
    left = apart()
    home = tempfile.mkdtemp(prefix="ptxlab-judge-")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _be_candidate(connection, job, limits, home, left)
            status = 0
        finally:
            os._exit(status)
    try:
        _wait(child, connection, monotonic() + limits.seconds)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


def _wait(child: int, connection: socket.socket, deadline: float) -> None:
    """Return when the child has ended, telling how, its time is up, or the other end is closed."""
    handle = os.pidfd_open(child)
    hung_up = select.poll()
    hung_up.register(handle, select.POLLIN)
    hung_up.register(connection, select.POLLHUP)
    while monotonic() < deadline:
        for descriptor, _ in hung_up.poll(1000 * _TICK):
            if descriptor != handle:
                return
            _, status = os.waitpid(child, 0)
            _tell(connection, status)
            return
    with suppress(OSError):
        messages.send(connection, {"ended": "time"})


def _tell(connection: socket.socket, status: int) -> None:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    ended = signal.Signals(number).name if number else f"status {os.WEXITSTATUS(status)}"
    with suppress(OSError):
        messages.send(connection, {"ended": "time" if number == signal.SIGXCPU else ended})


def _be_candidate(
    connection: socket.socket, job: dict[str, Any], limits: Limits, home: str, left: list[str]
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(signal.SIGKILL)
    os.setsid()
    os.chdir(home)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    kept = directory()
    os.environ["XDG_CACHE_HOME"] = os.path.join(home, ".cache")
    os.mkdir(os.environ["XDG_CACHE_HOME"])
    os.symlink(kept, directory())
    for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[name] = home
    tempfile.tempdir = home
    trusted = job["kind"] == "kernel"  # what runs here then is ptxlab alone
    with suppress(OSError):
        kept.mkdir(parents=True, exist_ok=True)
    caches = [str(kept)]
    readable = [*_READABLE, *_of_python(), *job["readable"], *caches]
    version = confine(readable, [home, os.devnull, *(caches if trusted else ())])
    limit(limits)
    held = [f"name spaces of {', '.join(left)}"] if left else []
    held += [f"Landlock {version}"] if version else []
    job["contained"] = [*held, "limits of processor, memory and files"]
    answer(connection, KernelCandidate if trusted else _module_candidate(), job)


def _module_candidate() -> Callable[[dict[str, Any]], Any]:
    from ptxlab.judge.module_candidate import ModuleCandidate  # here: kernels can spare PyTorch

    return ModuleCandidate


@cache
def _of_python() -> tuple[str, ...]:
    """Return where Python and its packages are, some of which may be links to elsewhere."""
    folders = [sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *sys.path]
    inside = (entry for folder in folders if os.path.isdir(folder) for entry in os.scandir(folder))
    return *folders, *(os.path.realpath(entry) for entry in inside if entry.is_symlink())


def main() -> None:
    _of_python()
    preload()
    if MODULES in sys.argv:
        from ptxlab.judge import module_candidate  # here: kernels can spare PyTorch

        module_candidate.preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # what was imported has nothing to say at the end


if __name__ == "__main__":
    main()
