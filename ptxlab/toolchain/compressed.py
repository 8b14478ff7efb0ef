"""What nvcc has compressed, opened with this system's libzstd and liblz4, which hardly any Linux is without.

Source: the headers of those libraries: ``ZSTD_decompress``, ``LZ4_decompress_safe``.
"""

from __future__ import annotations

import ctypes
from ctypes.util import find_library
from functools import cache

_LIBRARIES = {"zstd": "zstd", "LZ4": "lz4"}


def opened(content: bytes, compression: str, size: int) -> bytes | None:
    """Return the ``size`` bytes that were compressed, None where that cannot be said here."""
    library = _library(compression)
    if library is None or not 0 < size < 1 << 31:
        return None
    room = ctypes.create_string_buffer(size)
    if compression == "zstd":
        library.ZSTD_decompress.restype = ctypes.c_size_t
        sizes = [ctypes.c_size_t(nbytes) for nbytes in (size, len(content))]
        written = library.ZSTD_decompress(room, sizes[0], content, sizes[1])
    else:
        written = library.LZ4_decompress_safe(content, room, len(content), size)
    return room.raw if written == size else None


@cache
def _library(compression: str) -> ctypes.CDLL | None:
    name = find_library(_LIBRARIES[compression]) if compression in _LIBRARIES else None
    try:
        return ctypes.CDLL(name) if name else None
    except OSError:
        return None
