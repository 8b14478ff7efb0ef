"""Operands, control bits and columns, read from what nvdisasm prints and from the bits beside it."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import Unsupported
from ptxlab.machine import decode
from ptxlab.machine.control import Control, control
from ptxlab.machine.operands import (
    URZ,
    ZERO_REGISTER,
    Immediate,
    Operand,
    Predicate,
    SassAddress,
    SassConstant,
    SassName,
    SassRegister,
    read,
)
from ptxlab.machine.row import accessed_bytes, matrices
from ptxlab.machine.sass import read_sass
from ptxlab.machine.table import ROWS
from ptxlab.toolchain.cubin import Cubin
from tests.machine.test_operations import instruction
from tests.together import in_one_test

OPERANDS: dict[str, Operand] = {
    "R5": SassRegister(5),
    "R5.reuse": SassRegister(5),
    "RZ": SassRegister(ZERO_REGISTER),
    "UR7": SassRegister(256 + 7),
    "URZ": SassRegister(URZ),
    "-R5": SassRegister(5, negated=True),
    "~R5": SassRegister(5, inverted=True),
    "|R5|": SassRegister(5, absolute=True),
    "-|R5|.reuse": SassRegister(5, negated=True, absolute=True),
    "R4.64": SassRegister(4, wide=True),
    "R4.H1_H1": SassRegister(4, part=True, marks=("H1_H1",)),
    "P3": Predicate(3),
    "!PT": Predicate(7, negated=True),
    "UP2": Predicate(8 + 2),
    "0x10": Immediate(16, 16.0),
    "-0x1": Immediate(0xFFFFFFFF, -1.0),
    "-1.5": Immediate(0xBFC00000, -1.5),
    "+INF": Immediate(0x7F800000, float("inf")),
    "c[0x0][0x160]": SassConstant(0, 0x160),
    "-c[0x3][0x8]": SassConstant(3, 8, negated=True),
    "c[0x3][R5+0x8]": SassConstant(3, 8, SassRegister(5)),
    "c[0x3][UR4]": SassConstant(3, 0, SassRegister(256 + 4)),
    "[R4]": SassAddress(SassRegister(4), 1, None, 0),
    "[R4.64+0x10]": SassAddress(SassRegister(4, wide=True), 1, None, 16),
    "[R4+-0x8]": SassAddress(SassRegister(4), 1, None, -8),
    "[R5.X4+UR6+0x20]": SassAddress(SassRegister(5), 4, SassRegister(256 + 6), 32),
    "[UR4]": SassAddress(None, 1, SassRegister(256 + 4), 0),
    "desc[UR4][R2.64]": SassAddress(SassRegister(2, wide=True), 1, None, 0, SassRegister(256 + 4)),
    "SR_TID.X": SassName("SR_TID.X"),
    "SB0": SassName("SB0"),
}


@in_one_test("text", OPERANDS)
def test_an_operand_is_read(text: str) -> None:
    assert read(text) == OPERANDS[text]


def test_control_bits_stand_where_the_guides_have_them() -> None:
    """Stall 105 to 108, yield 109, scoreboards 110 and 113, waits 116 to 121, reuse 122 to 125."""
    bits = 13 << 105 | 5 << 110 | 2 << 113 | 0b100101 << 116 | 0b1010 << 122
    assert control(bits.to_bytes(16, "little")) == Control(13, 5, 2, (0, 2, 5), (1, 3))
    none = 7 << 110 | 7 << 113
    assert control(none.to_bytes(16, "little")) == Control(0, None, None, (), ())


def test_what_nvdisasm_leaves_out_is_refused_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nvdisasm 13.5 leaves out what ptxas makes of ldmatrix with .s8.s4."""
    monkeypatch.setattr(decode, "_section", lambda cubin, name: bytes(48))
    text = '.section .text.k,"ax"\n /*0000*/ NOP ;\n /*0010*/ NOP ;\n /*0020*/ EXIT ;\n'
    cubin = Cubin("sm_90a", b"", "")
    assert len(decode.decode(cubin, read_sass(text), "k")) == 3
    with pytest.raises(Unsupported, match="no instruction at 0x0010 of k"):
        decode.decode(cubin, read_sass(text.replace(" /*0010*/ NOP ;\n", "")), "k")


