"""A GemmResult as text and as JSON (schema ``ptxlab.gemm/1``)."""

from __future__ import annotations

import math
from typing import Any

from ptxlab.gemm.run import GemmResult
from ptxlab.view.text import aligned, fields

SCHEMA = "ptxlab.gemm/1"


def text(result: GemmResult) -> str:
    """Return what was run, whether it is right and how far off, the time, and any counters."""
    shape = f"{result.m} x {result.n} x {result.k} (m x n x k)"
    pairs = [
        ("problem", f"{shape}, {result.dtype} in, {result.acc} out"),
        ("device", f"{result.device}, {result.arch}"),
        ("result", f"{'right' if result.passed else 'WRONG'}: {_error(result)}"),
        ("time", _time(result)),
    ]
    lines = [result.algorithm, *fields(pairs)]
    if result.counters:
        counters = [(name, f"{count:,}") for name, count in result.counters.items()]
        lines += ["", "counters", *(f"  {line}" for line in aligned(counters))]
    return "\n".join(lines) + "\n"


def as_json(result: GemmResult) -> dict[str, Any]:
    """Return the result as JSON data; a number that is infinite or not a number becomes null.

    ``worst`` is the element furthest from its reference, null when D has none.
    """
    worst = None
    if result.worst is not None:
        row, col = result.worst
        found = {"expected": _finite(result.expected), "found": _finite(result.found)}
        worst = {"row": row, "col": col, **found}
    return {
        "schema": SCHEMA,
        "algorithm": result.algorithm,
        "device": result.device,
        "arch": result.arch,
        "m": result.m,
        "n": result.n,
        "k": result.k,
        "dtype": result.dtype,
        "acc": result.acc,
        "passed": result.passed,
        "max_error": _finite(result.max_error),
        "tolerance": _finite(result.tolerance),
        "worst": worst,
        "seconds": result.seconds,
        "tflops": result.tflops,
        "baselines": [],
        "counters": result.counters,
    }


def _error(result: GemmResult) -> str:
    if result.worst is None:
        return "D has no elements"
    row, col = result.worst
    bound = "within" if result.passed else "beyond"
    return (
        f"largest error {result.max_error:.3g} of (|A| |B|), {bound} the bound of "
        f"{result.tolerance:.3g}; at D[{row},{col}], which is {result.found!r} and should be "
        f"{result.expected!r}"
    )


def _time(result: GemmResult) -> str:
    if result.tflops is not None:
        return f"{result.seconds * 1e6:,.1f} us, {result.tflops:,.2f} TFLOP/s"
    what = "of emulation, which says nothing about a GPU" if result.device == "emulator" else ""
    return f"{result.seconds:.3g} s {what}".rstrip()


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
