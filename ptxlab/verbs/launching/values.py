"""What a kernel argument looks like on the command line: ``NAME=VALUE``.

n=128   scale=0.5   flags=0x80000000            a scalar, of the type of its .param
A=randn(128x64,bf16,seed=1)   d=zeros(128,f32)  an array made in place
x=@weights.npy   x=@weights.npz:layer1          a file of numpy, an array of several
x=@weights.npy:bf16                             its bits read as another type
m=tma(A,box=64x64,swizzle=128B)                 a tensor map of another argument
p=struct(A,m,128,0.5:f64)                       a struct of other arguments, by their addresses, and of numbers
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.cli.readers import count, integer, positive, several, suggestion
from ptxlab.errors import PtxlabError
from ptxlab.numbers.synonyms import type_called
from ptxlab.numbers.types import ScalarType
from ptxlab.tensormap.tensor_map import Im2col
from ptxlab.verbs.launching.arrays import ELEMENT_TYPES, ArrayValue, converted, element_type, load

_CALL = re.compile(r"(?P<maker>\w+)\s*\((?P<inside>[^()]*)\)")
_NAME = re.compile(r"[\w$%]+")


@dataclass(frozen=True, slots=True)
class MapValue:
    """A tensor map of the argument called ``array``, with ``options`` as ``Device.tensor_map`` takes them.

    ``text`` is what the user wrote.
    """

    text: str
    array: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StructValue:
    """A struct passed by value: of each member the name of an argument before it, or a number that has a size.

    ``text`` is what the user wrote.
    """

    text: str
    members: tuple[str | np.generic, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that it leads to."""
        return tuple(member for member in self.members if isinstance(member, str))


ArgumentValue = ArrayValue | MapValue | StructValue | int | float


def named(values: Mapping[str, ArgumentValue]) -> dict[str, Any]:
    """Return the arguments as an expression names them: arrays and numbers, and neither tensor maps nor structs."""
    return {
        name: value.array if isinstance(value, ArrayValue) else value
        for name, value in values.items()
        if not isinstance(value, MapValue | StructValue)
    }


def split(argument: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in argument.partition("="))
    if not equals or not value or not _NAME.fullmatch(name):
        raise PtxlabError(f"argument {argument!r} is not NAME=VALUE", hint=_HINT)
    return name, value


def read(name: str, text: str, seed: tuple[int, ...]) -> ArgumentValue:
    """Return the value ``text`` stands for; ``name`` is for messages.

    ``seed`` is used by randn() where the text gives none.
    """
    try:
        if text.startswith("@"):
            return load(text[1:])
        if call := _CALL.fullmatch(text):
            if call["maker"] == "tma":
                return _map(text, call["inside"])
            if call["maker"] == "struct":
                return StructValue(text, tuple(map(_member, _fields(call["inside"]))))
            return _make(call["maker"], call["inside"], seed)
        return _number(text)
    except ValueError as error:
        hint = _HINTS.get(text.partition("(")[0], _HINT)
        raise PtxlabError(f"argument {name}={text}: {error}", hint=hint) from error


def is_array(text: str) -> bool:
    """Say whether ``text`` is an array as ``read`` takes it: a file, or one made in place."""
    call = _CALL.fullmatch(text)
    if call is None or call["maker"] not in MAKERS:
        return text.startswith("@")
    return any(
        type_called(field.strip()) in ELEMENT_TYPES for field in call["inside"].split(",")[1:]
    )


_HINT = "arguments look like n=128, A=randn(128x64,bf16,seed=1), o=zeros(128,f32) or x=@file.npy"


_HINTS = {
    "tma": "tensor maps look like m=tma(A, box=64x64, swizzle=128B), where A is an array argument; sizes are "
    "those of NumPy, the outermost dimension first",
    "struct": "structs look like p=struct(A, B, 4096:s64, 128, 0.5), where A and B are arguments before it; "
    "numbers are s32 or f32 unless they say otherwise, and 0:u64 is a null pointer",
}


