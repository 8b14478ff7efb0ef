"""The story of real kernels: counted facts by hand, agreement with the counters, published speeds."""

from __future__ import annotations

import re

import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.gemm import ALGORITHMS, LADDER, Problem
from ptxlab.gemm.bounds import GLOBAL, L1, SHARED
from ptxlab.gemm.explain import LadderExplanation, explain, tell
from ptxlab.gemm.facts import KernelFacts, facts
from ptxlab.isa.gpus import gpus_of
from ptxlab.isa.targets import TARGETS
from ptxlab.observe import count
from ptxlab.verbs.gemm.story import as_json
from tests.gemm.simt import observed

SIZE = 128
SQUARE = Problem(SIZE, SIZE, SIZE, "f32")
WARPS = SIZE * SIZE // 32
"""With one result a thread."""

RUNGS = ("naive", "coalescing", "tiled", "tiled_register", "block_tiled_vectorized")
"""Some that are compiled quickly."""

A100, H200 = (gpus_of(TARGETS[name])[0] for name in ("sm_80", "sm_90a"))


@pytest.fixture(scope="module")
def told(device: Device) -> LadderExplanation:
    if device.kind != "emulator":
        pytest.skip("only the emulator counts")
    return explain(device, [(ALGORITHMS[name], SQUARE) for name in RUNGS], H200)


@pytest.fixture(scope="module")
def of(told: LadderExplanation) -> dict[str, KernelFacts]:
    return {step.facts.algorithm.name: step.facts for step in told.steps}


# ---- by hand ------------------------------------------------------------------------------------


def test_sectors_of_naive_and_coalescing(of: dict[str, KernelFacts]) -> None:
    """Each step along k: 32 rows of A and one element of B, or one of A and 4 sectors of B."""
    naive, coalescing = of["naive"].counts, of["coalescing"].counts
    assert naive.requests == coalescing.requests == WARPS * (2 * SIZE + 1)
    assert naive.sectors == WARPS * ((32 + 1) * SIZE + 32)
    assert coalescing.sectors == WARPS * ((1 + 4) * SIZE + 4)
    assert naive.sectors_ideal == coalescing.sectors_ideal == coalescing.sectors


def test_tiled(of: dict[str, KernelFacts]) -> None:
    """Each warp of 32 in a CTA copies one line of A and of B for 32 steps along k."""
    facts = of["tiled"]
    copied = 2 * WARPS * SIZE // 32
    assert facts.counts.requests == copied + WARPS
    assert facts.counts.sectors == 4 * (copied + WARPS)
    assert facts.counts.shared_wavefronts == copied + 2 * WARPS * SIZE
    assert facts.barriers == 2 * (SIZE // 32) * facts.ctas
    assert (facts.ctas, facts.threads, facts.shared) == (16, 1024, 2 * 32 * 32 * 4)
    assert facts.products == WARPS * SIZE


def test_what_the_copy_engine_brings_is_read_too(device: Device) -> None:
    """One CTA: A and B once, by boxes, and D by its threads."""
    if device.kind != "emulator":
        pytest.skip("only the emulator counts")
    with open_device("emulator", arch="sm_90a") as hopper:
        of_wgmma = facts(hopper, Problem(128, 128, 64, "bf16"), ALGORITHMS["wgmma"])
    given, stored = 2 * 128 * 64 * 2, 128 * 128 * 4
    assert of_wgmma.ctas == 1
    assert of_wgmma.sectors == (given + stored) // 32
    assert of_wgmma.asked_bytes == given + stored


def test_the_limits_of_both(told: LadderExplanation) -> None:
    """Sectors of coalescing take a clock a request, those of naive a quarter of their number."""
    by_name = {step.facts.algorithm.name: step.bounds for step in told.steps}
    flop = 2 * SIZE**3
    clocks = WARPS * ((32 + 1) * SIZE + 32) / 4
    assert by_name["naive"].limits[L1] == pytest.approx(flop / clocks)
    assert by_name["naive"].by == GLOBAL
    clocks = 2 * WARPS * SIZE // 32 + 2 * WARPS * SIZE + 2 * WARPS * SIZE // 32 + WARPS
    assert by_name["tiled"].limits[L1] == pytest.approx(flop / clocks)
    assert by_name["tiled"].by == SHARED
    assert by_name["tiled"].tflops == pytest.approx(flop / clocks * 132 * 1.98e9 / 1e12)
    sectors = 4 * (2 * WARPS * SIZE // 32 + WARPS)
    assert by_name["tiled"].intensity["global"] == pytest.approx(flop / (32 * sectors))


def test_the_story_says_these_numbers(told: LadderExplanation) -> None:
    naive, coalescing = (step.facts.counts.sectors for step in told.steps[:2])
    better = told.steps[1].story.better[0].text
    assert better.startswith(
        f"touches {naive / coalescing:.3g} times fewer sectors of global memory"
    )
    assert told.steps[2].after == "coalescing"
    assert re.search(
        r"it is read \d+(\.\d)? times from shared memory", told.steps[2].story.better[0].text
    )


# ---- what else knows them -----------------------------------------------------------------------


def test_json_is_what_the_counters_say(device: Device, told: LadderExplanation) -> None:
    profile = observed(count, device, "tiled", SQUARE)
    rung = as_json(told)["rungs"][2]
    for name, value in rung["counts"].items():
        assert value == getattr(profile.totals, name), name
    assert rung["bytes_per_flop"] == profile.bytes_per_flop
    assert rung["barriers"] == profile.barriers
    assert rung["flops_per_thread"] * profile.threads == profile.totals.flops
    assert rung["instructions_per_thread"] * profile.threads == profile.totals.threads


def test_nobody_was_ever_faster_than_the_limits(of: dict[str, KernelFacts]) -> None:
    """Of the MAX recipe, measured on an A100 by others; the limits even order them alike."""
    steps = tell(list(of.values()), A100).steps
    for step in steps:
        figure = step.facts.algorithm.reference
        assert figure is not None
        assert figure.of_peak is not None
        part = figure.of_peak / (step.bounds.most / step.bounds.peak)
        assert 0.2 < part < 1, step.facts.algorithm.name


# ---- what cannot be told ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem", "message"),
    [
        ("numpy", SQUARE, "numpy is no kernel"),
        ("naive", Problem(8, 8, 0, "f32"), "nothing to count"),
        ("tiled", Problem(8, 8, 8, "bf16"), "tiled does not compute bf16"),
    ],
)
def test_what_has_no_facts(name: str, problem: Problem, message: str) -> None:
    with pytest.raises(PtxlabError, match=message):
        facts(EmulatorDevice(TARGETS["sm_90a"]), problem, LADDER[name])


def test_edges_are_work_in_vain(device: Device, of: dict[str, KernelFacts]) -> None:
    """33 x 33 of D in 4 tiles of 32 x 32: the sectors and the arithmetic of more than there is."""
    if device.kind != "emulator":
        pytest.skip("only the emulator counts")
    odd = explain(device, [(ALGORITHMS["tiled"], Problem(33, 33, 33, "f32"))], H200).steps[0].bounds
    even = tell([of["tiled"]], H200).steps[0].bounds
    assert odd.most < even.most / 2
    assert odd.limits["arithmetic"] < even.limits["arithmetic"] / 2
