"""Results that are kept: a file for each GPU and day, to which every benchmark adds what it found.

benchmarks/nvidia-h200-2026-11-21.json
{"schema": "ptxlab.benchmark.gpu/1", "runs": [an object of ptxlab.bench/2, ...]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxlab.errors import PtxlabError

SCHEMA = "ptxlab.benchmark.gpu/1"


def added(folder: str | Path, run: Mapping[str, Any]) -> tuple[Path, bytes]:
    """Return the file in ``folder`` that a run belongs to, and what it is to hold with it.

    Raises PtxlabError when the file is there and is none of ours, or there is no such folder.
    """
    machine = run["machine"]
    gpu = "-".join(machine["gpu"].lower().split())
    path = Path(folder) / f"{gpu}-{machine['date']}.json"
    if not path.parent.is_dir():
        raise PtxlabError(f"there is no folder {folder}", hint="--record FOLDER names another one")
    runs = [*(read(path) if path.exists() else []), run]
    return path, (json.dumps({"schema": SCHEMA, "runs": runs}, indent=1) + "\n").encode()


def read(path: Path) -> list[dict[str, Any]]:
    """Return the runs in a file, the oldest first."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PtxlabError(f"cannot read {path}: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise PtxlabError(f"{path} holds no results of ptxlab bench")
    runs: list[dict[str, Any]] = data["runs"]
    return runs
