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


def test_programs_are_compiled(torch: Any, session: Any, programs: Any) -> None:
    """By dynamo alone, with its autograd, and by inductor."""
    x = torch.rand(16, device="cuda")
    expected = programs.with_kernel(x)
    for backend in ("eager", "aot_eager", "inductor"):
        compiled = torch.compile(programs.with_kernel, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(x), expected)
    fused = [name for name in session.usage if name.startswith("triton_poi_fused_")]
    assert fused == ["triton_poi_fused_add_sin_0"]
    for op in (programs.doubled_op, programs.doubled_triton):
        assert torch.compile(op, backend="aot_eager")(x).tolist() == (2 * x).tolist()


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
