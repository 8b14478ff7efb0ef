"""The GPU targets ptxlab knows, as data: what ``--arch`` may name and what each one's tensor cores do.

Tensor-core parameters: MMA-Sim (arXiv 2511.10909) and Khattak & Mikaitis (arXiv 2512.07004), which
agree on every number here, as github.com/sf-tensor/tcgen05 does of tcgen05; what ptxas makes of an instruction
that a chip has not, by reading SASS. See ``ptxlab.numbers.tensor_core`` for what the numbers mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

WARP = 32
"""The threads of a warp, on every target: its lanes."""

WARPGROUP = 4 * WARP
"""The threads of a warpgroup."""


@dataclass(frozen=True, slots=True)
class DotProduct:
    """How one generation of tensor cores adds up a dot product.

    fraction_bits: bits kept below the largest exponent before the terms are truncated (F).
    chunk: 16-bit products fused in one step (L), half as many of 32 and twice as many of 8 bits;
        the rounded result of a step enters the next one.
    zero_exponent_f16, zero_exponent_f32: exponent given to a zero term, by type of D.
    result_bits: fraction bits of an f32 D; those below are zero.
    """

    fraction_bits: int
    chunk: int
    zero_exponent_f16: int
    zero_exponent_f32: int
    result_bits: int = 23


@dataclass(frozen=True, slots=True)
class UnpackedDotProduct:
    """An 8-bit dot product out of two of f16, which ptxas makes where tensor cores have no other.

    ``halves`` adds up first the products of k mod 4 in {0, 1}, starting from zero, and then those
    of k mod 4 in {2, 3}. C is added to the sum last, rounding to nearest even.
    """

    halves: DotProduct


@dataclass(frozen=True, slots=True)
class GroupedDotProduct:
    """How block-scaled products of 4-bit numbers add up.

    The ``group`` products that share their scales are added exactly. The sums, scaled, are the terms
    of one step with C, ``chunk`` products at a time, whose exponents are those of the scales alone.
    """

    fraction_bits: int
    group: int
    chunk: int
    zero_exponent: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How the tensor cores of one generation compute, by what they multiply.

    types: the floating-point types of A and B that mma.sync takes, but f64.
    dot16: f16, bf16 and tf32.
    wmma_tf32: tf32 in wmma.mma, whose steps have four products on every chip.
    dot8: the 8-bit containers of mma.sync (e4m3, e5m2, e3m2, e2m3, e2m1).
    dot8_async: the same in wgmma and tcgen05.mma.
    m8n8k4: f16 in mma.m8n8k4, which is a sequence of float32 operations where this is None.
    grouped4: block-scaled e2m1 (kind::mxf4 and kind::mxf4nvf4). Kind::mxf8f6f4 is dot8, scaled.

    None elsewhere: the generation has no such instruction.
    """

    types: tuple[str, ...]
    dot16: DotProduct
    wmma_tf32: DotProduct
    m8n8k4: DotProduct | None = None
    dot8: DotProduct | UnpackedDotProduct | None = None
    dot8_async: DotProduct | None = None
    grouped4: GroupedDotProduct | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One ``.target``: its name, compute capability as major*10+minor, and what it can do.

    ``shared_bytes`` is the most shared memory a CTA may have (CUDA C++ Programming Guide, "Technical
    Specifications per Compute Capability", and of sm_107 CUTLASS's arch.h); ``arithmetic`` is that of
    its tensor cores, which is its nearest relative's where nobody has ``measured`` its own. Public measurements are arXiv
    2511.10909 and 2512.07004, and for sm_86 arXiv 2510.15884, which found an RTX 3060 like an A100.
    """

    name: str
    capability: int
    shared_bytes: int
    arithmetic: Arithmetic = field(repr=False)
    suffix: str = ""
    measured: bool = True

    @property
    def dot16(self) -> DotProduct:
        """How the tensor cores add up f16, bf16 and tf32 products."""
        return self.arithmetic.dot16

    def runs(self, needed: str) -> bool:
        """Say whether code for the ``.target`` ``needed`` runs here (same family, or plain and older)."""
        digits = needed.removeprefix("sm_")
        number = _number(digits)
        if digits.endswith("a"):
            return number == self.capability and self.suffix == "a"
        if digits.endswith("f"):
            return (
                number // 10 == self.capability // 10
                and number <= self.capability
                and bool(self.suffix)
            )
        return number <= self.capability


_VOLTA_16 = DotProduct(23, 4, -19, -131)
_TURING_16 = DotProduct(24, 8, -20, -132)
_HOPPER_16 = DotProduct(25, 16, -21, -133)
_HOPPER_TF32 = replace(_HOPPER_16, chunk=8)
_BLACKWELL_4 = GroupedDotProduct(35, 16, 64, -139)

_SINCE_AMPERE = ("f16", "bf16", "tf32")
_SINCE_ADA = (*_SINCE_AMPERE, "e4m3", "e5m2")

_TURING = Arithmetic(("f16",), _TURING_16, _TURING_16, m8n8k4=_VOLTA_16)
_AMPERE = Arithmetic(_SINCE_AMPERE, _TURING_16, _TURING_16)
_ADA = Arithmetic(
    _SINCE_ADA,
    _TURING_16,
    _TURING_16,
    dot8=replace(_TURING_16, fraction_bits=13, result_bits=13),
)
_HOPPER = Arithmetic(
    _SINCE_ADA,
    _HOPPER_16,
    _HOPPER_TF32,
    dot8=UnpackedDotProduct(_HOPPER_16),
    dot8_async=replace(_HOPPER_16, fraction_bits=13, result_bits=13),
)
_BLACKWELL = replace(_HOPPER, dot8_async=_HOPPER_16, grouped4=_BLACKWELL_4)
_RTX_BLACKWELL = Arithmetic(
    (*_SINCE_ADA, "e3m2", "e2m3", "e2m1"),
    _HOPPER_16,
    _HOPPER_TF32,
    dot8=_HOPPER_16,
    grouped4=_BLACKWELL_4,
)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sm_75", 75, 64 * 1024, _TURING),
        Target("sm_80", 80, 163 * 1024, _AMPERE),
        Target("sm_86", 86, 99 * 1024, _AMPERE),
        Target("sm_87", 87, 163 * 1024, _AMPERE, measured=False),
        Target("sm_89", 89, 99 * 1024, _ADA),
        Target("sm_90", 90, 227 * 1024, _HOPPER),
        Target("sm_90a", 90, 227 * 1024, _HOPPER, "a"),
        Target("sm_100", 100, 227 * 1024, _BLACKWELL),
        Target("sm_100a", 100, 227 * 1024, _BLACKWELL, "a"),
        Target("sm_103", 103, 227 * 1024, _BLACKWELL, measured=False),
        Target("sm_103a", 103, 227 * 1024, _BLACKWELL, "a", measured=False),
        Target("sm_107", 107, 327 * 1024, _BLACKWELL, measured=False),
        Target("sm_107a", 107, 327 * 1024, _BLACKWELL, "a", measured=False),
        Target("sm_110", 110, 227 * 1024, _BLACKWELL, measured=False),
        Target("sm_110a", 110, 227 * 1024, _BLACKWELL, "a", measured=False),
        Target("sm_120", 120, 99 * 1024, _RTX_BLACKWELL),
        Target("sm_120a", 120, 99 * 1024, _RTX_BLACKWELL, "a"),
        Target("sm_121", 121, 99 * 1024, _RTX_BLACKWELL, measured=False),
        Target("sm_121a", 121, 99 * 1024, _RTX_BLACKWELL, "a", measured=False),
    )
}

DEFAULT_TARGET = "sm_90a"

_SINCE: dict[int, tuple[int, int]] = {
    **dict.fromkeys((10, 11, 12, 13, 20, 21, 30, 32, 35, 37, 50, 52, 53, 60, 61, 62, 70), (6, 0)),
    72: (6, 1), 75: (6, 3), 80: (7, 0), 82: (6, 2), 86: (7, 1), 87: (7, 4), 88: (9, 0), 89: (7, 8),
    90: (7, 8), 100: (8, 6), 101: (8, 6), 103: (8, 8), 107: (9, 4), 110: (9, 0), 120: (8, 7), 121: (8, 8),
}  # fmt: skip
"""The first ``.version`` that has a ``.target``, as ptxas has it, or 6.0, the oldest that is read here."""

_OF_ITS_OWN = {"": (0, (6, 0)), "a": (90, (8, 0)), "f": (100, (8, 8))}
"""By the end of a name, the first capability and ``.version`` with such targets."""


def _number(digits: str) -> int:
    """Return the capability of ``101a`` behind ``sm_``: since PTX 9.0 what was called 101 is 110."""
    number = int(digits.rstrip("af"))
    return 110 if number == 101 else number


@cache
def target_named(name: str) -> Target:
    """Return a target by its name, or one that it had; of one outside of the table only the name is known."""
    digits = name.removeprefix("sm_")
    number, suffix = _number(digits), digits[-1] if digits[-1] in "af" else ""
    name = f"sm_{number}{suffix}"
    if name in TARGETS:
        return TARGETS[name]
    older = [target for target in TARGETS.values() if target.capability <= number] or [
        *TARGETS.values()
    ]
    nearest = max(older, key=lambda target: target.capability)
    return replace(nearest, name=name, capability=number, suffix=suffix)


def ptx_since(target: str) -> tuple[int, int] | None:
    """Return the first ``.version`` that has a ``.target``, None where no version has.

    Of one that is newer than all known here it is that of its kind.
    """
    digits = target.removeprefix("sm_")
    number, suffix = int(digits.rstrip("af")), digits[-1] if digits[-1] in "af" else ""
    first, since = _OF_ITS_OWN[suffix]
    if number < first or (number not in _SINCE and number < max(_SINCE)):
        return None
    return max(since, _SINCE.get(number, since))