ROLES: dict[str, tuple[int | None, list[int], int, list[int]]] = {
    "IADD3 R0, P1, P2, R1, R2, RZ": (0, [1, 2], 3, []),
    "IADD3.X R0, R1, R2, RZ, P1, !P2": (0, [], 3, [1, 2]),
    "ISETP.LT.AND P0, PT, R1, R2, P3": (None, [0, 7], 2, [3]),
    "LOP3.LUT P0, R3, R1, R2, RZ, 0xc0, !PT": (3, [0], 4, [7]),
    "LOP3.LUT R3, R1, R2, RZ, 0xc0, !PT": (3, [], 4, [7]),
    "PLOP3.LUT P0, PT, P1, P2, PT, 0x80, 0x0": (None, [0, 7], 7, []),
    "VOTE.ANY R4, P0, P1": (4, [0], 0, [1]),
    "SHFL.IDX PT, R0, R1, R2, 0x1f": (0, [7], 3, []),
    "BRA P4, `(.L_1)": (None, [], 1, [4]),
    "BAR.SYNC R4, 0x40": (None, [], 2, []),
    "STG.E [R2.64], R5": (None, [], 2, []),
    "SEL R0, R1, R2, !P5": (0, [], 2, [5]),
}
"""The register and the predicates that are written, how many sources there are, and the predicates that are read."""


@pytest.mark.parametrize("text", ROLES)
def test_what_is_written_is_told_from_what_is_read(text: str) -> None:
    i = instruction(text)
    roles = (
        i.dest.number if i.dest else None, [operand.number for operand in i.outs], len(i.sources),
        [operand.number for operand in i.ins],
    )  # fmt: skip
    assert roles == ROLES[text]


WRITTEN = {
    "FADD R0, R1, R2": 1, "IMAD.WIDE R0, R1, R2, R4": 2, "LDG.E.64 R0, [R2.64]": 2, "LDG.E.128 R0, [R4.64]": 4,
    "LDG.E.U8 R0, [R2.64]": 1, "DADD R0, R2, R4": 2, "SHF.R.U64 R0, R1, R2, R3": 1, "CS2R R0, SRZ": 2,
    "CS2R.32 R0, SR_CLOCKLO": 1, "LDSM.16.M88.4 R0, [R4]": 4, "LDSM.16.M88 R0, [R4]": 1,
    "HMMA.16816.F32 R0, R4, R8, R0": 4, "HMMA.16816.F16 R0, R4, R8, R0": 2, "IMMA.8816.S8.S8 R0, R4.ROW, R8.COL, R0": 2,
    "SYNCS.ARRIVE.TRANS64 R0, [R4], RZ": 2,
}  # fmt: skip


@in_one_test("text", WRITTEN)
def test_registers_that_are_written_are_counted(text: str) -> None:
    assert instruction(text).written == WRITTEN[text]


def test_bytes_that_are_accessed_are_told_by_modifiers() -> None:
    sizes = {
        text: accessed_bytes(tuple(text.split(".")))
        for text in ("E", "E.U8", "E.S16", "E.64", "E.128")
    }
    assert sizes == {"E": 4, "E.U8": 1, "E.S16": 2, "E.64": 8, "E.128": 16}
    assert [matrices(("16", "M88", *more)) for more in ((), ("2",), ("4",))] == [1, 2, 4]


@pytest.mark.parametrize(
    ("text", "out"),
    [("UTMASTG.2D [UR4], [UR6]", True), ("UTMALDG.2D [UR4], [UR6]", False),
     ("UBLKCP.G.S [UR4], [UR6], UR8", True), ("UBLKCP.S.G [UR4], [UR6], UR8", False)],
)  # fmt: skip
def test_which_way_a_bulk_copy_goes(text: str, out: bool) -> None:
    assert instruction(text).copies_out is out


def test_addresses_of_global_memory_have_64_bits() -> None:
    for text, wide in (("LDG.E R0, [R2]", [True]), ("LD.E R0, [R2]", [True]), ("LDS R0, [R2]", [False]),
                       ("LDL R0, [R2]", [False]), ("LDGSTS.E [R2], [R4.64]", [False, True])):  # fmt: skip
        i = instruction(text)
        places = [operand for operand in i.operands if isinstance(operand, SassAddress)]
        assert [i.is_wide(number) for number in places] == wide, text


def test_what_nobody_knows_has_no_row() -> None:
    assert instruction("NEWOP R0, R1").row is None
    assert instruction("NEWOP R0, R1").computed(floats=True) is False
    assert ROWS["FADD"].floats
    assert instruction("FADD R0, R1, R2").computed(floats=False) is False
    assert np.isinf(Immediate(0x7F800000, float("inf")).real)


def test_half_of_an_address_of_code_is_that_half() -> None:
    """Label .L_1 is instruction 5, at address 80, of whose 64 bits the upper 32 are zero."""
    for half, value in (("lo", 80), ("hi", 0)):
        i = instruction(f"MOV R4, 32@{half}((.L_0 + .L_1@srel))", labels={".L_1": 5})
        assert i.sources == (Immediate(value),)
    assert instruction("RET.REL.NODEC R4 `(k)").sources == (SassRegister(4),)
    assert instruction("BRA `(.L_1)", labels={".L_1": 5}).target == 5
