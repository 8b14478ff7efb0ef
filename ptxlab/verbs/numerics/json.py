"""A Study or a Survey of dot products as JSON (schema ``ptxlab.numerics/2``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxlab.isa.targets import DotProduct
from ptxlab.numbers.dissect import SumStep
from ptxlab.numbers.exact import ulps
from ptxlab.numbers.formats import Format
from ptxlab.numerics.models import Measured, Model
from ptxlab.numerics.products import DotProducts
from ptxlab.numerics.study import ProductSurvey, Study
from ptxlab.verbs.numerics.text import at_once, bits_of, floor_log2, value_of
from ptxlab.view.json import members

SCHEMA = "ptxlab.numerics/2"


def study_json(study: Study) -> dict[str, Any]:
    """Return the study as JSON data; what is no number is a string, and exact values are too."""
    products, form = study.products, study.products.accumulator
    return {
        **_common(products, [result.model for result in study.results]),
        "a": [bits_of(int(word), products.operand) for word in products.a[:, 0]],
        "b": [bits_of(int(word), products.operand) for word in products.b[:, 0]],
        "c": bits_of(int(products.c[0]), form),
        "exact": str(study.exact),
        "rounded": _word_json(study.rounded, study),
        "chains": {name: _word_json(word, study) for name, word in study.chains.items()},
        "results": [
            {
                "targets": list(result.model.targets),
                **_word_json(result.word, study),
                "steps": [_step_json(step, form) for step in result.steps],
            }
            for result in study.results
        ],
        "measured": _measured_json(study.measured, form),
        "passed": study.passed,
    }


def survey_json(survey: ProductSurvey) -> dict[str, Any]:
    """Return the survey as JSON data: the counts as a matrix over ``names``."""
    return {
        **_common(survey.products, survey.models),
        "count": survey.products.count,
        "names": list(survey.names),
        "differ": survey.differ.tolist(),
        "measured": _measured_json(survey.measured, survey.products.accumulator),
        "passed": survey.passed,
    }


def _common(products: DotProducts, models: Sequence[Model]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **members(products, "dtype", "acc", "k"),
        "models": [_model_json(model, products) for model in models],
    }


def _model_json(model: Model, products: DotProducts) -> dict[str, Any]:
    unpacked = not isinstance(model.rules, DotProduct)
    rules = model.rules if isinstance(model.rules, DotProduct) else model.rules.halves
    return {
        **members(model, "targets", "unmeasured", "instruction"),
        "products": rules.chunk if unpacked else at_once(rules, products),
        "fraction_bits": rules.fraction_bits,
        "unpacked": unpacked,
    }


def _word_json(word: int, study: Study) -> dict[str, Any]:
    form = study.products.accumulator
    return {
        "bits": bits_of(word, form),
        "value": value_of(word, form),
        "ulps": ulps(word, study.rounded, form),
    }


def _step_json(step: SumStep, form: Format) -> dict[str, Any]:
    return {
        **members(step, "operation", "exponent"),
        "last_bit": None if step.last_bit is None else floor_log2(step.last_bit),
        "terms": [
            {
                **members(term, "k", "exponent"),
                "value": str(term.value),
                "kept": str(term.kept),
                "lost": str(term.lost),
            }
            for term in step.terms
        ],
        "total": str(step.total),
        "bits": bits_of(step.word, form),
        "value": float(step.value),
    }


def _measured_json(measured: Measured | None, form: Format) -> dict[str, Any] | None:
    if measured is None:
        return None
    return {
        "device": measured.name,
        "arch": measured.arch,
        "bits": [bits_of(int(word), form) for word in measured.words],
        "wrong": measured.wrong,
    }
