"""The tools as pip has them: their versions, and the error for one that is not installed."""

from __future__ import annotations

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
