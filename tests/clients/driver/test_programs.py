"""Programs that call the driver themselves, unchanged but for one line, each in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.needs import need
from tests.test_readme import blocks
from tests.together import PLUGINS, thorough

PROGRAMS = Path(__file__).parent / "programs"

INSTALL = "import ptxlab.driver; session = ptxlab.driver.install('sm_80')\n"
HOPPER = INSTALL.replace("sm_80", "sm_90a")

FORKING = """
import json, os, sys, traceback
for line in sys.stdin:
    code, *files = json.loads(line)
    if not os.fork():
        for stream, file in enumerate(files, 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
        status = 1
        try:
            exec(code, {"__name__": "__main__", "session": session})
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)  # the driver's file is removed by the process that is forked
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
"""Each line has a program, and the files for what it says on stdout and on stderr; its status is printed."""

Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def emulating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Done]]:
    """Return what runs code in a fork of a process that has the emulator behind its driver."""
    command = [sys.executable, "-c", INSTALL + FORKING]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, told = process.stdin, process.stdout

        def run(code: str) -> Done:
            files = [tmp_path_factory.mktemp("run") / name for name in ("stdout", "stderr")]
            print(json.dumps([code, *map(str, files)]), file=asked, flush=True)
            status = int(told.readline())
            return subprocess.CompletedProcess(command, status, *(f.read_text() for f in files))

        yield run
        asked.close()


def run(code: str) -> Done:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def run_program(name: str, run: Callable[[str], Done], before: str = "", after: str = "") -> str:
    """Run one of the programs with the emulator behind the driver, and return what it said on stderr.

    ``after`` comes behind it, and finds what it left in ``left``.
    """
    done = run(f"{before}import runpy; left = runpy.run_path({str(PROGRAMS / name)!r})\n{after}")
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_driver_itself(emulating: Callable[[str], Done]) -> None:
    pytest.importorskip("cuda.bindings")
    said = run_program("bindings.py", emulating)
    # Each fault has ptxlab's own message, once.
    for words in (
        "is out of bounds", "is misaligned", "trap in thread", "this ELF file is damaged", ".target sm_90",
        "cuArrayDestroy is a function of the CUDA driver that the emulator does not have",
    ):  # fmt: skip
        assert words in said, said
    assert "Traceback" not in said
    assert "should not happen" not in said


def test_cuda_core(emulating: Callable[[str], Done]) -> None:
    pytest.importorskip("cuda.core")
    said = run_program("core.py", emulating, after="print(session.last, session.usage)")
    assert said == ""


def test_graphs_of_cuda_core(emulating: Callable[[str], Done]) -> None:
    pytest.importorskip("cuda.core")
    assert run_program("graphs.py", emulating) == ""


TORCH = """
import numpy as np
import torch
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, Stream, launch
from ptxlab.clients.torch import module
module.install(session.device.target)
Device().set_current()
code = 'extern "C" __global__ void add(int* x, int n) { x[threadIdx.x] += n; }'
add = Program(code, code_type="c++").compile("ptx").get_kernel("add")
x, stream = torch.zeros(32, dtype=torch.int32, device="cuda"), torch.cuda.Stream()
handle = driver.CUstream(stream.cuda_stream)

def work(factor, n):
    global x
    x *= factor
    launch(Stream.from_handle(torch.cuda.current_stream().cuda_stream), LaunchConfig(grid=1, block=32), add, x.data_ptr(), np.int32(n))

graph = torch.cuda.CUDAGraph()
event, side = driver.cuEventCreate(0)[1], torch.cuda.Stream()
with torch.cuda.graph(graph, stream=stream):
    work(3, 2)
    assert driver.cuEventRecord(event, side.cuda_stream) == (driver.CUresult.CUDA_SUCCESS,)
assert x[0] == 0
graph.replay(), graph.replay()
assert x[0] == 8
driver.cuStreamBeginCapture(handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
assert torch.cuda.is_current_stream_capturing()
with torch.cuda.stream(stream):
    work(2, 1)
_, captured = driver.cuStreamEndCapture(handle)
assert x[0] == 8
_, executable = driver.cuGraphInstantiate(captured, 0)
driver.cuGraphLaunch(executable, handle)
assert x[0] == 17, x
"""


def test_pytorch_and_the_driver_capture_the_same_streams(
    emulating: Callable[[str], Done],
) -> None:
    need("torch")
    pytest.importorskip("cuda.core")
    done = emulating(TORCH)
    assert done.returncode == 0, done.stderr


LINKED = """
import ctypes, pathlib, types
from ptxlab.clients.driver.linked_runtime import answer
library = ctypes.CDLL({path!r})
asked = [getattr(library, name) for name in ("devices", "made_up", "mine", "registered")]
assert [ask() for ask in asked] == [100 * 46 - 1, 46, 3, 1]
answer(types.SimpleNamespace(__file__={path!r}))
assert [ask() for ask in asked] == [1, 801, 3, 2]
assert library.last() == 801
assert ctypes.CDLL("libcuda.so.1").cuMemFree_v2(ctypes.c_uint64(1)) == 1
assert library.last() == 0, "it tells of the runtime's own functions"
"""


def test_a_runtime_inside_of_a_library_is_the_emulated_one(
    emulating: Callable[[str], Done], tmp_path: Path
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler of C")
    path = tmp_path / "extension.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(path), str(PROGRAMS / "linked_runtime.c")]
    subprocess.run(command, check=True)
    done = emulating(LINKED.format(path=str(path)))
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "ptxlab: cudaMadeUp is a function of the CUDA runtime that the emulator does not have\n"
    )


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
    said = run_program("tensor_maps.py", run, HOPPER, after)
    for words in ("stride 40 of dimension 1 is no multiple of 16 bytes", "elements of 4 or 6 bits"):
        assert words in said, said


def test_numba(emulating: Callable[[str], Done]) -> None:
    need("numba_cuda")
    said = run_program("numba_kernels.py", emulating)
    assert said == ""


def test_tinygrad(emulating: Callable[[str], Done]) -> None:
    need("tinygrad")
    chosen = "import os; os.environ['DEV'] = 'CUDA:PTX'\n"
    assert run_program("tinygrad_tensors.py", emulating, chosen) == ""


@pytest.mark.parametrize("package", ["cuda.core", *thorough(["numba"])])
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
    run_pytest = ["pytest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    run_exec = ["ptxlab", "exec", "--arch", "sm_86", "--", sys.executable]
    for command in ([*run_pytest, "--ptxlab-driver", "sm_86"], run_exec):
        done = subprocess.run(
            [sys.executable, "-m", *command, str(test)],
            env=os.environ | PLUGINS, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_emulator_behind_the_driver_is_no_gpu(emulating: Callable[[str], Done]) -> None:
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
    done = emulating(code)
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


def test_a_launch_that_is_interrupted_is_an_error(emulating: Callable[[str], Done]) -> None:
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
    done = emulating(code)
    said = "ptxlab: cuLaunchKernel: interrupted by Limit\n"
    assert (done.stdout, done.stderr) == ("702\n", said)


def test_pytorch_that_is_imported_later_has_a_context(
    emulating: Callable[[str], Done], tmp_path: Path
) -> None:
    """What asks for it stands in for PyTorch, which takes seconds to import."""
    (tmp_path / "torch.py").touch()
    code = f"""
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
print(cuda.cuCtxGetCurrent(ctypes.byref(context)))
sys.path.insert(0, {str(tmp_path)!r})
import torch
print(cuda.cuCtxGetCurrent(ctypes.byref(context)), context.value > 0)
"""
    assert emulating(code).stdout == "3\n0 True\n"
