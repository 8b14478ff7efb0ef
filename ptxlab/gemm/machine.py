"""The machine a benchmark ran on, all that its numbers depend on, and the file that keeps them.

There is a file for each GPU and day, to which every benchmark adds what it found:

    benchmarks/nvidia-h200-2026-11-21.json
    {"schema": "ptxlab.benchmark.gpu/1", "runs": [an object of ptxlab.bench/2, ...]}
"""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ptxlab
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.cuda_driver import driver_version
from ptxlab.device.sensors import Sensors
from ptxlab.errors import PtxlabError
from ptxlab.gemm.cublas import library_version
from ptxlab.toolchain.wheels import wheel_versions

SCHEMA = "ptxlab.benchmark.gpu/1"

PACKAGES = (
    "cuda-bindings",
    "nvidia-cuda-nvrtc",
    "nvidia-nvjitlink",
    "nvmath-python",
    "nvidia-cublas",
    "numpy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMachine:
    """A GPU with its ``multiprocessors``, their highest ``clock`` in MHz and its ``power_limit`` in W.

    ``driver`` is NVIDIA's version, ``cuda`` the newest CUDA it takes, ``cublas`` the library's own
    version; None what is not known. ``sensors`` says why clock and power are not, "" where they are.
    """

    gpu: str
    arch: str
    capability: int
    multiprocessors: int
    clock: float
    l2_bytes: int
    memory_bytes: int
    power_limit: float | None
    driver: str | None
    cuda: str
    cublas: str | None
    sensors: str
    packages: dict[str, str]
    cpu: str
    python: str
    date: str


def machine_of(device: CudaDevice, sensors: Sensors | str) -> MeasuredMachine:
    properties, version = device.properties, driver_version()
    known = None if isinstance(sensors, str) else sensors
    return MeasuredMachine(
        gpu=device.name,
        arch=device.target.name,
        capability=device.target.capability,
        multiprocessors=properties.multiprocessors,
        clock=properties.clock,
        l2_bytes=properties.l2_bytes,
        memory_bytes=properties.memory_bytes,
        power_limit=None if known is None else known.power_limit,
        driver=None if known is None else known.driver,
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        cublas=library_version(),
        sensors=sensors if isinstance(sensors, str) else "",
        packages={"ptxlab": ptxlab.__version__, **wheel_versions(PACKAGES)},
        cpu=_cpu(),
        python=platform.python_version(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


# ---- results that are kept -----------------------------------------------------------------------


def with_run(folder: str | Path, run: Mapping[str, Any]) -> tuple[Path, bytes]:
    """Return the file in ``folder`` that a run belongs to, and what it is to hold with it.

    Raises PtxlabError when the file is there and is none of ours, or there is no such folder.
    """
    machine = run["machine"]
    gpu = "-".join(machine["gpu"].lower().split())
    path = Path(folder) / f"{gpu}-{machine['date']}.json"
    if not path.parent.is_dir():
        raise PtxlabError(f"there is no folder {folder}", hint="--record FOLDER names another one")
    runs = [*(read_runs(path) if path.exists() else []), run]
    return path, (json.dumps({"schema": SCHEMA, "runs": runs}, indent=1) + "\n").encode()


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Return the runs in a file, the oldest first."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PtxlabError(f"cannot read {path}: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise PtxlabError(f"{path} holds no results of ptxlab bench")
    runs: list[dict[str, Any]] = data["runs"]
    return runs
