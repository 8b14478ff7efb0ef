"""The GEMM algorithms: one frozen table of kernels, the types they take, and how they are launched.

All kernels compute D = A * B, row-major, with the parameters m, n, k, a, lda, b, ldb, d, ldd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Literal

from ptxlab.errors import PtxlabError

Method = Literal["fma", "mma"]
"""How a kernel adds up: a chain of fma in f32, or mma.sync m16n8k16; both in increasing k."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The shape of a launch: CTAs, threads of a CTA, and dynamic shared memory in bytes."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int


@dataclass(frozen=True, slots=True)
class Tile:
    """How the work is cut: a CTA owns bm x bn of D, a warp wm x wn of that; ``stages`` tiles of
    depth ``bk`` are in shared memory. What a kernel does not cut is 0.
    """

    bm: int
    bn: int
    bk: int = 0
    wm: int = 0
    wn: int = 0
    stages: int = 0

    @property
    def options(self) -> tuple[str, ...]:
        """The macros that give a kernel this tile."""
        return tuple(
            f"-D{field.name.upper()}={getattr(self, field.name)}" for field in fields(self)
        )

    def count(self, m: int, n: int) -> tuple[int, int]:
        """Return how many tiles cover an m x n matrix, down and across."""
        return -(-m // self.bm), -(-n // self.bn)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One kernel: ``name``, its file and entry, what it takes, and how it is compiled and launched.

    ``types`` are the (dtype of A and B, type of accumulators and D) it can be compiled for.
    """

    name: str
    file: str
    entry: str
    types: tuple[tuple[str, str], ...]
    method: Method
    tile: Tile
    options: Callable[[Tile, str, str], tuple[str, ...]]
    launch: Callable[[Tile, int, int], Launch]

    def require(self, dtype: str, acc: str) -> None:
        """Raise PtxlabError unless the kernel takes these types."""
        if (dtype, acc) not in self.types:
            known = ", ".join(f"{d} -> {a}" for d, a in self.types)
            able = [a.name for a in ALGORITHMS.values() if (dtype, acc) in a.types]
            raise PtxlabError(
                f"algorithm {self.name} does not compute {dtype} -> {acc}; it takes {known}",
                hint=f"{' and '.join(able)} can" if able else None,
            )


def _simt_options(tile: Tile, dtype: str, acc: str) -> tuple[str, ...]:
    return (f"-DDTYPE={dtype}",)


def _simt_launch(tile: Tile, m: int, n: int) -> Launch:
    return Launch(tile.count(m, n), (tile.bm, tile.bn), 0)


def _fixed_options(tile: Tile, dtype: str, acc: str) -> tuple[str, ...]:
    return ()


def _block_tiled_launch(tile: Tile, m: int, n: int) -> Launch:
    line = tile.bm + 4  # A is transposed, and its lines padded against bank conflicts
    threads = tile.bm * tile.bn // 64  # of 8 x 8 results
    return Launch(tile.count(m, n), (threads,), 4 * tile.bk * (line + tile.bn))


def _tensor_core_options(tile: Tile, dtype: str, acc: str) -> tuple[str, ...]:
    return (f"-DDTYPE={dtype}", f"-DACC={acc}", *tile.options)


def _tensor_core_launch(tile: Tile, m: int, n: int) -> Launch:
    down, across = tile.count(m, n)
    warps = (tile.bm // tile.wm) * (tile.bn // tile.wn)
    shared = 2 * tile.stages * tile.bk * (tile.bm + tile.bn)
    return Launch((down * across,), (32 * warps,), shared)


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            name="naive",
            file="kernels/naive.cu",
            entry="naive",
            types=(("f32", "f32"), ("bf16", "f32"), ("f16", "f32")),
            method="fma",
            tile=Tile(bm=32, bn=32),
            options=_simt_options,
            launch=_simt_launch,
        ),
        Algorithm(
            name="block_tiled_vectorized",
            file="kernels/block_tiled_vectorized.cu",
            entry="block_tiled_vectorized",
            types=(("f32", "f32"),),
            method="fma",
            tile=Tile(bm=128, bn=128, bk=8),
            options=_fixed_options,
            launch=_block_tiled_launch,
        ),
        Algorithm(
            name="tensor_core",
            file="kernels/tensor_core.cu",
            entry="tensor_core",
            types=(("bf16", "f32"), ("f16", "f32"), ("f16", "f16")),
            method="mma",
            tile=Tile(bm=128, bn=128, bk=32, wm=64, wn=64, stages=3),
            options=_tensor_core_options,
            launch=_tensor_core_launch,
        ),
    )
}


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm called ``name``; raise PtxlabError naming all of them."""
    if name not in ALGORITHMS:
        close = get_close_matches(name, ALGORITHMS, n=1)
        raise PtxlabError(
            f"there is no algorithm {name!r}, there are {', '.join(ALGORITHMS)}",
            hint=f"did you mean {close[0]}?" if close else None,
        )
    return ALGORITHMS[name]
