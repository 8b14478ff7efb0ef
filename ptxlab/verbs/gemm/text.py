"""GEMM results as text and as JSON: of one algorithm, of the whole ladder, and the ladder itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ptxlab.gemm.algorithms import Algorithm, Rung, Types
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.run import GemmResult
from ptxlab.gemm.survey import LadderSurvey
from ptxlab.gemm.tile import Tile
from ptxlab.view.fidelity import unverified
from ptxlab.view.gemm_parts import problem_as_json, sizes, verdict_as_json
from ptxlab.view.json import members
from ptxlab.view.text import aligned, fields
from ptxlab.view.width import fitted

SCHEMA = "ptxlab.gemm/2"
SCHEMA_ALL = "ptxlab.gemm.all/2"
SCHEMA_LIST = "ptxlab.gemm.list/1"


def text(result: GemmResult) -> str:
    """Return what was run, whether it is right and how far off, the time, and any counters."""
    problem, counters = result.problem, result.launched.counters
    pairs = [("problem", f"{sizes(problem)}, {problem.dtype} in, {problem.acc} out")]
    if unusual := _unusual(problem):
        pairs.append(("with", unusual))
    pairs += [
        ("device", f"{result.device}, {result.arch}"),
        ("result", f"{'right' if result.passed else 'WRONG'}: {_error(result)}"),
        ("time", _time(result)),
    ]
    lines = [result.rung.name, *fields(pairs), *unverified(result.launched.unverified)]
    if counters:
        counted = [(name, f"{count:,}") for name, count in counters.items()]
        lines += ["", "counters", *(f"  {line}" for line in aligned(counted))]
    return "\n".join(lines) + "\n"


def text_of_all(survey: LadderSurvey, width: int | None = None) -> str:
    """Return one line for each result, and one for each pair of types on whether all agree."""
    title = f"{sizes(survey.problem)} on {survey.device}, {survey.arch}"
    if unusual := _unusual(survey.problem):
        title += f"; {unusual}"
    rows = [("algorithm", "types", "result", "max error", "tolerance", "time", "")]
    rows += [
        (
            result.rung.name,
            result.problem.types,
            "right" if result.passed else "WRONG",
            f"{result.verdict.error:.2e}",
            f"{result.verdict.tolerance:.2e}",
            f"{result.launched.seconds:.3g} s",
            _speed(result),
        )
        for result in survey.results
    ]
    lines = [title, "", *fitted(rows, width, ("", "types", "tolerance"))]
    for name, reason in dict.fromkeys(
        (absent.algorithm, absent.reason) for absent in survey.absent
    ):
        lines.append(f"{name} is left out: {reason}")
    lines.append("")
    lines += [
        f"{agreement.dtype} -> {agreement.acc}: {len(agreement.algorithms)} algorithms "
        f"{'agree' if agreement.passed else 'DISAGREE'}, differing by at most "
        f"{agreement.spread:.2e}, {'within' if agreement.passed else 'beyond'} "
        f"{agreement.tolerance:.2e}"
        for agreement in survey.agreements
    ]
    lines.append("errors are in units of (|A| |B|), or of what the epilogue makes of it")
    return "\n".join(lines) + "\n"


def text_of_list(rungs: Sequence[Rung], width: int | None) -> str:
    """Return one line for each rung: its idea, its types, how it is cut and launched."""
    rows = [("algorithm", "idea", "types", "tile", "launch", "published")]
    for rung in rungs:
        tile = rung.tile if isinstance(rung, Algorithm) else None
        rows.append(
            (
                rung.name,
                rung.idea,
                _types(rung.types),
                _tile(tile) if tile else "",
                _launch(rung) if isinstance(rung, Algorithm) else "",
                str(rung.reference or ""),
            )
        )
    least = ("published", "launch", "tile")
    return "\n".join(fitted(rows, width, least, below=True)) + "\n"


def as_json(result: GemmResult) -> dict[str, Any]:
    """Return the result as JSON data.

    ``worst`` is the element furthest from its reference, null when D has none. ``strays`` counts
    elements written between the rows of D.
    """
    problem, worst = result.problem, result.verdict.worst
    where = worst.index and dict(zip(("row", "col"), worst.index, strict=True))
    return {
        "schema": SCHEMA,
        "algorithm": result.rung.name,
        **members(result, "device", "arch"),
        **problem_as_json(problem),
        **members(problem, "alpha", "beta"),
        **dict(zip(("lda", "ldb", "ldd"), problem.leading, strict=True)),
        "tile": result.tile,
        **verdict_as_json(result.verdict),
        "worst": where and {**where, "expected": worst.expected, "found": worst.actual},
        "strays": result.verdict.strays,
        "seconds": result.launched.seconds,
        "tflops": result.tflops,
        "baselines": [],
        **members(result.launched, "counters", "unverified"),
    }


def all_as_json(survey: LadderSurvey) -> dict[str, Any]:
    """Return a survey as JSON data: ``results`` are objects of ``ptxlab.gemm/2``."""
    return {
        "schema": SCHEMA_ALL,
        **members(survey, "device", "arch", "passed"),
        "results": [as_json(result) for result in survey.results],
        "absent": [asdict(absent) for absent in survey.absent],
        "agreements": [asdict(agreement) for agreement in survey.agreements],
    }


def list_as_json(rungs: Sequence[Rung]) -> dict[str, Any]:
    """Return the ladder as JSON data; ``file`` and what follows are null where it is no kernel."""
    return {"schema": SCHEMA_LIST, "algorithms": [_rung_as_json(rung) for rung in rungs]}


def _rung_as_json(rung: Rung) -> dict[str, Any]:
    kernel = rung if isinstance(rung, Algorithm) else None
    return {
        "algorithm": rung.name,
        "idea": rung.idea,
        "types": [{"dtype": dtype, "acc": acc} for dtype, acc in rung.types],
        **members(rung, "layouts", "epilogues"),
        "reference": rung.reference and str(rung.reference),
        "file": kernel and kernel.file,
        "tile": kernel and kernel.tile.macros,
        "threads": kernel and kernel.tile.threads,
        "shared": kernel and shared(kernel),
    }


# ---- parts of the text --------------------------------------------------------------------------


def _unusual(of: Problem) -> str:
    parts = []
    if of.layout != "nn":
        stored = [name for name, how in zip("AB", of.layout, strict=True) if how == "t"]
        parts.append(f"{' and '.join(stored)} stored transposed")
    if of.epilogue != "none":
        parts.append(f"epilogue {of.epilogue}")
    if of.alpha != 1:
        parts.append(f"alpha {of.alpha:.9g}")
    if of.beta:
        parts.append(f"beta {of.beta:.9g}")
    return ", ".join(parts)


def _types(types: Types) -> str:
    """Write pairs of types, those with the same result together: ``bf16 f16 -> f32``."""
    by_result: dict[str, list[str]] = {}
    for dtype, acc in types:
        by_result.setdefault(acc, []).append(dtype)
    return ", ".join(f"{' '.join(dtypes)} -> {acc}" for acc, dtypes in by_result.items())


def _tile(tile: Tile) -> str:
    return " ".join(f"{name}={size}" for name, size in tile.macros.items() if name != "GROUP")


def _launch(kernel: Algorithm) -> str:
    nbytes = shared(kernel)
    return f"{kernel.tile.threads} threads" + (
        f", {nbytes / 1024:.3g} KiB shared" if nbytes else ""
    )


def shared(kernel: Algorithm) -> int:
    """Return the dynamic shared memory of a CTA, for the first type the kernel takes."""
    dtype, acc = kernel.types[0]
    return kernel.launch(Problem(1, 1, 1, dtype, acc), kernel.tile).shared


def _error(result: GemmResult) -> str:
    problem, verdict, worst = result.problem, result.verdict, result.verdict.worst
    if verdict.strays:
        return f"{verdict.strays} elements between the rows of D were written"
    if worst.index is None:
        return "D has no elements"
    row, col = worst.index
    bound = "within" if result.passed else "beyond"
    unit = "(|A| |B|)"
    if problem.alpha != 1 or problem.beta or "bias" in problem.epilogue:
        unit = "(|alpha A| |B| + |beta D| + |bias|)"
    return (
        f"largest error {verdict.error:.3g} of {unit}, {bound} the bound of "
        f"{verdict.tolerance:.3g}; at D[{row},{col}], which is {worst.actual!r} and should be "
        f"{worst.expected!r}"
    )


def _time(result: GemmResult) -> str:
    seconds, tflops = result.launched.seconds, result.tflops
    if tflops is not None and result.device == "cpu":
        return f"{seconds * 1e3:,.3g} ms, {tflops * 1e3:,.3g} GFLOP/s"
    if tflops is not None:
        return f"{seconds * 1e6:,.1f} us, {tflops:,.2f} TFLOP/s"
    what = "of emulation, which says nothing about a GPU" if result.device == "emulator" else ""
    return f"{seconds:.3g} s {what}".rstrip()


def _speed(result: GemmResult) -> str:
    if result.tflops is None:
        return "of emulation" if result.device == "emulator" else ""
    return f"{result.tflops * 1e3:,.3g} GFLOP/s" + (" (CPU)" if result.device == "cpu" else "")
