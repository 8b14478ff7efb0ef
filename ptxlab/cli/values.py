"""What a kernel argument looks like on the command line: ``NAME=VALUE``.

n=128   scale=0.5   flags=0x80000000            a scalar, of the type of its .param
A=randn(128x64,bf16,seed=1)   d=zeros(128,f32)  an array made in place
x=@weights.npy   x=@weights.npz:layer1          a file of numpy, an array of several
x=@weights.npy:bf16                             its bits read as another type
"""

from __future__ import annotations

import math
import os
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.cli.readers import count, suggestion
from ptxlab.errors import PtxlabError
from ptxlab.isa.types import STORED, TYPES, ScalarType

Array = npt.NDArray[Any]

ELEMENT_TYPES: dict[str, ScalarType] = {
    name: scalar
    for name, scalar in (TYPES | STORED).items()
    if scalar.kind in ("bits", "unsigned", "signed", "float") and name not in ("b128", "tf32")
}
"""The types an array may have: those whose every bit pattern numpy can hold and print."""

_CALL = re.compile(r"(?P<maker>\w+)\s*\((?P<inside>[^()]*)\)")
_NAME = re.compile(r"[\w$%]+")
_ARCHIVE = re.compile(r"(?P<path>.+\.npz)(?::(?P<name>[^:]+))?(?::(?P<type>\w+))?")
_DAMAGED = (
    ArithmeticError, EOFError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError,
    struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy raises for a file that is none of its own, or not whole."""


@dataclass(frozen=True, slots=True)
class ArrayValue:
    """An array argument and the PTX type of its elements."""

    array: Array
    dtype: str


Value = ArrayValue | int | float


def split(argument: str) -> tuple[str, str]:
    """Split ``NAME=VALUE``."""
    name, equals, value = (part.strip() for part in argument.partition("="))
    if not equals or not value or not _NAME.fullmatch(name):
        raise PtxlabError(f"argument {argument!r} is not NAME=VALUE", hint=_HINT)
    return name, value


def read(name: str, text: str, seed: tuple[int, ...]) -> Value:
    """Return the value ``text`` stands for; ``name`` is for messages.

    ``seed`` is used by randn() where the text gives none.
    """
    try:
        if text.startswith("@"):
            return _load(text[1:])
        if call := _CALL.fullmatch(text):
            return _make(call["maker"], call["inside"], seed)
        return _number(text)
    except ValueError as error:
        raise PtxlabError(f"argument {name}={text}: {error}", hint=_HINT) from error


def is_array(text: str) -> bool:
    """Say whether ``text`` is an array as ``read`` takes it: a file, or one made in place."""
    call = _CALL.fullmatch(text)
    if call is None or call["maker"] not in MAKERS:
        return text.startswith("@")
    return any(field.strip() in ELEMENT_TYPES for field in call["inside"].split(",")[1:])


_HINT = "arguments look like n=128, A=randn(128x64,bf16,seed=1), o=zeros(128,f32) or x=@file.npy"


# ---- scalars --------------------------------------------------------------------------------


def _number(text: str) -> int | float:
    for convert in (lambda: int(text, 0), lambda: float(text)):
        try:
            return convert()
        except ValueError:
            continue
    raise ValueError(f"{text!r} is not a number")


# ---- arrays ---------------------------------------------------------------------------------


def _randn(shape: tuple[int, ...], kind: ScalarType, seed: tuple[int, ...]) -> Array:
    if kind.kind != "float":
        raise ValueError(f"randn makes floating-point types, not {kind.name}")
    return np.random.default_rng(seed).standard_normal(shape)


def _arange(shape: tuple[int, ...], kind: ScalarType, seed: tuple[int, ...]) -> Array:
    return np.arange(math.prod(shape)).reshape(shape)


def _eye(shape: tuple[int, ...], kind: ScalarType, seed: tuple[int, ...]) -> Array:
    if len(shape) > 2:
        raise ValueError("eye has one or two dimensions")
    return np.eye(shape[0], shape[-1])


MAKERS: dict[str, Callable[[tuple[int, ...], ScalarType, tuple[int, ...]], Array]] = {
    "zeros": lambda shape, kind, seed: np.zeros(shape),
    "ones": lambda shape, kind, seed: np.ones(shape),
    "arange": _arange,
    "randn": _randn,
    "eye": _eye,
}
"""The arrays that can be made in place: 0, 1, 0 1 2 ..., standard normal, the identity."""


def _make(maker: str, inside: str, seed: tuple[int, ...]) -> ArrayValue:
    if maker not in MAKERS:
        raise ValueError(f"no {maker}(), there are {', '.join(MAKERS)}{suggestion(maker, MAKERS)}")
    fields = [field.strip() for field in inside.split(",")]
    if maker == "randn" and len(fields) == 3 and fields[2].startswith("seed="):
        seed = (count(fields.pop().removeprefix("seed=")),)
    if len(fields) != 2:
        more = ", and seed=N if it likes" if maker == "randn" else ""
        raise ValueError(f"{maker} takes a shape and a type{more}")
    kind, shape = _element_type(fields[1]), _shape(fields[0])
    _refuse_more_than_memory(shape)
    made = MAKERS[maker](shape, kind, seed)
    with np.errstate(over="ignore", invalid="ignore"):
        return ArrayValue(made.astype(kind.dtype), kind.name)


def _refuse_more_than_memory(shape: tuple[int, ...]) -> None:
    """Refuse what the machine cannot hold: asking for it may end the process instead of failing."""
    size = 8 * math.prod(shape)  # arrays are made in 64 bits
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise ValueError(f"making it takes {size:,} bytes, this machine has {memory:,}")


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise ValueError(f"{text!r} is not a shape such as 128 or 128x64")
    return tuple(map(int, text.split("x")))


def _element_type(name: str) -> ScalarType:
    if name not in ELEMENT_TYPES:
        known = ", ".join(ELEMENT_TYPES)
        raise ValueError(
            f"no array type {name!r}, there are {known}{suggestion(name, ELEMENT_TYPES)}"
        )
    return ELEMENT_TYPES[name]


def _load(text: str) -> ArrayValue:
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
        return ArrayValue(array.view(_element_type(type_name).dtype), type_name)
    for name, kind in ELEMENT_TYPES.items():
        if kind.dtype == array.dtype and kind.kind != "bits":
            return ArrayValue(array, name)
    example = text if archive is None or archive["name"] else f"{text}:NAME"
    raise ValueError(
        f"{path} holds {array.dtype}, which no PTX type is; say how to read it, as @{example}:bf16"
    )


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
            found = archive[name or names[0]]
        except _DAMAGED:
            raise ValueError(f"{path} is damaged, or not of plain numbers") from None
    if not isinstance(found, np.ndarray):
        raise ValueError(f"{name or names[0]} of {path} is no array")
    return found


def _opened(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from error
    except _DAMAGED:
        raise ValueError(f"{path} is not a .npy file of plain numbers") from None
