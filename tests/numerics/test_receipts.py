"""Receipts of arithmetic, and that those on record agree with the models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from scripts import arithmetic_receipts as receipts

FOLDER = Path(__file__).parents[1] / "receipts"


def test_a_receipt_survives_the_disk_and_a_wrong_word_is_noticed(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "COUNT", 256)  # eight of them are a launch
    taken = list(receipts.take(device))
    assert len(taken) == 9
    assert [receipt.differing for receipt in taken] == [0] * 9
    path = receipts.write(taken, {"driver": "1.2"}, tmp_path)
    back = receipts.read(path)
    for before, after in zip(taken, back, strict=True):
        assert np.array_equal(before.words, after.words)
        assert before.words.dtype == after.words.dtype
    words = back[4].words.copy()
    words[17] ^= 1
    assert replace(back[4], words=words).differing == 1


def test_another_generation_s_words_are_noticed(device: Device) -> None:
    first = next(receipts.take(device))
    other = "sm_80" if first.arch != "sm_80" else "sm_90a"
    assert replace(first, arch=other).differing > receipts.COUNT // 10


def test_the_receipts_on_record_agree_with_the_models() -> None:
    for path in FOLDER.glob("arithmetic_*.json"):
        for receipt in receipts.read(path):
            assert receipt.differing == 0, f"{path.name}: {receipt.dtype} {receipt.case}"


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"schema": "something else"}')
    with pytest.raises(PtxlabError, match="no receipt of arithmetic"):
        receipts.read(path)
    with pytest.raises(PtxlabError, match="no case"):
        receipts.products("f16", "f32", "unheard of")
