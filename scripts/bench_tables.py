"""Write the tables of docs/ladder.md that are made from what GPUs gave: ``scripts/bench tables``.

The results are those of ``ptxlab bench --record`` in benchmarks/. Of what was measured twice, the last
counts; what was wrong, or never measured, has no row, and where nothing was the page says so.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.gemm.machine import read_runs
from ptxlab.prediction.model import MODELLED

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks"
PAGE = ROOT / "docs" / "ladder.md"
MARKS = ("<!-- gpu, from benchmarks/ -->\n", "<!-- /gpu -->\n")
NOTHING = "Nothing has been measured yet: no result of a GPU is on record.\n"

OTHERS = {"emulator.json", "predicted.json"}
"""Files of ``FOLDER`` that are not of ``ptxlab bench``: what the emulator took, and what was predicted."""

LARGE = 1024**3
"""The m * n * k from which on a product is predicted: less takes little longer than its launch."""

Run = Mapping[str, Any]
Key = tuple[Any, ...]


def main() -> int:
    """Write the tables."""
    try:
        page = with_tables(PAGE.read_text(encoding="utf-8"), runs(FOLDER))
    except PtxlabError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    PAGE.write_text(page, encoding="utf-8")
    return 0


def runs(folder: Path) -> list[Run]:
    """Return all runs that are on record, by date."""
    runs = [
        run
        for path in sorted(folder.glob("*.json"))
        if path.name not in OTHERS
        for run in read_runs(path)
    ]
    return sorted(runs, key=lambda run: str(run["machine"]["date"]))


def with_tables(page: str, several: Iterable[Run]) -> str:
    """Return ``page`` with the tables between its marks. Raises PtxlabError where it has none."""
    tables = "\n".join(table(gpu, of_it) for gpu, of_it in by_gpu(several).items())
    before, began, rest = page.partition(MARKS[0])
    _, ended, after = rest.partition(MARKS[1])
    if not (began and ended):
        raise PtxlabError(f"{PAGE.name} has no place for results: {''.join(MARKS)}".strip())
    return f"{before}{began}{tables or NOTHING}{ended}{after}"


def by_gpu(several: Iterable[Run]) -> dict[str, dict[Key, tuple[Run, Run]]]:
    """Return what was right by GPU and by what was measured, each with its machine."""
    rows: dict[str, dict[Key, tuple[Run, Run]]] = {}
    for run in several:
        machine = run["machine"]
        for result in run["results"]:
            names = ("dtype", "acc", "layout", "epilogue", "m", "n", "k", "algorithm")
            key = tuple(result[name] for name in names)
            of_gpu = rows.setdefault(machine["gpu"], {})
            of_gpu.pop(key, None)
            if result["passed"]:
                of_gpu[key] = machine, result
    return {gpu: results for gpu, results in rows.items() if results}


def table(gpu: str, results: Mapping[Key, tuple[Run, Run]]) -> str:
    """Return the table of one GPU, by types and size, in the order they were measured in."""
    machines = [machine for machine, _ in results.values()]
    latest = machines[-1]
    about = f"{gpu}, driver {latest['driver'] or 'unknown'}, CUDA {latest['cuda']}, "
    about += f"cuBLAS {latest['cublas'] or 'absent'}, {latest['date']}"
    lines = [
        f"| {about} | TFLOP/s in a burst | sustained | of cuBLAS | of the limit | predicted |",
        "|---|---|---|---|---|---|",
        *rows(result for _, result in results.values()),
    ]
    return "".join(f"{line}\n" for line in lines)


def rows(results: Iterable[Run]) -> Iterator[str]:
    """Yield a line for every result, those of the same problem together."""
    together: dict[Key, list[Run]] = {}
    for result in results:
        together.setdefault((result["dtype"], result["acc"], *sizes(result)), []).append(result)
    for same in together.values():
        for result in same:
            m, n, k = sizes(result)
            words = [result["algorithm"], f"{result['dtype']} -> {result['acc']},"]
            words.append(f"{m}^3" if m == n == k else f"{m} x {n} x {k}")
            words += [result["layout"]] * (result["layout"] != "nn")
            words += [result["epilogue"]] * (result["epilogue"] != "none")
            limit = result["limit_tflops"]
            yield (
                f"| {' '.join(words)} | {result['burst']['tflops']:.4g} | {result['tflops']:.4g} "
                f"| {percent(result['ratio'])} | {percent(limit and result['tflops'] / limit)} "
                f"| {prediction(result)} |"
            )


def prediction(result: Run) -> str:
    """Write the predicted speed, and by how much the sustained one is above it."""
    predicted, error = result.get("predicted"), result.get("prediction_error")
    return f"{predicted['tflops']:.4g} ({error:+.1%})" if predicted and error is not None else ""


def prediction_errors(several: Iterable[Run]) -> list[float]:
    """Return how far measured speeds are above predicted ones, of products that take longer than a launch."""
    return [
        result["prediction_error"]
        for run in several
        for result in run["results"]
        if result["passed"]
        and result.get("prediction_error") is not None
        and math.prod(sizes(result)) >= LARGE
    ]


def as_promised(errors: Sequence[float]) -> bool:
    """Say whether predictions were, on average, no further off than each of them says of itself."""
    return not errors or statistics.mean(map(abs, errors)) <= MODELLED


def percent(part: float | None) -> str:
    """Write a part of something, or nothing where it is not known."""
    return "" if part is None else f"{100 * part:.1f} %"


def sizes(result: Run) -> tuple[int, int, int]:
    """Return m, n and k."""
    return result["m"], result["n"], result["k"]


if __name__ == "__main__":
    sys.exit(main())
