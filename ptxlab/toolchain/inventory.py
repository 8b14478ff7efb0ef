"""Which tools there are, where, and which PTX they take. Nothing here raises for what is absent."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from ptxlab.errors import PtxlabError
from ptxlab.toolchain import nvcc, nvdisasm, nvjitlink, nvrtc, release

_EMPTY = ".visible .entry empty() { ret; }"
_VERSION = re.compile(r"^(\s*\.version\s+)([\d.]+)", re.MULTILINE)
_CURRENT = re.compile(r"current version is '([\d.]+)'")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool with its ``version`` and ``path``, or with the ``problem`` that it is not there.

    ``package`` is what pip calls it, and ``only_for`` what it is for, where ptxlab does not ask for it.
    """

    name: str
    package: str
    version: str = ""
    path: str = ""
    problem: str = ""
    only_for: str = ""


def tools() -> tuple[Tool, ...]:
    """Return NVRTC, nvJitLink, nvdisasm and nvcc, the first two of the release chosen."""
    return (
        _tool("NVRTC", nvrtc.PACKAGE, nvrtc.version, nvrtc.file),
        _tool("nvJitLink", release.PACKAGE, nvjitlink.version, nvjitlink.file),
        _tool("nvdisasm", nvdisasm.PACKAGE, nvdisasm.version, nvdisasm.program),
        replace(
            _tool("nvcc", nvcc.PACKAGE, nvcc.release, nvcc.program),
            only_for="a .cu file with a main",
        ),
    )


def newest_ptx() -> str:
    """Return the newest ``.version`` that nvJitLink takes, "" when it cannot be asked."""
    try:
        nvjitlink.link_ptx(
            f".version 99.9\n.target sm_80\n.address_size 64\n{_EMPTY}", arch="sm_80"
        )
    except PtxlabError as error:
        match = _CURRENT.search(error.message)
        return match[1] if match else ""
    return ""


def lowered(ptx: str) -> str:
    """Return PTX text with the newest ``.version`` that nvJitLink takes, where its own is newer."""
    newest, said = newest_ptx(), _VERSION.search(ptx)
    if not newest or said is None or _numbers(said[2]) <= _numbers(newest):
        return ptx
    return _VERSION.sub(rf"\g<1>{newest}", ptx, count=1)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def newest_ptx_of_driver(cuda_version: int) -> str:
    """Return the newest ``.version`` that a driver of CUDA ``cuda_version`` (13000) takes.

    Source: the table of cuda-bindings, which ends with the releases known to it.
    """
    from cuda.bindings import utils

    for major, minor in ((major, minor) for major in (9, 8) for minor in range(9, -1, -1)):
        try:
            needed = utils.get_minimal_required_cuda_ver_from_ptx_ver(f"{major}.{minor}")
        except ValueError:
            continue
        if needed <= cuda_version:
            return f"{major}.{minor}"
    return ""


def _tool(name: str, package: str, version: Callable[[], str], path: Callable[[], str]) -> Tool:
    try:
        return Tool(name, package, version(), os.path.realpath(path()))
    except (ImportError, RuntimeError, OSError, PtxlabError) as error:
        problem = error.message if isinstance(error, PtxlabError) else str(error)
        return Tool(name, package, problem=problem.splitlines()[0])
