"""The GPU targets ptxlab knows, as data: what ``--arch`` may name and what each one's tensor cores do.

Tensor-core parameters: MMA-Sim (arXiv 2511.10909) and Khattak & Mikaitis (arXiv 2512.07004), which
agree on every number here. See ``ptxlab.emulator.tensor_core`` for what the numbers mean.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DotProduct:
    """How one generation of tensor cores adds up a 16-bit dot product.

    fraction_bits: bits kept below the largest exponent before the terms are truncated (F).
    chunk: products fused in one step (L); the rounded result of a step enters the next one.
    zero_exponent_f16, zero_exponent_f32: exponent given to a zero term, by type of D.
    """

    fraction_bits: int
    chunk: int
    zero_exponent_f16: int
    zero_exponent_f32: int


@dataclass(frozen=True, slots=True)
class Target:
    """One ``.target``: its name, compute capability as major*10+minor, and what it can do.

    ``shared_bytes`` is the most shared memory a CTA may have (CUDA C++ Programming Guide, "Technical
    Specifications per Compute Capability"); ``dot16`` is the arithmetic of its tensor cores.
    """

    name: str
    capability: int
    shared_bytes: int
    dot16: DotProduct
    suffix: str = ""

    def runs(self, needed: str) -> bool:
        """Say whether code for the ``.target`` ``needed`` runs here (same family, or plain and older)."""
        digits = needed.removeprefix("sm_")
        number = int(digits.rstrip("af"))
        if digits.endswith("a"):
            return number == self.capability and self.suffix == "a"
        if digits.endswith("f"):
            return (
                number // 10 == self.capability // 10
                and number <= self.capability
                and bool(self.suffix)
            )
        return number <= self.capability


_TURING_TO_ADA = DotProduct(24, 8, -20, -132)
_HOPPER_ON = DotProduct(25, 16, -21, -133)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sm_75", 75, 64 * 1024, _TURING_TO_ADA),
        Target("sm_80", 80, 163 * 1024, _TURING_TO_ADA),
        Target("sm_86", 86, 99 * 1024, _TURING_TO_ADA),
        Target("sm_87", 87, 163 * 1024, _TURING_TO_ADA),
        Target("sm_89", 89, 99 * 1024, _TURING_TO_ADA),
        Target("sm_90", 90, 227 * 1024, _HOPPER_ON),
        Target("sm_90a", 90, 227 * 1024, _HOPPER_ON, "a"),
        Target("sm_100", 100, 227 * 1024, _HOPPER_ON),
        Target("sm_100a", 100, 227 * 1024, _HOPPER_ON, "a"),
        Target("sm_103a", 103, 227 * 1024, _HOPPER_ON, "a"),
        Target("sm_120", 120, 99 * 1024, _HOPPER_ON),
        Target("sm_120a", 120, 99 * 1024, _HOPPER_ON, "a"),
    )
}

DEFAULT_TARGET = "sm_90a"
