"""What the chips' files say is what ptxas says in the machine code it makes for them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxlab.device.loading import load_assembled
from ptxlab.isa.targets import TARGETS
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.prediction.chip import find, names
from scripts import compiled_constants as compiled

ON_RECORD: dict[str, Any] = tomllib.loads(compiled.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", names())
def test_a_chip_takes_instructions_as_often_as_ptxas_issues_them(name: str) -> None:
    chip = find(name)
    issue = ON_RECORD[chip.gpu.target.name]["issue"]
    halves = sum(half in chip.holds for half in ("fmaheavy", "fmalite"))
    for opcode in ("FFMA", "FADD", "FMUL"):
        assert issue[opcode] == chip.holds["fmaheavy"] / halves
    assert issue["IMAD"] == chip.holds["fmaheavy"]
    assert issue["IMAD.HI"] == issue["IMAD.WIDE"] == 2 * chip.holds["fmaheavy"]
    assert issue["HFMA2"] == chip.holds["fma2"]
    assert issue["IDP"] == chip.holds["fmaheavy"]
    if "FFMA2" in issue:
        assert issue["FFMA2"] == 2 * chip.holds["fmaheavy"] / halves
    for opcode in ("LOP3", "SHF", "PRMT"):
        assert issue[opcode] == chip.holds["alu"]
    for opcode in ("VABSDIFF", "VIMNMX3", "FMNMX3"):
        assert issue.get(opcode, chip.holds["alu"]) == chip.holds["alu"]
    if "REDUX" in issue:
        assert issue["REDUX"] == chip.holds["adu"]
    if chip.gpu.capability < 120:  # where ptxas leaves it to the hardware
        assert issue["MUFU"] == chip.holds["xu"]
    if "DFMA" in issue:
        assert issue["DFMA"] == chip.holds["fp64"]
        assert ON_RECORD[chip.gpu.target.name]["latency"]["DFMA"] == chip.latency["fp64"]


@pytest.mark.parametrize("name", names())
def test_tensor_cores_are_no_faster_than_ptxas_feeds_them(name: str) -> None:
    """GeForce cards are slower; the others as fast, but for what a clock is cut into."""
    chip = find(name)
    paced = ON_RECORD[chip.gpu.target.name]["issue"].get("HMMA")
    held = 2 * 16 * 8 * 16 / chip.tensor_flop("f16", "f32")
    assert paced is None or paced <= held
    if name in ("a100", "h100", "h200", "b200"):
        assert paced == int(held)


def test_the_file_is_what_ptxas_makes() -> None:
    assert compiled.constants(TARGETS["sm_86"]) == ON_RECORD["sm_86"]
    targets = {find(name).gpu.target.name for name in names()}
    assert set(ON_RECORD) == targets


CHAIN = """\
extern "C" __global__ void chain(float *p, float a) {
    float x = p[threadIdx.x];
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(a));
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(a));
    p[threadIdx.x] = x;
}
"""


@pytest.fixture
def fmas(tmp_path: Path) -> list[DecodedInstruction]:
    """Return three FFMA: the second needs the first, the third neither, each with a stall of its own."""
    file = tmp_path / "chain.cu"
    file.write_text(CHAIN)
    assembly = Assembly(*load_assembled(file, TARGETS["sm_86"]))
    code = decode(assembly.cubin, assembly.functions, "chain")
    first, second = (i for i in code if i.sass.opcode == "FFMA")
    return [
        replace(instruction, number=n, control=replace(instruction.control, stall=stall))
        for n, (instruction, stall) in enumerate(
            ((first, 7), (second, 3), (replace(second, sources=()), 1))
        )
    ]


def test_stalls_are_told_by_who_needs_whom(fmas: list[DecodedInstruction]) -> None:
    assert compiled.latency(fmas, "FFMA") == 7
    assert compiled.issue(fmas, "FFMA") == 3
    assert compiled.latency([*fmas[:2], replace(fmas[1], number=2)], "FFMA") == 3, "the least"
    between = replace(fmas[1], number=1, sass=replace(fmas[1].sass, opcode="NOP"))
    assert compiled.issue([fmas[0], between, replace(fmas[2], number=2)], "FFMA") == 7 + 3
    assert compiled.latency(fmas, "FADD") is None
