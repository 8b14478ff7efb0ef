"""The launches of a client: memory borrowed for each, faults at the source, checks, launches made again."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from ptxlab.clients.borrowed import Borrowed
from ptxlab.clients.session import Session
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.launch_config import LaunchConfig

# Each thread adds 1 to its element; the threads of a CTA then exchange them in shared memory, with a
# barrier or without.
TEXT = """.version 8.0
.target sm_80
.address_size 64
.file 1 "{path}"
.visible .entry turn(.param .u64 x)
{{
    .shared .b32 s[64];
    .reg .b32 v, t, a;
    .reg .b64 p;
    .loc 1 2 5
    ld.param.u64 p, [x];
    mov.u32 t, %tid.x;
    mad.wide.u32 p, t, 4, p;
    .loc 1 3 9
    ld.global.u32 v, [p];
    add.u32 v, v, 1;
    shl.b32 a, t, 2;
    .loc 1 4 5
    st.shared.u32 [a], v;
    {barrier}
    xor.b32 a, a, 252;
    .loc 1 5 5
    ld.shared.u32 v, [a];
    st.global.u32 [p], v;
    ret;
}}
"""
SOURCE = "# turned\nstart = x\n    value = load(start)\nput(value)\nstore(start)\n"
CONFIG = LaunchConfig.of(1, 64)


def program(folder: Path, barrier: str = "bar.sync 0;") -> str:
    path = folder / "kernel.py"
    path.write_text(SOURCE)
    return TEXT.format(path=path, barrier=barrier)


def borrowed(array: np.ndarray, name: str = "x") -> tuple[bytes, list[Borrowed]]:
    address = array.ctypes.data
    return struct.pack("<Q", address), [Borrowed(address, array.nbytes, name, array)]


def test_launches_write_in_place_and_are_counted(tmp_path: Path) -> None:
    session = Session("sm_80")
    text = program(tmp_path)
    kernel = session.load(text, "turn.ptx").kernel("turn")
    assert session.load(str(text), "again").kernel("turn") is kernel
    x = np.arange(64, dtype=np.uint32)
    for turn in (1, 2):
        session.launch(kernel, CONFIG, *borrowed(x))
        expected = np.arange(64) if turn == 2 else np.arange(64)[::-1]
        assert (x == expected + turn).all()
    used = session.usage["turn"]
    assert (used.launches, used.instructions) == (2, 2 * 64 * 12)
    assert used.seconds > 0
    with pytest.raises(LaunchError, match="outside every allocation"):
        session.launch(kernel, CONFIG, borrowed(x)[0])
    with pytest.raises(PtxlabError, match="there is no target 'sm_81'"):
        Session("sm_81")
    with pytest.raises(Unsupported, match="sm_90a"):
        session.load(text.replace("sm_80", "sm_90a"), "other.ptx")


def test_a_fault_names_the_line_of_the_source_and_the_memory(tmp_path: Path) -> None:
    session = Session("sm_80")
    kernel = session.load(program(tmp_path), "turn.ptx").kernel("turn")
    x = np.zeros(60, np.uint32)
    with pytest.raises(LaunchError, match=r"by thread \(60, 0, 0\)") as caught:
        session.launch(kernel, CONFIG, *borrowed(x, "argument x, 60 numbers"))
    error = caught.value
    assert error.kind == "bounds"
    assert str(error).splitlines()[:3] == [
        f"{tmp_path}/kernel.py:3:5: {error.message}",
        "        value = load(start)",
        "        ^",
    ]
    assert "0 bytes past the end of the nearest allocation, argument x, 60 numbers" in str(error)
    assert "it is ld.global.u32 v, [p]; on line 15 of turn.ptx" in str(error.hint)
    parameters, memory = borrowed(np.zeros(80, np.uint32))
    shifted = struct.pack("<Q", struct.unpack("<Q", parameters)[0] + 2)
    with pytest.raises(LaunchError, match=r"kernel\.py:3:5: .* is misaligned") as caught:
        session.launch(kernel, CONFIG, shifted, memory)
    assert "it lies in x" in str(caught.value.hint)


def test_checked_launches_report_each_thing_once(tmp_path: Path) -> None:
    session = Session("sm_80", check=True)
    right = session.load(program(tmp_path), "right.ptx").kernel("turn")
    wrong = session.load(program(tmp_path, ""), "wrong.ptx").kernel("turn")
    x = np.zeros(64, np.uint32)
    session.launch(right, CONFIG, *borrowed(x))
    assert session.reports == []
    for _ in range(2):
        session.launch(wrong, CONFIG, *borrowed(x))
    assert x.tolist() == [3] * 64
    (report,) = session.reports
    assert {(f.kind, f.source, f.other_source) for f in report.findings} == {
        ("race", (f"{tmp_path}/kernel.py", 5), (f"{tmp_path}/kernel.py", 4))
    }
    with pytest.raises(LaunchError, match=r"kernel\.py:3:5"):
        session.launch(right, CONFIG, *borrowed(x[:60]))
    assert [one.findings[0].kind for one in session.reports] == ["race", "bounds"]


def test_a_launch_is_made_again_without_a_trace(tmp_path: Path) -> None:
    session = Session("sm_80")
    kernel = session.load(program(tmp_path, ""), "turn.ptx").kernel("turn")
    x = np.arange(64, dtype=np.uint32)
    session.launch(kernel, CONFIG, *borrowed(x))
    after, launched = x.copy(), session.last
    assert launched is not None
    assert repr(launched) == "<launch of turn on sm_80: LaunchConfig.of(grid=1, block=64)>"
    assert [finding.kind for finding in launched.check().findings] == ["race"]
    profile = launched.profile()
    assert profile.totals.executed == 2 * 11
    assert [line.number for line in profile.sources[f"{tmp_path}/kernel.py"]] == [2, 3, 4, 5]
    assert launched.dump("add.u32", ["v"]).words[:, 0].tolist() == (after + 1).tolist()
    assert (x == after).all()
    assert session.usage["turn"].launches == 1
    session.launch(kernel, CONFIG, *borrowed(x))
    assert (x == np.arange(64) + 2).all()


def test_a_launch_has_a_limit(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise TimeoutError("not at its end after 0 s")

    session = Session("sm_80", progress=stop)
    kernel = session.load(program(tmp_path), "turn.ptx").kernel("turn")
    with pytest.raises(LaunchError, match="stopped, not at its end"):
        session.launch(kernel, CONFIG, *borrowed(np.zeros(64, np.uint32)))
    assert session.usage == {}
