"""What C code of others asks of tensors: DLPack's table of functions, of which one names the stream.

PyTorch asks the guard of the device, and that of a device that is not there has no stream.

Source: DLPack 1.2, ``DLPackExchangeAPI``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ptxlab.clients.torch import streams

_ATTRIBUTE = "__dlpack_c_exchange_api__"
_NAME = b"dlpack_exchange_api"
_WORDS, _CURRENT_STREAM = 7, 6

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def _chosen_stream(kind: int, device: int, stream: Any) -> int:
    stream[0] = streams.current() or None
    return 0


_current_stream = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)(_chosen_stream)


def install() -> None:
    """Have the table say which stream is current. A PyTorch that has none is left alone."""
    capsule = getattr(torch.Tensor, _ATTRIBUTE, None)
    if capsule is None:
        return
    table = _api.PyCapsule_GetPointer(capsule, _NAME)
    words = (ctypes.c_uint64 * _WORDS).from_buffer_copy(ctypes.string_at(table, 8 * _WORDS))
    words[_CURRENT_STREAM] = ctypes.cast(_current_stream, ctypes.c_void_p).value or 0
    _kept.append(words)
    setattr(torch.Tensor, _ATTRIBUTE, _api.PyCapsule_New(ctypes.addressof(words), _NAME, None))


_kept: list[object] = []
