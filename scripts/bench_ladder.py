"""Predict the ladder for several GPUs and write docs/predict.md's table of it: ``scripts/bench ladder``.

Beside each predicted speed stands what others published of a kernel like the rung there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ptxlab.cli.progress import StatusLine
from ptxlab.errors import PtxlabError
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.predicted import PredictedRung, predict_ladder
from ptxlab.gemm.published import CUBLAS, published
from ptxlab.gemm.side_by_side import RungJob
from ptxlab.isa.gpus import Gpu
from ptxlab.prediction.chip import find
from ptxlab.workers import executor, usual

PAGE = Path(__file__).resolve().parents[1] / "docs" / "predict.md"
MARKS = ("<!-- ladder: begin -->\n", "<!-- ladder: end -->\n")
SIZE = 4096
GPUS = ("a100", "rtx3090", "rtxa6000", "rtx4090", "h100", "b200", "rtx5090")
TYPES = (("f32", "f32"), ("bf16", "f32"))


def main() -> int:
    """Predict, and write the table."""
    status = StatusLine()
    of_gpus: list[tuple[Gpu, list[PredictedRung]]] = []
    every = ALGORITHMS.values()
    jobs = [RungJob(rung, Problem(SIZE, SIZE, SIZE, *rung.types[0])) for rung in every]
    with executor(usual()) as workers:
        for name in GPUS:
            chip, rungs = find(name), []
            for predicted in predict_ladder(jobs, chip, chip.gpu.clock, workers):
                rungs.append(predicted)
                status(f"{chip.gpu.name}: {predicted.rung.name}")
            of_gpus.append((chip.gpu, rungs))
    status.clear()
    try:
        page = with_table(PAGE.read_text(encoding="utf-8"), table(of_gpus))
    except PtxlabError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    PAGE.write_text(page, encoding="utf-8")
    return 0


def table(of_gpus: Sequence[tuple[Gpu, Sequence[PredictedRung]]]) -> str:
    """Return a row for every rung that some GPU has a time for, a column for every GPU."""
    rows = [
        ["TFLOP/s", *(f"{gpu.name}, {gpu.clock} MHz" for gpu, _ in of_gpus)],
        ["---"] * (1 + len(of_gpus)),
    ]
    for of_rung in zip(*(rungs for _, rungs in of_gpus), strict=True):
        if any(rung.prediction for rung in of_rung):
            name = f"`{of_rung[0].rung.name}` {of_rung[0].problem.types}"
            rows.append([name, *map(_cell, of_rung)])
    for types in TYPES:
        cells = [next(published(CUBLAS, gpu.name, SIZE, types), None) for gpu, _ in of_gpus]
        rates = [f"({figure.rate})" if figure else "" for figure in cells]
        rows.append([f"cuBLAS {' -> '.join(types)}", *rates])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(rung: PredictedRung) -> str:
    others = ", ".join(figure.rate for figure in rung.published)
    predicted = f"{rung.tflops:.3g}" if rung.tflops else "-"
    return f"{predicted} ({others})" if others else predicted


def with_table(page: str, table: str) -> str:
    """Return ``page`` with the table between its marks. Raises PtxlabError where it has none."""
    before, began, rest = page.partition(MARKS[0])
    _, ended, after = rest.partition(MARKS[1])
    if not (began and ended):
        raise PtxlabError(f"{PAGE.name} has no place for the ladder: {''.join(MARKS)}".strip())
    return f"{before}{began}\n{table}\n{ended}{after}"


if __name__ == "__main__":
    sys.exit(main())
