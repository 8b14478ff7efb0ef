"""torch.compile for "cuda": kernels that inductor writes in Triton, launched on the emulator."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def programs(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the programs, where no compiler of C is and nothing has been compiled yet."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return import_module("tests.clients.torch.programs")


def compiled_does_the_same(torch: Any, program: Any, backend: str) -> None:
    x = torch.rand(16, device="cuda")
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x), program(x))


def test_programs_are_compiled(torch: Any, session: Any, programs: Any) -> None:
    compiled_does_the_same(torch, programs.with_kernel, "inductor")
    fused = [name for name in session.usage if name.startswith("triton_poi_fused_")]
    assert fused == ["triton_poi_fused_add_sin_0"]
    for op in (programs.doubled_op, programs.doubled_triton):
        compiled_does_the_same(torch, op, "aot_eager")


# Inductor always has what dynamo makes, and its autograd.
@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_programs_are_compiled_by_dynamo_alone(torch: Any, programs: Any, backend: str) -> None:
    compiled_does_the_same(torch, programs.with_kernel, backend)


@pytest.mark.thorough
def test_inductor_compiles_backward_too(torch: Any, session: Any, programs: Any) -> None:
    left, right = torch.randn(4, 8, device="cuda"), torch.randn(8, 4, device="cuda")
    results = []
    for function in (programs.softmax_of_product, torch.compile(programs.softmax_of_product)):
        leaf = left.clone().requires_grad_()
        out = function(leaf, right)
        out.square().sum().backward()
        results.append((out.detach(), leaf.grad))
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager)
    assert any("softmax" in name and "backward" in name for name in session.usage)
    graphed = torch.compile(programs.with_kernel, mode="reduce-overhead")
    x = torch.rand(16, device="cuda")
    torch.testing.assert_close(graphed(x), programs.with_kernel(x))
