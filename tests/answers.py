"""What NVRTC, nvJitLink and nvdisasm answered the tests: a run with an empty cache does not ask them all again.

``answers.tar.xz`` has entries of the cache, each by all that went into it, the tool's version too: what has
changed since is asked anew. ``python -m scripts.record_answers`` writes it, and ``pytest --ask-tools`` does without.
The tests of the tools themselves, those of the room toolchain, always ask.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

from ptxlab import cache
from ptxlab.files import write_whole

ARCHIVE = Path(__file__).with_name("answers.tar.xz")

_MOST = {"nvrtc": 500_000, "nvdisasm": 1_500_000, "nvjitlink": 600_000}
"""The bytes up to which an answer of a tool is recorded: what takes longest for its size."""


def pack(folder: Path) -> bytes:
    """Return the answers in a cache as an archive, the same whenever they are."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as archive:
        for tool, most in _MOST.items():
            for entry in sorted((folder / tool).iterdir()):
                data = entry.read_bytes()
                if len(data) <= most:
                    member = tarfile.TarInfo(f"{tool}/{entry.name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def unpack(packed: bytes) -> None:
    """Put the answers into the cache, once: those that have gone from it since are asked for again."""
    folder = cache.directory()
    mark = folder / "answers" / hashlib.sha256(packed).hexdigest()[:16]
    if mark.exists():
        return
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as archive:
        for member in archive:
            stored = archive.extractfile(member)
            assert stored is not None
            write_whole(folder / member.name, stored.read())
    write_whole(mark, b"")
