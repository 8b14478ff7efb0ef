"""Probe kernels of ``tcgen05.mma``: A, B, D, scales and metadata where the tables say, one number of D for each place.

Each form is tried in every m, type, swizzle and direction that it has, a few together. What leaves half of the lanes
free is tried in either half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.probes.kernel import ProbeKernel
from ptxlab.fragments.probes.tensor_kernel import TensorBody, in_words
from ptxlab.fragments.probes.tensor_moves import TensorProbeKernel
from ptxlab.fragments.probes.tensor_places import (
    WIDTH,
    cells_of,
    descriptor_of,
    memory_of,
    put_d,
    shared_bytes,
    shared_operands,
    sources,
)
from ptxlab.fragments.probes.tensor_probes import ProductProbes
from ptxlab.fragments.report import Mismatch
from ptxlab.matrix import instruction_descriptor
from ptxlab.matrix.instruction_descriptor import LONG_K
from ptxlab.matrix.tcgen05 import TensorCoreProduct
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem, problem
from ptxlab.matrix.tensor_memory_operand import LANES, QUARTER, DataPath

_SCALE_BYTES = 4
_SMALL_BLOCK = 16
_ALONG_K = ("mxf4", "mxf4nvf4")
"""Kinds whose A and B are contiguous along k alone."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductProbeKernel(TensorProbeKernel):
    """Probes of ``looked_at``: of each the operand, and which row and column of it each number of D shows.

    D begins at ``first_lane``.
    """

    problem: TensorCoreProblem | None = None
    first_lane: int = 0
    looked_at: tuple[tuple[str, Array, Array], ...] = ()

    def explain(
        self, probe: int, lane: int, word: int, expected: int, actual: int
    ) -> Iterator[Mismatch]:
        """Yield what is wrong with the elements that cells of a lane show."""
        assert self.problem is not None
        path, group = self.problem.path, self.body.group
        elements = _elements(path)
        number, cta = divmod(probe, group)
        operand, rows, cols = self.looked_at[number]
        for half in range(2):
            right, wrong = (both >> 32 * half & 0xFFFFFFFF for both in (expected, actual))
            column = 2 * word + half
            if right == wrong:
                continue
            here = elements.get((lane - self.first_lane, column))
            if here is None:
                yield Mismatch.of_cell("one-hot", "T", (lane, column), (lane, column), right, wrong)
                continue
            row, n = here
            element = rows[row + cta * path.rows, n], cols[row + cta * path.rows, n]
            at = int(element[0]), int(element[1])
            yield Mismatch.of_cell("one-hot", operand, at, (lane, column), right, wrong)


