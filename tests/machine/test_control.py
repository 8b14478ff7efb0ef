"""Control bits against what nvdisasm prints beside them, and against what they are for."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ptxlab import resources
from ptxlab.device.loading import load_assembled
from ptxlab.isa.targets import TARGETS
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.instruction import DecodedInstruction

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
FILE = "ptx/gemm_m16n8k16_bf16_f32.ptx"


def code(arch: str) -> list[DecodedInstruction]:
    assembly = Assembly(*load_assembled(resources.path(FILE), TARGETS[arch]))
    function = next(function for function in assembly.functions.values() if function.kernel)
    return decode(assembly.cubin, assembly.functions, function.name)[: len(function.instructions)]


@pytest.mark.parametrize("arch", ARCHS)
def test_reuse_bits_are_the_marks_that_nvdisasm_prints(arch: str) -> None:
    marked = {i.number for i in code(arch) if ".reuse" in " ".join(i.sass.operands)}
    assert {i.number for i in code(arch) if i.control.reuse} == marked


@pytest.mark.parametrize("arch", ARCHS)
def test_what_loads_write_is_waited_for(arch: str) -> None:
    """Follow the scoreboards down the text: nothing reads what is still to come."""
    pending: dict[str, int] = {}
    waited = 0
    for i in code(arch):
        held = {board for board in pending.values() if board in i.control.waits}
        pending = {name: board for name, board in pending.items() if board not in held}
        waited += len(held)
        assert not pending.keys() & set(registers(i, i.sass.operands[1:])), i.sass.text
        if i.control.writes is not None and i.dest is not None and i.sass.opcode != "LDGDEPBAR":
            pending[f"R{i.dest.number}"] = i.control.writes
        if i.target is not None:
            pending.clear()  # elsewhere the text does not say what was issued before
    assert waited


def registers(i: DecodedInstruction, operands: tuple[str, ...]) -> Iterator[str]:
    for operand in operands:
        yield from re.findall(r"\bR\d+\b", operand)


def test_stalls_between_dependent_products_are_the_latency() -> None:
    """A product of tensor cores is followed by one that needs it no earlier than its latency."""
    stalls = [i.control.stall for i in code("sm_86")]
    assert all(0 <= stall <= 15 for stall in stalls)
    assert len(set(stalls)) > 3
