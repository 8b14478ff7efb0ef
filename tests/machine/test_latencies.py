"""Latencies against those that ptxas leaves between instructions, as they are on record."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ptxlab.isa.targets import target_named
from ptxlab.machine import uses
from ptxlab.machine.latencies import LONGEST, Latencies
from tests.machine.test_operations import instruction
from tests.together import in_one_test

FILE = Path(__file__).parents[2] / "benchmarks" / "constants.toml"
ON_RECORD: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))
TARGETS = list(ON_RECORD)

CHAINS = {
    "FFMA": "FFMA R0, R0, R1, R2", "FADD": "FADD R0, R0, R1", "FMUL": "FMUL R0, R0, R1",
    "IMAD": "IMAD R0, R0, R1, R2", "LOP3": "LOP3.LUT R0, R0, R1, R2, 0xe8, !PT",
    "SHF": "SHF.L.W.U32.HI R0, R0, R1, R2", "PRMT": "PRMT R0, R0, R1, R2",
    "DFMA": "DFMA R0, R0, R2, R4", "HMMA": "HMMA.16816.F32 R0, R4, R8, R0",
    "IMAD.HI": "IMAD.HI R0, R0, R1, RZ", "IDP": "IDP.4A.S8.S8 R0, R5, R4, R0",
    "VABSDIFF": "VABSDIFF.S32 R0, R0, R5, R4",
    "VIMNMX3": "VIMNMX3 R0, R0, R5, R4, !PT",
    "FMNMX3": "FMNMX3 R0, R0, R5, R4, !PT",
    "FFMA2": "FFMA2 R0, R0.F32x2.HI_LO, R4.F32x2.HI_LO, R6.F32x2.HI_LO",
}  # fmt: skip
"""Instructions that read what they write."""
HALVES = {True: "HFMA2.MMA R0, R0, R1, R2", False: "HFMA2 R0, R0, R1, R2"}
OTHER_PIPE = ("sm_80", "sm_90a")
"""Where ptxas has the tensor cores multiply packed halves."""


@pytest.mark.parametrize("name", TARGETS)
def test_latencies_are_those_that_ptxas_leaves(name: str) -> None:
    latencies = Latencies(target_named(name).capability)
    chains = {**CHAINS, "HFMA2": HALVES[name in OTHER_PIPE]}
    for opcode, cycles in ON_RECORD[name]["latency"].items():
        if opcode == "ISETP":  # whose predicate guards the next
            earlier, later = (
                instruction(text) for text in ("ISETP.LT.AND P0, PT, R0, R1, PT", "@P0 IMAD R0, R0, R1, R2")
            )  # fmt: skip
        else:
            earlier = later = instruction(chains[opcode])
        if not latencies.knows(later):
            assert (name, opcode) == ("sm_75", "HMMA")
            continue
        shared = uses.written(earlier) & uses.read(later)
        assert latencies.between(earlier, later, shared) == cycles, opcode
        assert cycles <= LONGEST


PAIRS = {
    ("IADD3 R0, R1, R2, RZ", "FFMA R4, R0, R5, R6"): 5,
    ("FFMA R0, R1, R2, R3", "LOP3.LUT R4, R0, R5, RZ, 0xc0, !PT"): 5,
    ("IADD3 R0, R1, R2, RZ", "LDG.E R4, [R0.64]"): 5,
    ("IADD3 R0, R1, R2, RZ", "MUFU.RCP R4, R0"): 4,
    ("IMAD.WIDE R2, R0, R1, R4", "IADD3 R8, R2, R9, RZ"): 3,  # the lower half comes first
    ("IMAD.WIDE R2, R0, R1, R4", "IADD3 R8, R3, R9, RZ"): 5,
    ("IMAD R7, R0, R1, R4", "IMAD.WIDE R2, R0, R1, R6"): 2,  # the upper half of a sum is read late
    ("IMAD R6, R0, R1, R4", "IMAD.WIDE R2, R0, R1, R6"): 4,
    ("CS2R R0, SRZ", "FADD R4, R0, R1"): 6,
    ("IADD3 R0, R1, R2, RZ", "HMMA.16816.F32 R8, R0, R4, R8"): 7,
    ("ISETP.LT.AND P0, PT, R0, R1, PT", "SEL R4, R2, R3, P0"): 4,
    ("ISETP.LT.AND P0, PT, R0, R1, PT", "VOTE.ANY R4, PT, P0"): 13,
    ("IADD3 R0, P0, R1, R2, RZ", "IADD3.X R3, R4, R5, RZ, P0, !PT"): 4,
    ("UIADD3 UR4, UR5, UR6, URZ", "IADD3 R0, R1, UR4, RZ"): 6,
    ("UIADD3 UR4, UR5, UR6, URZ", "LDS R0, [R1+UR4]"): 9,
    ("UMOV UR4, 0x400", "ULEA UR4, UR5, UR4, 0x18"): 2,
    ("UISETP.NE.AND UP0, UPT, UR4, UR5, UPT", "@UP0 UIADD3 UR4, UR5, UR6, URZ"): 11,
    ("UISETP.NE.AND UP0, UPT, UR4, UR5, UPT", "BRA.U UP0, `(.L_1)"): 9,
}
"""Of two instructions the cycles between: Mesa's sm80_instr_latencies.rs and latencies/sm100."""


