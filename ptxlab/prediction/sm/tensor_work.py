"""What one thread has the tensor core do: products, copies to Tensor Memory, commits; and columns that a warp takes.

A product of m x n by 32 bytes of k takes as long in all types, and no less than its operands in shared memory
take to be read.

Source: microbenchmarks of single products and of many on B200, SemiAnalysisAI/microbench-blackwell,
``umma_latency`` and ``umma_throughput``: what is worked out of these is 3 cycles off what 264 forms and shapes
take alone, 14 at most, and 0.6 off what they take one behind the other, 4.4 at most.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.errors import Unsupported
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.sm.mbarriers import Key

_K_BYTES = 32
_K = 16
"""Of factors of 16 bits, of which a chip's rate is told."""
_SHARED_BYTES = 128
_LEAST_ROWS = 128
"""A CTA alone with fewer rows takes as long: half of the lanes have nothing to do."""


@dataclass(frozen=True, slots=True)
class TensorProduct:
    """One of m x n, by ``ctas`` CTAs together. ``in_shared`` says where A is; B is in shared memory."""

    m: int
    n: int
    ctas: int
    in_shared: bool

    def multiplied(self, chip: Chip) -> float:
        """Return how many cycles the multiplication takes."""
        rows = max(self.m, _LEAST_ROWS)
        return 2 * rows * self.n * _K / (chip.gpu.tensor["bf16", "f32"] * self.ctas)

    @property
    def a_read(self) -> float:
        """How many cycles it takes to read a CTA's rows of A from shared memory."""
        return self.m / self.ctas * _K_BYTES / _SHARED_BYTES if self.in_shared else 0

    @property
    def b_read(self) -> float:
        return self.n / self.ctas * _K_BYTES / _SHARED_BYTES


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """A copy that writes ``nbytes`` of a CTA's Tensor Memory."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Has the mbarrier ``key`` told when all is done that was queued before."""

    key: Key
    ctas: int = 1


@dataclass(frozen=True, slots=True)
class Columns:
    """Takes so many granules of Tensor Memory, or gives back all that a CTA has, where that is none."""

    granules: int


Queued = TensorProduct | TensorCopy | Commit | Columns


UNTIMED = ("WS", "ASHIFT")
"""What a product's modifiers say of which nobody says how long it takes."""

_WRITTEN = {
    "": 128 * 32, "128dp128bit": 128 * 16, "4x32dp128bit": 128 * 16, "2x64dp128bit": 128 * 16, "4dp256bit": 4 * 32,
}  # fmt: skip
"""Bytes of Tensor Memory that a copy writes, by its shape: lanes times bytes."""


def written(i: DecodedInstruction) -> int:
    """Return how many bytes of Tensor Memory a copy writes."""
    shapes = [
        modifier for modifier in i.sass.modifiers if modifier[0].isdigit() and "dp" in modifier
    ]
    shape = shapes[0].partition("_")[0] if shapes else ""
    if shape not in _WRITTEN:
        raise Unsupported(f"nobody says how long '{i.sass.text}' takes")
    return _WRITTEN[shape]
