"""A trial: a generated kernel, what it is given, and what it must give back.

Each warp is a CTA and one probe. It reads a record, does what the trial is about, and writes a record.
Records are 64-bit words, [probes, 32 lanes, words]: of every lane one word a register, then, where the
trial uses shared memory, the lane's equal share of it, before and after.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from ptxlab.device.protocol import Device, Kernel
from ptxlab.fragments.numbers import Array
from ptxlab.fragments.report import Mismatch
from ptxlab.fragments.specimen import WORD_BYTES, header
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import Form
from ptxlab.matrix.operand import Role

VECTOR_BYTES = 16
SHARE_BYTES = WARP * VECTOR_BYTES
"""Shared memory comes in multiples of this: every lane copies whole vectors."""

KERNEL = "trial"
_EXPLAINED = 4096
"""Words of a trial whose elements are named at most."""

Register = tuple[str, str]
"""A register's name and PTX type."""


@dataclass(frozen=True, slots=True)
class TrialStep:
    """Lines of PTX, and the registers that are written to the record after them."""

    lines: tuple[str, ...]
    results: tuple[Register, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """What a kernel does between its records.

    ``registers`` are all it uses, ``sources`` those that come from the record. With ``shared_bytes``
    it has as much shared memory, which begins at the address in register ``base``.
    """

    registers: tuple[Register, ...]
    sources: tuple[Register, ...]
    steps: tuple[TrialStep, ...]
    shared_bytes: int = 0

    @property
    def results(self) -> tuple[Register, ...]:
        """The registers of the record that is written."""
        return tuple(register for step in self.steps for register in step.results)

    def kernel(self, name: str) -> str:
        """Return the kernel, which takes the addresses of the records it reads and writes."""
        share = self.shared_bytes // WARP
        given, wanted = (WORD_BYTES * len(r) + share for r in (self.sources, self.results))
        loads = [
            f"ld.global.{kind} {register}, [from+{WORD_BYTES * i}];"
            for i, (register, kind) in enumerate(self.sources)
        ]
        work: list[str] = []
        slots = count()
        for step in self.steps:
            work += step.lines
            work += (
                f"st.global.{kind} [to+{WORD_BYTES * next(slots)}], {register};"
                for register, kind in step.results
            )
        lines = [
            *(f".reg .{kind} {register};" for register, kind in self.registers),
            ".reg .b32 lane, thread;",
            ".reg .b64 from, to;",
            "mov.u32 lane, %tid.x;",
            "mov.u32 thread, %ctaid.x;",
            f"mad.lo.u32 thread, thread, {WARP}, lane;",
            "ld.param.u64 from, [in];",
            "ld.param.u64 to, [out];",
            f"mad.wide.u32 from, thread, {given}, from;",
            f"mad.wide.u32 to, thread, {wanted}, to;",
            *loads,
            *(self._fill() if share else ()),
            *work,
            *(self._drain() if share else ()),
            "ret;",
        ]
        head = f".visible .entry {name}(.param .u64 in, .param .u64 out)"
        return "\n".join([head, "{", *(f"    {line}" for line in lines), "}"])

    def _fill(self) -> Iterator[str]:
        share = self.shared_bytes // WARP
        yield f".shared .align 128 .b8 tile[{self.shared_bytes}];"
        yield ".reg .b32 base, own, v0, v1, v2, v3;"
        yield "mov.u32 base, tile;"
        yield f"mad.lo.u32 own, lane, {share}, base;"
        for at in range(0, share, VECTOR_BYTES):
            first = WORD_BYTES * len(self.sources) + at
            for i in range(4):
                yield f"ld.global.b32 v{i}, [from+{first + 4 * i}];"
            yield f"st.shared.v4.b32 [own+{at}], {{v0, v1, v2, v3}};"
        yield "bar.sync 0;"

    def _drain(self) -> Iterator[str]:
        yield "bar.sync 0;"
        for at in range(0, self.shared_bytes // WARP, VECTOR_BYTES):
            first = WORD_BYTES * len(self.results) + at
            yield f"ld.shared.v4.b32 {{v0, v1, v2, v3}}, [own+{at}];"
            for i in range(4):
                yield f"st.global.b32 [to+{first + 4 * i}], v{i};"


@dataclass(frozen=True, slots=True, eq=False)
class Trial(ABC):
    """A kernel around the instruction of ``form``, the records ``given`` to it and those ``expected``.

    Of the latter the first ``unspecified`` words of a lane are such as PTX leaves to the target:
    ``expected`` has what ptxlab's emulator makes them.
    """

    form: Form
    body: Body
    given: Array
    expected: Array

    @property
    def count(self) -> int:
        return len(self.given)

    @property
    def unspecified(self) -> int:
        """How many words of a lane PTX leaves to the target."""
        return 0

    def wrong(self, found: Array, promised_only: bool) -> Array:
        """Return (probe, lane, word) of every word that differs; of those PTX promises, or of all."""
        first = self.unspecified if promised_only else 0
        differing = found != self.expected
        differing[..., :first] = False
        return np.argwhere(differing)

    def mismatches(self, found: Array, wrong: Array) -> Iterator[Mismatch]:
        """Yield the elements that differ in the words that are ``wrong``, each place once.

        Of very many words some are taken, from the first to the last.
        """
        seen = set()
        step = -(-len(wrong) // _EXPLAINED) or 1
        for probe, lane, word in wrong[::step].tolist():
            both = int(self.expected[probe, lane, word]), int(found[probe, lane, word])
            for mismatch in self.explain(probe, lane, word, *both):
                place = (mismatch.operand, mismatch.lane, mismatch.register, mismatch.element)
                if place not in seen:
                    seen.add(place)
                    yield mismatch

    def result(self, found: Array) -> Array | None:
        """Return D, bit patterns, as the first probe leaves it; None of what multiplies nothing."""
        return None

    @abstractmethod
    def explain(
        self, probe: int, lane: int, word: int, expected: int, found: int
    ) -> Iterator[Mismatch]:
        """Yield what is wrong with the elements in one word, by the operand the probe looks at."""


def registers(form: Form, role: Role) -> tuple[Register, ...]:
    """Return the registers of the operands in a role, in the order PTX writes them."""
    operands = [operand for operand in form.signature if operand.role == role]
    return tuple((register, o.type) for o in operands for register in o.registers)


def record(registers: Array, shared: Array | None = None) -> Array:
    """Return records of [probes, 32, registers] words and [probes, bytes] of shared memory."""
    words = np.ascontiguousarray(registers, np.uint64)
    if shared is None:
        return words
    share = np.ascontiguousarray(shared, np.uint8).reshape(len(shared), WARP, -1)
    return np.concatenate([words, share.view(np.uint64)], axis=-1)


def module(kernels: Sequence[tuple[Form, Body]], target: str) -> str:
    """Return the PTX of one kernel each, ``trial0`` and so on."""
    texts = (body.kernel(f"{KERNEL}{i}") for i, (_, body) in enumerate(kernels))
    return "\n".join([*header(target, [form for form, _ in kernels]), *texts]) + "\n"


def launch(device: Device, kernel: Kernel, trial: Trial, *more: object) -> Array:
    """Run all probes of a trial and return the records they wrote; ``more`` are further arguments."""
    with device.upload(trial.given) as given, device.zeros(trial.expected.shape, "u64") as found:
        kernel.launch(trial.count, WARP, [given, found, *more])
        return found.numpy()
