"""Results of the tools kept on disk, found again by everything that went into them.

An entry is a file named by the SHA-256 of its key. It starts with the SHA-256 of its contents, so a
truncated or damaged entry is noticed and made anew, and it appears by rename, so no reader sees half
of one. The cache only ever saves time: when it cannot be read or written, the work is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

_FORMAT = "ptxlab-cache-1"
_DIGEST = hashlib.sha256().digest_size


def directory() -> Path:
    """Return the folder of the cache: ``$XDG_CACHE_HOME/ptxlab``, or ``~/.cache/ptxlab``."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):  # the XDG specification says to ignore a relative one
        return Path(base) / "ptxlab"
    return Path(os.path.expanduser("~")) / ".cache" / "ptxlab"


def cached(tool: str, key: Iterable[str | bytes], make: Callable[[], bytes]) -> bytes:
    """Return the entry of ``tool`` under ``key``, calling ``make`` when there is no sound one."""
    entry = directory() / tool / _name(tool, key)
    found = _read(entry)
    if found is not None:
        return found
    payload = make()
    _write(entry, payload)
    return payload


def _name(tool: str, key: Iterable[str | bytes]) -> str:
    """Hash the parts of a key, each with its length, so that no two keys run together."""
    digest = hashlib.sha256()
    for part in (_FORMAT, tool, *key):
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _read(entry: Path) -> bytes | None:
    try:
        data = entry.read_bytes()
    except OSError:
        return None
    digest, payload = data[:_DIGEST], data[_DIGEST:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def _write(entry: Path, payload: bytes) -> None:
    temporary = None
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=entry.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, entry)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
