"""What kernels and variables are called in their source: demangled, found by a part, template instances."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

SHORT = {
    "bf16": "__nv_bfloat16",
    "bf16x2": "__nv_bfloat162",
    "f16": "__half",
    "half": "__half",
    "f16x2": "__half2",
    "half2": "__half2",
    "nv_bfloat16": "__nv_bfloat16",
    "e4m3": "__nv_fp8_e4m3",
    "e5m2": "__nv_fp8_e5m2",
    "f32": "float",
    "f64": "double",
    "s8": "signed char",
    "u8": "unsigned char",
    "s16": "short",
    "u16": "unsigned short",
    "s32": "int",
    "u32": "unsigned int",
    "s64": "long long",
    "u64": "unsigned long long",
    "int8_t": "signed char",
    "uint8_t": "unsigned char",
    "int16_t": "short",
    "uint16_t": "unsigned short",
    "int32_t": "int",
    "uint32_t": "unsigned int",
    "uint": "unsigned int",
    "int64_t": "long",
    "uint64_t": "unsigned long",
    "size_t": "unsigned long",
}
"""Short names of types that a template takes, and those of C++; a program may have its own of some."""

_WORD = re.compile(r"[A-Za-z_]\w*")
_SUFFIX = re.compile(r"\b(\d+)[uUlL]+\b")


@cache
def _demangler() -> Any:
    """Return the C++ library's own demangler, None on a system without it."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangle.restype, free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    return demangle, free


@cache
def demangled(name: str) -> str:
    """Return the declaration that a mangled name stands for, and any other name as it is."""
    demangler = _demangler() if name.startswith("_Z") else None
    if demangler is None:
        return name
    demangle, free = demangler
    status = ctypes.c_int()
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode()
    finally:
        free(text)


@cache
def called(name: str) -> str:
    """Return what the source calls a kernel or variable, with the arguments of a template: ``n::k<64>``.

    A variable of a function has the function's name before it: ``k<64>::tile``.
    """
    text = demangled(name).replace("(anonymous namespace)::", "").removeprefix("void ")
    text = re.sub(r"\((?:anonymous|unnamed)[^()]*\)::|\[abi:\w+\]", "", text)
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "(" and not depth:
            return text[:at] + _inside(text[at:])
    return text


_ARGUMENTS = 64


def brief(name: str) -> str:
    """Return what a kernel is called in a line of text: CuTe's have arguments of a thousand characters."""
    plain, bracket, arguments = called(name).partition("<")
    if len(arguments) > _ARGUMENTS:
        arguments = f"{arguments[: _ARGUMENTS - 4].rstrip()}...>"
    return plain + bracket + arguments


def _inside(parameters: str) -> str:
    """Return what stands behind the parameters of a function: ``::tile`` of a variable inside it."""
    depth = 0
    for at, character in enumerate(parameters):
        depth += (character == "(") - (character == ")")
        if not depth:
            scope = re.match(r"(::\w+)+$", parameters[at + 1 :])
            return scope[0] if scope else ""
    return ""


def expanded(name: str) -> str:
    """Return a name with the short types in its template arguments written out."""
    plain, bracket, arguments = name.partition("<")
    return plain + bracket + _WORD.sub(lambda word: SHORT.get(word[0], word[0]), arguments)


def spellings(name: str) -> tuple[str, ...]:
    """Return what a kernel is called: mangled, by the source, without namespaces, and without a template's arguments."""
    text = called(name)
    plain = _unqualified(text)
    return name, text, plain, plain.partition("<")[0]


def matching(names: Iterable[str], wanted: str) -> list[str]:
    """Return the names that ``wanted`` means: as they are, as the source calls them, or by a part."""
    known = list(names)
    if wanted in known:
        return [wanted]
    compact = {name: _compact(called(name)) for name in known}
    asked = _compact(expanded(wanted))
    ways = (
        lambda text: text == asked,
        lambda text: _unqualified(text) == asked,
        lambda text: _unqualified(text).partition("<")[0] == asked,
        lambda text: asked.endswith(">") and _unqualified(text).startswith(asked[:-1] + ","),
        lambda text: "<" not in asked and asked in text,
    )
    for way in ways:
        if meant := [name for name, text in compact.items() if way(text)]:
            return meant
    return []


def _unqualified(text: str) -> str:
    plain, bracket, arguments = text.partition("<")
    return plain.split("::")[-1] + bracket + arguments


def _compact(text: str) -> str:
    """Return a name in one spelling: no blanks that carry nothing, no suffixes of numbers."""
    words = " ".join(text.split())
    return _SUFFIX.sub(r"\1", re.sub(r"\s*([<>,*&:()])\s*", r"\1", words))
