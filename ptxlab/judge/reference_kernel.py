"""What a kernel should leave, said by a trusted kernel in CUDA C: compiled with a number that carries its bound as its float.

``bounded.h`` is in place of float, double, half and bf16, so that the kernel computes in float64, and beside each number how
far a right kernel may be from it, whatever order it adds up in. What such a number cannot do, packed types above
all, does not compile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.loading import find_file
from ptxlab.errors import LaunchError, PtxlabError, ToolchainError, Unsupported
from ptxlab.files import read_text
from ptxlab.isa.targets import Target
from ptxlab.judge.carried import Carried
from ptxlab.judge.rounding import Bounded
from ptxlab.judge.trusted_kernel import (
    TYPES,
    TrustedKernel,
    is_float,
    roundings_of_a_term,
    taken,
)
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import PtxModule
from ptxlab.toolchain.host_headers import INCLUDE, without_host_headers
from ptxlab.toolchain.nvrtc import compile_cuda
from ptxlab.toolchain.source_kernels import source_parameters

_COLUMNS = [field.name for field in fields(Carried)]
_NUMBER = np.dtype([*zip(_COLUMNS, ("f8", "f4", "f4", "f4"), strict=True)], align=True)
"""``ptxlab_bounded``, which is a ``Carried``."""
_HEADER = Path(__file__).with_name("bounded.h")
_UNCARRIED = re.compile(
    r"\b(?:(?:float|double)[1-4]|half2|__half2|(?:__)?nv_bfloat162|asm|union|__\w+_as_\w+)\b"
)
"""What looks into the bits of a number, or is made of several."""
_NARROW = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]cuda_(?:bf|fp)16\.h[>\"][^\n]*", re.MULTILINE
)
"""The headers of half and bf16, in place of which ``bounded.h`` stands."""


class ReferenceKernel(TrustedKernel):
    """The kernel ``name`` of a .cu file, launched as ``config`` says for the sizes of a trial."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        names: list[str],
        config: Callable[[Mapping[str, int]], Mapping[str, Any]],
        target: Target,
        name: str | None = None,
    ) -> None:
        super().__init__(path, names, config)
        self._device = EmulatorDevice(target, console=_undecided)
        module, self.types = _compiled(os.fspath(path), target)
        self._kernel = self._device.load(module).kernel(name)

    def named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return taken(self._kernel, arguments)

    def _left(self, arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Bounded]:
        given = self.named(arguments)
        held = {
            name: self._device.upload(_carrying(value).view(np.uint8) if is_float(value) else value)
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
            name: _bounded(array.view(_NUMBER).reshape(given[name].shape))
            if is_float(given[name])
            else Bounded(array, np.zeros(array.shape))
            for name, array in left.items()
        }


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
            options=["--device-as-default-execution-space", *([f"-DPTXLAB_TERM={roundings_of_a_term(target)}f"] if narrow else [])],
        )  # fmt: skip
    except ToolchainError as error:
        error.hint = (
            "as a reference it is compiled with ptxlab_bounded in place of float and double"
        )
        raise
    module = parse(ptx, f"{path} (PTX)")
    kernels = {entry.name: len(entry.parameters) for entry in module.entries}
    names = source_parameters([text], kernels)
    types = TYPES if narrow else TYPES[:1]
    return replace(module, source=replace(module.source, arguments=names)), types


def _with_header(text: str) -> str:
    """Return a program behind the header, which takes an empty line, so that all others stay where they are."""
    include = f'#include "{_HEADER.name}"'
    first, rest = text.split("\n", 1) if "\n" in text else (text, "")
    return f"{include}\n{rest}" if not first.strip() else f"{include}\n#line 1\n{text}"


def _carrying(value: Any) -> Any:
    numbers = np.zeros(np.shape(value), _NUMBER)
    exact = Carried.exact(np.asarray(value))
    for name, column in zip(_COLUMNS, exact.columns(), strict=True):
        numbers[name] = column
    return numbers


def _bounded(left: Any) -> Bounded:
    return Carried(*(left[name].astype(np.float64) for name in _COLUMNS)).bounded
