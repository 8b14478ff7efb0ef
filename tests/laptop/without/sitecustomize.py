"""Makes Python like that of a Mac, of Windows or a browser: without NVIDIA's packages, and what only POSIX or Linux has.

Python imports a module of this name by itself when it starts, and so do the processes it starts.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

PACKAGES = {"cuda", "nvidia", "fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
FUNCTIONS = {
    os: "fork forkpty getpgid killpg pread pwrite sched_getaffinity setsid",
    signal: "SIGALRM SIGHUP SIGPIPE SIGUSR1 alarm getitimer pause pthread_kill setitimer",
    time: "thread_time thread_time_ns",
}


class _Absent:
    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _no_system_files(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and args[0] != os.devnull and str(args[0]).startswith(("/dev/", "/proc/")):
        raise FileNotFoundError(2, "No such file or directory", args[0])


sys.meta_path.insert(0, _Absent)
sys.addaudithook(_no_system_files)
for _name in PACKAGES:
    sys.modules.pop(_name, None)
for _module, _names in FUNCTIONS.items():
    for _name in _names.split():
        vars(_module).pop(_name, None)
