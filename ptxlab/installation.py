"""How ptxlab was installed here, and so how a package that is missing is added to it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

MACHINES = {"linux": ("x86_64", "aarch64"), "win32": ("AMD64", "ARM64")}
"""Where NVIDIA has wheels; pyproject.toml asks for them there and nowhere else."""

_SYSTEMS = {"darwin": "macOS", "linux": "Linux", "win32": "Windows"}


def has_nvidia_wheels() -> bool:
    """Say whether NVIDIA has its packages for this platform."""
    return platform.machine() in MACHINES.get(sys.platform, ())


def this_platform() -> str:
    """Return the system and the processor, in words: ``macOS on arm64``."""
    return f"{_SYSTEMS.get(sys.platform, sys.platform)} on {platform.machine()}"


def requirements(extra: str = "") -> Iterator[tuple[str, str]]:
    """Yield the package and the requirement, ``numpy>=2.1``, of all that ptxlab asks for on any platform.

    With an ``extra`` only that which it adds. Nothing of a ptxlab that is run without being installed.
    """
    from importlib import metadata  # as long to import as a tenth of ptxlab, and rarely asked for

    try:
        wanted = metadata.requires("ptxlab") or []
    except metadata.PackageNotFoundError:
        return
    for line in wanted:
        requirement, _, marker = line.partition(";")
        named = re.search(r"extra == ['\"](\w+)['\"]", marker)
        if (named[1] if named else "") == extra:
            match = re.match(r"[\w.-]+", requirement)
            assert match is not None
            yield match[0], requirement.strip()


def adding(*wanted: str) -> str:
    """Return the command that adds requirements to the environment that ptxlab runs in."""
    quoted = [f'"{requirement}"' for requirement in wanted]  # for the shells of Windows too
    home = Path(sys.prefix)
    if (home / "pipx_metadata.json").exists():
        return " ".join(["pipx inject", home.name, *quoted])
    if (home / "uv-receipt.toml").exists():
        return " ".join(
            ["uv tool install", *(f"--with {requirement}" for requirement in quoted), _source()]
        )
    if find_spec("pip") is None:  # uv makes environments without it
        return " ".join(["uv pip install --python", sys.executable, *quoted])
    return " ".join([_pip(), "install", *quoted])


def into(folder: Path, *wanted: str) -> str:
    """Return the command that puts requirements into a folder of its own, without what they need themselves."""
    pip = "uv pip" if find_spec("pip") is None else _pip()
    quoted = " ".join(f'"{requirement}"' for requirement in wanted)
    return f'{pip} install --no-deps --target "{folder}" {quoted}'


def adding_extra(extra: str) -> str:
    """Return the command that adds what an extra of ptxlab asks for."""
    return adding(*(dict(requirements(extra)).values() or [f"ptxlab[{extra}]"]))


def _pip() -> str:
    """Return how this environment's pip is called: by its name, unless that is another one's."""
    program = shutil.which("pip")
    beside = program is not None and os.path.dirname(program) == os.path.dirname(sys.executable)
    return "pip" if beside else f"{sys.executable} -m pip"


def _source() -> str:
    """Return what ptxlab was installed from: a folder or file of this machine, or its name."""
    from importlib import metadata

    try:
        origin = json.loads(metadata.distribution("ptxlab").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        origin = {}
    editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return editable + str(origin.get("url", "ptxlab")).removeprefix("file://")
