"""Receipts of arithmetic: what a GPU made of dot products that anyone can draw again.

A receipt holds the GPU's words and not a verdict: reading one draws its inputs anew and compares
the words with the models of today.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.numbers.fused_step import ACCUMULATORS, OPERANDS
from ptxlab.numerics.models import measure, models
from ptxlab.numerics.products import DotProducts, draw

SCHEMA = "ptxlab.receipt.arithmetic/1"
TYPES = (("bf16", "f32"), ("f16", "f32"), ("f16", "f16"))
COUNT = 1024
K = 32
"""Two instructions of k16: the rounded result of the first is the C of the second."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The ``words`` a GPU gave for the drawn ``case`` of dot products of ``dtype`` into ``acc``."""

    gpu: str
    arch: str
    dtype: str
    acc: str
    case: str
    words: Array

    @property
    def differing(self) -> int:
        """How many words are not what the model of the GPU's target predicts."""
        (model,) = models(self.dtype, self.acc, [self.arch])
        return int((self.words != model.compute(products(self.dtype, self.acc, self.case))).sum())


def products(dtype: str, acc: str, case: str) -> DotProducts:
    """Draw the dot products of a case: "normal", "wide" (exponents apart) or "bits" (any words)."""
    if case == "normal":
        return draw(dtype, acc, k=K, count=COUNT, seed=1)
    if case == "wide":
        return draw(dtype, acc, k=K, count=COUNT, seed=2, spread=12)
    if case != "bits":
        raise PtxlabError(f"no case '{case}' of dot products", hint="normal, wide and bits exist")
    generator = np.random.default_rng(3)

    def words(word: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        return generator.integers(0, 1 << 8 * word.itemsize, shape, np.uint64).astype(word)

    operand, accumulator = OPERANDS[dtype].word, ACCUMULATORS[acc].word
    a, b = words(operand, (K, COUNT)), words(operand, (K, COUNT))
    return DotProducts(dtype, acc, a, b, words(accumulator, (COUNT,)))


def take(device: Device) -> Iterator[Receipt]:
    for dtype, acc in TYPES:
        for case in ("normal", "wide", "bits"):
            measured = measure(device, products(dtype, acc, case))
            yield Receipt(measured.name, measured.arch, dtype, acc, case, measured.words)


def write(receipts: list[Receipt], versions: Mapping[str, str], folder: Path) -> Path:
    first = receipts[0]
    data = {
        "schema": SCHEMA,
        "gpu": first.gpu,
        "arch": first.arch,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": dict(versions),
        "results": [
            {"dtype": r.dtype, "acc": r.acc, "case": r.case, "words": _text(r.words)}
            for r in receipts
        ],
    }
    path = folder / f"arithmetic_{'_'.join(first.gpu.lower().split())}.json"
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> tuple[Receipt, ...]:
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("schema") != SCHEMA:
        raise PtxlabError(f"{path} is no receipt of arithmetic: schema {data.get('schema')!r}")
    return tuple(
        Receipt(
            data["gpu"],
            data["arch"],
            result["dtype"],
            result["acc"],
            result["case"],
            _words(result["words"], ACCUMULATORS[result["acc"]].word),
        )
        for result in data["results"]
    )


def _text(words: Array) -> list[str]:
    """Write 16 words a line, in hexadecimal."""
    digits = 2 * words.dtype.itemsize
    return [
        " ".join(f"{int(word):0{digits}x}" for word in words[start : start + 16])
        for start in range(0, len(words), 16)
    ]


def _words(lines: list[str], word: np.dtype[Any]) -> Array:
    return np.array([int(text, 16) for line in lines for text in line.split()]).astype(word)
