"""A .cu file with a main, by an nvcc of a few lines, by none, and where it is there by NVIDIA's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxlab.errors import Unsupported
from ptxlab.installation import has_nvidia_wheels
from ptxlab.main import main
from ptxlab.toolchain import nvcc
from ptxlab.toolchain.wheels import ToolAbsent
from tests.toolchain import fake_nvcc

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs run on Linux")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from fake_nvcc.beside_program(tmp_path, monkeypatch)


def test_it_is_compiled_and_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = fake_nvcc.put(folder, monkeypatch)
    asked = ["exec", "--arch", "sm_80", "-I", "include", "-DFACTOR=3", "--std", "c++20"]
    assert main([*asked, "--use_fast_math", "--", "mine.cu", "7", "--check"]) == 5
    assert capfd.readouterr().out == "told 7 --check\n"
    called = log.read_text().split()
    for word in ("-Iinclude", "-DFACTOR=3", "-std=c++20", "-use_fast_math"):
        assert word in called, word
    assert "-gencode=arch=compute_80,code=compute_80" in called


@pytest.mark.skipif(not has_nvidia_wheels(), reason="NVIDIA has no nvcc for this machine")
def test_without_nvcc_the_error_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import cuda.pathfinder

    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(cuda.pathfinder, "find_nvidia_binary_utility", lambda name: None)
    monkeypatch.setattr(nvcc, "PACKAGE", "a-package-that-nobody-has")
    assert main(["run", "mine.cu", "-I", "include", "--", "4"]) == 3
    shown = capfd.readouterr().err
    assert shown.startswith("ptxlab: nvcc is not available: it compiles a .cu file with its main")
    assert '"a-package-that-nobody-has" "nvidia-cuda-cccl"' in shown
    assert "--kernel NAME" in shown


def test_it_runs_on_linux_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["exec", "--", "mine.cu"]) == Unsupported.exit_status
    assert "Linux alone" in capfd.readouterr().err


@pytest.mark.parametrize("option", [["-DX"], ["-I", "x"], ["--std", "c++20"], ["--use_fast_math"]])
def test_nothing_is_compiled_of_other_programs(
    option: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["exec", *option, "--", sys.executable, "-c", ""]) == 2
    assert f"compile a .cu file, and {sys.executable} is none" in capfd.readouterr().err


def test_its_kernels_are_those_that_main_alone_can_name(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        nvcc.program()
    except ToolAbsent as absent:
        pytest.skip(str(absent))
    asked = ["run", "mine.cu", "-I", "include", "--arch", "sm_80", "-DFACTOR=3", "--check"]
    assert main([*asked, "--", "4"]) == 0
    shown = capfd.readouterr()
    assert shown.out == "5 15 20\n"
    assert "1 launch of 1 kernel on the emulator, sm_80" in shown.err
    assert main([*asked, "--", "5"]) == 1
    assert "include/twice.h:3" in capfd.readouterr().err
