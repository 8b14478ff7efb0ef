"""The PTX that comes with ptxlab, beside what NVRTC makes of the same kernels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ptxlab import resources
from ptxlab.device.loading import load_ptx
from ptxlab.device.protocol import Device
from ptxlab.gemm import ALGORITHMS, Problem, run
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.gemm.compiled import bare, digest, ptx_for, read
from ptxlab.isa.targets import TARGETS
from ptxlab.toolchain import nvrtc
from ptxlab.toolchain.wheels import ToolAbsent

TYPES = {
    f"{name}-{dtype}-{acc}": (each, Problem(64, 48, 40, dtype, acc))
    for name, each in ALGORITHMS.items()
    if each.file.endswith(".cu")
    for dtype, acc in each.types
}
NAIVE, PROBLEM = TYPES["naive-f32-f32"]


def shipped(algorithm: Algorithm, problem: Problem, arch: str) -> str:
    found = ptx_for(algorithm, algorithm.options(problem, algorithm.tile), TARGETS[arch])
    assert found is not None, "run scripts/compile_ladder.py"
    return found


def compiled(algorithm: Algorithm, problem: Problem, arch: str) -> str:
    """Ask NVRTC; another version of it may make something else."""
    made_by, here = read()["nvrtc"], nvrtc.version()
    if made_by != here:
        pytest.skip(f"it is from NVRTC {made_by}, and this is {here}")
    options = algorithm.options(problem, algorithm.tile)
    file = resources.path(algorithm.file)
    return bare(load_ptx(file, TARGETS[arch], options).source.text)


@pytest.mark.parametrize("name", TYPES)
def test_it_is_what_nvrtc_makes(name: str) -> None:
    assert shipped(*TYPES[name], "sm_90a") == compiled(*TYPES[name], "sm_90a")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89"])
@pytest.mark.parametrize("name", ["naive-bf16-f32", "tiled-f32-f32", "thread_tiled_4x4-f32-f32"])
def test_older_targets_have_the_same(name: str, arch: str) -> None:
    assert shipped(*TYPES[name], arch) == compiled(*TYPES[name], arch)
    assert shipped(*TYPES[name], arch) != shipped(*TYPES[name], "sm_90a")


def test_there_are_no_others() -> None:
    wanted = {digest(a, a.options(problem, a.tile)) for a, problem in TYPES.values()}
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
    assert ptx_for(NAIVE, options, TARGETS["sm_80"]) is not None, "as git writes it on Windows"
    (folder / changed).write_text(text.replace("alpha", "beta", 1), encoding="utf-8")
    assert ptx_for(NAIVE, options, TARGETS["sm_80"]) is None


@pytest.fixture
def _no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: object, **named: object) -> str:
        raise ToolAbsent("NVRTC", nvrtc.PACKAGE, "no such library")

    monkeypatch.setattr("ptxlab.toolchain.compile_cuda", absent)


@pytest.mark.usefixtures("_no_nvrtc")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120a"])
def test_every_target_runs_it(arch: str) -> None:
    from ptxlab.device.opening import open_device

    with open_device("emulator", arch=arch) as device:
        assert run(device, PROBLEM, NAIVE).passed


@pytest.mark.usefixtures("_no_nvrtc")
def test_what_has_not_come_along_needs_nvrtc(device: Device) -> None:
    for problem, tile in (
        (PROBLEM, {"BM": 16}),
        (Problem(64, 48, 40, "f32", layout="tn"), {}),
        (Problem(64, 48, 40, "f32", epilogue="relu"), {}),
    ):
        with pytest.raises(ToolAbsent, match="NVRTC is not available: no such library") as caught:
            run(device, problem, NAIVE, tile)
        assert "usual tiles of matrices as they are come compiled" in str(caught.value)
