"""The tools as pip has them: their versions, and the error for one that is not installed."""

from __future__ import annotations

from collections.abc import Iterable

from ptxlab.errors import ToolchainError


def wheel_version(package: str) -> str:
    """Return the full version of an installed wheel, "" where the tool is not from one."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def wheel_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those wheels that are installed."""
    return {package: found for package in packages if (found := wheel_version(package))}


class ToolAbsent(ToolchainError):
    """A tool is not installed, or its library does not load; none of its input was rejected."""

    exit_status = 3
    kind = "absent"

    def __init__(self, tool: str, package: str, reason: object) -> None:
        super().__init__(
            f"{tool} is not available: {reason}", hint=f"install it with: pip install {package}"
        )
