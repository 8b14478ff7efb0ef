"""Occupancy, beside what NVIDIA's own calculator says: cuda_occupancy.h of CUDA 13.5, compiled."""

from __future__ import annotations

import pytest

from ptxlab.isa.occupancy import MULTIPROCESSORS, occupancy
from ptxlab.isa.targets import TARGETS
from tests.together import in_one_test

CASES = [
    # target, threads, registers, bytes of shared memory, barriers, CTAs in an SM
    ("sm_75", 384, 131, 0, 1, 1),
    ("sm_75", 64, 24, 65536, 2, 1),
    ("sm_75", 384, 32, 0, 1, 2),
    ("sm_75", 128, 245, 0, 2, 2),
    ("sm_80", 128, 153, 11165, 5, 3),
    ("sm_80", 453, 13, 166912, 16, 1),
    ("sm_80", 128, 124, 0, 0, 4),
    ("sm_80", 32, 104, 4101, 0, 16),
    ("sm_86", 384, 105, 956, 16, 1),
    ("sm_86", 128, 221, 7819, 0, 2),
    ("sm_86", 96, 65, 101376, 1, 1),
    ("sm_86", 128, 187, 101376, 5, 1),
    ("sm_87", 384, 59, 0, 5, 2),
    ("sm_87", 128, 34, 166912, 1, 1),
    ("sm_87", 64, 246, 0, 16, 4),
    ("sm_87", 32, 254, 13920, 5, 8),
    ("sm_89", 160, 17, 101376, 0, 1),
    ("sm_89", 160, 223, 40916, 1, 1),
    ("sm_89", 96, 186, 101376, 16, 1),
    ("sm_89", 32, 98, 101376, 2, 1),
    ("sm_90a", 96, 26, 232448, 1, 1),
    ("sm_90a", 128, 80, 6580, 16, 4),
    ("sm_90a", 384, 110, 11152, 1, 1),
    ("sm_90a", 96, 111, 232448, 2, 1),
    ("sm_100a", 384, 124, 152571, 2, 1),
    ("sm_100a", 256, 210, 0, 1, 1),
    ("sm_100a", 192, 250, 0, 1, 1),
    ("sm_100a", 192, 131, 232448, 1, 1),
    ("sm_103a", 32, 5, 232448, 2, 1),
    ("sm_103a", 32, 60, 0, 5, 6),
    ("sm_103a", 96, 196, 159385, 0, 1),
    ("sm_103a", 384, 147, 56292, 2, 1),
    ("sm_107a", 32, 5, 0, 0, 16),
    ("sm_107a", 32, 60, 0, 5, 3),
    ("sm_107a", 128, 80, 0, 1, 6),
    ("sm_107a", 96, 40, 110000, 1, 3),
    ("sm_107a", 128, 32, 19297, 0, 8),
    ("sm_107a", 256, 103, 334848, 0, 1),
    ("sm_110a", 64, 22, 0, 0, 24),
    ("sm_110a", 32, 94, 0, 0, 20),
    ("sm_110a", 256, 103, 232448, 0, 1),
    ("sm_110a", 32, 31, 66349, 2, 3),
    ("sm_110a", 128, 217, 19297, 16, 1),
    ("sm_120a", 96, 60, 12639, 1, 7),
    ("sm_120a", 160, 80, 0, 5, 4),
    ("sm_120a", 187, 22, 54396, 1, 1),
    ("sm_120a", 128, 20, 5261, 1, 12),
    ("sm_121a", 64, 74, 0, 1, 12),
    ("sm_121a", 64, 129, 0, 2, 6),
    ("sm_121a", 96, 170, 11136, 5, 2),
    ("sm_121a", 160, 220, 5921, 5, 1),
]


@in_one_test(("name", "threads", "registers", "shared", "barriers", "ctas"), CASES)
def test_as_the_calculator_of_cuda(
    name: str, threads: int, registers: int, shared: int, barriers: int, ctas: int
) -> None:
    resident = occupancy(
        TARGETS[name], threads, registers=registers, shared=shared, barriers=barriers
    )
    assert resident.ctas == ctas
    assert resident.warps == ctas * -(-threads // 32)
    assert resident.limits[resident.limited_by[0]] == ctas


def test_every_target_has_an_sm_and_a_cta_never_more_shared_memory_than_it() -> None:
    for target in TARGETS.values():
        sm = MULTIPROCESSORS[target.capability]
        assert target.shared_bytes + sm.reserved == sm.shared * 1024


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limits"),
    [
        (32, 16, 0, ("CTAs",)),
        (1024, 32, 0, ("threads", "registers")),
        (256, 128, 0, ("registers",)),
        (128, 32, 100_000, ("shared memory",)),
        (1024, 65, 0, ("registers",)),
        (64, 32, 300_000, ("shared memory",)),
    ],
)
def test_what_runs_out_first(
    threads: int, registers: int, shared: int, limits: tuple[str, ...]
) -> None:
    resident = occupancy(TARGETS["sm_90a"], threads, registers=registers, shared=shared)
    assert resident.limited_by == limits