@cache
def _elements(path: DataPath) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the row and column of D that lie in each cell, by its lane and column."""
    lanes, columns = (places.ravel().tolist() for places in path.d())
    return dict(zip(zip(lanes, columns, strict=True), np.ndindex(path.rows, path.n), strict=True))


def product_probe_kernels(form: TensorCoreProduct, target: str) -> Iterator[ProbeKernel]:
    """Yield the probe kernels of a product on a target, each of one instruction descriptor."""
    problems = chain(_problems(form), _long_problems(form) if target in form.long_k_targets else ())
    for number, made in enumerate(problems):
        for first_lane in (0, QUARTER // 2) if made.path.scattered else (0,):
            yield _probe_kernel(made, number, first_lane)


def _problems(form: TensorCoreProduct) -> Iterator[TensorCoreProblem]:
    """Yield what is tried: each m, type of A, B, D and scales, direction, selector and byte of scales once."""
    record = instruction_descriptor.record(form.kind)
    [shapes] = form.shapes
    choices: dict[str, list[int | str]] = {
        "m": [m for m in shapes.m if not (form.sparse and _scattered(form, m))],
    }
    if form.kind not in _ALONG_K:
        choices["major of a"] = ["k", "mn"] if form.variant == "ss" else ["k"]
        choices["major of b"] = ["k", "mn", "mn", "k"]
    for name in ("a type", "b type", "d type", "scale type"):
        if name in {field.name for field in record.fields}:
            choices[name] = [*(record.field(name).codes or ())]
    if form.sparse and form.kind in ("f16", "tf32"):
        choices["sparsity selector"] = [0, 1]
    if form.scaling:
        blocks, step = (shapes.k >> form.sparse) // form.blocks, 1 if form.kind == "mxf8f6f4" else 2
        ids = [*range(0, _SCALE_BYTES - blocks + 1, step)]
        choices["scale id of a"], choices["scale id of b"] = [*ids], ids[::-1]
    for turn in range(max(map(len, choices.values()))):
        values = {name: some[turn % len(some)] for name, some in choices.items()}
        yield _problem(form, values | {"n": _n(form)})


def _long_problems(form: TensorCoreProduct) -> Iterator[TensorCoreProblem]:
    """Yield those of the long k: scales from each byte on of a word that they may begin at."""
    step = 2 if form.blocks == _SMALL_BLOCK else 1
    ids = [*range(0, _SCALE_BYTES, step)]
    m = max(form.shapes[0].m)
    for first, other in zip(ids, ids[::-1], strict=True):
        both = {"scale id of a": first, "scale id of b": other}
        yield _problem(form, {"m": m, "n": _n(form), "k": str(LONG_K), **both})


def _n(form: TensorCoreProduct) -> int:
    """Return the least n that is tried."""
    least = 32 if form.kind == "tf32" else 16  # along n tf32 has atoms of 32
    return next(n for n in form.shapes[0].n if n >= least * form.group)


def _scattered(form: TensorCoreProduct, m: int) -> bool:
    return m // form.group < LANES and not form.stationary


def _problem(form: TensorCoreProduct, values: dict[str, int | str]) -> TensorCoreProblem:
    """Return the problem nearest to the values that the kind has; A and B of f16 have one type."""
    if form.kind == "f16":
        values["b type"] = values["a type"]
        if values["a type"] == "bf16":
            values["d type"] = "f32"
    for name in ("a", "b"):
        if str(values.get(f"{name} type")) in ("e2m3", "e3m2", "e2m1"):
            values[f"major of {name}"] = "k"
    if form.sparse:
        values["sparse"] = "yes"
    return problem(form, instruction_descriptor.encode(form.kind, values))


def _probe_kernel(made: TensorCoreProblem, turn: int, first_lane: int) -> ProbeKernel:
    """Return the probe kernel of one problem: probes that do not add, then those that do."""
    probing = ProductProbes(made)
    *several, expected = probing.all()
    where = shared_operands(made, turn)
    body = TensorBody(made.form, WIDTH, shared_bytes(where), made.form.group, issued=True)
    word, group = descriptor_of(made), made.form.group
    records = []
    after: list[Array] = []
    done = 0
    for contents in several:
        cells = cells_of(made, contents, first_lane)
        given = np.array(sources(made, contents, where, word, first_lane), np.uint64)
        memory = memory_of(made, contents, where, body.shared_bytes)
        shape = (contents.probes, group, LANES)
        share = np.ascontiguousarray(memory).reshape(*shape, -1).view(np.uint64)
        columns = [np.broadcast_to(given, (*shape, given.size)), in_words(cells), share]
        words = sum(column.shape[-1] for column in columns)
        records.append(np.concatenate(columns, axis=-1).reshape(-1, LANES, words))
        own = expected[done : done + contents.probes]
        for cta, part in enumerate(np.split(own, group, axis=1)):
            put_d(made, cells[:, cta], part, first_lane)
        after.append(cells.reshape(-1, LANES, WIDTH))
        done += contents.probes
    cells = np.concatenate(after)
    promised = ~np.zeros_like(cells)
    if made.d_type == "f16":  # what is in the upper half of a cell is open
        lanes, at = made.path.d()
        promised[:, first_lane + lanes, at] = 0xFFFF
    looked = tuple(probing.looked_at)
    return ProductProbeKernel(
        made.form,
        body,
        np.concatenate(records),
        in_words(cells),
        in_words(promised),
        None,
        made,
        first_lane,
        looked,
    )
