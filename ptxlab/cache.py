"""Results of the tools kept on disk, found again by everything that went into them.

An entry is a file named by the SHA-256 of its key. It starts with the SHA-256 of its contents, so a
truncated or damaged entry is noticed and made anew, and it appears by rename, so no reader sees half
of one. The cache only ever saves time: when it cannot be read or written, the work is done again.
Now and then the entries that were not used for the longest are removed, so that it stays below MOST.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ptxlab.errors import PtxlabError
from ptxlab.files import write_whole

_FORMAT = "ptxlab-cache-2"
_DIGEST = hashlib.sha256().digest_size
_bypassed = False

MOST = 512 << 20
"""Bytes above which entries are removed, until half of them is left."""


def directory() -> Path:
    """Return the folder of the cache: ``$XDG_CACHE_HOME/ptxlab``, or ``~/.cache/ptxlab``."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):  # the XDG specification says to ignore a relative one
        return Path(base) / "ptxlab"
    return Path(os.path.expanduser("~")) / ".cache" / "ptxlab"


def cached(tool: str, key: Iterable[str | bytes], make: Callable[[], bytes]) -> bytes:
    """Return the entry of ``tool`` under ``key``, calling ``make`` when there is no sound one."""
    if _bypassed:
        return make()
    key = tuple(key)
    content = kept(tool, key)
    if content is not None:
        return content
    payload = make()
    keep(tool, key, payload)
    return payload


def kept(tool: str, key: Iterable[str | bytes]) -> bytes | None:
    """Return the entry of ``tool`` under ``key``, None if there is no sound one."""
    return None if _bypassed else _read(directory() / tool / _name(tool, key))


def answers(tool: str) -> Iterator[bytes]:
    """Yield what a tool has answered, whatever it was asked, as far as the cache has it."""
    for entry in sorted((directory() / tool).glob("*")):
        payload = _read(entry)
        if payload is not None:
            yield payload


def keep(tool: str, key: Iterable[str | bytes], payload: bytes) -> None:
    """Make this the entry of ``tool`` under ``key``."""
    if _bypassed:
        return
    entry = directory() / tool / _name(tool, key)
    _write(entry, payload)
    if entry.name.startswith("00"):  # one entry in 256
        prune(MOST)


@functools.cache
def source(*rooms: str) -> bytes:
    """Return a digest of ptxlab's own source in ``rooms``, for the key of what follows from it."""
    package = Path(__file__).resolve().parent
    files = sorted(file for room in rooms for file in (package / room).rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).digest()


def prune(most: int) -> None:
    """Remove entries, those first that were not used for the longest, if all are above ``most`` bytes.

    What else a tool keeps here, a folder of headers, belongs together and stays.
    """
    kept = [entry for entry in _entries() if len(os.path.basename(entry[2])) == 2 * _DIGEST]
    entries = sorted(kept)
    total = sum(size for _, size, _ in entries)
    if total <= most:
        return
    for _, size, path in entries:
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= most // 2:
            return


def size() -> int:
    """Return how many bytes the cache takes on disk."""
    return sum(size for _, size, _ in _entries())


@contextlib.contextmanager
def bypassed() -> Iterator[None]:
    """Within, make everything anew and keep none of it: for whoever asks whether a tool works."""
    global _bypassed
    before, _bypassed = _bypassed, True
    try:
        yield
    finally:
        _bypassed = before


def packed(*parts: bytes) -> bytes:
    """Return several byte strings as one, to be kept as one entry."""
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def unpacked(stored: bytes) -> list[bytes]:
    """Return the byte strings that ``packed`` made one."""
    parts, at = [], 0
    while at < len(stored):
        (length,) = struct.unpack_from("<Q", stored, at)
        parts.append(stored[at + 8 : at + 8 + length])
        at += 8 + length
    return parts


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
        os.utime(entry)  # in use
    except OSError:
        return None
    digest, payload = data[:_DIGEST], data[_DIGEST:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def _write(entry: Path, payload: bytes) -> None:
    with contextlib.suppress(PtxlabError):
        write_whole(entry, hashlib.sha256(payload).digest() + payload)


def _entries() -> Iterator[tuple[float, int, str]]:
    """Yield when each entry was last used, its size in bytes, and its path."""
    for folder, _, files in os.walk(directory()):
        for file in files:
            path = os.path.join(folder, file)
            with contextlib.suppress(OSError):
                status = os.stat(path)
                yield status.st_mtime, status.st_size, path
