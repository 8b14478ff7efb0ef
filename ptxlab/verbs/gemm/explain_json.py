"""The ladder's story as JSON (schema ``ptxlab.gemm-explain/2``)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ptxlab.gemm.algorithms import ALGORITHMS
from ptxlab.gemm.explain import Explanation, Step
from ptxlab.gemm.explain_measures import Change
from ptxlab.isa.gpus import Gpu
from ptxlab.verbs.gemm.explain_text import launched, levels_of

SCHEMA = "ptxlab.gemm-explain/2"


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return everything as JSON data.

    ``counts`` are the counters of the whole launch, ``copies`` the part of asynchronous copies in them.
    Of ``bounds``, ``limits`` are FLOP a clock and SM, and ``intensity`` is FLOP a byte. ``share`` is
    null where no loop of the machine code computes, and ``after`` for a rung that none comes before;
    ``factor`` is inf where nothing is left of what changed.
    """
    facts = explanation.steps[0].facts
    return {
        "schema": SCHEMA,
        "device": "emulator",
        "arch": facts.target,
        "m": facts.problem.m,
        "n": facts.problem.n,
        "k": facts.problem.k,
        "layout": facts.problem.layout,
        "epilogue": facts.problem.epilogue,
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
        "algorithm": facts.algorithm,
        "idea": ALGORITHMS[facts.algorithm].idea,
        "after": step.after or None,
        "dtype": facts.problem.dtype,
        "acc": facts.problem.acc,
        "tile": facts.tile,
        "passed": facts.verdict.passed,
        "ctas": facts.ctas,
        "threads": facts.threads,
        "instructions_per_thread": facts.counts.threads / launched(step),
        "flops_per_thread": facts.counts.flops / launched(step),
        "barriers": facts.barriers,
        "products": facts.products,
        "counts": asdict(facts.counts),
        "copies": asdict(facts.copies),
        "bytes_per_flop": facts.bytes_per_flop,
        "resources": {**asdict(facts.resources), "dynamic_shared": facts.shared},
        "occupancy": {**asdict(facts.occupancy), "limited_by": list(facts.occupancy.limited_by)},
        "opcode": facts.opcode,
        "share": facts.share,
        "bounds": {
            "peak": under.peak,
            "limits": under.limits,
            "intensity": under.intensity,
            "by": under.by,
            "tflops": under.tflops,
            "from_caches": under.from_caches,
        },
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
    return {
        "measure": change.measure.name,
        "before": change.before,
        "after": change.after,
        "factor": change.factor,
        "text": change.text,
    }
