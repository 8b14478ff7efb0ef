"""The tools as pip has them: their versions, and the error for one that is not installed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from ptxlab.errors import ToolchainError

BINDINGS = "cuda-python"
"""The package that calls NVIDIA's libraries."""


def wheel_version(package: str) -> str:
    """Return the full version of an installed wheel, "" where the tool is not from one."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def wheel_folder(package: str) -> Path:
    """Return the folder that an installed wheel is in."""
    from importlib import metadata

    return Path(str(metadata.distribution(package).locate_file("")))


def wheel_file(package: str, pattern: str) -> str:
    """Return the first file of an installed wheel with this pattern, "" where there is none."""
    try:
        files = wheel_folder(package).glob(pattern)
    except ModuleNotFoundError:  # no such wheel
        return ""
    return next(map(os.fspath, sorted(files)), "")


def load_library(name: str, package: str) -> str:
    """Load a library by the name that NVIDIA's pathfinder has for it, for the bindings too; return its file.

    pathfinder looks among this Python's own packages. Where a ``.pth`` file, PYTHONPATH or a program
    with Python in it adds others, their wheels know: pathfinder takes what is loaded.

    Raises ImportError or RuntimeError.
    """
    from cuda.pathfinder import load_nvidia_dynamic_lib

    try:
        return str(load_nvidia_dynamic_lib(name).abs_path)
    except RuntimeError:
        file = wheel_file(package, f"nvidia/*/lib/lib{name}.so.*")
        if not file:
            raise
        ctypes.CDLL(file)
        return str(load_nvidia_dynamic_lib(name).abs_path)


def wheel_versions(packages: Iterable[str]) -> dict[str, str]:
    return {package: version for package in packages if (version := wheel_version(package))}


class ToolAbsent(ToolchainError):
    """A tool is not installed, or its library does not load; none of its input was rejected."""

    exit_status = 3
    kind = "absent"

    def __init__(self, tool: str, package: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{tool} is not available: {reason}", hint=hint or _way_to(package))


def reason_of(error: Exception) -> str:
    """Return why the bindings of a tool do not import, or its library does not load."""
    missing = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("cuda")
    return f"{BINDINGS} is not installed" if missing else str(error)


def _way_to(package: str) -> str:
    from ptxlab import installation

    if not installation.has_nvidia_wheels():
        return f"NVIDIA has none for {installation.this_platform()}; what is PTX runs without it"
    known = dict(installation.requirements())
    missing = [name for name in (BINDINGS, package) if not wheel_version(name)] or [package]
    return f"install it with: {installation.adding(*(known.get(name, name) for name in missing))}"
