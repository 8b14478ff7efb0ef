"""Random programs end alike on both engines: registers, memory, and what went wrong.

They run in a process of their own: where machine code divides by zero or writes where it must not, that
process dies, and which program it was is told all the same.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ptxlab import cache, open_device
from ptxlab.emulator.native import dispatch_loop
from ptxlab.emulator.native.segment import Segment
from ptxlab.errors import LaunchError
from ptxlab.native import compiler
from tests.emulator.native.programs import Program, rows
from tests.emulator.native.separate import Died, Separate, separate

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

Ending = tuple[bytes, str]


def ending(program: Program, engine: str) -> Ending:
    """Return what memory is when a program has ended, and what went wrong."""
    os.environ["PTXLAB_ENGINE"] = engine
    device = open_device("emulator", arch=program.target.name)
    buffer, message = device.upload(rows(program)), ""
    kernel = device.load(program.text).kernel(program.name)
    try:
        kernel.launch(program.grid, program.block, [buffer])
    except LaunchError as error:
        message = str(error)
    return buffer.numpy().tobytes(), message


def differences(seed: int, loops: bool) -> tuple[list[str], set[str]]:
    """Return what differs between the engines, and which opcodes were machine code."""
    program, ran = Program(seed, loops=loops), set[str]()
    natively = Segment._natively

    def noting(self: Segment, *args: Any) -> bool:
        done = natively(self, *args)
        ran.update(bound.site.instruction.opcode for bound in self.bounds if done)
        return done

    at_once = loops and seed % 2 == 0  # the second time these run from the beginning on at once
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "_natively", noting)
        patch.setattr(dispatch_loop, "WORTH", 1 if at_once else 8)
        engines = ("array", "native", "native")[: 2 + at_once]
        wanted, *others = (ending(program, engine) for engine in engines)
    differences = []
    for memory, message in others:
        if message != wanted[1]:
            differences.append(f"machine code: {message or 'ends'}\narrays: {wanted[1] or 'ends'}")
        if memory != wanted[0]:
            bytes_ = (np.frombuffer(words, np.uint8) for words in (memory, wanted[0]))
            differences.append(
                f"other bytes: {np.flatnonzero(np.not_equal(*bytes_))[:20].tolist()}"
            )
    if not (loops or wanted[1] or program.compiled <= ran):
        differences.append(f"not compiled: {program.compiled - ran}")
    return differences, ran


def anew(seed: int, loops: bool) -> tuple[list[str], set[str]]:
    """Do so without the code that is on disk."""
    with cache.bypassed():
        return differences(seed, loops)


def undone(seed: int, loops: bool) -> tuple[list[str], set[str]]:
    """Do so with machine code that does nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "_natively", lambda *_: True)
        return differences(seed, loops)


def dies(seed: int, loops: bool) -> None:
    os.kill(os.getpid(), signal.SIGFPE)


def run(
    other: Separate, seeds: Sequence[int], *, loops: bool = False, of: Any = differences
) -> tuple[list[str], set[str]]:
    """Run programs; return those that do not end alike, with why, and which opcodes were machine code."""
    told, opcodes = [], set[str]()
    for seed in seeds:
        try:
            differences, ran = other.call(of, seed, loops)
        except Died as died:
            differences, ran = [f"the process died: {died}"], set()
        opcodes |= ran
        if differences:
            told.append("\n".join([f"seed {seed}:", *differences, Program(seed, loops=loops).text]))
    return told, opcodes


def test_a_program_that_ends_its_process_is_told_and_the_next_runs(other: Separate) -> None:
    [told], _ = run(other, [3], of=dies)
    assert "died: SIGFPE" in told
    assert Program(3).text in told
    assert run(other, [3])[0] == []


def test_a_program_that_ends_otherwise_is_told(other: Separate) -> None:
    [told], _ = run(other, [3], of=undone)
    assert "other bytes" in told


def test_random_programs_end_alike(other: Separate) -> None:
    told, opcodes = run(other, range(6))
    assert told == []
    assert {"add", "cvt", "div", "fma", "ld", "min", "mul", "rem", "set", "shf", "st"} <= opcodes


def test_random_programs_with_loops_end_alike(other: Separate) -> None:
    told, _ = run(other, range(2), loops=True)
    assert told == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("hundred", range(100))
def test_ten_thousand_random_programs_end_alike(hundred: int, loops: bool) -> None:
    with separate() as other:
        told, _ = run(other, range(100 * hundred, 100 * hundred + 100), loops=loops, of=anew)
    assert told == []
