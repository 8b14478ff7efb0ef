"""cp.async: when the bytes land, what is filled with zeros, and whose groups are whose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxSyntaxError
from tests.together import in_one_test

BEGIN = """
    .shared .align 16 .b8 tile[2048];
    ld.param.u64 d2, [in];
    mad.wide.u32 d2, r0, 16, d2;
    mov.u32 r3, tile;
    mad.lo.u32 r3, r0, 16, r3;
    mov.u32 r20, 7;
    st.shared.v4.u32 [r3], {r20, r20, r20, r20};
    st.shared.v4.u32 [r3+512], {r20, r20, r20, r20};
"""
END = """
    ld.shared.v4.u32 {r4, r5, r6, r7}, [r3];
    ld.shared.v4.u32 {r8, r9, r10, r11}, [r3+512];
    st.global.v4.u32 [d1], {r4, r5, r6, r7};
    st.global.v4.u32 [d1+16], {r8, r9, r10, r11};
"""
OLD = [7, 7, 7, 7]


def copied(run: Any, device: Device, middle: str, size: int = 1024) -> Any:
    """Return [32, 2, 4] words: the two copies of each thread, of words numbered from 100."""
    words = np.arange(100, 100 + size // 4, dtype=np.uint32)
    with device.upload(words) as source:
        words_copied = run(BEGIN + middle + END, source, words=8, parameters=", .param .u64 in")
    return words_copied.reshape(32, 2, 4)


FIRST = "cp.async.cg.shared.global [r3], [d2], 16;"
SECOND = "cp.async.ca.shared.global.L2::128B [r3+512], [d2+512], 16;"
DATA = 100 + np.arange(128).reshape(32, 4)


def test_a_copy_lands_when_it_is_waited_for(run: Any, device: Device) -> None:
    middle = f"{FIRST} cp.async.commit_group; {SECOND} cp.async.commit_group;"
    waited = copied(run, device, middle + "cp.async.wait_group 0;")
    assert np.array_equal(waited[:, 0], DATA)
    assert np.array_equal(waited[:, 1], DATA + 128)


@pytest.mark.parametrize(
    ("wait", "landed"),
    [
        ("", (False, False)),
        ("cp.async.wait_group 2;", (False, False)),
        ("cp.async.wait_group 1;", (True, False)),
        ("cp.async.wait_group 0;", (True, True)),
        ("cp.async.wait_all;", (True, True)),
    ],
)
def test_a_missing_wait_is_visible(
    emulate: Any, emulator: Device, wait: str, landed: tuple[bool, bool]
) -> None:
    middle = f"{FIRST} cp.async.commit_group; {SECOND} cp.async.commit_group; {wait}"
    words = copied(emulate, emulator, middle)
    for copy, there in enumerate(landed):
        expected = DATA + 128 * copy if there else np.broadcast_to(OLD, (32, 4))
        assert np.array_equal(words[:, copy], expected)


def test_warps_that_copy_together_count_groups_of_their_own(emulate: Any, emulator: Device) -> None:
    """Of the copies of two warps those of the second are behind an empty group, and are waited for."""
    body = """
    .shared .align 16 .b8 tile[256];
    ld.param.u64 d2, [in];
    mad.wide.u32 d2, r0, 4, d2;
    mov.u32 r3, tile;
    mad.lo.u32 r3, r0, 4, r3;
    mov.u32 r4, 7;
    st.shared.u32 [r3], r4;
    cp.async.ca.shared.global [r3], [d2], 4;
    cp.async.commit_group;
    setp.ge.u32 p1, r0, 32;
    @p1 cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.u32 r4, [r3];
    st.global.u32 [d1], r4;
    """
    given = np.arange(100, 164, dtype=np.uint32)
    with emulator.upload(given) as source:
        copied_words = emulate(body, source, block=64, parameters=", .param .u64 in")
    assert copied_words.reshape(-1).tolist() == [7] * 32 + given[32:].tolist()


HINTED = "cp.async.cg.shared.global.L2::cache_hint [r3], [d2], 16{}; cp.async.wait_all;"
POLICY = "createpolicy.fractional.L2::evict_first.b64 d3; setp.ge.u32 p1, r0, 4; mov.u32 r2, 8; "


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (", d3", [4] * 32),
        (", r2, d3", [2] * 32),
        (", p1, d3", [4] * 4 + [0] * 28),
        (", 8", [4] * 32),
    ],
)
def test_a_cache_policy_is_the_last_operand(
    run: Any, device: Device, last: str, words: list[int]
) -> None:
    """Alone, or behind how much is read; ptxas takes a constant for a policy too."""
    actual = copied(run, device, POLICY + HINTED.format(last))[:, 0]
    assert np.array_equal(actual, np.where(np.arange(4) < np.array(words)[:, None], DATA, 0))


@pytest.mark.parametrize("last", ["", ", r2", ", p1"])
def test_a_cache_hint_needs_its_policy(emulate: Any, emulator: Device, last: str) -> None:
    with pytest.raises(PtxSyntaxError, match="cache_hint takes"):
        copied(emulate, emulator, POLICY + HINTED.format(last))
    with pytest.raises(PtxSyntaxError, match="takes"):
        copied(emulate, emulator, FIRST.replace("16", "16, d2"))


def test_a_copy_in_no_group_is_waited_for_by_wait_all_only(emulate: Any, emulator: Device) -> None:
    assert np.array_equal(copied(emulate, emulator, FIRST + "cp.async.wait_all;")[:, 0], DATA)
    assert (copied(emulate, emulator, FIRST + "cp.async.wait_group 0;")[:, 0] == 7).all()


def test_groups_are_each_threads_own(emulate: Any, emulator: Device) -> None:
    # Even lanes commit a second, empty group, so that one group may stay pending: theirs has landed.
    middle = f"""
    {FIRST} cp.async.commit_group;
    and.b32 r21, r0, 1;
    setp.eq.u32 p1, r21, 0;
    @p1 cp.async.commit_group;
    cp.async.wait_group 1;
