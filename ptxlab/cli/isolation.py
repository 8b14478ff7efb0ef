"""Launches on a GPU in a child process, so that one that hangs or dies takes nothing with it.

The child runs the same command line: what it prints is what the user sees, and its exit status is
ours. It notes each launch in a file and sets its own alarm, whose signal ends it even inside the
driver; only then does the parent have something to say. ``PTXLAB_CHILD`` marks the child: set to
nothing, it keeps everything in one process, as a debugger or profiler wants it. So does a system
without alarms.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import ptxlab
from ptxlab.errors import DeviceUnavailable, LaunchError

CHILD = "PTXLAB_CHILD"
"""The environment variable of a child: the file descriptor of its note."""

_RUN = "from ptxlab.main import main; sys.exit(main(sys.argv[1:]))"


def is_wanted(args: argparse.Namespace) -> bool:
    """Say whether the verb launches something on a GPU, and this process is no child already."""
    options: Sequence[str] = getattr(args, "device_options", ())
    kinds = {str(getattr(args, name)).partition(":")[0] for name in options}
    able = hasattr(signal, "setitimer") and CHILD not in os.environ
    return able and bool(kinds & {"auto", "cuda"}) and _has_gpu()


def run(arguments: Sequence[str]) -> int:
    """Run ``ptxlab ARGUMENTS`` in a child and return its exit status.

    Raises LaunchError that names the kernel when the child was ended by a signal.
    """
    import subprocess  # here and not above: help has no use for it
    import tempfile

    with tempfile.TemporaryFile() as note:
        child = subprocess.Popen(
            [*command(), *arguments],
            env={**os.environ, CHILD: str(note.fileno())},
            pass_fds=(note.fileno(),),
            process_group=0,  # an interrupt comes to the parent alone, which ends the child
        )
        try:
            status = child.wait()
        except BaseException:
            child.kill()
            child.wait()
            raise
        if status >= 0:
            return status
        note.seek(0)
        raise _ended(-status, note.read().decode())


@contextmanager
def limited(kernel: str, file: str, timeout: float) -> Iterator[None]:
    """Note in a child that ``kernel`` is being launched, and end the process ``timeout`` seconds on."""
    descriptor = os.environ.get(CHILD)
    if not descriptor:
        yield
        return
    note = int(descriptor)
    os.pwrite(note, f"kernel {kernel} of {file}, given {timeout:g} s".encode(), 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.ftruncate(note, 0)


def _has_gpu() -> bool:
    from ptxlab.device.cuda_driver import gpu_count

    try:
        return gpu_count() > 0
    except DeviceUnavailable:
        return False


def command() -> list[str]:
    """Return how this ptxlab is run: by this Python, from where it was imported."""
    return python(_RUN)


def python(code: str) -> list[str]:
    """Return how this Python runs ``code``, which may import this ptxlab and has ``sys``."""
    home = os.path.dirname(os.path.dirname(ptxlab.__file__))
    return [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {home!r}); {code}"]


def _ended(number: int, running: str) -> LaunchError:
    """Describe the end of a child by signal ``number`` while ``running``, "" for no launch."""
    name = signal.Signals(number).name
    if number == signal.SIGALRM and running:
        return LaunchError(
            f"{running}, did not end; its process was stopped",
            hint="--timeout gives it more time; on the emulator, --device emulator, a deadlock is "
            "an error with its line",
        )
    during = f"while running {running}" if running else "outside any launch"
    return LaunchError(
        f"the process of the GPU died of {name} (exit status {-number}) {during}",
        hint="ptxlab check FILE runs the kernel on the emulator and names the line of a fault",
    )
