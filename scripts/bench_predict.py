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
from collections.abc import Iterator
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
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.float16, "u8": np.uint8}
"""What is as large: the values do not matter."""


def sizes(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row once for each of its sizes ``n``, with its ``rate`` in GFLOP/s and its grid."""
    measured = row["rates"] if "rates" in row else row["cycles"]
    for size, told in measured.items():
        n = int(size)
        rate = told if "rates" in row else 2 * n**3 / (told / (row["clock"] * 1e6)) / 1e9
        grid = [blocks(one, n) if isinstance(one, str) else one for one in row["grid"]]
        yield row | {"n": n, "rate": rate, "grid": grid}


def blocks(told: str, n: int) -> int:
    """Return how many blocks ``n/128`` or ``n*n/16384`` are."""
    whole, _, part = told.partition("/")
    return (n * n if whole == "n*n" else n) // int(part)


def predicted(row: dict[str, Any], sources: Path) -> Prediction:
    """Compile a kernel for its GPU and predict it, at the size of the row."""
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
    rate = 2 * row["n"] ** 3 / found.seconds / 1e9
    error = row["rate"] / rate - 1
    clock = f"{row['clock']} MHz{', locked' if row.get('locked') else ''}"
    return (
        row["name"], row["repository"], found.gpu, str(row["n"]), clock,
        f"{row['rate'] / 1e3:.3g} TFLOP/s", f"{rate / 1e3:.3g} TFLOP/s", f"{error:+.1%}",
        f"{found.bound_by} {found.used[found.bound_by]:.0%}",
    ), error  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--only", default="", help="rows whose name or repository has this in it")
    args = parser.parse_args()
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    rows, absent = [], []
    errors: dict[str, list[float]] = {"all": [], "locked": [], "held_out": []}
    for row in (one for told in published["kernel"] for one in sizes(told)):
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
        for kind, those in errors.items():
            if kind == "all" or row.get(kind):
                those.append(abs(error))
    for row in published["left_out"]:
        absent.append(f"- {row['name']} of {row['repository']} ({row['rows']} rows): {row['why']}")
    if rows and not args.only:
        PAGE.write_text(
            page(PAGE.read_text(encoding="utf-8"), rows, errors, absent), encoding="utf-8"
        )


def page(
    text: str, rows: list[tuple[str, ...]], errors: dict[str, list[float]], absent: list[str]
) -> str:
    """Return the page with its table remade; ``errors`` are of all, of locked cards, of what was held out."""
    table = [" | ".join(("", *cells, "")).strip() for cells in (HEAD, ["---"] * len(HEAD), *rows)]
    summary = (
        f"{len(rows)} times: the predicted one is {spread(errors['all'])}. Of the {len(errors['locked'])} whose "
        f"clock was locked it is {spread(errors['locked'])}; of the {len(errors['held_out'])} that were looked at "
        f"only when the model stood, {spread(errors['held_out'])}."
    )
    missing = ["", "Left out:", "", *absent] if absent else []
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return before + "\n".join([BEGIN, "", summary, "", *table, *missing, "", END]) + after


def spread(errors: list[float]) -> str:
    return (
        f"{statistics.mean(errors):.1%} off on average, {statistics.median(errors):.1%} in the middle, "
        f"{max(errors):.0%} at most"
    )


if __name__ == "__main__":
    main()