"""
    words = copied(emulate, emulator, middle)[:, 0]
    assert np.array_equal(words[::2], DATA[::2])
    assert (words[1::2] == 7).all()


def test_a_second_commit_leaves_the_first_group_as_it_is(emulate: Any, emulator: Device) -> None:
    # Even lanes commit their copy and then nothing, so it has landed when one group may be pending;
    # odd lanes commit it with the second group, or never.
    for commit, wait, landed in (
        ("@p1 cp.async.commit_group;", 1, False),
        ("cp.async.commit_group;", 1, False),
        ("cp.async.commit_group;", 0, True),
    ):
        middle = f"""
    and.b32 r21, r0, 1;
    setp.eq.u32 p1, r21, 0;
    {FIRST}
    @p1 cp.async.commit_group;
    {commit}
    cp.async.wait_group {wait};
"""
        words = copied(emulate, emulator, middle)[:, 0]
        assert np.array_equal(words[::2], DATA[::2])
        assert np.array_equal(words[1::2], DATA[1::2] if landed else [OLD] * 16)


def test_waiting_in_one_branch_lands_that_branchs_copies(emulate: Any, emulator: Device) -> None:
    middle = f"""
    {FIRST} cp.async.commit_group;
    setp.lt.u32 p1, r0, 10;
    @p1 cp.async.wait_group 0;
