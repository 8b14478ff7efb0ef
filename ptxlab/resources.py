"""The PTX and CUDA C programs that come with ptxlab, found in a checkout and in an installed wheel."""

from __future__ import annotations

import os
from pathlib import Path

FOLDERS = ("ptx", "kernels")

_PACKAGE = Path(__file__).resolve().parent
# A wheel carries the folders inside the package, a checkout beside it.
_ROOT = _PACKAGE if (_PACKAGE / "ptx").is_dir() else _PACKAGE.parent


def path(name: str) -> Path:
    """Return where the shipped file or folder ``name`` (``ptx/x.ptx``) lies.

    Raises PtxlabError with the nearest names when nothing of that name is shipped.
    """
    file = shipped(name)
    if file is None:
        from ptxlab.errors import PtxlabError, did_you_mean

        raise PtxlabError(f"ptxlab ships no {name}", hint=did_you_mean(name, names(), most=3))
    return file


def shipped(name: str) -> Path | None:
    """Return the path of the shipped file or folder ``name``, or None."""
    first, *rest = Path(name).parts or ("",)
    if first not in FOLDERS or ".." in rest:
        return None
    file = _ROOT / name
    return file if os.path.exists(file) else None


def names() -> list[str]:
    """Return the names of all shipped programs, as ``ptx/x.ptx`` and ``kernels/x.cu``."""
    return sorted(
        file.relative_to(_ROOT).as_posix()
        for folder in FOLDERS
        for file in (_ROOT / folder).rglob("*")
        if file.suffix in (".ptx", ".cu", ".cuh")
    )
