"""NVRTC of another release than the installed one, called as ``cuda.bindings.nvrtc`` calls that one.

The bindings load one library in a process, and their own release alone.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ptxlab.errors import ToolchainError


class Status(int):
    """What a function of the library came to: 0 is success."""

    @property
    def name(self) -> str:
        return f"error {int(self)} of NVRTC"


class NvrtcLibrary:
    """The functions of an NVRTC library that are needed here, with the names and results that the bindings have."""

    def __init__(self, file: str) -> None:
        try:
            # It looks for these itself, but not beside it in every release.
            for builtins in sorted(Path(file).parent.glob("*nvrtc-builtins*")):
                ctypes.CDLL(os.fspath(builtins))
            self._functions = ctypes.CDLL(file)
        except OSError as error:
            raise ToolchainError(f"{file} cannot be loaded: {error}") from None
        for what in ("PTX", "ProgramLog", "CUBIN"):
            setattr(self, f"nvrtcGet{what}Size", self._size(f"nvrtcGet{what}Size"))
            setattr(self, f"nvrtcGet{what}", self._content(f"nvrtcGet{what}"))

    @staticmethod
    @cache
    def of(file: str) -> NvrtcLibrary:
        """Return the library in a file, loaded once. Raises ToolchainError where it does not load."""
        return NvrtcLibrary(file)

    def nvrtcCreateProgram(
        self, text: bytes, name: bytes, count: int, headers: Sequence[bytes], names: Sequence[bytes]
    ) -> tuple[Status, ctypes.c_void_p]:
        program = ctypes.c_void_p()
        given = (ctypes.byref(program), text, name, count, _strings(headers), _strings(names))
        return self._call("nvrtcCreateProgram", *given), program

    def nvrtcAddNameExpression(self, program: ctypes.c_void_p, name: bytes) -> tuple[Status]:
        return (self._call("nvrtcAddNameExpression", program, name),)

    def nvrtcCompileProgram(
        self, program: ctypes.c_void_p, count: int, options: Sequence[bytes]
    ) -> tuple[Status]:
        return (self._call("nvrtcCompileProgram", program, count, _strings(options)),)

    def nvrtcDestroyProgram(self, program: ctypes.c_void_p) -> tuple[Status]:
        return (self._call("nvrtcDestroyProgram", ctypes.byref(program)),)

    def _size(self, function: str) -> Callable[[ctypes.c_void_p], tuple[Status, int]]:
        def size(program: ctypes.c_void_p) -> tuple[Status, int]:
            length = ctypes.c_size_t()
            return self._call(function, program, ctypes.byref(length)), length.value

        return size

    def _content(self, function: str) -> Callable[[ctypes.c_void_p, bytes], tuple[Status]]:
        """Return the function that writes into a bytes object, as that of the bindings does."""
        return lambda program, buffer: (self._call(function, program, buffer),)

    def _call(self, function: str, *arguments: Any) -> Status:
        return Status(getattr(self._functions, function)(*arguments))


def _strings(texts: Sequence[bytes]) -> Any:
    return (ctypes.c_char_p * len(texts))(*texts)
