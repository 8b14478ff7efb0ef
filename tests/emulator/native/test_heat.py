"""A block becomes machine code when it has taken as long as compiling it will; what an earlier process did counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptxlab import open_device
from ptxlab.emulator.native import dispatch_loop, engine
from ptxlab.native import compiler
from tests.emulator.native.conftest import begin_process
from tests.emulator.native.test_engines import kernel

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

LONG = "add.u32 r3, r0, 5; xor.b32 r3, r3, r1; mul.lo.u32 r3, r3, r2; st.global.u32 [d1], r3;"
INSTRUCTIONS = 5 + 4
SPENT = INSTRUCTIONS * (engine.STEP + 32 * engine.THREAD)
"""What a launch of one warp takes by the rule."""


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Begin with an empty cache; a block costs what three launches and a half take."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PTXLAB_ENGINE", "auto")
    monkeypatch.setattr(engine, "HOT", 1)
    monkeypatch.setattr(engine, "FUNCTION", 0)
    monkeypatch.setattr(engine, "FEW", 4)
    monkeypatch.setattr(engine, "COMPILING", 7 * SPENT // (2 * INSTRUCTIONS))


def launches_until_compiled(calls: list[bool], text: str, most: int = 9, grid: int = 1) -> int:
    """Launch a kernel until it is machine code, and say how often that was."""
    device: Any = open_device("emulator", arch="sm_90a")
    loaded, buffer = device.load(text).kernel("k"), device.zeros(64, "u32")
    calls.clear()
    for count in range(1, most + 1):
        loaded.launch(grid, 32, [buffer])
        if any(calls):
            return count
    return 0


def test_a_block_is_compiled_when_it_has_taken_that_long(calls: list[bool]) -> None:
    assert launches_until_compiled(calls, kernel(LONG)) == 4


def test_a_launch_of_an_earlier_process_begins_with_what_was_hot_in_it(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    assert launches_until_compiled(calls, kernel(LONG)) == 4
    begin_process(monkeypatch)
    monkeypatch.setattr(engine, "HOT", 100 * SPENT)
    assert launches_until_compiled(calls, kernel(LONG)) == 1
    # Another launch, and another program, have to wait.
    for text, grid in ((kernel(LONG), 2), (kernel(LONG.replace("5", "6")), 1)):
        begin_process(monkeypatch)
        assert not launches_until_compiled(calls, text, grid=grid)


def test_a_block_that_an_earlier_process_has_compiled_is_sooner_in_other_launches(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    assert launches_until_compiled(calls, kernel(LONG), grid=2) == 4
    begin_process(monkeypatch)
    assert launches_until_compiled(calls, kernel(LONG)) == 1
    # Another program has to wait.
    begin_process(monkeypatch)
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


def test_the_dispatch_loop_begins_where_it_paid_in_an_earlier_process(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    device: Any = open_device("emulator", arch="sm_90a")
    text = kernel(
        "mov.u32 r3, 0; L: add.u32 r3, r3, r0; xor.b32 r4, r3, r1; add.u32 r1, r1, r4;"
        " add.u32 r0, r0, 1; setp.lt.u32 p1, r0, 999; @p1 bra L; st.global.u32 [d1], r1;"
    )
    turns: list[int] = []
    run = dispatch_loop.DispatchLoop.run

    def noting(self: Any, group: Any) -> Any:
        done = run(self, group)
        turns.append(done[0])
        return done

    monkeypatch.setattr(dispatch_loop.DispatchLoop, "run", noting)
    first: list[list[int]] = []
    for _ in range(2):
        begin_process(monkeypatch)
        buffer = device.zeros(32, "u32")
        device.load(text).kernel("k").launch(1, 32, [buffer])
        first.append(turns.copy())
        turns.clear()
    # The second has run all of the kernel at once, the first what was left of the loop.
    assert sum(first[1]) > sum(first[0])
    assert first[1] == [7 + 6 * (999 - 31)]  # until the first threads leave the loop
