"""The story follows the numbers: changed facts change what is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from ptxlab.errors import PtxlabError
from ptxlab.gemm import ALGORITHMS
from ptxlab.gemm.explain import ExplainedRung, tell
from ptxlab.gemm.facts import KernelFacts
from ptxlab.gemm.measures import MEASURES
from ptxlab.isa.gpus import GPUS
from ptxlab.isa.occupancy import Occupancy
from ptxlab.observe.counters import Counts
from tests.gemm.rungs import counting, made, on_tensor_cores
from tests.together import in_one_test

H200 = next(gpu for gpu in GPUS if gpu.name == "H200 SXM")
BEFORE = made("naive", shared_wavefronts=9000, shared_ideal=6000, shared_requests=6000,
              shared_read=768000)  # fmt: skip
BEFORE = replace(BEFORE, barriers=84, resources=replace(BEFORE.resources, spill_loads=42))


def second(before: KernelFacts, after: KernelFacts) -> ExplainedRung:
    return tell([before, replace(after, algorithm=ALGORITHMS["coalescing"])], H200).steps[1]


def occupied(facts: KernelFacts, warps: int) -> KernelFacts:
    limits = {"CTAs": 32, "threads": 64, "registers": warps // 8}
    return replace(facts, occupancy=Occupancy(256, warps // 8, warps, 64, limits))


CHANGES: list[tuple[str, Callable[[KernelFacts], KernelFacts], str]] = [
    # what becomes 3 times less, how, and what must be said of it
    (
        "sectors of global memory",
        lambda f: counting(f, requests=1024, sectors=4096 // 3 + 1),
        "touches 3 times fewer sectors of global memory, because a warp touches 1.33 in a request, "
        "not 4",
    ),
    (
        "requests of global memory",
        lambda f: counting(f, requests=341),
        "asks global memory 3 times less often for the same bytes: a request of a warp is 384 bytes, "
        "not 128",
    ),
    (
        "loads that are waited for",
        lambda f: replace(f, copies=Counts(global_read=f.counts.global_read)),
        "waits for no load of global memory itself: 100 % of what it reads is copied to shared "
        "memory while it computes",
    ),
    (
        "wavefronts of shared memory",
        lambda f: counting(f, shared_wavefronts=3000, shared_ideal=0),
        "takes 3 times fewer wavefronts of shared memory, 0.37 for an FFMA of a warp, not 1.1",
    ),
    (
        "bank conflicts",
        lambda f: counting(f, shared_ideal=8000),
        "loses 3 times fewer wavefronts to bank conflicts, 1,000 wavefronts, not 3,000",
    ),
    (
        "requests of shared memory",
        lambda f: counting(f, shared_requests=2000),
        "asks shared memory 3 times less often for the same bytes: a request of a warp is 384 bytes, "
        "not 128",
    ),
    (
        "instructions beside the arithmetic",
        lambda f: replace(f, share=0.75),
        "has 3 times fewer other instructions for each that computes: its main loop is 75 % FFMA, "
        "not 50 %",
    ),
    (
        "barriers",
        lambda f: replace(f, barriers=28),
        "waits at 3 times fewer barriers: 7 in each of 4 CTAs, not 21 in each of 4 CTAs",
    ),
    (
        "spills",
        lambda f: replace(f, resources=replace(f.resources, spill_loads=14)),
        "spills 3 times less to memory, 14 bytes a thread, not 42",
    ),
    (
        "occupancy",
        lambda f: occupied(f, 64),
        "leaves room in an SM for 64 warps, not 16, as registers allow no more (32 registers a "
        "thread)",
    ),
]


@in_one_test(("measure", "change", "text"), CHANGES)
def test_what_changed_is_what_is_told(
    measure: str, change: Callable[[KernelFacts], KernelFacts], text: str
) -> None:
    """And nothing else; the other way round it is the price."""
    before = occupied(BEFORE, 16)
    after = change(before)
    better = second(before, after).story
    assert [
        (each.measure.name, each.text) for each in better.better if each.measure.name == measure
    ] == [(measure, text)]
    assert f"It {text}." in better.sentences
    # Conflicts are wavefronts too; what is told with the measure belongs to it.
    told = {each.measure.name for each in (*better.better, *better.worse)}
    assert told <= {measure, "bank conflicts"}
    worse = second(after, before).story
    assert measure in {each.measure.name for each in worse.worse}
    assert not {each.measure.name for each in worse.better} - {"bank conflicts"}
    assert text not in " ".join(worse.sentences)


def test_every_measure_is_tested() -> None:
    assert {name for name, _, _ in CHANGES} | {"products"} == {each.name for each in MEASURES}


def test_the_same_facts_have_no_story() -> None:
    story = second(BEFORE, BEFORE).story
    assert (story.better, story.worse) == ((), ())


def test_a_small_change_is_not_told() -> None:
    story = second(BEFORE, counting(BEFORE, requests=930, sectors=3800)).story
    assert (story.better, story.worse) == ((), ())


def test_what_relieves_the_bottleneck_comes_first() -> None:
    after = replace(BEFORE, share=0.9, barriers=1)
    assert [change.measure.name for change in second(BEFORE, after).story.better] == [
        "barriers",  # the larger change
        "instructions beside the arithmetic",
    ]
    held = replace(BEFORE, share=0.02)
    assert [
        change.measure.name for change in second(held, replace(after, share=0.1)).story.better
    ] == [
        "instructions beside the arithmetic",
        "barriers",
    ]


@pytest.mark.parametrize(
    ("facts", "reason", "clocks"),
    [
        (made("naive", sectors=32768), "requests of global memory, which take the L1 cache", "1 "),
        (made("naive", shared_wavefronts=16384), "shared memory, which is busy", "2.12 "),
        (made("naive", share=0.1), "what is not FFMA, 90 % of its main loop", ""),
        (made("naive", share=1.0, requests=1, sectors=1), "nothing but its arithmetic", ""),
    ],
)
def test_what_holds_a_rung_back(facts: KernelFacts, reason: str, clocks: str) -> None:
    """It is said of the rung itself, and of it as the one before."""
    after = second(facts, BEFORE)
    assert after.story.before.startswith(f"naive was held back by {reason}")
    (alone,) = tell([facts], H200).steps
    assert f"because of {reason}" in alone.story.limit
    assert f" {clocks}" in alone.story.limit
    assert f"{alone.bounds.tflops:.3g} TFLOP/s at most on the H200 SXM" in alone.story.limit
    assert (alone.story.before, alone.story.better, alone.story.worse) == ("", (), ())


def test_one_instruction_of_a_tensor_core_is_many() -> None:
    story = second(made("naive"), on_tensor_cores(made("naive"))).story
    assert story.better[0].text == (
        "multiplies with 64 times fewer instructions: an HMMA of a warp is 4,096 FLOP, an FFMA was 64"
    )
    # Requests are the same: a byte does as much as before, and 2 bytes of it are an element.
    assert "bytes" not in story.better[0].text


def test_where_numbers_come_from_instead() -> None:
    """A tenth of the bytes, read ten times from shared memory, by threads with four results."""
    before = made("naive", global_read=10 * 65536, sectors=40960, requests=10240)
    after = made("naive", shared_read=20 * 65536, shared_requests=10240, shared_wavefronts=10240)
    after = replace(after, threads=256)
    sectors = next(
        each
        for each in second(before, after).story.better
        if each.measure.name.startswith("sectors")
    )
    assert sectors.text == (
        "touches 10 times fewer sectors of global memory, because a byte asked for serves 4 FLOP, "
        "not 0.73; it is read 10 times from shared memory and a thread has 4 results, not 1"
    )
    worse = second(after, before).story.worse
    assert "it is not kept in shared memory and a thread has 1 result, not 4" in worse[0].text


def test_caches_are_spoken_of_where_memory_is_not_fast_enough() -> None:
    (slow,) = tell([made("naive", share=1.0, sectors=32768)], H200).steps
    assert slow.story.caches.startswith("At that rate caches answer 86 % of its sectors")
    (fast,) = tell([made("naive", share=1.0, sectors=100)], H200).steps
    assert fast.story.caches == ""


# ---- who comes before whom ----------------------------------------------------------------------


def test_each_is_told_after_the_one_it_follows() -> None:
    for algorithm in ALGORITHMS.values():
        assert algorithm.follows in (*ALGORITHMS, "")
    names = ["naive", "tiled", "thread_tiled_8x4", "tensor_core"]
    story = tell([made(name) for name in names], H200)
    assert [step.after for step in story.steps] == ["", "naive", "naive", "thread_tiled_8x4"]
    other = tell([made("thread_tiled_4x4"), made("tiled")], H200)  # in the order of the ladder
    assert [step.after for step in other.steps] == ["", "tiled"]


def test_types_that_a_gpu_has_no_tensor_cores_for() -> None:
    t4 = next(gpu for gpu in GPUS if gpu.name == "T4")
    with pytest.raises(PtxlabError, match=re.escape("T4 do not compute bf16 -> f32")):
        tell([on_tensor_cores(made("tensor_core"))], t4)
