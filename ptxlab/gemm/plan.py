"""What a benchmark consists of: the sizes worth timing by name, and which rungs meet on which problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxlab.errors import PtxlabError, did_you_mean
from ptxlab.gemm.algorithms import ALGORITHMS, Algorithm, Rung
from ptxlab.gemm.ladder import Baseline, find_algorithm
from ptxlab.gemm.problem import Problem

Shape = tuple[int, int, int]
"""m, n and k."""

SHAPES: dict[str, tuple[Shape, ...]] = {
    "powers": tuple((2**e, 2**e, 2**e) for e in range(8, 15)),
    "metal": ((1024, 768, 512), (3000, 5000, 4000), (20000, 20000, 20000)),
    "odd": ((257, 257, 257), (1000, 777, 333), (4095, 4097, 4099)),
}
"""From 256 to 16384; those of the study in Metal; none a multiple of any tile."""


def shapes(text: str) -> tuple[Shape, ...]:
    """Read sizes: ``4096``, ``1024x768x512`` (m x n x k) or a name of ``SHAPES``, by commas.

    Raises PtxlabError for anything else.
    """
    found: list[Shape] = []
    for part in text.split(","):
        sizes = part.split("x")
        if part in SHAPES:
            found += SHAPES[part]
        elif len(sizes) in (1, 3) and all(s.isascii() and s.isdecimal() and int(s) for s in sizes):
            m, n, k = map(int, sizes * 3 if len(sizes) == 1 else sizes)
            found.append((m, n, k))
        else:
            raise PtxlabError(
                f"{part!r} is no size such as 4096 or 1024x768x512",
                hint=did_you_mean(part, SHAPES) or f"names are {', '.join(SHAPES)}",
            )
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Entry:
    """A problem, and the rungs that meet on it."""

    problem: Problem
    rungs: tuple[Algorithm | Baseline, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What of the ladder is wanted: rungs by name, none for all kernels, and their types.

    Without ``dtypes`` and ``acc`` a kernel has the first types it takes.
    """

    names: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    acc: str | None = None
    layout: str = "nn"
    epilogue: str = "none"
    seed: int = 0

    def types_of(self, rung: Rung) -> list[tuple[str, str]]:
        found = [
            (dtype, acc)
            for dtype, acc in rung.types
            if dtype in (self.dtypes or (dtype,)) and acc == (self.acc or acc)
        ]
        return found if self.dtypes or self.acc else found[:1]


def plan(sizes: Sequence[Shape], choice: Choice) -> Iterator[Entry]:
    """Yield the problems of every size, each with the rungs that take it.

    Raises PtxlabError for a rung that was named and takes none of it.
    """
    by_types: dict[tuple[str, str], list[Algorithm | Baseline]] = {}
    for rung in map(find_algorithm, choice.names or ALGORITHMS):
        types = choice.types_of(rung)
        if choice.names:
            dtype, acc = types[0] if types else ((*choice.dtypes, rung.types[0][0])[0], choice.acc)
            rung.require(dtype, acc or rung.types[0][1], choice.layout, choice.epilogue)
        for pair in types:
            by_types.setdefault(pair, []).append(rung)
    for m, n, k in sizes:
        for (dtype, acc), rungs in by_types.items():
            problem = Problem(
                m, n, k, dtype, acc, choice.seed, layout=choice.layout, epilogue=choice.epilogue
            )
            if taking := tuple(rung for rung in rungs if rung.takes(problem)):
                yield Entry(problem, taking)
