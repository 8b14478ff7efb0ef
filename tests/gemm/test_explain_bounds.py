"""Bounds by hand: clocks of an SM, intensities, and what caches have to answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxlab.errors import PtxlabError
from ptxlab.gemm.bounds import ARITHMETIC, GLOBAL, ISSUE, L1, SHARED, bounds
from ptxlab.isa.gpus import Gpu
from ptxlab.observe.counters import Counts
from tests.gemm.rungs import PRODUCTS, SIZE, counting, made, on_tensor_cores

FLOP = 2 * SIZE**3

TOY = Gpu("toy", 90, 10, 1000, 256, {("bf16", "f32"): 4096}, "DRAM", 320, mma_sync=0.5)
"""10 SMs at 1 GHz: 2.56 TFLOP/s of fma, 32 bytes of memory for a clock and SM."""


def test_the_roofs_of_a_rung() -> None:
    """1024 requests of 4 sectors are 1024 clocks of L1, for 2^19 FLOP: 512 a clock."""
    limited = bounds(made("naive", share=0.25), TOY)
    # Four instructions a clock, one of them of 64 FLOP.
    assert limited.limits == {ARITHMETIC: 256, ISSUE: 64, L1: 512}
    assert (limited.by, limited.most, limited.tflops) == (ISSUE, 64, 0.64)
    assert limited.intensity["global"] == FLOP / (32 * 4096) == 4
    assert limited.intensity["L1"] == FLOP / (128 * 1024) == 4
    # A and B read, D written: three matrices of f32.
    assert limited.intensity["problem"] == FLOP / (3 * 4 * SIZE**2)
    # 64 FLOP a clock are 16 bytes, and memory has 32.
    assert limited.from_caches == 0


def test_sectors_that_are_scattered_fill_more_of_the_l1() -> None:
    limited = bounds(made("naive", share=1.0, sectors=32 * 1024), TOY)
    assert (limited.by, limited.most) == (GLOBAL, FLOP / (32 * 1024 * 32 / 128))
    # 64 FLOP a clock at half a FLOP a byte are 128 bytes.
    assert limited.from_caches == 1 - 32 / 128


def test_requests_of_few_bytes_take_a_clock_each() -> None:
    limited = bounds(made("naive", share=1.0, requests=8192), TOY)
    assert (limited.by, limited.most) == (GLOBAL, 64)


def test_shared_memory_and_the_l1_cache_are_one() -> None:
    limited = bounds(made("tiled", share=1.0, shared_wavefronts=3 * 1024), TOY)
    assert (limited.by, limited.most) == (SHARED, FLOP / 4096)


def test_asynchronous_copies_take_what_they_write_to_shared_memory() -> None:
    facts = made("tiled", share=1.0, shared_wavefronts=4096)
    copied = replace(facts, copies=Counts(requests=1024, sectors=4096))
    limited = bounds(copied, TOY)
    assert limited.limits[L1] == FLOP / 4096


def test_work_beyond_the_edges_is_in_vain() -> None:
    limited = bounds(made("naive", share=1.0, flops=2 * FLOP), TOY)
    assert limited.limits[ARITHMETIC] == 128


def test_tensor_cores_as_far_as_mma_sync_has_them() -> None:
    limited = bounds(on_tensor_cores(made("tensor_core")), TOY)
    assert limited.peak == 4096
    # An instruction is 4096 FLOP, and every second one computes.
    assert limited.limits == {ARITHMETIC: 2048, ISSUE: 4 * 0.5 * 4096, L1: 512}


def test_without_a_loop_there_is_no_bound_of_issue() -> None:
    limited = bounds(replace(made("naive"), share=None), TOY)
    assert set(limited.limits) == {ARITHMETIC, L1}


def test_types_that_the_tensor_cores_do_not_take() -> None:
    facts = on_tensor_cores(made("tensor_core"))
    with pytest.raises(PtxlabError, match="cores of an toy do not compute tf32 -> f32"):
        bounds(replace(facts, problem=replace(facts.problem, dtype="tf32")), TOY)


def test_d_is_read_too_where_beta_counts() -> None:
    facts = made("naive")
    limited = bounds(replace(facts, problem=replace(facts.problem, beta=1.0)), TOY)
    assert limited.intensity["problem"] == FLOP / (4 * 4 * SIZE**2)


def test_less_work_is_never_a_lower_bound() -> None:
    """The faulty twin: a bound must move the other way when any count grows."""
    facts = made("tiled", share=0.5, shared_wavefronts=5000)
    least = bounds(facts, TOY)
    for name in ("requests", "sectors", "shared_wavefronts", "flops"):
        more = bounds(counting(facts, **{name: 10 * getattr(facts.counts, name)}), TOY)
        assert more.most < least.most, name
    assert PRODUCTS * 64 == FLOP
    more = bounds(replace(facts, share=0.05), TOY)
    assert more.most == pytest.approx(12.8)
