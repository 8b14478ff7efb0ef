"""LLVM's assembly language runs, as it says and no faster than that, and is kept on disk."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import pytest

from ptxlab import cache
from ptxlab.native import compiler

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

TEXT = """
define float @multiplied_and_added(float %a, float %b, float %c) {
  %p = fmul float %a, %b
  %s = fadd float %p, %c
  ret float %s
}
define float @fused(float %a, float %b, float %c) {
  %s = call float @llvm.fma.f32(float %a, float %b, float %c)
  ret float %s
}
declare float @llvm.fma.f32(float, float, float)
"""

Float3 = ctypes.CFUNCTYPE(ctypes.c_float, *[ctypes.c_float] * 3)


def function(name: str) -> Any:
    return compiler.compile(TEXT, name, Float3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, on disk and in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler._loaded.cache_clear()
    return cache.directory() / "native"


def test_a_product_and_a_sum_are_rounded_apart_unless_fused() -> None:
    a = 1 + 2**-12  # its square has one bit more than float32
    assert function("multiplied_and_added")(a, a, -1) == 2**-11
    assert function("fused")(a, a, -1) == 2**-11 + 2**-24


def test_code_is_found_again_on_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert function("fused")(2, 3, 4) == 10
    assert len(list(folder.iterdir())) == 1
    compiler._loaded.cache_clear()
    monkeypatch.setattr(compiler, "_compiled", lambda *_: pytest.fail("compiled again"))
    assert function("fused")(2, 3, 4) == 10


def test_code_lives_as_long_as_its_functions() -> None:
    gc.freeze()  # what other tests left is of no interest, and much to look through
    try:
        kept = function("fused")
        compiler._loaded.cache_clear()
        gc.collect()
        assert kept(2, 3, 4) == 10
    finally:
        gc.unfreeze()


def test_another_processor_has_its_own_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function("fused")
    compiler._loaded.cache_clear()
    host = compiler._host()
    monkeypatch.setattr(compiler, "_host", lambda: compiler._Host("generic", host.features))
    function("fused")
    assert len(list(folder.iterdir())) == 2


def test_text_that_llvm_does_not_take_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="LLVM IR parsing error"):
        compiler.compile("no module", "f", Float3)
