from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxlab import installation
from ptxlab.device import cuda_driver
from ptxlab.errors import ToolchainError
from ptxlab.main import main
from ptxlab.toolchain import nvcc, nvrtc
from ptxlab.toolchain.wheels import ToolAbsent
from ptxlab.verbs.doctor import examine as doctor
from tests.device.fake_driver import FakeDriver
from tests.together import thorough


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        cuda_driver, "_find_driver", lambda: (None, "no NVIDIA driver is installed")
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def no_disassembly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what takes longest only where a test is about it."""
    monkeypatch.setattr(doctor, "disassemble", lambda cubin: "")


def examined(capsys: pytest.CaptureFixture[str], status: int = 0) -> dict[str, Any]:
    assert main(["doctor", "--json"]) == status
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return output


def test_a_machine_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert f"Python {sys.version.split()[0]}" in " ".join(out.split())
    assert "  the emulator          yes\n" in out
    assert "  a GPU                 no: no NVIDIA driver is installed\n" in out
    assert "R580" in out
    output = examined(capsys)
    assert output["works"]["machine code to SASS"] is True
    assert output["works"]["a GPU"] is False
    assert output["gpus"] == []
    assert {"numpy", "rich", "cuda-python"} <= {package["name"] for package in output["packages"]}
    assert all(package["version"] for package in output["packages"] if package["needed"])


def test_nothing_is_left_in_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ptxlab.cli.progress.LONG", math.inf)  # how long it took is kept there
    output = examined(capsys)
    assert output["cache"] == str(tmp_path / "cache" / "ptxlab")
    assert output["cache_bytes"] == 0
    assert not list(tmp_path.rglob("nvrtc/*")) + list(tmp_path.rglob("nvjitlink/*"))
    (tmp_path / "cache" / "ptxlab" / "x").mkdir(parents=True)
    (tmp_path / "cache" / "ptxlab" / "x" / "y").write_bytes(b"12345")
    monkeypatch.setattr(doctor, "disassemble", lambda cubin: "")
    assert examined(capsys)["cache_bytes"] == 5


@pytest.mark.usefixtures("no_disassembly")
def test_a_gpu_is_named_and_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = FakeDriver(count=2)
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (driver, ""))

    def add(pointers: int) -> None:
        """Play the kernel, on the first GPU only."""
        if len(driver.named("cuLaunchKernel")) == 1:
            (block,) = driver.memory.values()
            block[:] = b"".join((7 + i).to_bytes(4, "little") for i in range(32))

    driver.on_launch = add
    output = examined(capsys)
    assert output["driver"] == {"version": 13000, "newest_ptx": "9.0", "problem": ""}
    assert [gpu["name"] for gpu in output["gpus"]] == ["Fake GPU"] * 2
    assert [gpu["arch"] for gpu in output["gpus"]] == ["sm_90a"] * 2
    assert output["works"]["GPU 0"] is True
    assert output["works"]["GPU 1"] is False
    assert output["gpus"][1]["problem"] == "a kernel ran and gave a wrong result"
    driver.fail["cuDevicePrimaryCtxRetain"] = 2
    assert "does not open" in examined(capsys)["gpus"][0]["problem"]


@pytest.mark.usefixtures("no_disassembly")
@pytest.mark.parametrize(
    ("setup", "problem"),
    [({"version": 12080}, "the driver is for CUDA 12.8"), ({"count": 0}, "the driver shows none")],
)
def test_a_driver_that_is_of_no_use(
    setup: dict[str, Any],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (FakeDriver(**setup), ""))
    assert main(["doctor"]) == 0
    assert f"no: {problem}" in capsys.readouterr().out


@pytest.mark.usefixtures("no_disassembly")
def test_what_is_missing_has_a_pip_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object) -> bytes:
        raise ToolchainError("no compiler")

    def absent() -> str:
        raise ToolAbsent("nvcc", nvcc.PACKAGE, "no such program")

    monkeypatch.setattr(nvrtc, "_compile", broken)
    monkeypatch.setattr(nvcc, "program", absent)
    monkeypatch.setattr("ptxlab.installation._pip", lambda: "pip")  # whatever this Python's is
    requires = [
        "numpy>=2.1",
        "no-such-package<9,>=1",
        "no-such-bench>=1; extra == 'bench'",
        "no-such-native; python_version < '4' and extra == 'native'",
        "no-such-test; extra == 'test'",
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: requires)
    output = examined(capsys)
    assert output["works"]["CUDA C to PTX"] is False
    assert output["works"]["PTX to machine code"] is True
    pip = [line for line in output["advice"] if line.startswith("pip")]
    assert pip[0] == 'pip install "no-such-package<9,>=1"'
    assert pip[1].startswith('pip install "no-such-bench>=1"    (only for')
    assert pip[2].startswith('pip install "no-such-native"    (only for speed')
    assert pip[3].startswith(
        'pip install "nvidia-cuda-nvcc" "nvidia-cuda-cccl"    (only for a .cu file'
    )
    assert len(pip) == 4
    assert main(["doctor"]) == 0
    assert "not installed: only for a .cu file with a main" in capsys.readouterr().out


@pytest.mark.usefixtures("no_disassembly")
def test_an_emulator_that_errs_is_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "PTX", doctor.PTX.replace("value, value, i", "value, value, value"))
    output = examined(capsys, status=3)
    assert output["emulator"]["problem"] == "a kernel ran and gave a wrong result"


@pytest.mark.parametrize(("module", "status"), [("ml_dtypes", 3), *thorough([("cuda", 0)])])
def test_a_missing_package_is_a_line_and_no_traceback(module: str, status: int) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None; "
        "from ptxlab.main import main; sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, "")
    assert f"  the emulator          {'no: ' if status else 'yes'}" in done.stdout


def test_what_is_not_to_be_had_is_not_prescribed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Mac, say; that it is absent costs what it costs elsewhere."""
    for here in (True, False):
        monkeypatch.setattr(installation, "has_nvidia_wheels", lambda here=here: here)
        packages = {package["name"]: package for package in doctor.packages()}
        for name, cost in doctor.COSTS.items():
            package = packages[name]
            assert (package["needed"], bool(package["advice"]), package["costs"]) == (
                here,
                here,
                cost,
            )
        assert packages["numpy"]["needed"], "numpy is to be had everywhere"
