"""PTX of the ladder's kernels that comes with ptxlab: nobody waits for NVRTC, or needs it, to run them unchanged.

``compiled.json.xz`` has what NVRTC makes of each kernel with its tiles, for the types it takes and
matrices as they are; ``scripts/compile_ladder.py`` writes it. A text is found by the digest of what it was
made from, so that of a kernel that was changed since there is none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ptxlab import resources
from ptxlab.cache import cached
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS, Target
from ptxlab.toolchain.includes import scan

FILE = "compiled.json.xz"

NEWEST_ALIKE = 90
"""The compute capability, as major * 10 + minor, up to which a kernel's PTX is the same."""


def ptx_for(algorithm: Algorithm, dtype: str, options: Sequence[str], target: Target) -> str | None:
    """Return the PTX of a kernel, compiled with ``options`` for ``target``, None where none has come along."""
    name = digest(algorithm, options)
    text = cached("ladder", (_packed(), name), lambda: read()["kernels"].get(name, "").encode())
    made_for = f".target {target_of(algorithm, dtype).name}\n"
    return text.decode().replace(made_for, f".target {target.name}\n") or None


def target_of(algorithm: Algorithm, dtype: str) -> Target:
    """Return the target that a kernel comes compiled for: the usual one, or else the first that runs it."""
    usual, needed = TARGETS[DEFAULT_TARGET], algorithm.needs(dtype)
    return next(target for target in (usual, *TARGETS.values()) if target.runs(needed))


def made_alike(algorithm: Algorithm, dtype: str, target: Target) -> bool:
    """Say whether NVRTC would make the same text of a kernel for ``target``.

    Up to sm_90a it does for every target, and for those of one family. Newer ones run what it makes for older.
    """
    family = target.capability // 10 == target_of(algorithm, dtype).capability // 10
    return family or target.capability <= NEWEST_ALIKE


def digest(algorithm: Algorithm, options: Sequence[str]) -> str:
    """Return a name for what the PTX of a kernel is made from: its file, those it includes, its options."""
    file = resources.path(algorithm.file)
    source = file.read_text(encoding="utf-8")
    included = {
        Path(path).name: data.decode() for path, data in scan(source, file.parent, ()).files
    }
    parts = [source, *(f"{name}\n{included[name]}" for name in sorted(included)), *options]
    text = "\0".join(parts).replace("\r\n", "\n")
    return hashlib.sha256(text.encode()).hexdigest()


def bare(ptx: str) -> str:
    """Return PTX without the comments of NVRTC, which name its version."""
    return re.sub(r"^//.*\n", "", ptx, flags=re.MULTILINE)


@cache
def read() -> dict[str, Any]:
    """Return the ``kernels``, PTX by digest, and the version of the ``nvrtc`` that made them."""
    import lzma  # here: not every Python was built with it

    kernels: dict[str, Any] = json.loads(lzma.decompress(_packed()))
    return kernels


@cache
def _packed() -> bytes:
    return files("ptxlab.gemm").joinpath(FILE).read_bytes()
