import ctypes
import gc
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device import cuda_driver
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.cuda_context import target_of
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.errors import DeviceUnavailable, LaunchError, PtxlabError, ToolchainError, Unsupported
from tests.device.fake_driver import FakeDriver

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u8 flag, .param .u64 out, .param .f32 alpha, .param .u16 n)
{
    ret;
}
"""


def install(monkeypatch: pytest.MonkeyPatch, driver: Any) -> Any:
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (driver, ""))
    return driver


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch, FakeDriver())


@pytest.fixture
def gpu(driver: Any) -> CudaDevice:
    return CudaDevice()


# ---- opening --------------------------------------------------------------------------------


def test_the_gpu_describes_itself(gpu: CudaDevice, driver: Any) -> None:
    assert (gpu.kind, gpu.name, gpu.target.name) == ("cuda", "Fake GPU", "sm_90a")
    assert driver.named("cuStreamCreate") == [(1,)], "one stream, not the legacy default one"
    assert driver.calls[0] == ("cuInit", (0,))


@pytest.mark.parametrize(
    ("capability", "name"),
    [(75, "sm_75"), (80, "sm_80"), (89, "sm_89"), (90, "sm_90a"), (100, "sm_100a"),
     (103, "sm_103a"), (120, "sm_120a"), (88, "sm_88"), (121, "sm_121a")],
)  # fmt: skip
def test_target_of_a_gpu(capability: int, name: str) -> None:
    target = target_of(capability)
    assert (target.name, target.capability) == (name, capability)
    assert target.runs(name)
    assert target.runs("sm_75")


def test_target_of_an_old_gpu() -> None:
    with pytest.raises(DeviceUnavailable, match=r"7\.0 is too old"):
        target_of(70)


def test_old_driver_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDriver(version=12080))
    with pytest.raises(DeviceUnavailable, match=r"CUDA 12\.8; ptxlab needs 13\.0"):
        CudaDevice()


@pytest.mark.parametrize(("count", "words"), [(0, "no GPU"), (1, "1 GPU"), (3, "3 GPUs")])
def test_gpu_that_is_not_there(count: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDriver(count=count))
    with pytest.raises(DeviceUnavailable, match=f"no GPU 7: the driver shows {words}"):
        open_device("cuda:7")


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain"])
def test_failure_to_open_is_unavailability(function: str, driver: Any) -> None:
    driver.fail[function] = 999
    with pytest.raises(DeviceUnavailable, match="words for 999") as caught:
        CudaDevice()
    assert caught.value.exit_status == 3


def test_auto_prefers_the_gpu(driver: Any) -> None:
    assert open_device("auto").kind == "cuda"
    assert open_device("auto", arch="sm_90").kind == "cuda"
    other = open_device("auto", arch="sm_80")
    assert (other.kind, other.target.name) == ("emulator", "sm_80")
    assert "is sm_90a, not sm_80" in other.note
    with pytest.raises(DeviceUnavailable, match="is sm_90a, not sm_100a"):
        open_device("cuda", arch="sm_100a")
    released = driver.named("cuDevicePrimaryCtxRelease")
    assert len(released) == 2, "those that are not the one that was asked for are closed"


def test_second_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, FakeDriver(count=2))
    open_device("cuda:1")
    assert driver.named("cuDevicePrimaryCtxRetain") == [(101,)]


# ---- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(12, dtype=np.int16).reshape(3, 4).T,
        np.ones((2, 3), ml_dtypes.bfloat16),
        np.array(5, np.uint64),
        np.zeros((0, 4), np.float32),
        np.arange(5, dtype=">i4"),
    ],
    ids=["f32", "transposed", "bf16", "0-d", "empty", "big-endian"],
)
def test_arrays_come_back(gpu: CudaDevice, array: Any) -> None:
    with gpu.upload(array) as buffer:
        assert isinstance(buffer, Buffer)
        back = buffer.numpy()
        assert (back.shape, back.tobytes()) == (array.shape, array.astype(buffer.dtype).tobytes())
        assert buffer.nbytes == array.nbytes


def test_zeros_are_zero(gpu: CudaDevice) -> None:
    buffer = gpu.zeros((3, 5), "bf16")
    assert buffer.dtype == ml_dtypes.bfloat16
    assert not buffer.numpy().view(np.uint16).any()
    assert buffer.nbytes == 30


def test_memory_is_given_back_once(gpu: CudaDevice, driver: Any) -> None:
    buffer = gpu.zeros(4, "f32")
    buffer.close()
    buffer.close()
    assert driver.memory == {}
    with pytest.raises(PtxlabError, match="closed"):
        buffer.numpy()
    gpu.zeros(4, "f32")
    gc.collect()
    assert driver.memory == {}, "an unreachable buffer is released"


def test_closed_device_says_so(gpu: CudaDevice, driver: Any) -> None:
    buffer = gpu.zeros(4, "f32")
    module = gpu.load(PTX)
    gpu.close()
    gpu.close()
    assert driver.named("cuDevicePrimaryCtxRelease") == [(100,)]
    for use in (
        lambda: gpu.zeros(4, "f32"),
        lambda: gpu.load(PTX),
        buffer.numpy,
        lambda: module.kernel().launch(1, 1, [0, 0, 0.0, 0]),
    ):
        with pytest.raises(PtxlabError, match="is closed"):
            use()
    buffer.close()


def test_out_of_memory_in_plain_words(gpu: CudaDevice, driver: Any) -> None:
    driver.fail["cuMemAlloc"] = 2
    with pytest.raises(
        LaunchError,
        match=r"cannot allocate buffer float32\[16\] of 64 bytes: the GPU has not that much",
    ):
        gpu.zeros(16, "f32")
    driver.fail.clear()
    assert gpu.zeros(16, "f32").numpy().sum() == 0, "that error is not sticky"


def test_array_interface_and_dlpack(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = gpu.upload(values)
    assert buffer.__cuda_array_interface__ == {  # type: ignore[attr-defined]
        "shape": (2, 3), "typestr": "<f4", "data": (buffer.address, False),
        "version": 3, "strides": None, "stream": None,
    }  # fmt: skip
    assert buffer.__dlpack_device__() == (2, 0)  # type: ignore[attr-defined]
    # The fake GPU's memory is the host's, so numpy can be the consumer when told so.
    monkeypatch.setattr(type(buffer), "__dlpack_device__", lambda self: (1, 0))
    seen: Any = np.from_dlpack(buffer)  # type: ignore[arg-type]
    assert seen.dtype == np.float32
    np.testing.assert_array_equal(seen, values)
    address = buffer.address
    del buffer
    gc.collect()
    assert address in gpu.driver.api.memory, "the consumer keeps the memory"
    del seen
    gc.collect()
    assert address not in gpu.driver.api.memory


def test_unconsumed_dlpack_capsule_lets_go(gpu: CudaDevice) -> None:
    buffer: Any = gpu.upload(np.ones(3, ml_dtypes.bfloat16))
    buffer.__dlpack__(stream=None)
    address = buffer.address
    del buffer
    gc.collect()
    assert address not in gpu.driver.api.memory


def test_dlpack_refuses_what_it_cannot_name(gpu: CudaDevice) -> None:
    buffer: Any = gpu.zeros(3, [("n", "i4"), ("x", "f4")])
    with pytest.raises(BufferError, match="cannot be handed on"):
        buffer.__dlpack__()
    with pytest.raises(BufferError, match="copy"):
        gpu.zeros(3, "f32").__dlpack__(copy=True)  # type: ignore[attr-defined]


# ---- launching ------------------------------------------------------------------------------


def test_launch_passes_every_argument(gpu: CudaDevice, driver: Any) -> None:
    out = gpu.zeros(4, "f32")
    seen: list[bytes] = []

    def play(pointers: int) -> None:
        addresses = (ctypes.c_void_p * 4).from_address(pointers)
        sizes = (1, 8, 4, 2)
        seen.extend(ctypes.string_at(a, size) for a, size in zip(addresses, sizes, strict=True))
        ctypes.memmove(out.address, struct.pack("<4f", 1, 2, 3, 4), 16)

    driver.on_launch = play
    result = gpu.load(PTX).kernel("k").launch((2, 3), 64, [True, out, 0.1, 65535])
    assert seen == [
        b"\x01",
        out.address.to_bytes(8, "little"),
        struct.pack("<f", 0.1),
        b"\xff\xff",
    ]
    ((handle, *shape, stream, _, extra),) = driver.named("cuLaunchKernel")
    assert handle == "module 1 k"
    assert shape == [2, 3, 1, 64, 1, 1, 0]
    assert (stream, extra) == ("stream", 0)
    assert result.seconds == pytest.approx(0.0025)
    assert result.counters == {}
    assert out.numpy().tolist() == [1, 2, 3, 4]
    order = [name for name, _ in driver.calls if name in ("cuEventRecord", "cuLaunchKernel")]
    assert order == ["cuEventRecord", "cuLaunchKernel", "cuEventRecord"]


def test_kernel_without_parameters(gpu: CudaDevice, driver: Any) -> None:
    text = PTX.replace(PTX[PTX.index("k(") + 2 : PTX.index(")\n{")], "")
    gpu.load(text).kernel().launch(1, 1)
    assert len(driver.named("cuLaunchKernel")) == 1


def test_ptx_reaches_the_driver_as_a_cubin(gpu: CudaDevice, driver: Any) -> None:
    gpu.load(PTX)
    assert driver.images[0][:4] == b"\x7fELF"


def test_dynamic_shared_memory_is_asked_for(gpu: CudaDevice, driver: Any) -> None:
    kernel = gpu.load(PTX).kernel()
    kernel.launch(1, 1, [0, 0, 0.0, 0], shared=200_000)
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert driver.named("cuFuncSetAttribute") == [("module 1 k", attribute, 200_000)]
    assert driver.named("cuLaunchKernel")[0][7] == 200_000
    driver.fail["cuFuncSetAttribute"] = 1
    with pytest.raises(LaunchError, match="300000 bytes of dynamic shared") as caught:
        kernel.launch(1, 1, [0, 0, 0.0, 0], shared=300_000)
    assert "232448" in str(caught.value)


@pytest.mark.parametrize(("size", "asked"), [(8, 0), (9, 1), (16, 1)])
def test_large_clusters_are_allowed(gpu: CudaDevice, driver: Any, size: int, asked: int) -> None:
    text = PTX.replace("sm_80", "sm_90").replace(")\n{", f")\n.reqnctapercluster {size}, 1, 1\n{{")
    kernel = gpu.load(text).kernel()
    kernel.launch(size, 1, [0, 0, 0.0, 0])
    assert len(driver.named("cuFuncSetAttribute")) == asked
    with pytest.raises(PtxlabError, match="not a multiple"):
        kernel.launch(size - 1, 1, [0, 0, 0.0, 0])


def test_a_launch_in_clusters_describes_them(gpu: CudaDevice, driver: Any) -> None:
    kernel = gpu.load(PTX.replace("sm_80", "sm_90")).kernel()
    kernel.launch((32, 6), 64, [0, 0, 0.0, 0], shared=48, cluster=(8, 2))
    ((config, function, _, extra),) = driver.named("cuLaunchKernelEx")
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (32, 6, 1), "in CTAs"
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (64, 1, 1)
    assert (config.sharedMemBytes, config.hStream, config.numAttrs) == (48, "stream", 1)
    (attribute,) = config.attrs
    assert attribute.id.name == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
    size = attribute.value.clusterDim
    assert (size.x, size.y, size.z) == (8, 2, 1)
    assert (function, extra) == ("module 1 k", 0)
    assert driver.named("cuFuncSetAttribute")[-1][2] == 1, "more than 8 CTAs need consent"
    assert driver.named("cuLaunchKernel") == []
    for cluster, words in (
        ((3,), "not a multiple"),
        ((64,), "it can be 1 to 32"),
        (32, "most is 16"),
    ):
        with pytest.raises(PtxlabError, match=words):
            kernel.launch((32, 6), 64, [0, 0, 0.0, 0], cluster=cluster)


def test_a_cooperative_launch_says_so(gpu: CudaDevice, driver: Any) -> None:
    kernel = gpu.load(PTX).kernel()
    kernel.launch(4, 64, [0, 0, 0.0, 0], cooperative=True)
    ((config, *_),) = driver.named("cuLaunchKernelEx")
    (attribute,) = config.attrs
    assert attribute.id.name == "CU_LAUNCH_ATTRIBUTE_COOPERATIVE"
    assert (attribute.value.cooperative, config.numAttrs) == (1, 1)


def test_a_kernel_with_clusters_of_its_own_has_no_others(gpu: CudaDevice) -> None:
    text = PTX.replace("sm_80", "sm_90").replace(")\n{", ")\n.reqnctapercluster 2, 1, 1\n{")
    kernel = gpu.load(text).kernel()
    kernel.launch(4, 1, [0, 0, 0.0, 0], cluster=2)
    with pytest.raises(PtxlabError, match="runs in clusters of"):
        kernel.launch(4, 1, [0, 0, 0.0, 0], cluster=4)
    with open_device("emulator") as emulator:
        with pytest.raises(PtxlabError, match="runs in clusters of"):
            emulator.load(text).kernel().launch(4, 1, [0, 0, 0.0, 0], cluster=4)
        emulator.load(PTX).kernel().launch(4, 1, [0, 0, 0.0, 0], cluster=1)


@pytest.mark.parametrize(
    ("code", "words"),
    [(700, "outside every allocation"), (716, "misaligned"), (719, "trap"), (715, "illegal")],
)
@pytest.mark.parametrize("where", ["cuLaunchKernel", "cuStreamSynchronize"])
def test_fault_is_explained_and_sticks(
    gpu: CudaDevice, driver: Any, code: int, words: str, where: str
) -> None:
    buffer = gpu.zeros(4, "f32")
    kernel = gpu.load(PTX).kernel()
    driver.fail[where] = code
    with pytest.raises(LaunchError, match=words) as caught:
        kernel.launch(1, 1, [0, 0, 0.0, 0])
    assert "kernel k of <ptx>" in str(caught.value)
    assert f"words for {code}" in str(caught.value)
    driver.fail.clear()
    before = len(driver.calls)
    with pytest.raises(LaunchError, match="context was lost when it was to run kernel k") as caught:
        buffer.numpy()
    assert "start a new" in str(caught.value)
    buffer.close()
    gpu.close()
    assert len(driver.calls) == before, "nothing more is asked of a lost context"


def test_refused_launch_does_not_stick(gpu: CudaDevice, driver: Any) -> None:
    kernel = gpu.load(PTX).kernel()
    driver.fail["cuLaunchKernel"] = 701
    with pytest.raises(LaunchError, match="more registers"):
        kernel.launch(1, 1024, [0, 0, 0.0, 0])
    driver.fail.clear()
    kernel.launch(1, 32, [0, 0, 0.0, 0])


def test_code_of_an_unknown_error_keeps_the_drivers_words(gpu: CudaDevice, driver: Any) -> None:
    driver.fail["cuModuleLoadData"] = 303
    with pytest.raises(LaunchError, match="cannot load <ptx>: words for 303"):
        gpu.load(PTX)


def test_wrong_use_never_reaches_the_driver(gpu: CudaDevice, driver: Any) -> None:
    kernel = gpu.load(PTX).kernel()
    other = CudaDevice().zeros(1, "f32")
    for grid, block, args, shared in (
        (0, 1, [0, 0, 0.0, 0], 0),
        (1, 1025, [0, 0, 0.0, 0], 0),
        (1, (1, 1, 65), [0, 0, 0.0, 0], 0),
        ((1, 65536), 1, [0, 0, 0.0, 0], 0),
        (1, (1, 1, 1, 1), [0, 0, 0.0, 0], 0),
        (1.0, 1, [0, 0, 0.0, 0], 0),
        (True, 1, [0, 0, 0.0, 0], 0),
        (1, 1, [0, 0, 0.0, 0], -1),
        (1, 1, [0, 0, 0.0], 0),
        (1, 1, [0, 0, "x", 0], 0),
        (1, 1, [0, other, 0.0, 0], 0),
    ):
        with pytest.raises(PtxlabError) as caught:
            kernel.launch(grid, block, args, shared)  # type: ignore[arg-type]
        assert caught.value.exit_status == 2
    assert driver.named("cuLaunchKernel") == []


# ---- loading --------------------------------------------------------------------------------


def test_cuda_c_is_compiled_for_the_gpu(gpu: CudaDevice, driver: Any, tmp_path: Path) -> None:
    file = tmp_path / "scale.cu"
    file.write_text('extern "C" __global__ void scale(float* x, float a) { x[0] = A * a; }')
    module = gpu.load(file, options=["-DA=3.0f"])
    assert [p.type for p in module.kernel().parameters] == ["u64", "f32"]
    assert driver.images[0][:4] == b"\x7fELF"
    with pytest.raises(ToolchainError) as caught:
        gpu.load(file)
    assert caught.value.location is not None
    assert caught.value.location.path == str(file)


def test_cubin_has_untyped_parameters(gpu: CudaDevice, driver: Any, tmp_path: Path) -> None:
    file = tmp_path / "k.cubin"
    file.write_bytes(b"\x7fELF rest")
    driver.kernels_in_cubin = {"k": [(0, 8), (8, 4), (12, 24)], "other": []}
    module = gpu.load(file)
    assert driver.images == [b"\x7fELF rest"]
    parameters = module.kernels["k"].parameters
    assert [(p.type, p.count, p.offset) for p in parameters] == [
        ("b64", 1, 0),
        ("b32", 1, 8),
        ("b8", 24, 12),
    ]
    seen: list[bytes] = []

    def play(pointers: int) -> None:
        addresses = (ctypes.c_void_p * 3).from_address(pointers)
        seen.extend(ctypes.string_at(a, n) for a, n in zip(addresses, (8, 4, 24), strict=True))

    driver.on_launch = play
    module.kernel("k").launch(1, 1, [5, 0.5, bytes(range(24))])
    assert seen == [(5).to_bytes(8, "little"), struct.pack("<f", 0.5), bytes(range(24))]
    driver.on_launch = lambda pointers: None  # the other kernel has no parameters to read
    module.kernel("other").launch(1, 1)


def test_module_is_unloaded_when_unreachable(gpu: CudaDevice, driver: Any) -> None:
    kernel = gpu.load(PTX).kernel()
    gc.collect()
    assert driver.named("cuModuleUnload") == []
    kernel.launch(1, 1, [0, 0, 0.0, 0])
    del kernel
    gc.collect()
    assert driver.named("cuModuleUnload") == [("module 1",)]


def test_ptx_for_another_gpu_is_refused(gpu: CudaDevice) -> None:
    with pytest.raises(Unsupported, match=r"\.target sm_100a does not run on sm_90a") as caught:
        gpu.load(PTX.replace("8.0", "8.6").replace("sm_80", "sm_100a"))
    location = caught.value.location
    assert location is not None
    assert (location.line, location.text[location.column - 1 :]) == (2, "sm_100a")


# ---- no driver ------------------------------------------------------------------------------

ABSENT = """
import ctypes, sys
asked, found = [], ctypes.CDLL
def load(name, *rest, **more):
    if name not in ("libcuda.so.1", "nvcuda.dll"):
        return found(name, *rest, **more)
    asked.append(name)
    raise OSError(name + ": cannot open shared object file: No such file or directory")
ctypes.CDLL = load
import ptxlab
for spec in ("cuda", "cuda:1", "cuda"):
    try:
        ptxlab.open_device(spec)
    except ptxlab.DeviceUnavailable as error:
        assert error.exit_status == 3
        assert "no NVIDIA driver" in str(error) and "--device emulator" in str(error), error
    else:
        raise SystemExit("opened a GPU that is not there")
device = ptxlab.open_device("auto")
assert device.kind == "emulator" and "no NVIDIA driver" in device.note
assert len(asked) == 1, asked
assert "cuda.bindings.driver" not in sys.modules
print("done")
"""


def test_absent_driver_in_a_process_of_its_own() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ABSENT], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("done\n", "", 0)


def test_a_driver_that_does_not_load_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise OSError(f"{name}: file too short")

    monkeypatch.setattr(ctypes, "CDLL", load)
    binding, reason = cuda_driver._find_driver.__wrapped__()
    assert binding is None
    assert reason.startswith("the NVIDIA driver does not load: ")
    assert reason.endswith(": file too short")
