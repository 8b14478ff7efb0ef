"""The probe kernels of ``wgmma``: right on the emulator, and a slip in any layout is caught.

Where the probe kernels put a matrix is compared with the formula of the PTX ISA, and not with how the emulator
gathers it; every twin is a slip in what the probe kernels are made from, of which the emulator knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.fragments.probe_kernel import module
from ptxlab.fragments.probes import probe_kernels, warpgroup
from ptxlab.fragments.probes.kernel import launch
from ptxlab.fragments.probes.multiply import MultiplyProbeKernel
from ptxlab.fragments.report import Mismatch
from ptxlab.fragments.sweep import SAMPLED, sweep
from ptxlab.fragments.verify import verify
from ptxlab.layouts.layout import Swizzle
from ptxlab.matrix.canonical import MODES, SharedTile
from ptxlab.matrix.catalog import matching
from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.sparse import Metadata
from ptxlab.matrix.wgmma import WGMMA
from ptxlab.syntax.printer import to_text
from ptxlab.verbs.fragments.sweep import sentence
from tests.emulator.matrix.warpgroups import CODES, Placed, unpack_groups
from tests.fragments.test_probes import some, with_tampered

Patch = pytest.MonkeyPatch

LEAST = [form for form in WGMMA if form.n == SAMPLED[0] and not form.satfinite]


@pytest.fixture(scope="module")
def hopper() -> Device:
    return open_device("emulator", arch="sm_90a")


def form(name: str) -> MatrixInstruction:
    instruction = matching(name)[0]
    assert isinstance(instruction, MatrixInstruction)
    return instruction


def test_of_each_line_a_few_n_are_run_and_the_others_assembled(hopper: Device) -> None:
    line = [form for form in WGMMA if form.line == LEAST[0].line and form.variant == "ss"][:5]
    outcomes = sweep(hopper, line, everywhere=False)
    ran = {outcome.form.key: outcome.probes > 0 for outcome in outcomes}
    assert ran == {instruction.key: instruction.n in SAMPLED for instruction in line}
    assert {outcome.status for outcome in outcomes} == {"emulator", "assembled"}
    every = sweep(hopper, line, everywhere=False, every_n=True)
    assert all(outcome.probes for outcome in every)
    assert {outcome.status for outcome in every} == {"emulator"}


@pytest.mark.parametrize(
    "instruction",
    [
        pytest.param(form, id=form.key, marks=[pytest.mark.thorough] * (number not in (0, 3, 4, 7)))
        for number, form in enumerate(LEAST[::7])
    ],
)
def test_instructions_are_where_the_layouts_say(
    hopper: Device, instruction: MatrixInstruction
) -> None:
    """One in seven of all types, of which half always run; ``ptxlab fragments --all`` takes every one.

    Among them are dense and sparse ones of all kinds of numbers, with A in registers and in shared memory.
    """
    assert found_in(hopper, instruction) == []


@pytest.mark.parametrize("name", ["m64n24k16.f32.bf16.ss", "m64n8k32.s32.s8.ss"])
def test_matrices_lie_where_the_ptx_isa_says(name: str) -> None:
    """D is the product of what the descriptors of the record lead to, by the formula of the ISA."""
    instruction = form(f"wgmma.{name}")
    seen = set()
    for probe_kernel in probe_kernels(instruction):
        assert isinstance(probe_kernel, MultiplyProbeKernel)
        along = probe_kernel.choices[0][-1] if instruction.a_type == "bf16" else 0
        kept = len(probe_kernel.body.sources)
        shared = np.ascontiguousarray(probe_kernel.given[..., kept:]).view(np.uint8)
        expected = unpack_groups(probe_kernel.expected, instruction.n, 4)
        for probe, memory in enumerate(shared.reshape(probe_kernel.count, -1)):
            a, b = (
                gathered(memory, int(word), "mn" if along else "k", mn, instruction)
                for word, mn in zip(probe_kernel.given[probe, 0], (64, instruction.n), strict=False)
            )
            adds = bool(probe_kernel.given[probe, 0, 2])
            d = np.zeros((64, instruction.n)) if adds else a @ b.T
            result = expected[probe].view("f4" if instruction.d_type == "f32" else "i4")
            assert adds or np.array_equal(result, d)
            assert not adds or not (a.any() or b.any())
            seen.add((along, int(probe_kernel.given[probe, 0, 0]) >> 62))
    assert {code for _, code in seen} == set(CODES.values())
    assert instruction.a_type != "bf16" or (1, CODES["none"]) in seen


def gathered(
    memory: Any, descriptor: int, major: str, mn: int, instruction: MatrixInstruction
) -> Any:
    """The matrix [mn, k] a descriptor leads to, of numbers."""
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    swizzle = next(name for name, code in CODES.items() if code == descriptor >> 62)
    size = 2 if instruction.a_type == "bf16" else 1
    row, k = np.indices((mn, instruction.k))
    at = Placed(start, leading, stride, swizzle, major).address(row, k, size)
    words = memory.view(f"u{size}")[at // size]
    if size == 1:
        return words.view(np.int8).astype(np.float64)
    return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def test_d_is_looked_at_after_the_wait(hopper: Device) -> None:
    report = verify(hopper, form("wgmma.m64n8k16.f32.f16.ss"), "ones")
    assert report.passed
    assert (report.shown.registers["D"].view(np.float32) == np.full((128, 4), 16)).all()
    assert report.shown.result is not None
    assert (report.shown.result.view(np.float32) == 16).all()


# ---- faulty twins ---------------------------------------------------------------------------


def found_in(device: Device, instruction: Form) -> list[Mismatch]:
    every = list(probe_kernels(instruction))
    loaded = device.load(
        module([(instruction, probe_kernel.body) for probe_kernel in every], "sm_90a")
    )
    mismatches: list[Mismatch] = []
    for probe_kernel, kernel in zip(every, loaded.kernels.values(), strict=True):
        words = launch(device, kernel, probe_kernel)
        mismatches += probe_kernel.mismatches(
            words, some(probe_kernel.wrong(words, promised_only=True))
        )
    return mismatches


# Rows and columns of both operands always run.
@pytest.mark.parametrize(
    ("name", "operand", "what"),
    [
        pytest.param(name, operand, what, marks=[pytest.mark.thorough] * (what != often))
        for name, operand, often in (
            ("f32.bf16.rs", "A", "row"),
            ("s32.s8.u8.rs", "A", "col"),
            ("f16.e4m3.ss", "D", "row"),
            ("sp.f32.f16.ss", "D", "col"),
        )
        for what in ("row", "col")
    ],
)
def test_two_lines_of_registers_exchanged(
    hopper: Device, name: str, operand: str, what: str
) -> None:
    mismatches = found_in(hopper, with_tampered(f"wgmma.{name}", (operand, what, 2, 5)))
    assert operand == "D" or operand in {mismatch.operand for mismatch in mismatches}
    assert mismatches


def of_swizzle(patch: Patch) -> None:
    """The 128-byte mode looks at the line before the one it should."""
    wrong = replace(MODES["128B"], swizzle=Swizzle(3, 4, 4))
    patch.setattr(warpgroup, "MODES", {**MODES, "128B": wrong})


def of_offsets(patch: Patch) -> None:
    """The descriptor's two offsets change places."""
    leading, stride = SharedTile.leading, SharedTile.stride
    patch.setattr(SharedTile, "leading", stride)
    patch.setattr(SharedTile, "stride", leading)


