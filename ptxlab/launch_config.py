"""How a kernel is launched: the shape of its grid, CTAs and clusters, and its dynamic shared memory.

Limits: CUDA C++ Programming Guide, "Compute Capabilities", the same for every target here. How much
shared memory a CTA may have is its target's, see ``ptxlab.isa.targets``.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ptxlab.errors import PtxlabError

Dim = int | Sequence[int]
"""One to three sizes as users write them; those left out are 1."""

Dim3 = tuple[int, int, int]

GRID_LIMIT = (2**31 - 1, 65535, 65535)
BLOCK_LIMIT = (1024, 1024, 64)
CTA_THREADS = 1024
"""The most threads of a CTA."""

CLUSTER_CTAS, PORTABLE_CLUSTER_CTAS = 16, 8
"""The most CTAs of a cluster, and those that every GPU with clusters has room for."""


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """A launch of ``grid`` CTAs of ``block`` threads with ``shared`` bytes of dynamic shared memory each.

    Sizes are (x, y, z). ``cluster`` counts the CTAs of a cluster, None where the launch asks for none.
    All CTAs of a ``cooperative`` launch are on the GPU at the same time.
    """

    grid: Dim3
    block: Dim3
    shared: int = 0
    cluster: Dim3 | None = None
    cooperative: bool = False

    @classmethod
    def of(
        cls,
        grid: Dim,
        block: Dim,
        shared: int = 0,
        cluster: Dim | None = None,
        cooperative: bool = False,
    ) -> LaunchConfig:
        """Read a launch as users write it: CTAs, threads of each, bytes of dynamic shared memory, CTAs of a cluster.

        Raises PtxlabError for sizes that no GPU has.
        """
        grid3, block3 = _sizes("grid", grid, GRID_LIMIT), _sizes("block", block, BLOCK_LIMIT)
        x, y, z = block3
        if x * y * z > CTA_THREADS:
            raise PtxlabError(
                f"block {x} x {y} x {z} has {x * y * z} threads; the most is {CTA_THREADS}"
            )
        size = integer("shared", shared)
        if size < 0:
            raise PtxlabError(f"shared is a number of bytes, not {size}")
        cluster3 = None if cluster is None else _sizes("cluster", cluster, grid3)
        if any(size % part for size, part in zip(grid3, cluster3 or (), strict=False)):
            raise PtxlabError(f"grid {grid3} is not a multiple of cluster {cluster3}")
        if prod(cluster3 or ()) > CLUSTER_CTAS:
            raise PtxlabError(
                f"cluster {cluster3} has {prod(cluster3 or ())} CTAs; the most is {CLUSTER_CTAS}"
            )
        return cls(grid3, block3, size, cluster3, cooperative)

    def __repr__(self) -> str:
        """Return what ``of`` makes this one of, in as few words."""
        given: list[tuple[str, Dim | None]] = [
            ("grid", short(self.grid)), ("block", short(self.block)), ("shared", self.shared),
            ("cluster", self.cluster and short(self.cluster)), ("cooperative", self.cooperative),
        ]  # fmt: skip
        return f"LaunchConfig.of({', '.join(f'{name}={value}' for name, value in given if value)})"

    @property
    def chevrons(self) -> str:
        """The grid and its CTAs as CUDA C writes a launch: ``<<<4, (16, 16)>>>``."""
        return f"<<<{short(self.grid)}, {short(self.block)}>>>"

    @property
    def ctas(self) -> int:
        """How many CTAs the grid has."""
        return prod(self.grid)

    @property
    def cluster_shape(self) -> Dim3:
        """The CTAs of a cluster: a single one where the launch asks for none."""
        return self.cluster or (1, 1, 1)

    @property
    def cluster_ctas(self) -> int:
        """How many CTAs a cluster has."""
        return prod(self.cluster_shape)

    @property
    def cta_threads(self) -> int:
        """How many threads a CTA has."""
        return prod(self.block)

    @property
    def threads(self) -> int:
        """How many threads the grid has."""
        return self.ctas * self.cta_threads


def three(sizes: Sequence[int]) -> Dim3:
    """Return one to three sizes as three, those left out being 1."""
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def short(sizes: Dim3) -> Dim:
    """Return sizes as a user writes them, without the ones at the end."""
    x, y, z = sizes
    return sizes if z > 1 else (x, y) if y > 1 else x


def integer(name: str, value: Any) -> int:
    """Return ``value``, of what errors call ``name``, as an int. Raises PtxlabError if it is none."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise PtxlabError(f"{name} takes integers, not {value!r}") from None


def _sizes(name: str, value: Dim, limits: Dim3) -> Dim3:
    sizes = tuple(value) if isinstance(value, Sequence) else (value,)
    if not 1 <= len(sizes) <= 3:
        raise PtxlabError(f"{name} takes one to three sizes, not {len(sizes)}")
    extents = three([integer(name, size) for size in sizes])
    for axis, size, limit in zip("xyz", extents, limits, strict=True):
        if not 1 <= size <= limit:
            raise PtxlabError(f"{name} {axis} is {size}; it can be 1 to {limit}")
    return extents
