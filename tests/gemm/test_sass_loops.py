"""Loops found in SASS written by hand, with the numbers counted by hand."""

from __future__ import annotations

from ptxlab.gemm.facts import loops, main_loop
from ptxlab.machine.sass import SassFunction, read_sass

# Two versions of a loop, the second one inside of another, and code around them.
TEXT = """
	.section	.text.k,"ax",@progbits
.text.k:
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/              @!P0 BRA `(.L_x_2) ;
.L_x_0:
        /*0020*/                   LDS.128 R4, [R1] ;
        /*0030*/                   FFMA R8, R4, R5, R8 ;
        /*0040*/               @P2 BRA `(.L_x_1) ;
        /*0050*/                   FFMA.FTZ R9, R4.reuse, R6, R9 ;
.L_x_1:
        /*0060*/                   IADD3 R1, R1, 0x10, RZ ;
        /*0070*/               @P1 BRA `(.L_x_0) ;
        /*0080*/                   BRA `(.L_x_5) ;
.L_x_2:
        /*0090*/                   FFMA R7, R4, R5, R7 ;
.L_x_3:
        /*00a0*/                   FFMA R8, R4, R5, R8 ;
        /*00b0*/                   FFMA R9, R4, R6, R9 ;
        /*00c0*/                   BRA P1, `(.L_x_3) ;
        /*00d0*/                   FADD R7, R7, 1 ;
        /*00e0*/                   BRA.U UP0, `(.L_x_2) ;
.L_x_5:
        /*00f0*/                   EXIT ;
.L_x_6:
        /*0100*/                   BRA `(.L_x_6);
        /*0110*/                   NOP;
"""


def function(text: str = TEXT) -> SassFunction:
    return read_sass(text)["k"]


def test_a_loop_reaches_from_a_label_to_the_branch_back() -> None:
    spans = [
        (loop.instructions[0].address, loop.instructions[-1].address) for loop in loops(function())
    ]
    assert spans == [(0x20, 0x70), (0x90, 0xE0), (0xA0, 0xC0)]


def test_a_branch_on_the_way_back_belongs_to_the_same_loop() -> None:
    continued = TEXT.replace("IADD3 R1, R1, 0x10, RZ", "@P3 BRA `(.L_x_0)")
    assert [len(loop.instructions) for loop in loops(function(continued))] == [6, 6, 3]


def test_counts_and_shares() -> None:
    first, outer, inner = loops(function())
    assert (first.count("FFMA"), outer.count("FFMA"), inner.count("FFMA")) == (2, 3, 2)
    assert first.share("FFMA") == 2 / 6
    assert inner.share("FFMA") == 2 / 3
    assert outer.surrounds(inner)
    for loop, other in ((inner, outer), (outer, outer), (first, inner)):
        assert not loop.surrounds(other)


def test_the_main_loop_is_an_innermost_one_and_the_shortest() -> None:
    first, outer, inner = loops(function())
    assert main_loop(function(), "FFMA") == inner
    assert main_loop(function(), "LDS") == first
    assert main_loop(function(), "FADD") == outer
    assert main_loop(function(), "HMMA") is None
    assert main_loop(function(), "EXIT") is None


def test_more_arithmetic_comes_before_a_larger_share() -> None:
    more = TEXT.replace("LDS.128 R4, [R1] ;", "FFMA R3, R3, R3, R3 ;")
    assert main_loop(function(more), "FFMA") == loops(function(more))[0]
