"""Which nvJitLink assembles: the installed one, or that of a release of CUDA that the user names.

A release is told as ``12.8``, or as the folder that has it. Its wheel is looked for among what is installed, in the
folder of the cache that the error names, and in CUDA toolkits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ptxlab import installation
from ptxlab.cache import directory
from ptxlab.errors import PtxlabError
from ptxlab.toolchain.wheels import ToolAbsent, wheel_folder, wheel_version

VARIABLE = "PTXLAB_TOOLCHAIN"
"""The environment variable that names the release; processes that share the work have it too."""

PACKAGE = "nvidia-nvjitlink"
_PACKAGES = {12: f"{PACKAGE}-cu12"}  # what the wheel was called until CUDA 13
_RELEASE = re.compile(r"(?P<major>\d+)\.\d+(?:\.\d+)?$")
_WHEEL = re.compile(r"nvidia_nvjitlink(?:_cu\d+)?-(?P<version>[\d.]+)\.dist-info$")
_LIBRARIES = (
    "nvidia/*/lib/libnvJitLink.so.*",
    "nvidia/*/bin/nvJitLink_*.dll",
    "nvidia/*/bin/x*/nvJitLink_*.dll",
    "lib64/libnvJitLink.so",
    "lib/libnvJitLink.so",
    "bin/nvJitLink_*.dll",
    "bin/x64/nvJitLink_*.dll",
)
"""Where wheels, and CUDA toolkits, have the library."""
_TOOLKITS = "/usr/local/cuda-{}"


@dataclass(frozen=True, slots=True)
class Release:
    """An nvJitLink beside the installed one: what it is, and the file of its library."""

    version: str
    library: str


@contextmanager
def using(name: str | None) -> Iterator[None]:
    """Have the release of that name assemble meanwhile; None is what would anyway."""
    before = os.environ.get(VARIABLE)
    if name is not None:
        os.environ[VARIABLE] = name
    try:
        yield
    finally:
        if name is not None:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def chosen() -> Release | None:
    """Return the release that the user names, None for what is installed.

    Raises ToolAbsent, with the command that installs it, where it is not there.
    """
    name = os.environ.get(VARIABLE)
    if not name or _is_of(wheel_version(PACKAGE), name):
        return None
    match = _RELEASE.match(name)
    folders = [*_folders(name)] if match else [Path(name)]
    for folder in folders:
        for pattern in _LIBRARIES:
            for library in sorted(folder.glob(pattern)):
                return Release(_version_in(folder) or f"of {folder}", os.fspath(library))
    if match is None:
        raise PtxlabError(
            f"{name} has no nvJitLink in it",
            hint="name a release such as 12.8, or a folder with its wheel",
        )
    package = _PACKAGES.get(int(match["major"]), PACKAGE)
    raise ToolAbsent(
        f"nvJitLink {name}",
        package,
        "no wheel and no CUDA toolkit has it",
        hint=f"install it with: {installation.into(kept_in(name), f'{package}=={name}.*')}",
    )


def is_name(text: str) -> bool:
    """Say whether this may name a release: its number, or a folder."""
    return bool(_RELEASE.match(text)) or Path(text).is_dir()


def kept_in(name: str) -> Path:
    """Return the folder of the cache for a release."""
    return directory() / "toolchains" / name


def _folders(name: str) -> Iterator[Path]:
    for package in _PACKAGES.values():
        if _is_of(wheel_version(package), name):
            yield wheel_folder(package)
    yield kept_in(name)
    yield Path(_TOOLKITS.format(name))


def _is_of(version: str, name: str) -> bool:
    return f"{version}.".startswith(f"{name}.")


def _version_in(folder: Path) -> str:
    """Return the full version of the wheel in a folder, "" where none says it."""
    wheels = (_WHEEL.match(entry.name) for entry in folder.glob("*.dist-info"))
    return next((match["version"] for match in wheels if match), "")
