"""What a launch would take if something cost nothing, or if more or fewer CTAs shared an SM: predicted as any other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.errors import PtxlabError, did_you_mean
from ptxlab.isa.occupancy import Occupancy
from ptxlab.isa.targets import WARP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.row import accessed_bytes, matrices
from ptxlab.machine.values import Array
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.memory.l2 import Reuse
from ptxlab.prediction.sm.requests import LINE, Request
from ptxlab.prediction.sm.timing import InstructionTiming
from ptxlab.prediction.sm.warps import Asked

INFINITE = float("inf")
_AT_ONCE = 1 << 62
"""FLOP a clock that take no time."""

CHANGES = {
    "smem=conflict-free": "no lanes meet in a bank of shared memory",
    "dram=inf": "the L2 cache has all that is asked for",
    "l2=inf": "what an SM asks for beyond it comes as soon as the first of it",
    "stalls=0": "a warp's next instruction waits for no stall that ptxas wrote",
    "ports=inf": "the registers of an instruction are read at once",
    "lsu=inf": "shared memory and L1 serve whatever is asked for at once",
    "tensor=inf": "products of tensor cores hold them for no time",
    "fma=inf": "FP32's pipes take an instruction each clock",
    "alu=inf": "so do those of integers and logic",
    "xu=inf": "and of special functions",
    "launch=0": "the first CTA begins at once",
    "ctas=inf": "and so do others for which there is room",
}
"""What is changed of a chip or a kernel, beside ``occupancy=N``, and what it means."""

EVERY = "all"
"""Each change alone, and one CTA more."""

_PIPES = {"fma=inf": ("fmaheavy", "fmalite", "fma2"), "alu=inf": ("alu",), "xu=inf": ("xu",)}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """``changes`` that are made together, and how many CTAs share an SM where it is not what fits: ``occupancy``."""

    changes: frozenset[str] = frozenset()
    occupancy: int | None = None

    @classmethod
    def read(cls, text: str) -> WhatIf:
        """Read changes with commas between. Raises PtxlabError for what is none."""
        changes, occupancy = set(), None
        for word in filter(None, (part.strip() for part in text.split(","))):
            if match := re.fullmatch(r"occupancy=([1-9]\d*)", word):
                occupancy = int(match[1])
            elif word in CHANGES:
                changes.add(word)
            else:
                known = ["occupancy=N", *CHANGES]
                raise PtxlabError(
                    f"{word!r} changes nothing that is predicted: {', '.join(known)}, or {EVERY}",
                    hint=did_you_mean(word, known),
                )
        return cls(frozenset(changes), occupancy)

    def __str__(self) -> str:
        occupancy = [f"occupancy={self.occupancy}"] if self.occupancy else []
        return ",".join([*occupancy, *(change for change in CHANGES if change in self.changes)])

    def fits(self, fits: Occupancy) -> Occupancy:
        """Return how many CTAs share an SM."""
        return replace(fits, ctas=self.occupancy) if self.occupancy else fits

    def chip(self, chip: Chip) -> Chip:
        """Return the chip without what is changed of it."""
        pipes = (pipe for change in self.changes for pipe in _PIPES.get(change, ()))
        holds = chip.holds | {pipe: 1 for pipe in pipes if pipe in chip.holds}
        memory, gpu = chip.memory, chip.gpu
        if "lsu=inf" in self.changes:
            memory = replace(memory, request=0, wavefront=0)
        if "l2=inf" in self.changes:
            inf = INFINITE
            memory = replace(memory, l2_bytes=inf, stored_bytes=inf, copied_bytes=inf, row=0.0)
        if "tensor=inf" in self.changes:
            gpu = replace(gpu, tensor=dict.fromkeys(gpu.tensor, _AT_ONCE))
        cta = 0.0 if "ctas=inf" in self.changes else chip.cta
        return replace(chip, holds=holds, memory=memory, gpu=gpu, cta=cta)

    def timing(self, t: InstructionTiming) -> InstructionTiming:
        """Return what an instruction costs then."""
        stall = 1 if "stalls=0" in self.changes else t.stall
        return replace(t, stall=stall, reads=() if "ports=inf" in self.changes else t.reads)

    def reuse(self, reuse: Reuse) -> Reuse:
        """Return what the L2 cache has then."""
        return Reuse() if "dram=inf" in self.changes else reuse

    def requests(
        self,
        code: Sequence[DecodedInstruction],
        numbers: Array,
        requests: Mapping[int, Request | Asked],
    ) -> Mapping[int, Request | Asked]:
        """Return what steps ask for then, ``numbers`` being their instructions: the same mapping where that is no change."""
        if "smem=conflict-free" not in self.changes:
            return requests
        without = {
            step: _without_conflicts(code[numbers[step]], asked) for step, asked in requests.items()
        }
        return requests if all(without[step] is requests[step] for step in requests) else without


NOTHING = WhatIf()


def alone(fits: Occupancy) -> tuple[WhatIf, ...]:
    """Return each change alone, and one CTA more than ``fits``."""
    return (
        *(WhatIf(frozenset({change})) for change in CHANGES),
        WhatIf(occupancy=fits.ctas + 1),
    )


def _without_conflicts(i: DecodedInstruction, asked: Request | Asked) -> Request | Asked:
    row = i.known
    if not isinstance(asked, Request) or not (asked.pattern is None or row.space == "copy"):
        return asked
    modifiers = i.sass.modifiers
    least = matrices(modifiers) if row.matrix else -(-WARP * accessed_bytes(modifiers) // LINE)
    passes = np.minimum(asked.passes, least)
    return asked if np.array_equal(passes, asked.passes) else replace(asked, passes=passes)
