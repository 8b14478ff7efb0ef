"""Receipts: register dumps of real GPUs, kept in the repository to prove the layouts.

A receipt holds the dumps themselves and not a verdict: reading one compares it again with the
layouts of today, so a receipt cannot vouch for a table that has changed since.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.errors import PtxlabError
from ptxlab.fragments.compare import mismatches
from ptxlab.fragments.fill import ADDRESSING, NUMBERED, Array, inputs
from ptxlab.fragments.report import FragmentReport, Run
from ptxlab.isa import TARGETS, MatrixInstruction, Target, find

SCHEMA = "ptxlab.receipt.fragments/1"
FOLDER = Path(__file__).resolve().parents[2] / "tests" / "receipts"
COMPILERS = ("nvidia-nvjitlink", "nvidia-cuda-nvrtc", "cuda-python")


@dataclass(frozen=True, slots=True, eq=False)
class Receipt:
    """One instruction's dumps from one GPU; ``versions`` names driver and compilers."""

    instruction: MatrixInstruction
    gpu: str
    target: Target
    date: str
    versions: dict[str, str]
    runs: tuple[Run, ...]

    @property
    def proves(self) -> bool:
        """Whether the dumps settle the layouts and agree with them in every register."""
        fills = {run.inputs.fill for run in self.runs}
        return {NUMBERED, ADDRESSING} <= fills and not any(
            mismatch.where == "register" for mismatch in mismatches(self.instruction, self.runs)
        )


def hardware(instruction: MatrixInstruction, folder: Path = FOLDER) -> str | None:
    """Return the GPU whose receipt in ``folder`` proves the layouts of ``instruction``, or None.

    An installed ptxlab has no such folder; then nothing is known and the answer is None.
    """
    return next(
        (receipt.gpu for receipt in read_all(folder) if _proves(receipt, instruction)), None
    )


def read_all(folder: Path) -> tuple[Receipt, ...]:
    """Return the fragment receipts in ``folder``, in order of file names."""
    found = (json.loads(path.read_text()) for path in sorted(folder.glob("fragments_*.json")))
    return tuple(from_json(data) for data in found)


def write(report: FragmentReport, versions: Mapping[str, str], folder: Path = FOLDER) -> Path:
    """Write the dumps of ``report``, from a GPU, into ``folder`` and return the file.

    ``versions`` should name the driver; the compilers' versions are added. Raises PtxlabError for a
    report of the emulator, which cannot prove the layouts it is built from.
    """
    if report.device_kind != "cuda":
        raise PtxlabError(f"a receipt needs a GPU, this report is from the {report.device_kind}")
    gpu = "_".join(report.device_name.lower().split())
    short = report.instruction.name.removeprefix("mma.sync.aligned.").replace(".", "_")
    path = folder / f"fragments_{short}_{gpu}.json"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    data = to_json(
        Receipt(
            report.instruction,
            report.device_name,
            report.target,
            date,
            {**versions, **_compilers()},
            report.runs,
        )
    )
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path


def to_json(receipt: Receipt) -> dict[str, Any]:
    """Return the receipt as JSON data."""
    return {
        "schema": SCHEMA,
        "instruction": receipt.instruction.name,
        "gpu": receipt.gpu,
        "arch": receipt.target.name,
        "date": receipt.date,
        "versions": receipt.versions,
        "runs": [
            {
                "fill": run.inputs.fill,
                "registers": {name: _text(words) for name, words in run.registers.items()},
                "result": _text(run.result),
            }
            for run in receipt.runs
        ],
    }


def from_json(data: Mapping[str, Any]) -> Receipt:
    """Return the receipt that ``to_json`` wrote."""
    if data.get("schema") != SCHEMA:
        raise PtxlabError(f"not a fragment receipt: schema {data.get('schema')!r}")
    instruction = find(data["instruction"])
    runs = tuple(
        Run(
            inputs(instruction, run["fill"]),
            {name: _array(rows) for name, rows in run["registers"].items()},
            _array(run["result"]),
        )
        for run in data["runs"]
    )
    target = TARGETS[data["arch"]]
    return Receipt(instruction, data["gpu"], target, data["date"], dict(data["versions"]), runs)


def _proves(receipt: Receipt, instruction: MatrixInstruction) -> bool:
    return receipt.instruction == instruction and receipt.proves


def _text(words: Array) -> list[str]:
    """Write one row a line, in hexadecimal."""
    width = 2 * words.dtype.itemsize
    return [" ".join(f"{int(word):0{width}x}" for word in row) for row in words]


def _array(rows: list[str]) -> Array:
    parsed = [[int(word, 16) for word in row.split()] for row in rows]
    digits = len(rows[0].split()[0])
    return np.array(parsed, dtype=f"u{digits // 2}")


def _compilers() -> dict[str, str]:
    found = {}
    for name in COMPILERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
