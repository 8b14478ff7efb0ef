"""Arrays handed to other libraries without a copy, by the DLPack protocol.

Source: DLPack, ``dlpack.h`` (DLManagedTensor) and "Python Specification for DLPack".
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

CUDA = 2  # DLDeviceType

_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLDataTypeCode by numpy kind
_NAMES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
    )


# What a consumer still uses, by address of its DLManagedTensor: the structure, shape and owner.
_shared: dict[int, tuple[Any, ...]] = {}


def _c_api(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _c_api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_is_valid = _c_api("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer = _c_api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_NAME = ctypes.create_string_buffer(b"dltensor")  # a capsule keeps the pointer, not the text


def _callbacks() -> tuple[Any, Any]:
    """Make the two callbacks C code holds: on an array's release, and on a capsule's end.

    They may come while the interpreter shuts down, so they live for ever and use no module globals.
    """

    def delete(address: int, shared: dict[int, tuple[Any, ...]] = _shared) -> None:
        shared.pop(address, None)

    def drop(
        capsule: int,
        shared: dict[int, tuple[Any, ...]] = _shared,
        is_valid: Any = _is_valid,
        pointer: Any = _pointer,
    ) -> None:
        # A capsule that was consumed has another name, and its array a new owner.
        if is_valid(capsule, b"dltensor"):
            shared.pop(pointer(capsule, b"dltensor"), None)

    made = _Deleter(delete), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(drop)
    for callback in made:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return made


_DELETE, _DROP = _callbacks()


def capsule(
    owner: object,
    address: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    device: tuple[int, int],
) -> Any:
    """Return a DLPack capsule of a contiguous array that keeps ``owner`` alive while it is used.

    Raises BufferError for element types other libraries have no name for.
    """
    code = _NAMES.get(dtype.name, _KINDS.get(dtype.kind))
    if code is None:
        raise BufferError(f"{dtype} cannot be handed on by DLPack")
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    managed = _Managed()
    managed.tensor = _Tensor(
        address, *device, len(shape), code, 8 * dtype.itemsize, 1, sizes, None, 0
    )
    managed.deleter = _DELETE
    key = ctypes.addressof(managed)
    _shared[key] = (managed, sizes, owner)
    return _new(key, ctypes.addressof(_NAME), ctypes.cast(_DROP, ctypes.c_void_p))
