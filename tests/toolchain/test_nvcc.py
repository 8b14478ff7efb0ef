"""A program with its main: what nvcc is told, what is kept of it, and what is said where it does not compile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ptxlab.errors import ToolchainError
from ptxlab.toolchain import nvcc
from ptxlab.toolchain.wheels import ToolAbsent
from tests.toolchain import fake_nvcc

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its nvcc is a script of a shell")

compile_mine = partial(nvcc.compile_program, "mine.cu", arch="sm_90a", include_paths=["include"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from fake_nvcc.beside_program(tmp_path, monkeypatch)


def test_what_is_compiled_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_nvcc.put(folder, monkeypatch)
    made = compile_mine(options=["-DFACTOR=3"])
    assert b"told" in made
    (called,) = log.read_text().splitlines()
    for word in (
        "-gencode=arch=compute_90a,code=compute_90a", "-lineinfo", "--expt-relaxed-constexpr",
        "-cudart=none", "-l:libcudart.so.13", "-DFACTOR=3", "-Iinclude", "mine.cu",
    ):  # fmt: skip
        assert word in called.split(), word
    assert compile_mine(options=["-DFACTOR=3"]) == made
    assert log.read_text().splitlines() == [called]
    compile_mine(options=["-DFACTOR=4"])
    (folder / "include/twice.h").write_text("")
    compile_mine(options=["-DFACTOR=3"])
    assert len(log.read_text().splitlines()) == 3


def test_a_program_that_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = fake_nvcc.SOURCE.splitlines()[8]
    said = f'mine.cu(9): error: identifier "apply" is undefined\n  {line}\n    ^\n'
    fake_nvcc.put(folder, monkeypatch, f"cat >&2 <<'END'\n{said}END\nexit 2")
    with pytest.raises(
        ToolchainError, match=r'nvcc rejected mine\.cu for sm_90a\n.*"apply"'
    ) as told:
        compile_mine()
    location = told.value.location
    assert location is not None
    assert (location.line, location.column, location.text) == (9, 3, line)


def test_a_column_of_what_macros_stand_for_is_not_the_source_s(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvcc shows ``__global__`` as what it stands for, and counts in that."""
    shown = "  template <class F> __attribute__((global)) void apply(float* x, F f) {"
    said = f"include/twice.h(1): error: nothing\n{shown}\n{'^':>60}\n"
    fake_nvcc.put(folder, monkeypatch, f"cat >&2 <<'END'\n{said}END\nexit 2")
    with pytest.raises(ToolchainError) as told:
        compile_mine()
    location = told.value.location
    assert location is not None
    assert (location.line, location.column) == (1, 1)
    assert location.text == fake_nvcc.HEADER.splitlines()[0]


def test_without_a_compiler_of_c_plus_plus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "nvcc fatal   : Failed to preprocess host compiler properties."
    fake_nvcc.put(folder, monkeypatch, f"echo '{said}' >&2; exit 1")
    with pytest.raises(ToolAbsent, match=r"a compiler of C\+\+ is not available") as told:
        compile_mine()
    assert "NVCC_CCBIN" in str(told.value)
