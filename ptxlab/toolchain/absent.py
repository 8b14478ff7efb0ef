"""The error for a tool that is not installed, as opposed to one that rejected its input."""

from __future__ import annotations

from ptxlab.errors import ToolchainError


class ToolAbsent(ToolchainError):
    """NVRTC, nvJitLink or nvdisasm is not installed, or its library does not load."""

    exit_status = 3

    def __init__(self, tool: str, package: str, reason: object) -> None:
        super().__init__(
            f"{tool} is not available: {reason}", hint=f"install it with: pip install {package}"
        )
