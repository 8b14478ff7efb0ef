"""Predict kernels that others published, and write docs/predict.md's table beside what they measured.

python scripts/bench_predict.py --sources FOLDER [--only TEXT]

FOLDER has clones of the repositories that benchmarks/published.toml names, each under its own name; none
of their code is part of ptxlab. What is not there is left out, by name.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab import PtxlabError
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "benchmarks" / "published.toml"
PAGE = ROOT / "docs" / "predict.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEAD = ("kernel", "of", "GPU", "size", "clock", "published", "predicted", "time", "bound")
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.float16}
"""What is as large: the values do not matter."""


def predicted(row: dict[str, Any], sources: Path) -> Prediction:
    """Compile a kernel for its GPU and predict it."""
    folder = row["repository"].split("/")[1]
    repository = sources / (f"{folder}@{row['commit']}" if "commit" in row else folder)
    n, name = row["n"], row["kernel"]
    types = {
        "A": row.get("dtype", "f32"),
        "B": row.get("dtype", "f32"),
        "C": row.get("result", "f32"),
    }
    args: list[Any] = []
    for word in row["args"].split():
        if word in types:
            args.append(np.zeros((n, n), TYPES[types[word]]))
        elif word.endswith("h"):
            args.append(np.float16(word[:-1]).tobytes())
        else:
            args.append(n if word == "n" else float(word))
    with tempfile.TemporaryDirectory() as folder:
        file, include = _copied(row, repository, Path(folder))
        wrapper = Path(folder) / "wrapper.cu"
        wrapper.write_text(f'{row.get("before", "")}\n#include "{file}"\n')
        options = [f"--instance={name}"] if "<" in name else []
        options += [f"-I{include}"] if include else []
        return predict(
            wrapper, row["gpu"], row["grid"], row["block"], args,
            kernel=name, shared=row.get("shared", 0), options=options, clock=row["clock"],
        )  # fmt: skip


def _copied(row: dict[str, Any], repository: Path, folder: Path) -> tuple[Path, Path | None]:
    """Return a kernel's file and its headers' folder, copies without the lines that match ``omit``."""
    file = repository / row["file"]
    include = repository / row["include"] if "include" in row else None
    if "omit" not in row:
        return file, include
    for source in (file, *(include or folder).iterdir()):
        if source.is_file():
            lines = source.read_text(encoding="utf-8").splitlines()
            left = (one for one in lines if not re.match(row["omit"], one))
            (folder / source.name).write_text("\n".join(left), encoding="utf-8")
    return folder / file.name, folder


def line(row: dict[str, Any], found: Prediction) -> tuple[tuple[str, ...], float]:
    """Return a row of the table, and how far off the predicted time is."""
    flop, measured = 2 * row["n"] ** 3, row.get("rate")
    if measured is None:
        measured = flop / (row["cycles"] / (row["clock"] * 1e6)) / 1e9
    rate = flop / found.seconds / 1e9
    error = measured / rate - 1
    clock = f"{row['clock']} MHz{', locked' if row.get('locked') else ''}"
    return (
        row["name"], row["repository"], found.gpu, str(row["n"]), clock,
        f"{measured / 1e3:.3g} TFLOP/s", f"{rate / 1e3:.3g} TFLOP/s", f"{error:+.1%}",
        f"{found.bound_by} {found.used[found.bound_by]:.0%}",
    ), error  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--only", default="", help="rows whose name or repository has this in it")
    args = parser.parse_args()
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    rows, errors, locked, absent = [], [], [], []
    for row in published["kernel"]:
        if args.only not in f"{row['repository']} {row['name']}":
            continue
        try:
            cells, error = line(row, predicted(row, args.sources.resolve()))
        except PtxlabError as problem:
            absent.append(f"- {row['name']} of {row['repository']}: {str(problem).splitlines()[0]}")
            print(absent[-1], flush=True)
            continue
        print("  ".join(cells), flush=True)
        rows.append(cells)
        errors.append(abs(error))
        if row.get("locked"):
            locked.append(abs(error))
    for row in published["left_out"]:
        absent.append(f"- {row['name']} of {row['repository']} ({row['rows']} rows): {row['why']}")
    if errors and not args.only:
        PAGE.write_text(
            page(PAGE.read_text(encoding="utf-8"), rows, errors, locked, absent), encoding="utf-8"
        )


def page(
    text: str,
    rows: list[tuple[str, ...]],
    errors: list[float],
    locked: list[float],
    absent: list[str],
) -> str:
    """Return the page with its table remade; some of the errors are of ``locked`` cards."""
    table = [" | ".join(("", *cells, "")).strip() for cells in (HEAD, ["---"] * len(HEAD), *rows)]
    summary = (
        f"{len(rows)} kernels: the predicted time is {statistics.mean(errors):.1%} off on average, "
        f"{statistics.median(errors):.1%} in the middle, {max(errors):.0%} at most. Of the {len(locked)} whose "
        f"clock was locked it is {statistics.mean(locked):.1%} off on average, {max(locked):.0%} at most."
    )
    missing = ["", "Left out:", "", *absent] if absent else []
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return before + "\n".join([BEGIN, "", summary, "", *table, *missing, "", END]) + after


if __name__ == "__main__":
    main()