@in_one_test(("earlier", "later"), PAIRS)
@in_one_test("capability", [80, 90, 100, 120])
def test_a_pair_is_as_far_apart_as_nvidia_says(earlier: str, later: str, capability: int) -> None:
    first, second = instruction(earlier), instruction(later)
    shared = uses.written(first) & uses.read(second)
    assert shared
    assert Latencies(capability).between(first, second, shared) == PAIRS[earlier, later]


_FMA2 = "FFMA2 R0, R2.F32x2.HI_LO, R4.F32x2.HI_LO, R6.F32x2.HI_LO"
OF_PTXAS = {
    (100, _FMA2, "FFMA R8, R9, R1, R10"): 4,
    (100, _FMA2, "LOP3.LUT R8, R1, R9, RZ, 0xc0, !PT"): 5,
    (100, _FMA2, "DADD R8, R0, R10"): 6,
    (100, "LOP3.LUT R7, R1, R9, RZ, 0xc0, !PT", _FMA2): 5,
    (100, "HMMA.16816.F32 R4, R8, R16, R12", _FMA2): 19,
    (120, "FHFMA R0, R0, R5.H1, R0", "HFMA2 R5, R5, R0, R7"): 5,
    (120, "FHADD R0, R5, R0", "FHADD R0, R5, R0"): 4,
    (80, "IDP.4A.S8.U8 R0, R5, R4, R0", "IDP.4A.S8.U8 R0, R5, R4, R0"): 4,
    (80, "IDP.4A.S8.U8 R0, R5, R4, R0", "LOP3.LUT R8, R0, R9, RZ, 0xc0, !PT"): 5,
    (80, "FSET.BF.GT.AND R7, R4, R7, PT", "FFMA R7, R0, R7, R5"): 5,
    (80, "I2I.S8.S32.SAT R7, R0", "PRMT R7, R7, 0x8880, RZ"): 4,
    (90, "F2IP.U8.F32.TRUNC.NTZ R0, RZ, R0, RZ", "LOP3.LUT R5, R0, R7, RZ, 0xc0, !PT"): 4,
    (90, "HSET2.BF.LT.AND R0, R0, R5, PT", "HFMA2.MMA R0, R0, R4, R7"): 6,
    (90, "HSET2.BF.LT.AND R0, R0, R5, PT", "HSET2.BF.LT.AND R0, R0, R5, PT"): 4,
    (80, "BMMA.168256.AND.POPC R8, R4.ROW, R12.COL, R8", "STG.E [R2.64], R11"): 23,
    (80, "BMMA.88128.XOR.POPC R4, R0.ROW, R7.COL, R4", "BMMA.88128.XOR.POPC R4, R0.ROW, R7.COL, R4"): 14,
    (90, "DADD R8, R4, R8", "DMMA.16x8x4 R0, R6, R4, R0"): 11,
    (100, "ULEA UR4, UR6, UR4, 0x18", "UMEMSETS.64 [UR4], URZ, UR6"): 9,
}  # fmt: skip
"""Of instructions that NVIDIA gave Mesa no latency of: the fewest cycles that ptxas was seen to leave between two."""


@in_one_test(("capability", "earlier", "later"), OF_PTXAS)
def test_a_pair_is_as_far_apart_as_ptxas_has_it(capability: int, earlier: str, later: str) -> None:
    first, second = instruction(earlier), instruction(later)
    shared = uses.written(first) & uses.read(second)
    cycles = OF_PTXAS[capability, earlier, later]
    assert shared
    assert Latencies(capability).between(first, second, shared) == cycles
