"""What is done to CuPy, of which a stand-in is here: its kernels have lines of Python, its memory ends where arrays do."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxlab.clients import cupy

CODE = r"""
extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }
"""
LINE = 1 + Path(__file__).read_text(encoding="utf-8").split("CODE =")[0].count("\n")


class Pool:
    """Gives memory in pieces of 512 bytes."""

    def malloc(self, nbytes: int) -> int:
        return -(-nbytes // 512) * 512


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    def compiled(source: str, options: tuple[str, ...] = (), *, arch: str) -> Any:
        return source, options, arch

    compiler = SimpleNamespace(_compile_module_with_cache=compiled)
    memory = SimpleNamespace(_malloc=lambda nbytes: nbytes)
    stand_in: Any = SimpleNamespace(compiler=compiler, memory=memory, MemoryPool=Pool)
    monkeypatch.setitem(sys.modules, "cupy.cuda", stand_in)
    cupy.be_exact(stand_in)
    return stand_in


def test_a_kernel_has_the_lines_of_the_file_that_it_stands_in(cuda: Any) -> None:
    compile_source = cuda.compiler._compile_module_with_cache
    source, options, arch = compile_source(CODE, ("-std=c++17", "--generate-line-info"), arch="80")
    assert source == f'#line {LINE} "{__file__}"\n{CODE}'
    assert (options, arch) == (("-std=c++17", "-lineinfo"), "80")
    assert compile_source("elsewhere" + CODE, arch="80") == ("elsewhere" + CODE, (), "80")


def test_memory_is_as_large_as_an_array(cuda: Any) -> None:
    assert cuda.MemoryPool is not Pool
    assert [cuda.MemoryPool().malloc(nbytes) for nbytes in (0, 4000)] == [0, 4000]
