"""What a judge and a candidate's process say to each other: plain data and arrays, and nothing that runs.

A message is 8 bytes of length, JSON of 4 bytes of length before it, and the bytes of its arrays. Who reads
one executes nothing of who wrote it, as unpickling would.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import ml_dtypes  # noqa: F401, whose types NumPy then knows by name
import numpy as np

from ptxlab.arrays import Array

ARRAY = "array of"
"""The key of what stands for an array: its type, shape, and where its bytes begin."""

LONGEST = 4 << 30
"""Bytes of a message; a candidate that says it has more is not listened to."""


def encoded(message: Any) -> bytes:
    arrays: list[bytes] = []
    text = json.dumps(_plain(message, arrays)).encode()
    body = b"".join([len(text).to_bytes(4, "little"), text, *arrays])
    return len(body).to_bytes(8, "little") + body


def _plain(value: Any, arrays: list[bytes]) -> Any:
    if isinstance(value, np.ndarray):
        begin = sum(map(len, arrays))
        arrays.append(np.ascontiguousarray(value).tobytes())
        return {ARRAY: [value.dtype.name, list(value.shape), begin]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): _plain(member, arrays) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member, arrays) for member in value]
    return value


def decoded(body: bytes) -> Any:
    """Return a message, or raise ValueError for what is none."""
    size = int.from_bytes(body[:4], "little")
    try:
        message = json.loads(body[4 : 4 + size])
        return _whole(message, memoryview(body)[4 + size :])
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _whole(value: Any, data: memoryview) -> Any:
    if isinstance(value, list):
        return [_whole(member, data) for member in value]
    if not isinstance(value, dict):
        return value
    if ARRAY not in value:
        return {key: _whole(member, data) for key, member in value.items()}
    name, shape, begin = value[ARRAY]
    count = int(np.prod(shape, dtype=np.int64))
    array: Array = np.frombuffer(data, np.dtype(name), count, begin)  # which takes no objects
    return array.reshape(shape).copy()


def send(connection: socket.socket, message: Any) -> None:
    connection.sendall(encoded(message))


def receive(connection: socket.socket) -> Any:
    """Return the next message. Raise EOFError at the end, ValueError for what is none, TimeoutError after a while."""
    size = int.from_bytes(_exactly(connection, 8), "little")
    if size > LONGEST:
        raise ValueError(f"a message of {size} bytes")
    return decoded(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
