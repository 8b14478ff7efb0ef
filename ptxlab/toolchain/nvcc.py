"""A whole program in CUDA C, its main too, to one that runs, with nvcc and the machine's compiler of C++.

ptxlab needs neither, and takes those that are there. Options and their meaning: NVIDIA CUDA Compiler Driver, "NVCC Command Options".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from ptxlab import installation
from ptxlab.cache import cached
from ptxlab.errors import Location, ToolchainError
from ptxlab.files import read_text
from ptxlab.toolchain.host_code import rejections
from ptxlab.toolchain.includes import scan
from ptxlab.toolchain.wheels import ToolAbsent, wheel_file

PACKAGE = "nvidia-cuda-nvcc"
HEADERS = "nvidia-cuda-cccl"
"""The package with Thrust, CUB and ``cuda::std``."""

_ALWAYS = ("-O2", "-lineinfo", "--expt-relaxed-constexpr", "--expt-extended-lambda")
"""What a program may want of nvcc, and code of the host as quick as it would be."""


def compile_program(
    path: str, *, arch: str, options: Sequence[str] = (), include_paths: Sequence[str] = ()
) -> bytes:
    """Compile a .cu file and return the program, whose kernels are PTX for ``arch``, linked with the shared runtime.

    ``options`` are nvcc's own (``-DBM=64``). Raises ToolchainError with nvcc's log, placed at its first error, and
    ToolAbsent where there is no nvcc or no compiler of C++.
    """
    target = arch.replace("sm_", "compute_")
    given = [*_ALWAYS, f"-gencode=arch={target},code={target}", *options]
    given += [f"-I{folder}" for folder in include_paths]
    source, folder = read_text(path), Path(os.path.abspath(path)).parent
    searched = [Path(os.path.abspath(entry)) for entry in include_paths]
    includes = scan(source, folder, searched, options)

    def make() -> bytes:
        return _compiled(path, arch, given)

    if not includes.complete:
        return make()
    files = [part for file in includes.files for part in file]
    return cached("nvcc", [version(), os.path.abspath(path), source, *given, "", *files], make)


@cache
def program() -> str:
    """Find nvcc: that of PATH, of an installed CUDA toolkit, or the wheel's. Raises ToolAbsent where there is none."""
    file = shutil.which("nvcc") or _installed()
    if not file:
        reason = "it compiles a .cu file with its main, and no wheel and no CUDA toolkit has it"
        raise ToolAbsent("nvcc", PACKAGE, reason, hint=_way())
    return file


def _installed() -> str | None:
    with suppress(ImportError):
        from cuda.pathfinder import find_nvidia_binary_utility

        if file := find_nvidia_binary_utility("nvcc"):
            return str(file)
    return wheel_file(PACKAGE, "nvidia/*/bin/nvcc")


def _way() -> str:
    if not installation.has_nvidia_wheels():
        return ""
    install = f"install it with: {installation.adding(PACKAGE, HEADERS)}"
    return (
        f"{install}; ptxlab run FILE --kernel NAME --grid X --block X launches one kernel without"
    )


@cache
def version() -> str:
    """Return what nvcc says of itself."""
    return _run(program(), "--version").stdout


def release() -> str:
    """Return its number: 13.0.88."""
    number = re.search(r"\bV([\d.]+)", version())
    return number[1] if number else ""


def _compiled(path: str, arch: str, options: Sequence[str]) -> bytes:
    # A wheel has the shared runtime by its full name alone, and not that by which nvcc asks for it.
    runtime = ["-cudart=none", f"-l:libcudart.so.{release().partition('.')[0]}"]
    with tempfile.TemporaryDirectory(prefix="ptxlab-") as folder:
        made = os.path.join(folder, "program")
        ran = _run(program(), *options, *runtime, path, "-o", made)
        if ran.returncode == 0:
            return Path(made).read_bytes()
    log = (ran.stdout + ran.stderr).strip()
    if "host compiler" in log:
        raise ToolAbsent(
            "a compiler of C++", "", f"nvcc compiles with it what is the host's\n{log}",
            hint="install g++ (Debian has it as apt install g++), or name yours: NVCC_CCBIN=clang++",
        )  # fmt: skip
    raise _rejected(path, arch, log)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace")


def _rejected(path: str, arch: str, log: str) -> ToolchainError:
    location = None
    first = next(rejections(log), None)
    if first is not None and os.path.isfile(first.path):
        lines = read_text(first.path).splitlines()
        text = lines[first.line - 1] if first.line <= len(lines) else first.text
        same = (
            text == first.text
        )  # and no macro of CUDA's in it, which nvcc shows as what it stands for
        column = first.column if same else 1 + len(text) - len(text.lstrip())
        location = Location(first.path, first.line, max(column, 1), text)
    return ToolchainError(f"nvcc rejected {path} for {arch}\n{log}", location=location)
