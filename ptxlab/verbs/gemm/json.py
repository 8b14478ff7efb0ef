"""GEMM results as JSON: of one algorithm, of the whole ladder, the ladder itself, and its story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ptxlab.gemm.algorithms import Algorithm, Rung
from ptxlab.gemm.explain import Explanation, Step
from ptxlab.gemm.measures import Change
from ptxlab.gemm.run import GemmResult
from ptxlab.gemm.survey import Survey
from ptxlab.isa.gpus import Gpu
from ptxlab.verbs.gemm.story import levels_of
from ptxlab.verbs.gemm.text import shared
from ptxlab.view.gemm_parts import problem_as_json, verdict_as_json
from ptxlab.view.json import members

SCHEMA = "ptxlab.gemm/2"
SCHEMA_ALL = "ptxlab.gemm.all/2"
SCHEMA_LIST = "ptxlab.gemm.list/1"
SCHEMA_STORY = "ptxlab.gemm-explain/2"


def as_json(result: GemmResult) -> dict[str, Any]:
    """Return the result as JSON data.

    ``worst`` is the element furthest from its reference, null when D has none. ``strays`` counts
    elements written between the rows of D.
    """
    problem, worst = result.problem, result.verdict.worst
    place = worst.place and dict(zip(("row", "col"), worst.place, strict=True))
    return {
        "schema": SCHEMA,
        "algorithm": result.rung.name,
        "device": result.device,
        "arch": result.arch,
        **problem_as_json(problem),
        "alpha": problem.alpha,
        "beta": problem.beta,
        **dict(zip(("lda", "ldb", "ldd"), problem.leading, strict=True)),
        "tile": result.tile,
        **verdict_as_json(result.verdict),
        "worst": place and {**place, "expected": worst.expected, "found": worst.found},
        "strays": result.verdict.strays,
        "seconds": result.launched.seconds,
        "tflops": result.tflops,
        "baselines": [],
        "counters": result.launched.counters,
    }


def all_as_json(survey: Survey) -> dict[str, Any]:
    """Return a survey as JSON data: ``results`` are objects of ``ptxlab.gemm/2``."""
    return {
        "schema": SCHEMA_ALL,
        **members(survey, "device", "arch", "passed"),
        "results": [as_json(result) for result in survey.results],
        "absent": [asdict(one) for one in survey.absent],
        "agreements": [asdict(one) for one in survey.agreements],
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
        "layouts": list(rung.layouts),
        "epilogues": list(rung.epilogues),
        "reference": rung.reference and str(rung.reference),
        "file": kernel and kernel.file,
        "tile": kernel and kernel.tile.macros,
        "threads": kernel and kernel.tile.threads,
        "shared": kernel and shared(kernel),
    }


def story_as_json(explanation: Explanation) -> dict[str, Any]:
    """Return everything as JSON data.

    ``counts`` are the counters of the whole launch, ``copies`` the part of asynchronous copies in them.
    Of ``bounds``, ``limits`` are FLOP a clock and SM, and ``intensity`` is FLOP a byte. ``share`` is
    null where no loop of the machine code computes, and ``after`` for a rung that none comes before;
    ``factor`` is inf where nothing is left of what changed.
    """
    facts = explanation.steps[0].facts
    return {
        "schema": SCHEMA_STORY,
        "device": "emulator",
        "arch": facts.target,
        **members(facts.problem, "m", "n", "k", "layout", "epilogue"),
        "passed": explanation.passed,
        "gpu": _gpu_json(explanation.gpu),
        "rungs": [_step_json(step) for step in explanation.steps],
    }


def _gpu_json(gpu: Gpu) -> dict[str, Any]:
    return {
        "name": gpu.name,
        "sms": gpu.sms,
        "clock_mhz": gpu.clock,
        "bytes_per_clock_and_sm": dict(levels_of(gpu)),
        "mma_sync": gpu.mma_sync,
    }


def _step_json(step: Step) -> dict[str, Any]:
    facts, under, told = step.facts, step.bounds, step.story
    return {
        "algorithm": facts.algorithm.name,
        "idea": facts.algorithm.idea,
        "after": step.after or None,
        "dtype": facts.problem.dtype,
        "acc": facts.problem.acc,
        "tile": facts.tile,
        "passed": facts.verdict.passed,
        "ctas": facts.ctas,
        "threads": facts.threads,
        "instructions_per_thread": facts.counts.threads / facts.launched,
        "flops_per_thread": facts.counts.flops / facts.launched,
        "barriers": facts.barriers,
        "products": facts.products,
        "counts": asdict(facts.counts),
        "copies": asdict(facts.copies),
        "bytes_per_flop": facts.bytes_per_flop,
        "resources": {**asdict(facts.resources), "dynamic_shared": facts.shared},
        "occupancy": {**asdict(facts.occupancy), "limited_by": list(facts.occupancy.limited_by)},
        "opcode": facts.opcode,
        "share": facts.share,
        "bounds": members(under, "peak", "limits", "intensity", "by", "tflops", "from_caches"),
        "story": {
            "before": told.before or None,
            "better": [_change_json(change) for change in told.better],
            "worse": [_change_json(change) for change in told.worse],
            "limit": told.limit,
            "caches": told.caches or None,
            "text": " ".join(told.sentences),
        },
    }


def _change_json(change: Change) -> dict[str, Any]:
    return {"measure": change.measure.name, **members(change, "before", "after", "factor", "text")}
