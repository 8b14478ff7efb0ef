"""Probe kernels of ``mma`` and ``mma.sp``: registers in, registers out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.probe_kernel import body
from ptxlab.fragments.probes.kernel import ProbeKernel, record
from ptxlab.fragments.probes.one_hot import (
    Probes,
    filled_probe,
    layout_probes,
    metadata_probes,
    products,
    scale_probes,
    selectors,
)
from ptxlab.fragments.report import Mismatch, differences
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import Place
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.sparse import Metadata
from ptxlab.numbers.types import TYPES

Maker = Callable[[MatrixInstruction], tuple[Probes, ...]]

METADATA_BITS = 4
SCALE_BITS = 8


@dataclass(frozen=True, slots=True, eq=False)
class MultiplyProbeKernel(ProbeKernel):
    """``probes``, one after the other, each with every one of the ``choices`` of the constants."""

    form: MatrixInstruction
    probes: tuple[Probes, ...]
    choices: tuple[tuple[int, ...], ...]

    def result(self, words: Array) -> Array:
        """Return D, bit patterns, as the first probe leaves it with the first of the choices."""
        d = self.form.operand("D")
        return d.unpack(words[0, :, : d.registers_per_lane])

    def explain(
        self, probe: int, lane: int, word: int, expected: int, actual: int
    ) -> Iterator[Mismatch]:
        """Yield what is wrong with the elements of D in one word, by what should have been there."""
        d = self.form.operand("D")
        choice, register = divmod(word, d.registers_per_lane)
        for element, right, wrong in differences(d, expected, actual):
            row, col = map(int, d.element(lane, register, element))
            at = (int(d.matrix(lane)), row, col)
            yield blame(self.form, self.probes, probe, self.choices[choice], at, right, wrong)


def multiply_probe_kernels(form: MatrixInstruction, fill: Fill | None) -> Iterator[ProbeKernel]:
    """Yield the probe kernels of ``form``: of the layouts, of metadata, of scales, as it has them.

    With a ``fill`` it is one launch on what that means.
    """
    every = selectors(form)
    if fill:
        yield _probe_kernel(form, partial(_filled, fill), every[:1])
        return
    yield _probe_kernel(form, layout_probes, every[:1])
    if form.metadata is not None:
        yield _probe_kernel(form, metadata_probes, every[: len(form.metadata.selectors)])
    if form.scales:
        yield _probe_kernel(form, scale_probes, every)


def _filled(fill: Fill, form: MatrixInstruction) -> tuple[Probes, ...]:
    return (filled_probe(form, fill),)


def _probe_kernel(
    form: MatrixInstruction, make: Maker, choices: tuple[tuple[int, ...], ...]
) -> ProbeKernel:
    alike = replace(
        form, name="", minimum_targets=(), minimum_ptx=(0, 0), rounding="rn", satfinite=False
    )
    probes, given, expected = _records(alike, make, choices)
    return MultiplyProbeKernel(form, body(form, choices), given, expected, probes, choices)


@lru_cache(maxsize=4)
def _records(
    form: MatrixInstruction, make: Maker, choices: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Probes, ...], Array, Array]:
    """Return the probes and both records, which instructions share that differ in their name alone."""
    probes = make(form)
    given = [record(np.concatenate(list(_sources(form, some)), axis=-1)) for some in probes]
    expected = [
        np.concatenate([results(form, some, chosen) for chosen in choices], axis=-1)
        for some in probes
    ]
    return probes, np.concatenate(given), np.concatenate(expected)


def _sources(form: MatrixInstruction, probes: Probes) -> Iterator[Array]:
    """Yield the registers of A, B, C, metadata and scales, [probes, 32, registers]."""
    for name in "ABC":
        yield fragments(form, probes, name)
    if form.metadata is not None:
        yield metadata_words(form.metadata, probes)
    for scale in form.scales:
        yield probes.of(f"scale-{scale.operand}")[..., np.newaxis].astype(np.uint64)


def metadata_words(metadata: Metadata, probes: Probes) -> Array:
    """Return the metadata registers, [probes, threads, 1], with what every selector finds there."""
    words = np.zeros((len(probes.given["E"]), metadata.threads), np.uint32)
    for selector in metadata.selectors:
        words |= metadata.encode(probes.given["E"][:, selector], selector)
    return _chosen(probes, "E", words)[..., np.newaxis]


def fragments(form: MatrixInstruction, probes: Probes, name: str) -> Array:
    """Return the registers of A, B or C, [probes, threads, registers]."""
    layout = form.operand("D" if form.shared and name == "C" else name)
    return _chosen(
        probes, name, layout.pack(probes.numbers(name, layout).patterns[probes.given[name]])
    )


def _chosen(probes: Probes, operand: str, contents: Array) -> Array:
    """Return, for every probe, what it takes of ``contents``, one for each that is given."""
    return replace(probes, given={operand: contents}).of(operand).astype(np.uint64)


def results(form: MatrixInstruction, probes: Probes, constants: Sequence[int]) -> Array:
    """Return the registers of D, [probes, threads, registers], by NumPy."""
    return form.operand("D").pack(patterns(form, probes, constants)).astype(np.uint64)


def patterns(form: MatrixInstruction, probes: Probes, constants: Sequence[int]) -> Array:
    kind = TYPES[form.d_type].dtype
    with np.errstate(over="ignore"):  # of numbered f16, whose D is looked at and not compared
        return products(form, probes, constants).astype(kind).view(f"u{kind.itemsize}")


def blame(
    form: MatrixInstruction,
    parts: Sequence[Probes],
    probe: int,
    constants: Sequence[int],
    at: tuple[int, int, int],
    expected: int,
    actual: int,
) -> Mismatch:
    """Return the mismatch of D[matrix, row, col], ``at``, as one of what the probe looks at."""
    for probes in parts:
        if probe < probes.count:
            break
        probe -= probes.count
    operand, place, row, col, bits = _looked_at(form, probes, probe, constants, at)
    lane, register, element = place or (None, None, None)
    return Mismatch(
        "one-hot", "product", operand, lane, register, element, row, col, expected, actual, bits
    )


def _looked_at(
    form: MatrixInstruction,
    probes: Probes,
    probe: int,
    constants: Sequence[int],
    at: tuple[int, int, int],
) -> tuple[str, Place | None, int, int, int]:
    """Return operand, place, row, column and width of what decides D ``at`` in a probe.

    It has no place where it lies in shared memory.
    """
    matrix, row, col = at
    along = int(probes.at[probe])
    if probes.probed in ("A", "B", "C"):
        layout = form.held(probes.probed)
        depth = {"A": layout.cols, "B": layout.rows, "C": 1}[probes.probed]
        # Where another matrix of the warp meets ones, this one has zeros: then any element will do.
        line = along % depth if along // depth == matrix else 0
        element = {"A": (row, line), "B": (line, col), "C": (row, col)}[probes.probed]
        if isinstance(layout, SharedOperand):
            return probes.probed, None, *element, layout.bits
        places = [p for p in layout.registers(*element) if layout.matrix(p.lane) == matrix]
        return probes.probed, places[0], *element, layout.bits
    if probes.probed == "E":
        assert form.metadata is not None
        kept, _ = form.metadata.granularity
        chunk = along // kept
        lane, low = form.metadata.place(row, chunk, constants[0])
        return "E", Place(lane, 0, low // METADATA_BITS), row, chunk, METADATA_BITS
    number = 0 if probes.probed == "scale-A" else 1
    ids = list(constants)[2 * number - 2 * len(form.scales) :][:2]
    line = row if number == 0 else col
    lane, byte = form.scales[number].place(line, along, *ids)
    return probes.probed, Place(lane, 0, byte), line, along, SCALE_BITS
