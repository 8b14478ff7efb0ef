"""A process that can do little: no network, no other processes, files of its own, so much memory and time.

What of it the system allows is done, and said: name spaces of Linux (user_namespaces(7)), Landlock
(https://docs.kernel.org/userspace-api/landlock.html), and limits of resources (setrlimit(2)).
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress

from ptxlab.judge.limits import Limits

_NAMESPACES = {
    "user": 0x10000000,
    "processes": 0x20000000,
    "network": 0x40000000,
    "ipc": 0x08000000,
}
"""CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET and CLONE_NEWIPC of linux/sched.h."""

_NO_NEW_PRIVILEGES, _DIE_WITH_PARENT = 38, 1
"""PR_SET_NO_NEW_PRIVS and PR_SET_PDEATHSIG of linux/prctl.h."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""The system calls of Landlock, on every architecture."""

_PATH_BENEATH = 1
_READ = 1 << 0 | 1 << 2 | 1 << 3
"""To execute, to read files, and to read folders."""
_FILE = 1 << 0 | 1 << 1 | 1 << 2
"""What can be done to a file that is no folder."""
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""All that the versions of Landlock know of files; from 3 on the same."""
_TCP = 3
"""To bind and to connect, from version 4 on."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def apart() -> list[str]:
    """Leave the name spaces of the system, and return which: those that this process may leave.

    Processes it forks from now on, and none else, can see each other, and end with the first of them.
    """
    if not hasattr(_LIBC, "unshare"):
        return []
    user, group = os.getuid(), os.getgid()
    left = _NAMESPACES if _LIBC.unshare(sum(_NAMESPACES.values())) == 0 else {}
    if left:
        with suppress(OSError):
            for name, text in (
                ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"),
            ):  # fmt: skip
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
    return list(left)


def confine(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Allow files below these paths alone, and no TCP, for ever. Return the version of Landlock, 0 without."""
    call: Callable[..., int] = _LIBC.syscall
    _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    version = call(_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return 0
    handled = _ALL[min(version, 3)]
    fields = struct.pack("=QQ", handled, _TCP if version >= 4 else 0)[: 16 if version >= 4 else 8]
    rules = call(_CREATE, fields, ctypes.c_size_t(len(fields)), 0)
    if rules < 0:
        return 0
    for paths, rights in ((readable, _READ), (writable, handled)):
        for path in paths:
            with suppress(OSError):
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                given = rights if os.path.isdir(path) else rights & _FILE
                call(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", given, descriptor), 0)
                os.close(descriptor)
    done = call(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return version if done else 0


def limit(limits: Limits) -> None:
    """Limit this process, and those that it forks, each by itself."""
    seconds = int(limits.seconds) + 1
    given = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: limits.file,
        resource.RLIMIT_DATA: limits.memory,
        resource.RLIMIT_CORE: 0,
    }
    for which, value in given.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(which, (value, value))


def die_with_parent(signal: int) -> None:
    """Have the system end this process as soon as the one that forked it is gone."""
    _LIBC.prctl(_DIE_WITH_PARENT, signal, 0, 0, 0)
