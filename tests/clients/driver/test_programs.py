"""Programs that call the driver themselves, unchanged but for one line, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.needs import need
from tests.test_readme import blocks

PROGRAMS = Path(__file__).parent / "programs"

INSTALL = "import ptxlab.driver; session = ptxlab.driver.install('sm_80')\n"
HOPPER = INSTALL.replace("sm_80", "sm_90a")


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def run_program(name: str, after: str = "", install: str = INSTALL) -> str:
    """Run one of the programs with the emulator behind the driver, and return what it said on stderr.

    ``after`` comes behind it, and finds what it left in ``left``.
    """
    code = f"{install}import runpy; left = runpy.run_path({str(PROGRAMS / name)!r})\n{after}"
    done = run(code)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_driver_itself() -> None:
    pytest.importorskip("cuda.bindings")
    said = run_program("bindings.py")
    # Each fault has ptxlab's own message, once.
    for words in (
        "is out of bounds", "is misaligned", "trap in thread", "this ELF file is damaged", ".target sm_90",
        "cuArrayDestroy is a function of the CUDA driver that the emulator does not have",
    ):  # fmt: skip
        assert words in said, said
    assert "Traceback" not in said
    assert "should not happen" not in said


def test_cuda_core() -> None:
    pytest.importorskip("cuda.core")
    said = run_program("core.py", "print(session.last, session.usage)")
    # What is asked of the runtime's tables is told; nothing else is missing.
    assert [line for line in said.splitlines() if "cuGetExportTable" not in line] == []


def test_tensor_maps() -> None:
    pytest.importorskip("cuda.core")
    after = """
from ptxlab.tensormap.encoding import decode
from ptxlab.tensormap.tensor_map import Im2col, TensorMap
assert decode(left["data"]) == TensorMap(
    "bf16", left["x"].ctypes.data, (32, 28, 14, 7), (64, 1792, 25088), Im2col((-1, -2), (1, 2), 32, 64),
    (1, 2, 1, 1), swizzle="64B", fill="nan", l2_promotion=256,
)
assert session.last.check().verdict == "clean"
"""
    said = run_program("tensor_maps.py", after, HOPPER)
    for words in ("stride 40 of dimension 1 is no multiple of 16 bytes", "elements of 4 or 6 bits"):
        assert words in said, said


def test_numba() -> None:
    need("numba_cuda")
    said = run_program("numba_kernels.py")
    assert [line for line in said.splitlines() if "cuGetExportTable" not in line] == []


def test_tinygrad(monkeypatch: pytest.MonkeyPatch) -> None:
    need("tinygrad")
    monkeypatch.setenv("DEV", "CUDA:PTX")
    assert run_program("tinygrad_tensors.py") == ""


@pytest.mark.parametrize("package", ["cuda.core", "numba"])
def test_the_page_about_clients_keeps_its_word(package: str) -> None:
    if package == "numba":
        need("numba_cuda")
    pytest.importorskip("cuda.core")
    (program,) = (
        block for block in blocks("clients.md", "python") if f"from {package} import" in block
    )
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"# prints (.*)", program)


def test_a_suite_and_exec_find_the_driver(tmp_path: Path) -> None:
    """Of tests and programs that are not changed, each one in a process of its own."""
    pytest.importorskip("cuda.core")
    test = tmp_path / "test_device.py"
    test.write_text(
        "from cuda.core import Device\n\n\n"
        "def test_arch():\n    assert Device().arch == '86'\n\n\n"
        "if __name__ == '__main__':\n    test_arch()\n"
    )
    run_pytest = [
        "pytest",
        "-p",
        "ptxlab.testing.plugin",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
    ]
    run_exec = ["ptxlab", "exec", "--arch", "sm_86", "--", sys.executable]
    for command in ([*run_pytest, "--ptxlab-driver", "sm_86"], run_exec):
        done = subprocess.run(
            [sys.executable, "-m", *command, str(test)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_emulator_behind_the_driver_is_no_gpu() -> None:
    code = """
import ptxlab
device = ptxlab.open_device("auto")
print(device.kind, device.note)
try:
    ptxlab.open_device("cuda")
except ptxlab.DeviceUnavailable as error:
    print(error.message)
assert ptxlab.driver.install("sm_80") is session
try:
    ptxlab.driver.install("sm_90a")
except ptxlab.PtxlabError as error:
    print(error.message)
import ctypes
library, found = ctypes.CDLL("libcuda.so.1"), []
for name in (b"cuInit", b"cuArrayDestroy", b"glClear"):
    place, status = ctypes.c_uint64(7), ctypes.c_int(7)
    result = library.cuGetProcAddress_v2(name, ctypes.byref(place), 12000, ctypes.c_uint64(0), ctypes.byref(status))
    found.append((result, place.value > 7, status.value))
print(found)
"""
    done = run(INSTALL + code)
    own = "no GPU can be used: the driver of this process is ptxlab's own, with the emulator behind it"
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"emulator {own}", own, "the driver of this process is already an emulated sm_80",
        "[(0, True, 0), (0, True, 0), (500, False, 1)]",
    ]  # fmt: skip


def test_a_process_that_has_a_driver_keeps_it() -> None:
    code = """
import ctypes, platform, tempfile, pathlib
from ptxlab.clients.driver.shared_object import shared_object
path = pathlib.Path(tempfile.mkdtemp()) / "libcuda.so.1"
path.write_bytes(shared_object("libcuda.so.1", ["cuInit"], platform.machine()))
other = ctypes.CDLL(str(path))
import ptxlab.driver
try:
    ptxlab.driver.install()
except ptxlab.PtxlabError as error:
    print(error.message, other.cuInit(0))
"""
    done = run(code)
    assert done.stdout == "this process has loaded a CUDA driver already 34\n", done.stderr


def test_a_launch_that_is_interrupted_is_an_error() -> None:
    """What is raised in a launch, by Ctrl-C or by a test's time limit, cannot pass through the driver's C."""
    code = """
import ctypes, signal
class Limit(BaseException): ...
def stop(*_): raise Limit
signal.signal(signal.SIGALRM, stop)
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
handle = ctypes.c_uint64()
cuda.cuCtxCreate_v2(ctypes.byref(handle), 0, 0)
text = b".version 8.0 .target sm_80 .address_size 64 .visible .entry f() { l: bra l; }"
cuda.cuModuleLoadData(ctypes.byref(handle), text)
cuda.cuModuleGetFunction(ctypes.byref(handle), handle, b"f")
signal.setitimer(signal.ITIMER_REAL, 0.2)
print(cuda.cuLaunchKernel(handle, 1, 1, 1, 1, 1, 1, 0, None, None, None))
"""
    done = run(INSTALL + code)
    said = "ptxlab: cuLaunchKernel: interrupted by Limit\n"
    assert (done.stdout, done.stderr) == ("702\n", said)