def of_step(patch: Patch) -> None:
    """The start is that of the step before."""
    right = SharedTile.advance
    patch.setattr(SharedTile, "advance", lambda tile, step: right(tile, step - 1))


def of_order(patch: Patch) -> None:
    """Neighbouring columns of B are exchanged."""
    right = warpgroup._Placed.elements

    def elements(placed: Any) -> Any:
        elements_there = right.fget(placed)  # type: ignore[attr-defined]
        turned = np.arange(elements_there.shape[1]) ^ (placed.operand.operand == "B")
        return elements_there[:, turned]

    patch.setattr(warpgroup._Placed, "elements", property(elements))


# Every slip always runs, with numbers of 16 bits and of 8 by turns.
@pytest.mark.parametrize(
    ("name", "slip"),
    [
        pytest.param(name, slip, marks=[pytest.mark.thorough] * ((number + turn) % 2))
        for number, name in enumerate(["m64n24k16.f32.bf16.ss", "m64n24k32.s32.u8.rs"])
        for turn, slip in enumerate([of_swizzle, of_offsets, of_step, of_order])
    ],
)
def test_a_slip_in_shared_memory(
    hopper: Device, monkeypatch: Patch, name: str, slip: Callable[[Patch], None]
) -> None:
    instruction = form(f"wgmma.{name}")
    slip(monkeypatch)
    (outcome,) = sweep(hopper, [instruction], everywhere=False)
    assert outcome.status == "failed"
    assert outcome.note or {mismatch.operand for mismatch in outcome.mismatches} & {"A", "B"}
    for mismatch in outcome.mismatches:
        if mismatch.operand == "B":
            assert (mismatch.lane, mismatch.register, mismatch.element) == (None, None, None)
            start = f"B[{mismatch.row},{mismatch.col}] in shared memory: D shows"
            assert sentence(outcome, mismatch).startswith(start)
    assert slip is not of_order or {mismatch.operand for mismatch in outcome.mismatches} == {"B"}


def test_metadata_elsewhere(hopper: Device) -> None:
    class OtherLanes(Metadata):
        def encode(self, values: Any, selector: int = 0) -> Any:
            """Exchange the registers of neighbouring lanes of every warp."""
            return Metadata.encode(self, values, selector)[..., np.arange(self.threads) ^ 1]

    right = form("wgmma.sp.m64n8k32.f32.bf16.rs")
    parts = right.metadata
    assert parts is not None
    wrong = OtherLanes(parts.k, parts.bits, parts.ordered, parts.rows)
    mismatches = found_in(hopper, replace(right, metadata=wrong))
    assert "E" in {mismatch.operand for mismatch in mismatches}


def test_d_is_dumped_when_the_product_has_been_waited_for(monkeypatch: Patch) -> None:
    texts: list[str] = []

    def noted(program: Any) -> str:
        texts.append(to_text(program))
        return texts[-1]

    monkeypatch.setattr("ptxlab.fragments.verify.to_text", noted)
    with open_device("emulator", arch="sm_90a") as device:
        assert verify(device, LEAST[0]).passed
    for text in texts:
        _, begun, after = text.partition("wgmma.mma_async")
        between, waited, behind = after.partition("wgmma.wait_group")
        assert begun
        assert waited
        assert "st." not in between
        assert "st." in behind
