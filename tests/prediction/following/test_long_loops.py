"""Turns of long loops that are not followed are as many as those that are, of code written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.prediction.following import interpreter, trace
from ptxlab.prediction.following.issue_order import IssueOrder
from ptxlab.prediction.following.trace import SampledLoop
from tests.machine.test_operations import instruction

LAUNCH = Launch(TARGETS["sm_80"], LaunchConfig.of(1, 64), b"", ())
END = ["@P0 BRA `(.TOP)", "EXIT"]
UP = [
    "S2R R0, SR_TID.X", "MOV R1, RZ", "IMAD R2, R0, 0x5, RZ", "IADD3 R2, R2, 0x1000, RZ",
    "IADD3 R1, R1, 0x3, RZ", "ISETP.LT.AND P0, PT, R1, R2, PT", *END,
]  # fmt: skip
"""Each thread goes around another time, the first that leave after 1,366 turns."""
DOWN = [
    "S2R R0, SR_TID.X", "MOV R1, 0x5dc", "NOP", "NOP",
    "IADD3 R1, R1, -0x1, RZ", "ISETP.NE.AND P0, PT, R1, -0x1, PT", *END,
]  # fmt: skip
ADDRESS = [
    "S2R R0, SR_TID.X", "MOV R4, 0xfff00000", "MOV R5, RZ", "NOP",
    "IADD3 R4, P1, R4, 0x400000, RZ", "IADD3.X R5, R5, RZ, RZ, P1, !PT",
    "ISETP.LT.AND P0, PT, R5, 0x3, PT", *END,
]  # fmt: skip
"""Of two words the lower goes around, and the upper says when all leave: after 2,049 turns."""
APART = [
    "S2R R0, SR_TID.X", "MOV R4, RZ", "MOV R5, RZ", "NOP",
    "IADD3 R4, R4, 0x10000001, RZ", "IADD3 R5, R5, 0x1, RZ",
    "ISETP.LT.AND P0, PT, R5, 0x5dc, PT", "@P0 BRA `(.TOP)", "ISETP.EQ.AND P0, PT, R4, -0x3ffffa24, PT",
    "@P0 BRA `(.ON)", "NOP", "EXIT",
]  # fmt: skip
"""One word goes around beside another that only counts; who has the sum that it then is passes by a NOP."""
PERIODIC = [
    "S2R R0, SR_TID.X", "MOV R1, RZ", "NOP", "NOP",
    "IADD3 R1, R1, 0x1, RZ", "LOP3.LUT R3, R1, 0x3ff, RZ, 0xc0, !PT",
    "ISETP.NE.AND P0, PT, R3, RZ, PT", *END,
]  # fmt: skip


def decoded(code: Sequence[str]) -> list[DecodedInstruction]:
    return [instruction(text, n, {".TOP": 4, ".ON": 11}) for n, text in enumerate(code)]


def counts(steps: IssueOrder) -> list[int]:
    """Return how often each instruction is issued by a warp."""
    told: list[int] = np.bincount(steps.numbers, steps.times).astype(int).tolist()
    return told


@pytest.mark.parametrize("code", [UP, DOWN, ADDRESS, APART])
def test_as_many_turns_are_issued_as_if_all_were_followed(
    code: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = decoded(code)
    monkeypatch.setattr(interpreter, "PATIENCE", 1 << 40)
    every = interpreter.run(program, LAUNCH, [0])
    monkeypatch.setattr(interpreter, "PATIENCE", 200)
    some = interpreter.run(program, LAUNCH, [0])
    assert counts(some) == counts(every)
    assert some.count < every.count / 2
    assert not every.more
    assert len(some.more) == 1


def test_what_comes_around_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "PATIENCE", 200)
    steps = interpreter.run(decoded(PERIODIC), LAUNCH, [0])
    assert not steps.more
    assert counts(steps)[4] == 1024


def test_turns_that_are_not_followed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "PATIENCE", 200)
    steps = interpreter.run(decoded(DOWN), LAUNCH, [0])
    numbers, none = steps.numbers, np.zeros(0, int)
    [loop] = trace.loops(numbers, none, steps.times)
    assert counts(steps)[4] == 1501
    assert loop.turns == loop.turns_of(0) == 1500, "the last, which does not go back, is none"
    assert SampledLoop(loop, 4).left_out == 1500 - 8


def test_a_loop_of_a_million_turns_is_followed() -> None:
    code = [text.replace("0x5dc", "0x3b9aca00") for text in DOWN]
    assert counts(interpreter.run(decoded(code), LAUNCH, [0]))[4] == 10**9 + 1
