"""A probe kernel: a generated kernel, the records its warps are given, and those they must give back.

Each warp, or warpgroup, is one probe. The records are those of ``ptxlab.fragments.probe_kernel``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.protocol import Device, Kernel
from ptxlab.fragments.probe_kernel import KernelBody
from ptxlab.fragments.report import Mismatch
from ptxlab.matrix.form import Form

_EXPLAINED = 4096
"""Words of a probe kernel whose elements are named at most."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbeKernel(ABC):
    """A kernel around the instruction of ``form``, the records ``given`` to it and those ``expected``.

    Of the latter the first ``unspecified`` words of a lane are such as PTX leaves to the target:
    ``expected`` has what ptxlab's emulator makes them.
    """

    form: Form
    body: KernelBody
    given: Array
    expected: Array

    @property
    def count(self) -> int:
        return len(self.given)

    @property
    def unspecified(self) -> int:
        return 0

    def wrong(self, words: Array, promised_only: bool) -> Array:
        """Return (probe, lane, word) of every word that differs; of those PTX promises, or of all."""
        first = self.unspecified if promised_only else 0
        differing = words != self.expected
        differing[..., :first] = False
        return np.argwhere(differing)

    def mismatches(self, words: Array, wrong: Array) -> Iterator[Mismatch]:
        """Yield the elements that differ in the words that are ``wrong``, each place once.

        Of very many words some are taken, from the first to the last.
        """
        seen = set()
        step = -(-len(wrong) // _EXPLAINED) or 1
        for probe, lane, word in wrong[::step].tolist():
            both = int(self.expected[probe, lane, word]), int(words[probe, lane, word])
            for mismatch in self.explain(probe, lane, word, *both):
                m = mismatch
                key = (m.operand, m.lane, m.register, m.element, m.column)
                if key not in seen:
                    seen.add(key)
                    yield mismatch

    def result(self, words: Array) -> Array | None:
        """Return D, bit patterns, as the first probe leaves it; None of what multiplies nothing."""
        return None

    @abstractmethod
    def explain(
        self, probe: int, lane: int, word: int, expected: int, actual: int
    ) -> Iterator[Mismatch]:
        """Yield what is wrong with the elements in one word, by the operand the probe looks at."""


def record(registers: Array, shared: Array | None = None) -> Array:
    """Return records of [probes, threads, registers] words and [probes, bytes] of shared memory."""
    words = np.ascontiguousarray(registers, np.uint64)
    if shared is None:
        return words
    share = np.ascontiguousarray(shared, np.uint8).reshape(*words.shape[:2], -1)
    return np.concatenate([words, share.view(np.uint64)], axis=-1)


def packed(numbers: Array, bits: int) -> Array:
    """Return the bytes, [..., bytes], of numbers [..., n] of so many bits next to each other."""
    word = numbers.dtype
    single = numbers[..., np.newaxis] >> np.arange(bits, dtype=word) & word.type(1)
    flat = single.astype(np.uint8).reshape(*numbers.shape[:-1], -1)
    return np.packbits(flat, axis=-1, bitorder="little")


def launch(device: Device, kernel: Kernel, probe_kernel: ProbeKernel, *more: object) -> Array:
    """Run all probes of a probe kernel and return the records they wrote; ``more`` are further arguments."""
    with (
        device.upload(probe_kernel.given) as given,
        device.zeros(probe_kernel.expected.shape, "u64") as records,
    ):
        kernel.launch(len(probe_kernel.given), probe_kernel.body.threads, [given, records, *more])
        return records.numpy()
