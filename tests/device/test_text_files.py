"""Texts as editors of all systems leave them, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxlab.device.loading import find_file, is_cuda
from ptxlab.errors import PtxlabError
from ptxlab.files import read_text

TEXT = "// gr\u00fc\u00dfe\n.version 8.0\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_a_text_is_read_in_whatever_encoding(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "x.ptx"
    file.write_bytes(TEXT.replace("\n", "\r\n").encode(encoding))
    assert read_text(file) == TEXT


def test_what_is_no_text_is_none(tmp_path: Path) -> None:
    file = tmp_path / "x.ptx"
    file.write_bytes(b"\x7fELF\x00\xff")
    with pytest.raises(ValueError, match="is not text"):
        read_text(file)


def test_a_header_of_cuda_is_cuda_and_a_folder_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.cuh").write_text("")
    assert is_cuda(str(tmp_path / "x.cuh"))
    with pytest.raises(PtxlabError, match="it is a folder") as caught:
        find_file(tmp_path)
    assert caught.value.hint == "name a file: x.cuh"


def test_a_folder_that_comes_with_ptxlab_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PtxlabError, match="there is no file kernels, it is a folder") as caught:
        find_file("kernels")
    assert "kernels/block_scaled.cu" in str(caught.value.hint)
