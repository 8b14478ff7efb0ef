"""The best tiles known on this machine's GPUs, in a file of the user's that ``gemm`` reads.

``tiles.json`` lies in the folder of the cache (``$XDG_CACHE_HOME/ptxlab``, or ``~/.cache/ptxlab``):

    {"schema": "ptxlab.tiles/1", "gpus": {"NVIDIA H200": {"warp_tiled f32 -> f32 nn large": {
        "tile": {"BM": 128, ...}, "tflops": 50.1, "source": "..."}}}}

An entry holds for a kernel, its types, its layout, and a class of shapes, as long as the kernel's file
is what it was (``source`` is its digest). A file that cannot be read is as good as none.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ptxlab import cache, resources
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.files import write_whole
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.tile import AS_IT_IS, Sizes, Tile

SCHEMA = "ptxlab.tiles/1"
CLASSES = (("small", 1024**2), ("medium", 4096**2))
"""Classes of shapes by the elements of D: fewer than these; all others are large."""


def path() -> Path:
    """Return where the file is, or would be."""
    return cache.directory() / "tiles.json"


def shape_class(problem: Problem) -> str:
    """Return what tiles for a shape of D depend on: ``small``, ``medium`` or ``large``."""
    elements = problem.m * problem.n
    return next((name for name, limit in CLASSES if elements < limit), "large")


def tile_for(
    device: Device, algorithm: Algorithm, problem: Problem, sizes: Sizes = AS_IT_IS
) -> Tile:
    """Return the tile of these ``sizes``, if any; else the best known on this GPU; else the usual one."""
    if sizes:
        return algorithm.cut(sizes, problem.dtype)
    own = algorithm.tile_for(problem, device.target)
    if device.kind != "cuda":
        return own
    try:
        known = _read()["gpus"][device.name][_key(algorithm, problem)]
        return (
            algorithm.cut(known["tile"], problem.dtype)
            if known["source"] == _digest(algorithm)
            else own
        )
    except (PtxlabError, KeyError, TypeError, AttributeError):  # there is none that is sound
        return own


def keep(
    device: Device, algorithm: Algorithm, problem: Problem, tile: Sizes, tflops: float
) -> None:
    """Note that ``tile`` is the best one on this GPU. Raises PtxlabError if it cannot be written."""
    gpus = _read().get("gpus", {})
    gpus.setdefault(device.name, {})[_key(algorithm, problem)] = {
        "tile": dict(tile),
        "tflops": tflops,
        "source": _digest(algorithm),
    }
    write_whole(path(), json.dumps({"schema": SCHEMA, "gpus": gpus}, indent=1).encode())


def _read() -> dict[str, Any]:
    try:
        tiles = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return tiles if isinstance(tiles, dict) and tiles.get("schema") == SCHEMA else {}


def _key(algorithm: Algorithm, problem: Problem) -> str:
    return f"{algorithm.name} {problem.types} {problem.layout} {shape_class(problem)}"


def _digest(algorithm: Algorithm) -> str:
    return hashlib.sha256(Path(resources.path(algorithm.file)).read_bytes()).hexdigest()[:16]
