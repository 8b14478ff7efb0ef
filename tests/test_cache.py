import os
import stat
from pathlib import Path

import pytest

from ptxlab.cache import cached, directory, prune, size


class Work:
    """Counts how often the work was really done."""

    def __init__(self, result: bytes = b"result") -> None:
        self.result = result
        self.times = 0

    def __call__(self) -> bytes:
        self.times += 1
        return self.result


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def entries() -> list[Path]:
    return [file for file in directory().rglob("*") if file.is_file()]


def test_second_call_does_no_work() -> None:
    work = Work()
    assert cached("tool", ["a", b"b"], work) == b"result"
    assert cached("tool", ["a", b"b"], work) == b"result"
    assert work.times == 1
    assert len(entries()) == 1


def test_keys_do_not_run_together() -> None:
    for number, key in enumerate((["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["", "abc"])):
        assert cached("tool", key, Work(b"%d" % number)) == b"%d" % number
    assert cached("other", ["abc"], Work(b"other")) == b"other"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "shorter than its digest"])
def test_damaged_entry_is_made_anew(damage: str) -> None:
    cached("tool", ["key"], Work())
    (entry,) = entries()
    data = bytearray(entry.read_bytes())
    if damage == "flipped":
        data[-1] ^= 1
    entry.write_bytes(data[: {"truncated": -1, "empty": 0, "flipped": None}.get(damage, 5)])
    work = Work()
    assert cached("tool", ["key"], work) == b"result"
    assert work.times == 1
    assert cached("tool", ["key"], work) == b"result"
    assert work.times == 1, "the damaged entry was replaced"


def test_cache_under_a_file_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    work = Work()
    assert cached("tool", ["key"], work) == b"result"
    assert cached("tool", ["key"], work) == b"result"
    assert work.times == 2


def test_failed_rename_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(os, "replace", refuse)
    assert cached("tool", ["key"], Work()) == b"result"
    assert entries() == []


def test_error_is_not_kept() -> None:
    def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cached("tool", ["key"], fail)
    assert cached("tool", ["key"], Work()) == b"result"


def test_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert directory() == tmp_path / ".cache" / "ptxlab"


def test_entries_are_private_to_the_user() -> None:
    cached("tool", ["key"], Work())
    (entry,) = entries()
    assert not entry.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_what_was_not_used_for_the_longest_is_removed() -> None:
    for number in range(8):
        cached("tool", [str(number)], lambda: b"x" * 100)
    entries = sorted((directory() / "tool").iterdir())
    for age, path in enumerate(entries):
        os.utime(path, (1000 - age, 1000 - age))
    each = entries[0].stat().st_size
    prune(8 * each)
    assert size() == 8 * each
    prune(8 * each - 1)
    assert sorted((directory() / "tool").iterdir()) == entries[:3]
    assert size() == 3 * each


def test_headers_are_no_entries_and_stay() -> None:
    cached("tool", ["key"], Work())
    header = directory() / "headers" / "13.5" / "cuda_fp16.h"
    header.parent.mkdir(parents=True)
    header.write_text("#pragma once")
    prune(0)
    assert header.exists()
    assert not any(len(name) == 64 for _, _, names in os.walk(directory()) for name in names)
