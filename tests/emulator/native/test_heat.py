"""A block becomes machine code when it has taken as long as compiling it will, and sooner if that was done before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxlab import open_device
from ptxlab.emulator.native import engine
from ptxlab.emulator.run import executable
from ptxlab.native import compiler
from tests.emulator.native.test_engines import kernel

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

LONG = "add.u32 r3, r0, 5; xor.b32 r3, r3, r1; mul.lo.u32 r3, r3, r2; st.global.u32 [d1], r3;"
INSTRUCTIONS = 5 + 4
SPENT = INSTRUCTIONS * (engine.STEP + 32 * engine.THREAD)
"""What a launch of one warp takes by the rule."""


def begin_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PROCESS", engine._Process())
    monkeypatch.setattr(executable, "_RECENT", [])
    engine._was_hot.cache_clear()


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Begin with an empty cache; a block costs what three launches and a half take."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PTXLAB_ENGINE", "auto")
    monkeypatch.setattr(engine, "HOT", 1)
    monkeypatch.setattr(engine, "FUNCTION", 0)
    monkeypatch.setattr(engine, "COMPILING", 7 * SPENT // (2 * INSTRUCTIONS))
    begin_process(monkeypatch)
    yield
    engine._was_hot.cache_clear()


def launches_until_compiled(calls: list[bool], text: str, most: int = 9) -> int:
    """Launch a kernel until it is machine code, and say how often that was."""
    device: Any = open_device("emulator", arch="sm_90a")
    loaded, buffer = device.load(text).kernel("k"), device.zeros(32, "u32")
    calls.clear()
    for count in range(1, most + 1):
        loaded.launch(1, 32, [buffer])
        if any(calls):
            return count
    return 0


def test_a_block_is_compiled_when_it_has_taken_that_long(calls: list[bool]) -> None:
    assert launches_until_compiled(calls, kernel(LONG)) == 4


def test_a_block_that_an_earlier_process_has_compiled_is_sooner(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    for wanted in (4, 1):
        assert launches_until_compiled(calls, kernel(LONG)) == wanted
        begin_process(monkeypatch)
    # Another program has to wait.
    assert launches_until_compiled(calls, kernel(LONG.replace("5", "6"))) == 4


def test_few_instructions_are_known_in_another_program_too(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    short = "{} bra.uni L; L: add.u32 r3, r0, 5; st.global.u32 [d1], r3;"
    assert launches_until_compiled(calls, kernel(short.format("setp.eq.u32 p1, r0, 7;"))) == 4
    assert launches_until_compiled(calls, kernel(short.format("setp.eq.u32 p1, r0, 8;"))) == 1
    monkeypatch.setattr(engine, "FEW", 1)
    assert launches_until_compiled(calls, kernel(short.format("setp.eq.u32 p1, r0, 9;"))) == 4


def test_a_cold_process_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    monkeypatch.setattr(engine, "HOT", 100 * SPENT)
    assert launches_until_compiled(calls, kernel(LONG)) == 0
