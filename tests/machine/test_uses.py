"""Registers and predicates that instructions read and write, against what their operands are by hand."""

from __future__ import annotations

from ptxlab.machine import uses
from tests.machine.test_operations import instruction
from tests.together import in_one_test

USED = {
    # What is written, and what is read.
    "FFMA R0, R1, R2, R3": ("R0", "R1 R2 R3"),
    "FADD R4, -RZ, |R5|": ("R4", "R5"),
    "@!P3 MOV R0, UR7": ("R0", "P3 UR7"),
    "IMAD.WIDE.U32 R2, R5, 0x4, R6": ("R2 R3", "R5 R6 R7"),
    "IMAD.HI.U32 R3, R4, R5, R8": ("R3", "R4 R5 R8 R9"),
    "IADD3 R4, P0, P1, R2, R3, RZ": ("R4 P0 P1", "R2 R3"),
    "IADD3.X R5, R2, R3, RZ, P0, !PT": ("R5", "R2 R3 P0"),
    "IADD.64 R2, R4, UR6": ("R2 R3", "R4 R5 UR6 UR7"),
    "ISETP.GE.U32.AND.EX P0, PT, R1, R2, PT, P3": ("P0", "R1 R2 P3"),
    "PLOP3.LUT P0, PT, P1, P2, UP0, 0x80, 0x0": ("P0", "P1 P2 UP0"),
    "P2R R6, PR, RZ, 0x21": ("R6", "P0 P5"),
    "R2P PR, R6, 0x3": ("P0 P1", "R6"),
    "UP2UR UR6, UPR, URZ, 0x2": ("UR6", "UP1"),
    "UP2UR.B3 UR62, UPR, UR62, 0x3": ("UR62", "UR62 UP0 UP1"),
    "UR2UP UPR, UR62.B3": ("UP0 UP1 UP2 UP3 UP4 UP5 UP6", "UR62"),
    "DFMA R2, R4, R6, R8": ("R2 R3", "R4 R5 R6 R7 R8 R9"),
    "DSETP.GT.AND P0, PT, R4, RZ, PT": ("P0", "R4 R5"),
    "F2F.F64.F32 R2, R4": ("R2 R3", "R4"),
    "F2F.F32.F64 R2, R4": ("R2", "R4 R5"),
    "F2I.U64.TRUNC R2, R4": ("R2 R3", "R4"),
    "F2I.F64.TRUNC R2, R4": ("R2", "R4 R5"),
    "I2F.F64 R2, R4": ("R2 R3", "R4"),
    "I2F.S64 R2, R4": ("R2", "R4 R5"),
    "CS2R R2, SRZ": ("R2 R3", ""),
    "LDG.E.128 R4, desc[UR6][R2.64+0x10]": ("R4 R5 R6 R7", "R2 R3 UR6 UR7"),
    "LDG.E R4, [R2]": ("R4", "R2 R3"),
    "LDG.E.ENL2.256 R8, R4, desc[UR6][R2.64]": ("R4 R5 R6 R7 R8 R9 R10 R11", "R2 R3 UR6 UR7"),
    "LDG.E.ENL2.256 R0, R12, desc[UR6][R2.64+0x40], 0x83": ("R0 R12 R13", "R2 R3 UR6 UR7"),
    "STG.E.ENL2.256 desc[UR6][R2.64], R4, R8": ("", "R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 UR6 UR7"),
    "ATOMG.E.ADD.F32x2.FTZ.RN.STRONG.GPU PT, R4, desc[UR6][R2.64], R8": ("R4 R5", "R2 R3 R8 R9 UR6 UR7"),
    "REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU desc[UR6][R2.64], R8": ("", "R2 R3 R8 R9 R10 R11 UR6 UR7"),
    "MOVM.U4TO8.M832 R10, R0": ("R10 R11", "R0"),
    "B2R.RESULT RZ, P1": ("P1", ""),
    "LDG.E R4, [R2.U32+UR8]": ("R4", "R2 UR8 UR9"),
    "STG.E.64 desc[UR6][R2.64], R8": ("", "R2 R3 R8 R9 UR6 UR7"),
    "LDS.64 R4, [R2+UR4+0x8]": ("R4 R5", "R2 UR4"),
    "STS.U8 [R2], R8": ("", "R2 R8"),
    "LDGSTS.E.128 [R3], desc[UR6][R8.64], !P1": ("", "R3 R8 R9 P1 UR6 UR7"),
    "ATOMG.E.ADD.64 PT, R4, desc[UR6][R2.64], R8": ("R4 R5", "R2 R3 R8 R9 UR6 UR7"),
    "REDG.E.ADD.F64 desc[UR6][R2.64], R8": ("", "R2 R3 R8 R9 UR6 UR7"),
    "LDSM.16.MT88.4 R4, [R2]": ("R4 R5 R6 R7", "R2"),
    "SHFL.IDX P1, R4, R2, R3, 0x1f": ("R4 P1", "R2 R3"),
    "VOTE.ANY R4, PT, P2": ("R4", "P2"),
    "HMMA.16816.F32.BF16 R4, R8, R12, R4": ("R4 R5 R6 R7", "R4 R5 R6 R7 R8 R9 R10 R11 R12 R13"),
    "HMMA.1688.F32.TF32 R4, R8, R12, RZ": ("R4 R5 R6 R7", "R8 R9 R10 R11 R12 R13"),
    "IMMA.8816.S8.S8 R0, R4.ROW, R8.COL, R2": ("R0 R1", "R2 R3 R4 R8"),
    "QMMA.SF.16832.F32.E4M3.E4M3.E8 R4, R8, R12, R4, R16, R17, URZ": (
        "R4 R5 R6 R7",
        "R4 R5 R6 R7 R8 R9 R10 R11 R12 R13 R16 R17",
    ),
    "HGMMA.64x8x16.F32.BF16 R24, R28, gdesc[UR4].tnspB, R24, gsb0": (
        "R24 R25 R26 R27",
        "R24 R25 R26 R27 R28 R29 R30 R31 UR6 UR7",
    ),
    "HGMMA.64x16x16.F16 R24, gdesc[UR12], R24, UP0": (
        "R24 R25 R26 R27",
        "R24 R25 R26 R27 UR12 UR13 UR14 UR15 UP0",
    ),
    "HGMMA.SP.64x8x32.F32 R4, gdesc[UR4], RZ, !UPT, R8, 0x1": (
        "R4 R5 R6 R7",
        "R8 UR4 UR5 UR6 UR7",
    ),
    "UIMAD.WIDE UR4, UR8, 0x4, UR6": ("UR4 UR5", "UR6 UR7 UR8"),
    "UTMALDG.2D [UR8], [UR4], UR14": ("", "UR4 UR5 UR8 UR9 UR10 UR11 UR14"),
    "UTMASTG.2D [UR8], [UR4]": ("", "UR4 UR5 UR8 UR9 UR10"),
    "LDTM.16dp256bit.x2 R4, tmem[UR4]": ("R4 R5 R6 R7 R8 R9 R10 R11", "UR4"),
    "LDTM.x4 R4, tmem[UR4+0x20]": ("R4 R5 R6 R7", "UR4"),
    "STTM.x2 tmem[UR4], R4": ("", "R4 R5 UR4"),
    "UTCHMMA gdesc[UR8], gdesc[UR6], tmem[UR48], tmem[UR4], idesc[UR5], UP0": (
        "",
        "UR4 UR5 UR6 UR7 UR8 UR9 UR48 UP0",
    ),
    "UTCATOMSWS.FIND_AND_SET.ALIGN UP0, UR4, UR7": ("UR4 UP0", "UR7"),
    "STSM.16.M88.2 [R2], R4": ("", "R2 R4 R5"),
    "MATCH.ALL P1, R5, R4": ("R5 P1", "R4"),
    "FMNMX3 R0, R1, R2, R3, !PT": ("R0", "R1 R2 R3"),
    "RET.REL.NODEC R20 0x0": ("", "R20 R21"),
    "@P0 BRA P1, `(.L_1)": ("", "P0 P1"),
    "BAR.SYNC.DEFER_BLOCKING R17, 0x80": ("", "R17"),
}  # fmt: skip


@in_one_test("text", USED)
def test_registers_that_are_written_and_read(text: str) -> None:
    i = instruction(text)
    written, read = (" ".join(uses.names(bits)) for bits in (uses.written(i), uses.read(i)))
    expected = [" ".join(sorted(names.split(), key=_order)) for names in USED[text]]
    assert [written, read] == expected


def _order(name: str) -> tuple[bool, bool, int]:
    return "P" in name, "U" in name, int(name.lstrip("URP"))
