"""What a kernel should leave, said by a trusted kernel in CUDA C: compiled with a number that carries its bound as its float.

``bounded.h`` is in place of float, double, half and bf16, so that the kernel computes in float64, and beside each number how
far a right kernel may be from it, whatever order it adds up in. What such a number cannot do, packed types above
all, does not compile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.loading import find_file
from ptxlab.errors import LaunchError, PtxlabError, ToolchainError, Unsupported
from ptxlab.files import read_text
from ptxlab.gemm.reference import error_bound
from ptxlab.isa.targets import Target
from ptxlab.judge.comparison import poisoned
from ptxlab.judge.kernel_candidate import bound
from ptxlab.judge.references import Reference
from ptxlab.judge.rounding import Bounded
from ptxlab.launch_config import LaunchConfig
from ptxlab.numbers.formats import BF16, F16, F32
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import PtxModule
from ptxlab.toolchain.host_headers import INCLUDE, without_host_headers
from ptxlab.toolchain.nvrtc import compile_cuda
from ptxlab.toolchain.source_kernels import source_parameters

_NUMBER = np.dtype(
    [("value", "f8"), ("magnitude", "f4"), ("roundings", "f4"), ("error", "f4")], align=True
)
"""``ptxlab_bounded``."""
_HEADER = Path(__file__).with_name("bounded.h")
_UNIT = 2.0**-24
_UNCARRIED = re.compile(
    r"\b(?:(?:float|double)[1-4]|half2|__half2|(?:__)?nv_bfloat162|asm|union|__\w+_as_\w+)\b"
)
"""What looks into the bits of a number, or is made of several."""
_NARROW = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]cuda_(?:bf|fp)16\.h[>\"][^\n]*", re.MULTILINE
)
"""The headers of half and bf16, in place of which ``bounded.h`` stands."""
_TYPES = (F32.dtype, F16.dtype, BF16.dtype)
"""The types of floats that its arrays may be of; the first alone where it includes neither."""


class ReferenceKernel(Reference):
    """The kernel ``name`` of a .cu file, launched as ``config`` says for the sizes of a trial."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        names: list[str],
        config: Callable[[Mapping[str, int]], Mapping[str, Any]],
        target: Target,
        name: str | None = None,
    ) -> None:
        self.takes, self.path, self.config = names, path, config
        self._device = EmulatorDevice(target, console=_undecided)
        module, self._types = _compiled(os.fspath(path), target)
        self._kernel = self._device.load(module).kernel(name)
        self._written: list[str] | None = None

    def expected(
        self, arguments: Mapping[str, Any], target: Target, sizes: Mapping[str, int]
    ) -> dict[str, Bounded]:
        for name, value in arguments.items():
            if (
                isinstance(value, np.ndarray)
                and value.dtype.kind not in "iub"
                and value.dtype not in self._types
            ):
                raise Unsupported(
                    f"{name} is of {value.dtype}, and a trusted kernel is one of f32 and integers",
                    hint="of f16 and bf16 too where it includes cuda_fp16.h or cuda_bf16.h",
                )
        left = self._left(arguments, sizes)
        if self._written is None:
            self._written = [name for name in left if not _same(left[name], arguments[name])]
            hidden = {**arguments, **{name: poisoned(arguments[name]) for name in self._written}}
            again = self._left(hidden, sizes)
            if all(_same(left[name], again[name]) for name in self._written):
                self.takes = [name for name in arguments if name not in self._written]
        return {name: _bounded(left[name]) for name in self._written}

    def _left(self, arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """Return what the arrays hold behind a launch."""
        given = bound(self._kernel, arguments)
        held = {
            name: self._device.upload(
                _carrying(value).view(np.uint8) if _is_float(value) else value
            )
            for name, value in given.items()
            if isinstance(value, np.ndarray)
        }
        passed: list[Any] = []
        for (name, value), parameter in zip(given.items(), self._kernel.parameters, strict=True):
            is_number = name not in held and parameter.size == _NUMBER.itemsize
            passed.append(_carrying(value).tobytes() if is_number else held.get(name, value))
        try:
            self._kernel.run(LaunchConfig.of(**self.config(sizes)), passed)
            left = {name: buffer.numpy() for name, buffer in held.items()}
        except LaunchError as error:
            raise PtxlabError(f"the trusted kernel does not run: {error}") from None
        finally:
            for buffer in held.values():
                buffer.close()
        return {
            name: array.view(_NUMBER).reshape(given[name].shape)
            if _is_float(given[name])
            else array
            for name, array in left.items()
        }


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in _TYPES


def _undecided(text: str) -> None:
    if text == "\x1b":
        raise Unsupported(
            "rounding decides which way the trusted kernel goes, so that no bound follows from it"
        )


def _compiled(path: str, target: Target) -> tuple[PtxModule, Sequence[Any]]:
    """Return the program, and of what types of floats its arrays may be."""
    text, narrow = _NARROW.subn("", without_host_headers(read_text(find_file(path))))
    uncarried = _UNCARRIED.search(text) or INCLUDE.search(text)
    if uncarried is not None:
        raise Unsupported(
            f"{path} has {uncarried[0].strip()}, and a trusted kernel computes with float, double, half, bf16 and integers alone",
            hint="the simplest kernel that is right is the best reference",
        )
    try:
        ptx = compile_cuda(
            _with_header(text), path=path, arch=target.name, include_paths=[_HEADER.parent],
            options=["--device-as-default-execution-space", *([f"-DPTXLAB_TERM={_term(target)}f"] if narrow else [])],
        )  # fmt: skip
    except ToolchainError as error:
        error.hint = (
            "as a reference it is compiled with ptxlab_bounded in place of float and double"
        )
        raise
    module = parse(ptx, f"{path} (PTX)")
    kernels = {entry.name: len(entry.parameters) for entry in module.entries}
    names = source_parameters([text], kernels)
    types = _TYPES if narrow else _TYPES[:1]
    return replace(module, source=replace(module.source, arguments=names)), types


def _term(target: Target) -> float:
    """Return as how many roundings to f32 a term of a sum counts on the tensor cores of a target."""
    ones = np.ones((1, 1), F16.dtype)
    return error_bound("any", target.dot16, ones, ones, "f32").coefficient / _UNIT


def _with_header(text: str) -> str:
    """Return a program behind the header, which takes an empty line, so that all others stay where they are."""
    include = f'#include "{_HEADER.name}"'
    first, rest = text.split("\n", 1) if "\n" in text else (text, "")
    return f"{include}\n{rest}" if not first.strip() else f"{include}\n#line 1\n{text}"


def _carrying(value: Any) -> Any:
    numbers = np.zeros(np.shape(value), _NUMBER)
    numbers["value"] = np.asarray(value, np.float64)
    numbers["magnitude"] = np.abs(numbers["value"])
    return numbers


def _same(a: Any, b: Any) -> bool:
    a, b = (each["value"] if each.dtype == _NUMBER else each for each in (a, b))
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def _bounded(left: Any) -> Bounded:
    if left.dtype != _NUMBER:
        return Bounded(left, np.zeros(left.shape))
    rounded = left["roundings"].astype(np.float64) * _UNIT
    with np.errstate(all="ignore"):  # a bound of what is no number is none
        whole = 1.001 * (left["error"] + rounded / (1 - rounded) * left["magnitude"]) + 2.0**-149
    return Bounded(left["value"], np.where(rounded > 0, whole, left["error"]))
