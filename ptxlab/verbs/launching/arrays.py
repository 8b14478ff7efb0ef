"""Arrays of numbers in .npy and .npz files, read with the PTX type of their elements, written, and compared."""

from __future__ import annotations

import io
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array
from ptxlab.cli.readers import suggestion
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.rounding import narrow
from ptxlab.numbers.synonyms import type_called
from ptxlab.numbers.types import STORED, TYPES, ScalarType

ELEMENT_TYPES: dict[str, ScalarType] = {
    name: scalar
    for name, scalar in (TYPES | STORED).items()
    if scalar.kind in ("bits", "unsigned", "signed", "float") and name != "b128"
}
"""The types an array may have: those whose every bit pattern numpy can hold and print."""

TF32 = ELEMENT_TYPES["tf32"]
"""In memory it is f32, of which the instructions that take it see the first 19 bits."""

_ARCHIVE = re.compile(r"(?P<path>.+\.npz)(?::(?P<name>[^:]+))?(?::(?P<type>\w+))?")
_DAMAGED = (
    ArithmeticError, EOFError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError,
    struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy raises for a file that is none of its own, or not whole."""


@dataclass(frozen=True)
class ArrayValue:
    """An array argument, made when it is first looked at; ``dtype`` is the PTX type of its elements."""

    make: Callable[[], Array]
    shape: tuple[int, ...]
    dtype: str

    @cached_property
    def array(self) -> Array:
        return self.make()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self.array, dtype)


def element_type(name: str) -> ScalarType:
    """Return the type of that name; raise ValueError for one that no array has."""
    name = type_called(name)
    if name not in ELEMENT_TYPES:
        known = ", ".join(ELEMENT_TYPES)
        raise ValueError(
            f"no array type {name!r}, there are {known}{suggestion(name, ELEMENT_TYPES)}"
        )
    return ELEMENT_TYPES[name]


def converted(numbers: Array, kind: ScalarType) -> Array:
    """Return numbers as the nearest of a type: f32 becomes tf32 as ``cvt.rna.tf32.f32`` has it."""
    with np.errstate(over="ignore", invalid="ignore"):
        if kind is TF32:
            return narrow(numbers.astype(np.float64), FORMATS["tf32"], "rna")
        return numbers.astype(kind.dtype)


def load(text: str) -> ArrayValue:
    """Read ``FILE.npy`` or ``FILE.npz:NAME``, with ``:TYPE`` behind it as another type.

    Raises ValueError for what is no array of numbers.
    """
    if archive := _ARCHIVE.fullmatch(text):
        path, array = archive["path"], _member(archive["path"], archive["name"])
        type_name = archive["type"] or ""
    else:
        path, colon, type_name = text.rpartition(":")
        if not colon or type_name.endswith(".npy"):
            path, type_name = text, ""
        array = _opened(path)
        if not isinstance(array, np.ndarray):
            raise ValueError(
                f"{path} holds several arrays; call it .npz, and name the one you want"
            )
    array = np.ascontiguousarray(array)
    if type_name:
        return _given(array.view(element_type(type_name).dtype), type_name)
    for name, kind in ELEMENT_TYPES.items():
        if kind.dtype == array.dtype and kind.kind != "bits":
            return _given(array, name)
    example = text if archive is None or archive["name"] else f"{text}:NAME"
    raise ValueError(
        f"{path} holds {array.dtype}, which no PTX type is; say how to read it, as @{example}:bf16"
    )


def _given(array: Array, dtype: str) -> ArrayValue:
    return ArrayValue(lambda: array, array.shape, dtype)


def _member(path: str, name: str | None) -> Array:
    """Return the array ``name`` of a .npz file, or its only one."""
    archive = _opened(path)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError(f"{path} is not a .npz file")
    with archive:
        names = archive.files
        if name is None and len(names) != 1:
            raise ValueError(f"{path} holds {', '.join(names) or 'nothing'}; say @{path}:NAME")
        if name is not None and name not in names:
            raise ValueError(
                f"{path} has no {name!r}, it holds {', '.join(names)}{suggestion(name, names)}"
            )
        try:
            array = archive[name or names[0]]
        except _DAMAGED:
            raise ValueError(f"{path} is damaged, or not of plain numbers") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name or names[0]} of {path} is no array")
    return array


def _opened(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from error
    except _DAMAGED:
        raise ValueError(f"{path} is not a .npy file of plain numbers") from None


def npy(array: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, np.asarray(array))
    return content.getvalue()


def npz(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as a .npz file: the same bytes for the same arrays, whatever they are called.

    ``np.savez`` writes the time of day, and takes no array called ``file``.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(array))
    return content.getvalue()


# ---- comparing ----------------------------------------------------------------------------------


def errors(value: Array, want: Array, tolerance: tuple[float, float]) -> tuple[Array, Array]:
    """Return which elements are right, |value - want| <= atol + rtol |want|, and all the errors.

    Equal values, infinities and NaNs included, need no tolerance and have no error.
    """
    rtol, atol = tolerance
    with np.errstate(all="ignore"):
        got64, want64 = value.astype(np.float64), want.astype(np.float64)
        error = np.abs(got64 - want64)
        equal = (value == want) | (np.isnan(got64) & np.isnan(want64))
        within = np.isfinite(error) & (error <= atol + rtol * np.abs(want64))
    error[equal] = 0
    return equal | within, error
