"""What the tools have answered before, on record, against what they answer now; and that it is used."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ptxlab import cache, resources
from ptxlab.toolchain import (
    assemble_cuda,
    compile_cuda,
    disassemble,
    link_ptx,
    nvdisasm,
    nvjitlink,
    nvrtc,
)
from tests.answers import ARCHIVE, pack, unpack

SAID = '#include "it.cuh"\n__global__ void k(int* out) { *out = IT; }\n'


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "name",
    [
        "kernels/tiled.cu",
        pytest.param("kernels/naive.cu", marks=pytest.mark.thorough),
        pytest.param("kernels/coalescing.cu", marks=pytest.mark.thorough),
    ],
)
def test_the_tools_answer_what_is_on_record(name: str) -> None:
    """Of a large kernel NVRTC orders some instructions by what its process compiled before: these are small."""
    program = resources.path(name)
    source = program.read_text(encoding="utf-8")
    question: Any = {
        "path": str(program),
        "arch": "sm_90a",
        "include_paths": [resources.path("kernels")],
    }

    def answer() -> tuple[str, str, str, str]:
        ptx, cubin = assemble_cuda(source, **question)
        linked = link_ptx(ptx, arch=question["arch"])
        return compile_cuda(source, **question), ptx, disassemble(cubin), disassemble(linked)

    unpack(ARCHIVE.read_bytes())
    recorded = answer()
    with cache.bypassed():
        assert answer() == recorded


def asked(folder: Path, number: int, *options: str, source: str = SAID) -> str:
    """Compile in a folder, and disassemble."""
    folder.mkdir(exist_ok=True)
    (folder / "it.cuh").write_text(f"#define IT {number}\n", encoding="utf-8")
    ptx = compile_cuda(source, path=str(folder / "k.cu"), arch="sm_80", options=options)
    return ptx + disassemble(link_ptx(ptx, arch="sm_80"))


def test_an_answer_on_record_is_that_to_the_same_question_wherever_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    answers = asked(here, 4711), asked(here, 4712)
    packed = pack(cache.directory())
    assert pack(cache.directory()) == packed
    shutil.rmtree(tmp_path / "cache")
    unpack(packed)

    monkeypatch.setattr(nvrtc, "_compile", None)
    monkeypatch.setattr(nvjitlink, "_link", None)
    monkeypatch.setattr(nvdisasm, "_run", None)
    assert (asked(there, 4711), asked(there, 4712)) == answers
    with pytest.raises(TypeError):
        asked(there, 4713)
    with pytest.raises(TypeError):
        asked(there, 4711, "-DX")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (SAID, ["-lineinfo"]),
        (SAID.replace("IT;", "IT; assert(threadIdx.x);"), []),
        pytest.param(SAID.replace("IT;", "__FILE__[threadIdx.x];"), [], marks=pytest.mark.thorough),
    ],
    ids=["lines", "assert", "file"],
)
def test_what_says_where_its_source_lies_is_another_answer(
    tmp_path: Path, source: str, options: list[str]
) -> None:
    here, there = (asked(tmp_path / name, 1, *options, source=source) for name in ("here", "there"))
    assert here != there
    assert asked(tmp_path / "here", 1, *options, source=source) == here
    with cache.bypassed():
        assert asked(tmp_path / "there", 1, *options, source=source) == there
