"""What a kernel argument looks like on the command line: ``NAME=VALUE``.

n=128   scale=0.5   flags=0x80000000            a scalar, of the type of its .param
A=randn(128x64,bf16,seed=1)   d=zeros(128,f32)  an array made in place
x=@weights.npy   x=@weights.npy:bf16            a file of numpy, its bits read as another type
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.cli.parser import suggestion
from ptxlab.errors import PtxlabError
from ptxlab.isa.types import TYPES, ScalarType

Array = npt.NDArray[Any]

ELEMENT_TYPES: dict[str, ScalarType] = {
    name: scalar
    for name, scalar in TYPES.items()
    if scalar.kind in ("bits", "unsigned", "signed", "float") and name not in ("b128", "tf32")
}
"""The types an array may have: those whose every bit pattern numpy can hold and print."""

_CALL = re.compile(r"(?P<maker>\w+)\s*\((?P<inside>[^()]*)\)")
_NAME = re.compile(r"[\w$%]+")


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
        number = fields.pop().removeprefix("seed=")
        if not number.isdecimal():
            raise ValueError(f"seed {number!r} is not an integer of 0 or more")
        seed = (int(number),)
    if len(fields) != 2:
        more = ", and seed=N if it likes" if maker == "randn" else ""
        raise ValueError(f"{maker} takes a shape and a type{more}")
    kind = _element_type(fields[1])
    made = MAKERS[maker](_shape(fields[0]), kind, seed)
    with np.errstate(over="ignore", invalid="ignore"):
        return ArrayValue(made.astype(kind.dtype), kind.name)


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
    path, colon, type_name = text.rpartition(":")
    if not colon or type_name.endswith(".npy"):
        path, type_name = text, ""
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError):
        raise ValueError(f"{path} is not a .npy file of plain numbers") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} holds several arrays; save the one you want as .npy")
    array = np.ascontiguousarray(array)
    if type_name:
        return ArrayValue(array.view(_element_type(type_name).dtype), type_name)
    for name, kind in ELEMENT_TYPES.items():
        if kind.dtype == array.dtype and kind.kind != "bits":
            return ArrayValue(array, name)
    raise ValueError(
        f"{path} holds {array.dtype}, which no PTX type is; say how to read it, as @{path}:bf16"
    )
