"""The rungs of the GEMM ladder: one frozen table of kernels, what they take, and how they are launched.

All kernels compute D = epilogue(alpha * op(A) * op(B) + beta * D), with the parameters m, n, k, a,
lda, b, ldb, d, ldd, alpha, beta, bias; ``kernels/gemm.cuh`` says what each of them means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from ptxlab.errors import PtxlabError
from ptxlab.gemm.problem import EPILOGUES, LAYOUTS, Problem, element_bits
from ptxlab.gemm.published import Figure, published
from ptxlab.gemm.scaled import SCALED
from ptxlab.gemm.tile import Sizes, Tile
from ptxlab.isa.targets import Target
from ptxlab.launch_config import LaunchConfig, three

Method = Literal["fma", "mma", "wgmma", "tcgen05", "any"]
"""How a kernel adds up: a chain of fma in f32, or a tensor core's steps, all in increasing k; or in
an order that nobody knows, on a tensor core or not. ``ptxlab.gemm.reference`` has the bounds."""

Types = tuple[tuple[str, str], ...]

F32: Types = (("f32", "f32"),)
HALF: Types = (("bf16", "f32"), ("f16", "f32"))
WIDE_AND_NARROW: Types = (("tf32", "f32"), ("e4m3", "f32"), ("e5m2", "f32"), ("s8", "f32"))
SHARING: Types = (("nvfp4", "f32"), ("mxfp8", "f32"))

ONLY = {"s8": "sm_100a"}
"""The target of types that tcgen05.mma does not have on all chips of its family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """What all rungs of the ladder have: a name, an idea in a line, and what they take.

    ``types`` are the (dtype of A and B, type of sums and D). Numbers that share scales lie as those do, in
    whatever ``layouts`` others may be.
    """

    name: str
    idea: str
    types: Types = F32
    method: Method = "fma"
    layouts: tuple[str, ...] = LAYOUTS
    epilogues: tuple[str, ...] = EPILOGUES

    @property
    def reference(self) -> Figure | None:
        """The published figure that stands for a kernel of others like this one."""
        return next(published(self.name), None)

    def takes(self, problem: Problem) -> bool:
        return (
            (problem.dtype, problem.acc) in self.types
            and problem.layout in self.layouts_of(problem.dtype)
            and problem.epilogue in self.epilogues
        )

    def layouts_of(self, dtype: str) -> tuple[str, ...]:
        return ("nn",) if dtype in SCALED else self.layouts

    def require(self, dtype: str, acc: str, layout: str = "nn", epilogue: str = "none") -> None:
        """Raise PtxlabError unless this rung takes these types, this layout and this epilogue."""
        if (dtype, acc) not in self.types:
            known = ", ".join(f"{d} -> {a}" for d, a in self.types)
            able = [a.name for a in ALGORITHMS.values() if (dtype, acc) in a.types]
            raise PtxlabError(
                f"algorithm {self.name} does not compute {dtype} -> {acc}; it takes {known}",
                hint=f"{', '.join(able)} can" if able else None,
            )
        for what, given, known_ones in (
            ("layout", layout, self.layouts_of(dtype)),
            ("epilogue", epilogue, self.epilogues),
        ):
            if given not in known_ones:
                raise PtxlabError(
                    f"algorithm {self.name} has no {what} {given}, only {', '.join(known_ones)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm(Rung):
    """One kernel: its file, how it is cut, compiled and launched.

    ``block`` names what of the tile is the shape of a CTA, and in shared memory ``padding`` elements
    follow each line of a tile, against bank conflicts. ``larger`` are tiles for larger problems, the
    largest first, each with how many of them D must be made of, lest parts of the chip stay idle; where
    there are not ``least`` of the usual ``tile`` either, a ``smaller`` one is taken. ``follows`` is the
    rung that this one improves on.

    What only some chips have: ``target`` is the first of PTX that has it, ``sharing`` the first that has it
    of numbers that share scales, ``maps`` the matrices that are
    copied by tensor maps, ``producers`` the threads beside those with results, ``beside`` the bytes of
    shared memory beside the stages, and ``resident`` the most CTAs of a launch, which then take tile
    after tile. Of a ``pair`` each CTA has half of the columns of B.
    """

    file: str
    tile: Tile
    follows: str = ""
    larger: tuple[tuple[int, Tile], ...] = ()
    least: int = 0
    smaller: Tile | None = None
    block: tuple[str, ...] = ("threads",)
    padding: int = 0
    target: str = "sm_75"
    sharing: str = ""
    maps: str = ""
    producers: int = 0
    beside: int = 0
    resident: int = 0
    pair: bool = False

    @property
    def entry(self) -> str:
        """The kernel's name, which is that of its file."""
        return PurePosixPath(self.file).stem

    def needs(self, dtype: str) -> str:
        """Return the first target that has what the kernel computes ``dtype`` with."""
        return self.sharing if self.sharing and dtype in SCALED else ONLY.get(dtype, self.target)

    @property
    def handwritten(self) -> bool:
        """Whether it is PTX as somebody wrote it, and has no other tile."""
        return self.file.endswith(".ptx")

    def options(self, problem: Problem, tile: Tile) -> tuple[str, ...]:
        """Return the macros that make a kernel of the file; handwritten PTX has none."""
        if self.handwritten:
            return ()
        macros = {
            "DTYPE": problem.dtype,
            "ACC": problem.acc,
            "TRANSPOSE_A": int(problem.layout[0] == "t"),
            "TRANSPOSE_B": int(problem.layout[1] == "t"),
            "BIAS": int("bias" in problem.epilogue),
            "RELU": int("relu" in problem.epilogue),
            **tile.macros,
        }
        return tuple(f"-D{name}={value}" for name, value in macros.items())

    def tiles(self, dtype: str) -> list[tuple[int, Tile]]:
        """Return the tiles for elements of ``dtype``, the largest first, each with how many D must be made of."""
        tiles = [*self.larger, (self.least, self.tile)]
        if self.smaller:
            tiles.append((0, self.smaller))
        return [(least, self._for(tile, dtype)) for least, tile in tiles]

    def cut(self, sizes: Sizes, dtype: str) -> Tile:
        """Return the usual tile for elements of ``dtype``, with other ``sizes``."""
        if sizes and self.handwritten:
            raise PtxlabError(f"{self.name} is handwritten for its tile, which nothing changes")
        return self._for(self.tile, dtype).changed(sizes)

    def tile_for(self, problem: Problem, target: Target) -> Tile:
        """Return the largest tile that D has enough of, and ``target`` room for."""
        *larger, (_, smallest) = self.tiles(problem.dtype)
        for least, tile in larger:
            fits = self.launch(problem, tile).shared <= target.shared_bytes
            if fits and tile.count(problem.m, problem.n) >= least:
                return tile
        return smallest

    def _for(self, tile: Tile, dtype: str) -> Tile:
        """Return a tile with as many bytes along k as for the first types: fewer elements if they are larger."""
        first, own = (element_bits(name) for name in (self.types[0][0], dtype))
        return replace(tile, bk=tile.bk * first // own)

    def launch(self, problem: Problem, tile: Tile) -> LaunchConfig:
        """Return the grid, the CTAs, and room for the tiles of A and B in each of the stages."""
        x, y, z = three([getattr(tile, sizes) for sizes in self.block])
        lines = tile.bm + (tile.bn >> self.pair) + 2 * self.padding
        stage = element_bits(problem.dtype) * tile.bk * lines // 8
        if problem.dtype in SCALED:
            stage += SCALED[problem.dtype].scale_bytes(tile.bm, tile.bn, depth=tile.bk)
        ctas = tile.count(problem.m, problem.n)
        if self.resident:
            ctas = min(ctas, self.resident)
        shared = max(tile.stages, 1) * stage + self.beside
        return LaunchConfig((ctas, 1, 1), (x + self.producers, y, z), shared)


def kernel_of(rung: Rung, otherwise: str) -> Algorithm:
    """Return ``rung`` as the kernel it is, or raise PtxlabError: it is none, ``otherwise`` goes on."""
    if not isinstance(rung, Algorithm):
        raise PtxlabError(f"{rung.name} is no kernel of ptxlab's{otherwise}")
    return rung


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            name="naive",
            idea="one thread an element, neighbours along the wrong axis",
            file="kernels/naive.cu",
            types=(("f32", "f32"), ("bf16", "f32"), ("f16", "f32")),
            tile=Tile(bm=32, bn=32),
            block=("bm", "bn"),
        ),
        Algorithm(
            name="coalescing",
            idea="the axes swapped: a warp reads and writes whole lines",
            file="kernels/coalescing.cu",
            follows="naive",
            tile=Tile(bm=32, bn=32),
            block=("bn", "bm"),
        ),
        Algorithm(
            name="tiled",
            idea="tiles of A and B in shared memory, read many times",
            file="kernels/tiled.cu",
            follows="coalescing",
            tile=Tile(bm=32, bn=32, bk=32),
            block=("bn", "bm"),
        ),
        Algorithm(
            name="tiled_register",
            idea="8 results a thread: one number of B feeds eight fma",
            file="kernels/tiled_register.cu",
            follows="tiled",
            tile=Tile(bm=64, bn=64, bk=8, tm=8),
        ),
        Algorithm(
            name="thread_tiled_4x4",
            idea="4 x 4 results a thread, no shared memory, no barrier",
            file="kernels/thread_tiled.cu",
            follows="coalescing",
            tile=Tile(bm=64, bn=64, tm=4, tn=4),
        ),
        Algorithm(
            name="thread_tiled_8x4",
            idea="8 x 4 results a thread: 12 loads for 32 fma",
            file="kernels/thread_tiled.cu",
            follows="thread_tiled_4x4",
            tile=Tile(bm=128, bn=64, tm=8, tn=4),
        ),
        Algorithm(
            name="block_tiled",
            idea="8 x 8 results a thread out of a 128 x 128 tile",
            file="kernels/block_tiled.cu",
            follows="tiled_register",
            tile=Tile(bm=128, bn=128, bk=8, tm=8, tn=8),
        ),
        Algorithm(
            name="block_tiled_vectorized",
            idea="128-bit loads everywhere, A transposed on the way in",
            file="kernels/block_tiled_vectorized.cu",
            follows="block_tiled",
            tile=Tile(bm=128, bn=128, bk=8, tm=8, tn=8),
            padding=4,
        ),
        Algorithm(
            name="warp_tiled",
            idea="64 x 64 a warp, 16 x 8 a thread, the next tile on its way",
            file="kernels/warp_tiled.cu",
            follows="block_tiled_vectorized",
            tile=Tile(bm=128, bn=256, bk=8, wm=64, wn=64, stages=3, group=8),
            least=96,
            smaller=Tile(bm=64, bn=64, bk=16, wm=32, wn=32, stages=2, group=8),
            padding=4,
        ),
        Algorithm(
            name="tensor_core_ptx",
            idea="mma.sync in handwritten PTX, straight from global memory",
            file="ptx/gemm_m16n8k16_bf16_f32.ptx",
            types=(("bf16", "f32"),),
            method="mma",
            follows="thread_tiled_8x4",
            tile=Tile(bm=32, bn=32, wm=32, wn=32),
            layouts=("nn",),
            epilogues=("none",),
        ),
        Algorithm(
            name="tensor_core",
            idea="mma.sync fed by ldmatrix, cp.async and a swizzle",
            file="kernels/tensor_core.cu",
            types=(*HALF, ("f16", "f16"), ("tf32", "f32"), *SHARING),
            method="mma",
            follows="tensor_core_ptx",
            tile=Tile(bm=128, bn=128, bk=32, wm=64, wn=64, stages=3, group=8),
            larger=((128, Tile(bm=256, bn=128, bk=64, wm=64, wn=64, stages=3, group=8)),),
            least=96,
            smaller=Tile(bm=64, bn=64, bk=64, wm=32, wn=32, stages=3, group=8),
            sharing="sm_120f",
        ),
        Algorithm(
            name="wgmma",
            idea="one warpgroup multiplies what the copy engine brings",
            file="kernels/wgmma.cu",
            types=HALF,
            method="wgmma",
            follows="tensor_core",
            tile=Tile(bm=128, bn=128, bk=64, wm=32, wn=128, stages=1, group=8),
            target="sm_90a",
            maps="ab",
            beside=1024,
        ),
        Algorithm(
            name="wgmma_pipelined",
            idea="a producer warp, and a ring of stages with mbarriers",
            file="kernels/wgmma_pipelined.cu",
            types=HALF,
            method="wgmma",
            follows="wgmma",
            tile=Tile(bm=128, bn=128, bk=64, wm=32, wn=128, stages=3, group=8),
            target="sm_90a",
            maps="ab",
            producers=32,
            beside=1024,
        ),
        Algorithm(
            name="wgmma_specialised",
            idea="128 x 256 for two warpgroups, with a third one's registers",
            file="kernels/wgmma_specialised.cu",
            types=HALF,
            method="wgmma",
            follows="wgmma_pipelined",
            tile=Tile(bm=128, bn=256, bk=64, wm=16, wn=256, stages=4, group=8),
            target="sm_90a",
            maps="ab",
            producers=128,
            beside=1024,
        ),
        Algorithm(
            name="wgmma_cluster",
            idea="two CTAs fetch the columns of B once for both",
            file="kernels/wgmma_cluster.cu",
            types=HALF,
            method="wgmma",
            follows="wgmma_specialised",
            tile=Tile(bm=128, bn=256, bk=64, wm=16, wn=256, stages=4, group=8, cluster=2),
            target="sm_90a",
            maps="ab",
            producers=128,
            beside=1024,
        ),
        Algorithm(
            name="wgmma_persistent",
            idea="CTAs that stay, and store a tile during the next one",
            file="kernels/wgmma_persistent.cu",
            types=HALF,
            method="wgmma",
            follows="wgmma_cluster",
            tile=Tile(bm=128, bn=256, bk=64, wm=16, wn=256, stages=4, group=8, cluster=2),
            target="sm_90a",
            maps="abd",
            producers=128,
            beside=1024 + 32768,
            resident=132,
        ),
        Algorithm(
            name="tcgen05",
            idea="one thread has tiles multiplied, with sums in Tensor Memory",
            file="kernels/tcgen05.cu",
            types=(*HALF, *WIDE_AND_NARROW),
            method="tcgen05",
            follows="tensor_core",
            tile=Tile(bm=128, bn=128, bk=64, wm=32, wn=128, stages=1, group=8),
            target="sm_100f",
            maps="ab",
            beside=1024,
        ),
        Algorithm(
            name="tcgen05_pipelined",
            idea="a ring of stages, and a queue of products nobody waits for",
            file="kernels/tcgen05_pipelined.cu",
            types=(*HALF, *WIDE_AND_NARROW),
            method="tcgen05",
            follows="tcgen05",
            tile=Tile(bm=128, bn=256, bk=64, wm=32, wn=256, stages=4, group=8),
            target="sm_100f",
            maps="ab",
            beside=1024,
        ),
        Algorithm(
            name="tcgen05_specialised",
            idea="CTAs that stay, with two accumulators: one stored, one made",
            file="kernels/tcgen05_specialised.cu",
            types=(*HALF, *WIDE_AND_NARROW),
            method="tcgen05",
            follows="tcgen05_pipelined",
            tile=Tile(bm=128, bn=256, bk=64, wm=32, wn=256, stages=4, group=8),
            target="sm_100f",
            maps="ab",
            producers=64,
            beside=1024,
            resident=148,
        ),
        Algorithm(
            name="tcgen05_pair",
            idea="two CTAs multiply as one, with half of the columns of B each",
            file="kernels/tcgen05_pair.cu",
            types=(*HALF, *WIDE_AND_NARROW),
            method="tcgen05",
            follows="tcgen05_specialised",
            tile=Tile(bm=128, bn=256, bk=64, wm=32, wn=256, stages=6, group=8, cluster=2),
            target="sm_100f",
            maps="ab",
            producers=64,
            beside=1024,
            resident=148,
            pair=True,
        ),
        Algorithm(
            name="tcgen05_persistent",
            idea="pairs that are done take over the tiles of others",
            file="kernels/tcgen05_persistent.cu",
            types=(*HALF, *WIDE_AND_NARROW),
            method="tcgen05",
            follows="tcgen05_pair",
            tile=Tile(bm=128, bn=256, bk=64, wm=32, wn=256, stages=6, group=8, cluster=2),
            target="sm_100f",
            maps="ab",
            producers=64,
            beside=1024,
            pair=True,
        ),
        Algorithm(
            name="block_scaled",
            idea="8 or 4 bits a number, with scales in Tensor Memory",
            file="kernels/block_scaled.cu",
            types=SHARING,
            method="tcgen05",
            layouts=("nn",),
            follows="tcgen05_pipelined",
            tile=Tile(bm=128, bn=128, bk=256, wm=32, wn=128, stages=4, group=8),
            target="sm_100f",
            maps="ab",
            beside=1024,
        ),
    )
}
