"""Which release of CUDA compiles and assembles: the installed one, or one that the user names.

A release is told as ``12.8``, or as the folder that has it. Its wheels are looked for among what is installed, in the
folder of the cache that the error names, and in CUDA toolkits. Where only its nvJitLink is there, that alone is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
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
_TOOLS = (PACKAGE, "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")
_PACKAGES = {12: tuple(f"{each}-cu12" for each in (*_TOOLS, "nvidia-cuda-nvcc"))}
"""The wheels of a release, the last two for headers, as they were called until CUDA 13."""
_NEWER = (*_TOOLS, "nvidia-cuda-crt")
_RELEASE = re.compile(r"(?P<major>\d+)\.\d+(?:\.\d+)?$")
_WHEEL = re.compile(r"nvidia_(?:nvjitlink|cuda_nvrtc)(?:_cu\d+)?-(?P<version>[\d.]+)\.dist-info$")
_ASSEMBLERS = (
    "nvidia/*/lib/libnvJitLink.so.*",
    "nvidia/*/bin/nvJitLink_*.dll",
    "nvidia/*/bin/x*/nvJitLink_*.dll",
    "lib64/libnvJitLink.so",
    "lib/libnvJitLink.so",
    "bin/nvJitLink_*.dll",
    "bin/x64/nvJitLink_*.dll",
)
"""Where wheels, and CUDA toolkits, have nvJitLink."""
_COMPILERS = (
    "nvidia/*/lib/libnvrtc.so.*",
    "nvidia/*/bin/nvrtc64_*_0.dll",
    "nvidia/*/bin/x*/nvrtc64_*_0.dll",
    "lib64/libnvrtc.so",
    "lib/libnvrtc.so",
    "bin/nvrtc64_*_0.dll",
    "bin/x64/nvrtc64_*_0.dll",
)
"""Where they have NVRTC."""
_INCLUDES = ("nvidia/*/include", "nvidia/*/include/cccl", "include", "include/cccl")
"""Where they have headers."""
_INSTALLED = re.compile(r"^nvidia.cu\d+\b")
"""Where the wheels have it all since CUDA 13."""
_TOOLKITS = "/usr/local/cuda-{}"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of CUDA beside what is installed: its ``version``, and what is there of it.

    ``assembler`` is the file of its nvJitLink and ``compiler`` that of its NVRTC, "" where that is absent, in a ``folder``.
    """

    version: str
    assembler: str
    compiler: str
    folder: Path

    @property
    def headers(self) -> tuple[str, ...]:
        """The folders with its headers."""
        return tuple(_found(self.folder, _INCLUDES))


@contextmanager
def using(name: str | None) -> Iterator[None]:
    """Have the release of that name compile and assemble meanwhile; None is what would anyway."""
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
    for folder in _folders(name) if _RELEASE.match(name) else [Path(name)]:
        assembler = next(_found(folder, _ASSEMBLERS), "")
        compiler = next(_found(folder, _COMPILERS), "")
        if assembler or compiler:
            version = _version_in(folder) or f"of {folder}"
            return Release(version, assembler, compiler, folder)
    raise absent("nvJitLink and no NVRTC")


def absent(tools: str) -> PtxlabError:
    """Return the error for ``tools`` that the release chosen does not have, with the command that installs it all."""
    name = os.environ[VARIABLE]
    if not _RELEASE.match(name):
        hint = "name a release such as 12.8, or a folder with its wheels"
        return PtxlabError(f"{name} has no {tools} in it", hint=hint)
    reason = f"there is no {tools} of it"
    return ToolAbsent(f"CUDA {name}", PACKAGE, reason, hint=_way_to(name))


def is_name(text: str) -> bool:
    """Say whether this may name a release: its number, or a folder."""
    return bool(_RELEASE.match(text)) or Path(text).is_dir()


def kept_in(name: str) -> Path:
    """Return the folder of the cache for a release."""
    return directory() / "toolchains" / name


def _way_to(name: str) -> str:
    major = int(name.partition(".")[0])
    if major < min(_PACKAGES):
        return f"releases from CUDA {min(_PACKAGES)}.0 on can be taken"
    wheels = (f"{package}=={name}.*" for package in _PACKAGES.get(major, _NEWER))
    return f"install it with: {installation.into(kept_in(name), *wheels)}"


def _found(folder: Path, patterns: Iterable[str]) -> Iterator[str]:
    """Yield the files in a folder with these patterns, but those of the installed release that lie beside an older one's."""
    beside = wheel_version(PACKAGE) and folder == wheel_folder(PACKAGE)
    for pattern in patterns:
        for file in sorted(folder.glob(pattern)):
            if not (beside and _INSTALLED.search(os.fspath(file.relative_to(folder)))):
                yield os.fspath(file)


def _folders(name: str) -> Iterator[Path]:
    for package in {each for packages in _PACKAGES.values() for each in packages[:2]}:
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
