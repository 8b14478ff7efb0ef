"""The upper SIMT rungs: what makes them fast, in the code the compilers make and counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.facts import SassLoop, loops, main_loop
from ptxlab.gemm.problem import EPILOGUES, LAYOUTS
from ptxlab.gemm.tile import require
from ptxlab.isa.targets import TARGETS
from ptxlab.machine.sass import SassFunction, sass
from ptxlab.observe.counters import total
from ptxlab.observe.profile import Profile, count
from ptxlab.toolchain import Resources, compile_cuda, link_ptx
from tests.gemm.simt import EACH_WAY, KERNELS, Rewrite, observed, rewrite

__all__ = ["rewrite"]

CHIPS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")

# ---- what the compilers make of them ------------------------------------------------------------


@cache
def assembled(name: str, target: str, layout: str = "nn") -> tuple[Resources, SassFunction]:
    """Compile for all targets once, each layout with an epilogue of its own."""
    algorithm = ALGORITHMS[name]
    file = resources.path(algorithm.file)
    epilogue = EPILOGUES[LAYOUTS.index(layout)]
    problem = Problem(100, 100, 100, "f32", layout=layout, epilogue=epilogue)
    options = algorithm.options(problem, algorithm.tile)
    ptx = compile_cuda(file.read_text(), path=str(file), arch="sm_80", options=options)
    cubin = link_ptx(ptx, arch=target)
    return cubin.kernels[algorithm.entry], sass(cubin)[algorithm.entry]


def main(name: str, target: str, layout: str = "nn") -> SassLoop:
    loop = main_loop(assembled(name, target, layout)[1], "FFMA")
    assert loop is not None
    return loop


OFTEN = ("sm_80", "sm_90a", "sm_120a")  # the oldest, the newest, and one between
SOME_CHIPS = [
    chip if chip in OFTEN else pytest.param(chip, marks=pytest.mark.thorough) for chip in CHIPS
]
EVERYWHERE = [
    *(
        pytest.param(chip, "nn", marks=[pytest.mark.thorough] * (chip not in OFTEN))
        for chip in CHIPS
    ),
    *(pytest.param("sm_90a", layout, marks=pytest.mark.thorough) for layout in LAYOUTS[1:]),
]


@pytest.mark.parametrize(("target", "layout"), EVERYWHERE)
@pytest.mark.parametrize("name", KERNELS)
def test_registers_suffice(name: str, target: str, layout: str) -> None:
    used, function = assembled(name, target, layout)
    assert used.spill_stores == used.spill_loads == used.stack == used.shared == 0
    assert not {"LDL", "STL"} & set(function.opcodes())
    algorithm = ALGORITHMS[name]
    config = algorithm.launch(Problem(1, 1, 1, "f32"), algorithm.tile)
    require(config, TARGETS[target])
    threads = config.cta_threads
    assert used.registers <= 255
    # Two CTAs share the 65,536 registers of an SM; one of warp_tiled's has them to itself.
    assert used.registers * threads <= (65536 if name == "warp_tiled" else 32768)


@pytest.mark.parametrize(("target", "layout"), EVERYWHERE)
def test_the_loops_of_warp_tiled_are_arithmetic(target: str, layout: str) -> None:
    """One copies all that it can 16 bytes at a time, the other one nothing."""
    copies = set()
    for loop in loops(assembled("warp_tiled", target, layout)[1]):
        if loop.count("FFMA"):
            wide = sum(instruction.name == "LDS.128" for instruction in loop.instructions)
            assert (loop.count("FFMA"), wide) == (8 * 128, 8 * 6)
            assert loop.share("FFMA") >= 0.87
            assert (loop.count("BAR"), loop.count("LDG"), loop.count("STS")) == (1, 0, 0)
            copies.add(loop.count("LDGSTS"))
    assert copies == {"nn": {4 + 2, 12}, "nt": {12}, "tn": {1 + 2, 12}, "tt": {1 + 8, 12}}[layout]


@pytest.mark.parametrize("target", SOME_CHIPS)
def test_loads_for_64_fma(target: str) -> None:
    """16 from shared memory, or 4 of 128 bits."""
    scalar, vectorized = main("block_tiled", target), main("block_tiled_vectorized", target)
    assert (scalar.count("FFMA"), scalar.count("LDS")) == (64, 16)
    assert (vectorized.count("FFMA"), vectorized.count("LDS")) == (8 * 64, 8 * 4)
    assert all(
        instruction.name == "LDS.128"
        for instruction in vectorized.instructions
        if instruction.opcode == "LDS"
    )
    assert any(instruction.name == "LDG.E.128" for instruction in vectorized.instructions)
    assert (
        scalar.share("FFMA") < vectorized.share("FFMA") < main("warp_tiled", target).share("FFMA")
    )


# ---- what they ask of memory --------------------------------------------------------------------

M, N, K = 128, 256, 16  # whole tiles

Count = Callable[[str, str], Profile]


def counted_on(device: Device, name: str, layout: str) -> Profile:
    return observed(count, device, name, Problem(M, N, K, "f32", layout=layout))


@pytest.fixture(scope="module")
def counted(device: Device) -> Count:
    return cache(partial(counted_on, device))


def conflicts(profile: Profile) -> int:
    return profile.totals.shared_wavefronts - profile.totals.shared_ideal


@pytest.mark.parametrize("layout", EACH_WAY)
@pytest.mark.parametrize("name", ["block_tiled_vectorized", "warp_tiled"])
def test_nothing_conflicts_and_nothing_is_read_in_vain(
    counted: Count, name: str, layout: str
) -> None:
    profile = counted(name, layout)
    totals = profile.totals
    assert totals.shared_wavefronts > 0
    assert conflicts(profile) == 0
    assert totals.sectors == totals.sectors_ideal
    # Each CTA reads its rows of A and columns of B once, and all of them write D.
    tile = ALGORITHMS[name].tile
    assert totals.global_read == 4 * K * (N // tile.bn * M + M // tile.bm * N)
    assert totals.global_written == 4 * M * N


@pytest.mark.parametrize("layout", EACH_WAY)
def test_global_memory_is_moved_128_bits_at_a_time(counted: Count, layout: str) -> None:
    """Each request of a warp is 512 bytes in 16 sectors."""
    totals = counted("block_tiled_vectorized", layout).totals
    assert totals.sectors == 16 * totals.requests
    assert totals.global_read + totals.global_written == 512 * totals.requests


@pytest.mark.parametrize(
    ("name", "results", "requests", "wavefronts"),
    [
        ("block_tiled", 64, 16, 16),
        ("block_tiled_vectorized", 64, 4, 16),
        ("warp_tiled", 128, 6, 24),
    ],
)
def test_what_a_step_along_k_reads(
    counted: Count, name: str, results: int, requests: int, wavefronts: int
) -> None:
    """By hand: a request of 32 bits takes one wavefront, and one of 128 bits four."""
    profile = counted(name, "nn")
    loads = total(
        instruction.counts for instruction in profile.main_loop if instruction.kind == "shared load"
    )
    steps = profile.threads // 32 * K
    assert loads.shared_requests == steps * requests
    assert loads.shared_wavefronts == steps * wavefronts
    fma = total(
        instruction.counts
        for instruction in profile.main_loop
        if instruction.instruction.opcode == "fma"
    )
    assert fma.executed == steps * results


@pytest.mark.parametrize(
    "name", ["block_tiled_vectorized", pytest.param("warp_tiled", marks=pytest.mark.thorough)]
)
def test_without_padding_there_are_conflicts(device: Device, rewrite: Rewrite, name: str) -> None:
    rewrite(name, "PADDING = 4", "PADDING = 0")
    assert conflicts(counted_on(device, name, "nn")) > 0
