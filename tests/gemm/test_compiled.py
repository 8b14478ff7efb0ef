"""The PTX that comes with ptxlab, beside what NVRTC makes of the same kernels."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ptxlab import resources
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.gemm import ALGORITHMS, Problem, run
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.gemm.compiled import bare, digest, ptx_for, read, target_of
from ptxlab.gemm.run import compute, judge
from ptxlab.gemm.verification import Verification
from ptxlab.isa.targets import TARGETS
from ptxlab.toolchain import compile_cuda, nvrtc
from ptxlab.toolchain.wheels import ToolAbsent

TYPES = {
    f"{name}-{dtype}-{acc}": (each, Problem(64, 48, 40, dtype, acc))
    for name, each in ALGORITHMS.items()
    if each.file.endswith(".cu")
    for dtype, acc in each.types
}
ONE_TYPE_A_KERNEL = [
    name
    if (each.types[0] == (problem.dtype, problem.acc))
    else pytest.param(name, marks=pytest.mark.thorough)
    for name, (each, problem) in TYPES.items()
]
NAIVE, PROBLEM = TYPES["naive-f32-f32"]


def computed(algorithm: Algorithm, problem: Problem, arch: str) -> bytes:
    """Return the bits of D."""
    inputs = problem.inputs()
    with open_device("emulator", arch=arch) as device:
        result = compute(device, problem, inputs, algorithm)
        assert judge(device, Verification(problem, inputs), algorithm, result).passed
    return result.d.tobytes()


@pytest.fixture
def no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def absent(*args: object, **named: object) -> str:
        raise ToolAbsent("NVRTC", nvrtc.PACKAGE, "no such library")

    return lambda: monkeypatch.setattr("ptxlab.toolchain.compile_cuda", absent)


@pytest.fixture
def from_source(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], bytes]:
    """Return what computes the bits of D with the PTX that NVRTC makes now."""

    def compiled(name: str, arch: str) -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["ptxlab.gemm.run"], "ptx_for", lambda *asked: None)
            return computed(*TYPES[name], arch)

    return compiled


@pytest.mark.parametrize("name", ONE_TYPE_A_KERNEL)
def test_it_computes_what_nvrtc_makes_compute(
    name: str, no_nvrtc: Callable[[], None], from_source: Callable[[str, str], bytes]
) -> None:
    """One text computes one thing; but NVRTC does not write the same one on every machine."""
    algorithm, problem = TYPES[name]
    target, file = target_of(algorithm, problem.dtype), resources.path(algorithm.file)
    options = algorithm.options(problem, algorithm.tile_for(problem, target))
    came = ptx_for(algorithm, problem.dtype, options, target)
    assert came is not None
    made = compile_cuda(file.read_text(), path=str(file), arch=target.name, options=options)
    if bare(made) != bare(came):
        from_nvrtc = from_source(name, target.name)
        no_nvrtc()
        assert computed(algorithm, problem, target.name) == from_nvrtc


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        *product(
            ("naive-bf16-f32", "tiled-f32-f32", "thread_tiled_4x4-f32-f32"),
            ("sm_75", "sm_80", "sm_120a"),
        ),
        ("tcgen05-bf16-f32", "sm_103a"),
    ],
)
def test_every_target_runs_it(
    name: str, arch: str, no_nvrtc: Callable[[], None], from_source: Callable[[str, str], bytes]
) -> None:
    from_nvrtc = from_source(name, arch)
    no_nvrtc()
    assert computed(*TYPES[name], arch) == from_nvrtc


@pytest.mark.parametrize(
    ("name", "arch", "asked"),
    [
        ("naive-f32-f32", "sm_75", False),
        ("naive-f32-f32", "sm_90a", False),
        ("naive-f32-f32", "sm_100a", True),
        ("tcgen05-bf16-f32", "sm_103a", False),
    ],
)
def test_nvrtc_is_asked_where_it_would_make_another_text(
    name: str, arch: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def compiling(**asked: Any) -> str:
        seen.append(asked["arch"])
        return compile_cuda(**asked)

    monkeypatch.setattr("ptxlab.toolchain.compile_cuda", compiling)
    computed(*TYPES[name], arch)
    assert seen == ([arch] if asked else [])


def test_there_are_no_others() -> None:
    wanted = {
        digest(algorithm, algorithm.options(problem, tile))
        for algorithm, problem in TYPES.values()
        for _, tile in algorithm.tiles(problem.dtype)
    }
    assert read()["kernels"].keys() == wanted


@pytest.mark.parametrize("changed", ["naive.cu", "gemm.cuh"])
def test_a_kernel_that_was_changed_has_none(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kernels"
    shutil.copytree(resources.path("kernels"), folder)
    monkeypatch.setattr(resources, "path", lambda name: tmp_path / name)
    options = NAIVE.options(PROBLEM, NAIVE.tile)
    text = (folder / changed).read_text(encoding="utf-8")
    (folder / changed).write_bytes(text.replace("\n", "\r\n").encode())
    assert ptx_for(NAIVE, "f32", options, TARGETS["sm_80"]) is not None, (
        "as git writes it on Windows"
    )
    (folder / changed).write_text(text.replace("alpha", "beta", 1), encoding="utf-8")
    assert ptx_for(NAIVE, "f32", options, TARGETS["sm_80"]) is None


def test_what_has_not_come_along_needs_nvrtc(device: Device, no_nvrtc: Callable[[], None]) -> None:
    no_nvrtc()
    for problem, tile in (
        (PROBLEM, {"BM": 16}),
        (Problem(64, 48, 40, "f32", layout="tn"), {}),
        (Problem(64, 48, 40, "f32", epilogue="relu"), {}),
    ):
        with pytest.raises(ToolAbsent, match="NVRTC is not available: no such library") as caught:
            run(device, problem, NAIVE, tile)
        assert "usual tiles of matrices as they are come compiled" in str(caught.value)
