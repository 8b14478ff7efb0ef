"""A cubin to SASS with nvdisasm. Needs neither a GPU nor a driver.

Options and their meaning: CUDA Binary Utilities, "nvdisasm".
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ptxlab.cache import cached
from ptxlab.errors import ToolchainError
from ptxlab.toolchain.cubin import Cubin
from ptxlab.toolchain.wheels import ToolAbsent, reason_of, wheel_file, wheel_version

PACKAGE = "nvidia-cuda-nvdisasm"
_TIMEOUT = 300.0

_INDIRECT = re.compile(rb"\b(?:BRX|JMX)")
"""An indirect branch, to which nvdisasm writes the labels that it can take."""


def disassemble(cubin: Cubin | bytes, *, options: Sequence[str] = ("-c", "-gp")) -> str:
    """Return the SASS text of a cubin.

    With the usual options, ``//## File "...", line 9`` stands above the instructions that line 9 of
    the PTX became. Raises ToolchainError with nvdisasm's own message.
    """
    image = cubin.image if isinstance(cubin, Cubin) else cubin
    key: list[str | bytes] = [version(), *options, "", image]
    return cached("nvdisasm", key, lambda: _text(image, options)).decode()


@cache
def version() -> str:
    """Return nvdisasm's version: the wheel's, or what the program says of itself."""
    return (
        wheel_version(PACKAGE)
        or subprocess.run([program(), "--version"], capture_output=True, text=True).stdout.strip()
    )


@cache
def program() -> str:
    """Find nvdisasm: the wheel's, or else that of an installed CUDA toolkit."""
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError as error:
        raise ToolAbsent("nvdisasm", PACKAGE, reason_of(error)) from None
    file = find_nvidia_binary_utility("nvdisasm") or wheel_file(PACKAGE, "nvidia/*/bin/nvdisasm")
    if not file:
        raise ToolAbsent("nvdisasm", PACKAGE, "no wheel and no CUDA toolkit has it")
    return file


def _text(image: bytes, options: Sequence[str]) -> bytes:
    """Spare the analysis of data flow, a quarter of nvdisasm's time, where nothing branches indirectly."""
    text = _run(image, [*options, "--no-dataflow"])
    return _run(image, options) if _INDIRECT.search(text) else text


def _run(image: bytes, options: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="ptxlab-") as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(image)
        command = [program(), *options, os.fspath(file)]
        try:
            ran = subprocess.run(command, capture_output=True, timeout=_TIMEOUT)
        except OSError as error:
            raise ToolAbsent("nvdisasm", PACKAGE, str(error)) from None
        except subprocess.TimeoutExpired:
            raise ToolchainError(f"nvdisasm gave no answer in {_TIMEOUT:g} seconds") from None
    if ran.returncode:
        said = (ran.stderr or ran.stdout).decode(errors="replace").strip()
        raise ToolchainError(f"nvdisasm rejected this cubin\n{said}")
    return ran.stdout