# ---- scalars --------------------------------------------------------------------------------


def _fields(inside: str) -> list[str]:
    return [field.strip() for field in inside.split(",")]


def _member(text: str) -> str | np.generic:
    """Return a member of a struct: a number of a type, or the name of an argument."""
    if _NAME.fullmatch(text) and not text[0].isdigit():
        return text
    digits, colon, kind = text.partition(":")
    number = _number(digits)
    told = kind if colon else "f32" if isinstance(number, float) else "s32"
    return _sized(number, element_type(told))


def _sized(number: float, kind: ScalarType) -> np.generic:
    """Return a number as one of a type. Raises ValueError where an integer type has no such number."""
    if kind.kind == "float":
        held: np.generic = converted(np.array([number]), kind)[0]
        return held
    try:
        if isinstance(number, int):
            made: np.generic = kind.dtype.type(number)
            return made
    except OverflowError:
        pass
    raise ValueError(f"{number} is no {kind.name}")


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


_shape = several(positive, "a shape such as 128 or 128x64", separator="x")


def _make(maker: str, inside: str, seed: tuple[int, ...]) -> ArrayValue:
    if maker not in MAKERS:
        known = (*MAKERS, "tma", "struct")
        raise ValueError(f"no {maker}(), there are {', '.join(known)}{suggestion(maker, known)}")
    fields = _fields(inside)
    if maker == "randn" and len(fields) == 3 and fields[2].startswith("seed="):
        seed = (count(fields.pop().removeprefix("seed=")),)
    if len(fields) != 2:
        more = ", and seed=N if it likes" if maker == "randn" else ""
        raise ValueError(f"{maker} takes a shape and a type{more}: {maker}({fields[0] or 128},f32)")
    kind, shape = element_type(fields[1]), _shape(fields[0])
    _refuse_more_than_memory(shape)
    MAKERS[maker]((1,) * len(shape), kind, seed)  # or say why not, before anybody needs it
    return ArrayValue(lambda: converted(MAKERS[maker](shape, kind, seed), kind), shape, kind.name)


def _refuse_more_than_memory(shape: tuple[int, ...]) -> None:
    """Refuse what the machine cannot hold: asking for it may end the process instead of failing."""
    size = 8 * math.prod(shape)  # arrays are made in 64 bits
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):  # Windows has it not, and promises no more than there is
        return
    if size > memory:
        raise ValueError(f"making it takes {size:,} bytes, this machine has {memory:,}")


# ---- tensor maps ----------------------------------------------------------------------------


_sizes = several(positive, "sizes such as 64x64", separator="x")
_numbers = several(integer, "numbers such as 512x2 or -1x-1", separator="x")
_WINDOW: dict[str, Callable[[str], Any]] = {
    "lower": _numbers,
    "upper": _numbers,
    "channels": positive,
    "pixels": positive,
}
_OPTIONS: dict[str, Callable[[str], Any]] = {
    "box": _sizes,
    "shape": _sizes,
    "strides": _numbers,
    "offset": count,
    "dtype": str,
    "element_strides": _sizes,
    "swizzle": str,
    "fill": str,
    "l2_promotion": count,
    "wide": count,
    **_WINDOW,
}


def _map(text: str, inside: str) -> MapValue:
    array, *fields = _fields(inside)
    if not _NAME.fullmatch(array):
        raise ValueError(f"{array!r} is no argument")
    options: dict[str, Any] = {}
    for field in fields:
        name, equals, given = (part.strip() for part in field.partition("="))
        if not equals or name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ValueError(f"tma takes {known}, not {field!r}{suggestion(name, _OPTIONS)}")
        options[name] = _OPTIONS[name](given)
    window = {name: options.pop(name) for name in _WINDOW if name in options}
    if window or "wide" in options:
        if missing := [name for name in _WINDOW if name not in window]:
            raise ValueError(f"pixels of im2col need {', '.join(missing)} too")
        options["im2col"] = Im2col(**window, wide=options.pop("wide", 0) > 0)
    return MapValue(text, array, options)
