"""The fragments of wmma that were seen on chips, against the formulas of their source, told again as bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxlab.main import main
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wmma import WMMA
from ptxlab.matrix.wmma_observed import chips, observed

SEEN = [form for form in WMMA if chips(form)]


def test_every_element_is_held_alike_often() -> None:
    """32 lanes hold 16 x 16 twice or once, whatever the order; a wrong bit would leave an element out."""
    assert len(SEEN) == 4 * 4 + 4
    for form in SEEN:
        for chip in chips(form):
            for fragment in observed(form, chip):
                layout = form.operand(fragment.operand)
                held = np.zeros((layout.rows, layout.cols), int)
                for lane in range(32):
                    for i in range(fragment.count):
                        held[fragment.element(lane, i)] += 1
                assert (held == 32 * fragment.count // held.size).all(), (form.name, chip)


def named(orders: str, d: str) -> MatrixInstruction:
    return next(form for form in SEEN if f"{orders}.m16n16k16.{d}.{d}" in form.name)


def bits(number: int, *moves: tuple[int, int]) -> int:
    """Return the sum of moved bits: (bit of ``number``, what it counts)."""
    return sum((number >> bit & 1) * counts for bit, counts in moves)


def test_volta() -> None:
    """sm_70.hpp: A by rows, B by columns, and the accumulator in f32, whose lanes have 2 x 2 of 4 x 4."""
    a, b, d = observed(named("row.col", "f32"), "sm_70")
    for lane in range(32):
        line = bits(lane, (0, 1), (1, 2), (4, 4))
        for i in range(16):
            assert a.element(lane, i) == (line + bits(lane, (2, 8)), i)
            assert b.element(lane, i) == (i, line + bits(lane, (3, 8)))
        for i in range(8):
            row = bits(lane, (0, 1), (2, 8), (4, 4)) + bits(i, (1, 2))
            col = bits(lane, (1, 2), (3, 8)) + bits(i, (0, 1), (2, 4))
            assert d.element(lane, i) == (row, col)
    a, b, d = observed(named("col.row", "f16"), "sm_70")
    for lane in range(32):
        for i in range(16):
            k = bits(lane, (0, 1), (1, 2)) + bits(i, (2, 4), (3, 8))
            assert a.element(lane, i) == (bits(lane, (2, 8), (4, 4)) + i % 4, k)
            assert b.element(lane, i) == (k, bits(lane, (3, 8), (4, 4)) + i % 4)
        for i in range(8):
            row = bits(lane, (0, 1), (1, 2), (2, 8), (4, 4))
            assert d.element(lane, i) == (row, i + bits(lane, (3, 8)))


def test_turing_is_two_of_mma() -> None:
    """sm_75.hpp, whose A is that of mma.m16n8k16, and B and D two of it beside each other."""
    a, b, d = observed(named("row.row", "f32"), "sm_75")
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for i in range(8):
            assert (
                a.element(lane, i)
                == a.element(lane, i + 8)
                == (g + 4 * (i & 2), 2 * t + i % 2 + 2 * (i & 4))
            )
            assert b.element(lane, i) == (2 * t + i % 2 + 4 * (i & 2), g + 2 * (i & 4))
            assert d.element(lane, i) == (g + 4 * (i & 2), 2 * t + i % 2 + 2 * (i & 4))


def test_it_is_asked_for_by_the_name_of_a_chip(capsys: pytest.CaptureFixture[str]) -> None:
    op = ["fragments", "--op", "wmma.row.col.m16n16k16.f32.f32"]
    assert main([*op, "--observed", "sm_70"]) == 0
    told = capsys.readouterr().out
    assert "as observed on sm_70 by wmmae/wmma_extension" in told
    assert "0:x0 8:x0" in told  # two lanes have the first element of A
    assert main([*op, "--observed", "sm_90", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["operands"]["D"][6][3] == [9, 5]
    assert main([*op, "--observed", "sm_100"]) == 2
    assert "nobody has published" in capsys.readouterr().err
    assert main(["fragments", "--op", "m16n8k16", "--dtype", "bf16", "--observed", "sm_80"]) == 2
