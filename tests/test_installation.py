"""How what is missing is installed, for every way in which ptxlab can have been."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ptxlab import installation
from ptxlab.main import main
from ptxlab.toolchain.wheels import ToolAbsent

NVIDIA = ["cuda-python", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-cuda-nvdisasm"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with an interpreter and nothing else."""
    environment = tmp_path / "ptxlab"
    (environment / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setattr(sys, "executable", str(environment / "bin" / "python"))
    return environment


def origin(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    class Installed:
        @staticmethod
        def read_text(name: str) -> str | None:
            assert name == "direct_url.json"
            return text

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed)


def test_pip_is_called_by_its_name_where_it_is_this_environments(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installation.adding("x<2") == f'{home}/bin/python -m pip install "x<2"'
    (home / "bin" / "pip").write_text("#!/bin/sh\n")
    (home / "bin" / "pip").chmod(0o755)
    assert installation.adding("x<2") == f'{home}/bin/python -m pip install "x<2"'
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert installation.adding("x<2", "y") == 'pip install "x<2" "y"'


def test_an_environment_of_uv_has_no_pip(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    assert installation.adding("x") == f'uv pip install --python {home}/bin/python "x"'


def test_pipx_injects(home: Path) -> None:
    (home / "pipx_metadata.json").write_text("{}")
    assert installation.adding("x", "y") == 'pipx inject ptxlab "x" "y"'


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (None, "ptxlab"),
        ('{"url": "file:///w/ptxlab.whl", "archive_info": {}}', "/w/ptxlab.whl"),
        ('{"url": "file:///w", "dir_info": {"editable": true}}', "--editable /w"),
    ],
)
def test_a_tool_of_uv_is_installed_again(
    text: str | None, source: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "uv-receipt.toml").write_text("")
    origin(monkeypatch, text)
    assert installation.adding("x", "y") == f'uv tool install --with "x" --with "y" {source}'


# ---- platforms ----------------------------------------------------------------------------------


def on(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    """Play a platform, with none of NVIDIA's packages."""
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    known = metadata.version

    def version(name: str) -> str:
        if name in NVIDIA:
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)


def examined(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["doctor", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_where_nvidia_has_packages_one_line_installs_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on(monkeypatch, "linux", "aarch64")
    first, *_ = examined(capsys)["advice"]
    assert [package for package in NVIDIA if f'"{package}<' in first] == NVIDIA
    assert "pip install" in first
    error = str(ToolAbsent("NVRTC", "nvidia-cuda-nvrtc", "gone"))
    assert 'pip install "cuda-python<14,>=13.0" "nvidia-cuda-nvrtc<14,>=13.0"' in error
    assert "nvjitlink" not in error


def test_where_it_has_none_doctor_says_what_that_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on(monkeypatch, "darwin", "arm64")
    output = examined(capsys)
    packages = {package["name"]: package for package in output["packages"]}
    assert not any(packages[name]["needed"] or packages[name]["advice"] for name in NVIDIA)
    assert not any(name in line for name in NVIDIA for line in output["advice"])
    assert main(["doctor"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "nvidia-cuda-nvrtc there is none for macOS on arm64: no CUDA C" in words
    error = str(ToolAbsent("NVRTC", "nvidia-cuda-nvrtc", "gone"))
    assert error.endswith("NVIDIA has none for macOS on arm64; what is PTX runs without it")
