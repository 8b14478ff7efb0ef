"""Targets and types: what runs where, and how wide a value is."""

from __future__ import annotations

import numpy as np

from ptxlab.isa.targets import TARGETS, target_named
from ptxlab.numbers.types import TYPES
from tests.together import in_one_test


@in_one_test(
    ("target", "needed", "runs"),
    [
        ("sm_90a", "sm_80", True),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_90a", True),
        ("sm_90", "sm_90a", False),
        ("sm_100a", "sm_90a", False),
        ("sm_120a", "sm_100a", False),
        ("sm_120a", "sm_90", True),
        ("sm_80", "sm_86", False),
        ("sm_75", "sm_80", False),
        ("sm_100a", "sm_100f", True),
        ("sm_103a", "sm_100f", True),
        ("sm_100a", "sm_103f", False),
        ("sm_120a", "sm_100f", False),
        ("sm_100", "sm_100f", False),
        ("sm_107a", "sm_107f", True),
        ("sm_107a", "sm_103f", True),
        ("sm_107a", "sm_103a", False),
        ("sm_107a", "sm_110f", False),
        ("sm_103a", "sm_107f", False),
        ("sm_107", "sm_107f", False),
        ("sm_110a", "sm_110f", True),
        ("sm_110a", "sm_100f", False),
        ("sm_110a", "sm_100a", False),
        ("sm_110a", "sm_101a", True),
        ("sm_110a", "sm_101f", True),
        ("sm_110", "sm_101", True),
        ("sm_100a", "sm_101f", False),
        ("sm_121a", "sm_120f", True),
        ("sm_121a", "sm_120a", False),
        ("sm_121a", "sm_110f", False),
        ("sm_121", "sm_120f", False),
    ],
)
def test_what_runs_where(target: str, needed: str, runs: bool) -> None:
    """PTX ISA, ".target": plain code runs on anything newer, ``a`` on itself, ``f`` in its family."""
    assert TARGETS[target].runs(needed) is runs
    assert target_named("sm_101a") is TARGETS["sm_110a"]


def test_whose_tensor_cores_have_been_measured() -> None:
    """Of Orin, B300, Rubin, Thor and DGX Spark nobody has published what their sums are."""
    unmeasured = {target.capability for target in TARGETS.values() if not target.measured}
    measured = {target.capability for target in TARGETS.values() if target.measured}
    assert unmeasured == {87, 103, 107, 110, 121}
    assert not unmeasured & measured


def test_names_and_capabilities_agree() -> None:
    for name, target in TARGETS.items():
        assert name == target.name == f"sm_{target.capability}{target.suffix}"


def test_types_are_as_wide_as_their_names_say() -> None:
    for name, scalar in TYPES.items():
        single, times = (name[:-2], int(name[-1])) if name[-2:] in ("x2", "x4") else (name, 1)
        digits = "".join(c for c in single if c.isdigit())
        width = 1 if name == "pred" else int(digits) * times
        container = 32 if name == "tf32" else width
        assert scalar.bits == container, name
        assert scalar.bytes == max(1, container // 8)
        assert np.zeros(1, scalar.dtype).itemsize == scalar.bytes