"""
    words = copied(emulate, emulator, middle)[:, 0]
    assert np.array_equal(words[:10], DATA[:10])
    assert (words[10:] == 7).all()


@in_one_test("size", range(17))
def test_bytes_past_the_source_size_are_zero(run: Any, device: Device, size: int) -> None:
    middle = f"cp.async.cg.shared.global [r3], [d2], 16, {size}; cp.async.wait_all;"
    words = np.ascontiguousarray(copied(run, device, middle)[:, 0]).view(np.uint8)
    expected = DATA.astype(np.uint32).view(np.uint8).copy()
    expected[:, size:] = 0
    assert np.array_equal(words, expected)


def test_source_sizes_that_differ_and_addresses_that_are_not_read(run: Any, device: Device) -> None:
    # Threads 8 and up point far outside the source, and copy nothing of it.
    middle = """
    mov.u32 r21, r0;
    setp.ge.u32 p1, r0, 8;
    @p1 mov.u32 r21, 0;
    @p1 add.u64 d2, d2, 1048576;
    cp.async.cg.shared.global [r3], [d2], 16, r21;
    cp.async.wait_all;
"""
    words = np.ascontiguousarray(copied(run, device, middle)[:, 0]).view(np.uint8)
    expected = DATA.astype(np.uint32).view(np.uint8).copy()
    for lane in range(32):
        expected[lane, lane if lane < 8 else 0 :] = 0
    assert np.array_equal(words, expected)


@in_one_test("size", [4, 8, 16])
@in_one_test("given", [3, 4, 5, 8, 9, 16, 17, (1 << 32) - 1])
def test_a_source_is_not_larger_than_its_copy(
    emulate: Any, emulator: Device, size: int, given: int
) -> None:
    # Source: "src-size ... If src-size is greater than cp-size, then the behavior is undefined."
    # Lane 9 alone may be wrong.
    middle = f"""
    mov.u32 r21, {size};
    setp.eq.u32 p1, r0, 9;
    @p1 mov.u32 r21, {given};
    cp.async.ca.shared.global [r3], [d2], {size}, r21;
    cp.async.wait_all;
"""
    if given > size:
        what = rf"cp.async of {size} bytes has a source size of {given} in thread \(9, 0, 0\)"
        with pytest.raises(LaunchError, match=what):
            copied(emulate, emulator, middle)
        return
    words = np.ascontiguousarray(copied(emulate, emulator, middle)[9, 0]).view(np.uint8)
    expected = [*DATA[9].astype(np.uint32).tobytes()[:given]] + [0] * (size - given)
    assert words[:size].tolist() == expected


def test_a_partial_copy_reads_no_byte_too_many(emulate: Any, emulator: Device) -> None:
    # The source ends 4 bytes into the last lane's chunk.
    middle = """
    mov.u32 r21, 16;
    setp.eq.u32 p1, r0, 31;
    @p1 mov.u32 r21, {size};
    cp.async.cg.shared.global [r3], [d2], 16, r21;
    cp.async.wait_all;
"""
    assert copied(emulate, emulator, middle.format(size=4), size=500)[31, 0].tolist() == [
        224,
        0,
        0,
        0,
    ]
    with pytest.raises(LaunchError, match="out of bounds"):
        copied(emulate, emulator, middle.format(size=5), size=500)


def test_ignored_sources(run: Any, device: Device) -> None:
    middle = """
    setp.lt.u32 p1, r0, 4;
    cp.async.cg.shared.global [r3], [d2], 16, p1;
    cp.async.wait_all;
"""
    words = copied(run, device, middle)[:, 0]
    assert (words[:4] == 0).all()
    assert np.array_equal(words[4:], DATA[4:])


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("cp.async.cg.shared.global [r3], [d2], 8;", PtxSyntaxError),
        ("cp.async.ca.shared.global [r3], [d2], 12;", PtxSyntaxError),
        ("cp.async.cg.shared.global [r3], [d2+8], 16;", LaunchError),
        ("cp.async.cg.shared.global [r3+4], [d2], 16;", LaunchError),
        ("cp.async.cg.shared.global [r3+4096], [d2], 16;", LaunchError),
        ("mov.u32 r21, 17; cp.async.cg.shared.global [r3], [d2], 16, r21;", LaunchError),
    ],
)
def test_wrong_copies(emulate: Any, emulator: Device, line: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        copied(emulate, emulator, line)
    assert "cp.async" in str(caught.value)
