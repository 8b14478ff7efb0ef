"""Work recorded and timed on a GPU made of host memory, and the sensors beside it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ptxlab.device import cuda_driver
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.cuda_memory import CommonBuffer
from ptxlab.device.opening import open_device
from ptxlab.device.sensors import Reading, Sensors, open_sensors, sampled
from ptxlab.device.stopwatch import FLUSH, Stopwatch
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.launch_config import LaunchConfig
from tests.device.fake_driver import FakeDriver

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{
    ret;
}
"""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    driver = FakeDriver()
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (driver, ""))
    with CudaDevice() as device:
        yield device


@pytest.fixture
def stopwatch(gpu: CudaDevice) -> Iterator[Stopwatch]:
    with Stopwatch(gpu, "no sensors") as stopwatch_of_gpu:
        yield stopwatch_of_gpu


def names(gpu: CudaDevice, *wanted: str) -> list[str]:
    return [name for name, _ in gpu.driver.api.calls if name in wanted]


# ---- launches that wait in a stream ----------------------------------------------------------


def test_a_prepared_launch_can_be_put_on_the_stream_again_and_again(gpu: CudaDevice) -> None:
    out = gpu.zeros(4, "f32")
    work = gpu.load(PTX).kernel().prepare(LaunchConfig.of((2, 3), 64, 50_000), [out, 7])
    driver = gpu.driver.api
    assert driver.named("cuLaunchKernel") == []
    assert len(driver.named("cuFuncSetAttribute")) == 1
    before = len(driver.named("cuStreamSynchronize"))
    work()
    work()
    first, second = driver.named("cuLaunchKernel")
    assert first == second
    assert first[1:8] == (2, 3, 1, 64, 1, 1, 50_000)
    assert len(driver.named("cuStreamSynchronize")) == before, "it waits for nothing"


def test_a_prepared_launch_is_checked_like_any(gpu: CudaDevice) -> None:
    kernel = gpu.load(PTX).kernel()
    for grid, args in ((0, [0, 1]), (1, [0]), (1, [0, "x"])):
        with pytest.raises(PtxlabError):
            kernel.prepare(LaunchConfig.of(grid, 32), args)
    with open_device("emulator") as emulator, pytest.raises(PtxlabError, match="runs every launch"):
        emulator.load(PTX).kernel().prepare(LaunchConfig.of(1, 32), [0, 1])


# ---- batches ---------------------------------------------------------------------------------


def test_a_batch_is_recorded_once_and_runs_without_the_cpu(
    gpu: CudaDevice, stopwatch: Stopwatch
) -> None:
    driver = gpu.driver.api
    ran: list[int] = []
    driver.on_launch = ran.append
    work = gpu.load(PTX).kernel().prepare(LaunchConfig.of(1, 32), [0, 1])
    with stopwatch.batch(work, 5) as batch:
        assert ran == []
        driver.calls.clear()
        assert batch.seconds() == pytest.approx(2.5e-3)
        assert len(ran) == 5
        events = ("cuEventRecord", "cuGraphLaunch", "cuLaunchKernel", "cuStreamSynchronize")
        assert names(gpu, *events) == [events[0], events[1], events[0], events[3]]
        batch.seconds()
        assert len(ran) == 10
        assert batch.kernels == ("module 1 k",)
    batch.close()
    released = ["cuGraphExecDestroy", "cuGraphDestroy"]
    assert names(gpu, *released) == released, "once each"


def test_names_of_kernels_that_are_known(gpu: CudaDevice, stopwatch: Stopwatch) -> None:
    driver = gpu.driver.api
    first, second = (
        gpu.load(PTX).kernel().prepare(LaunchConfig.of(1, 32), [0, 1]) for _ in range(2)
    )

    def both() -> None:
        first()
        second()

    driver.unnamed = {"module 2 k"}
    with stopwatch.batch(both, 2) as batch:
        assert batch.kernels == ("module 1 k", "module 2 k")
    driver.fail["cuKernelGetName"] = 400
    with stopwatch.batch(both, 2) as batch:
        assert batch.kernels == ("module 1 k",)


def test_work_that_fails_leaves_the_stream_as_it_was(gpu: CudaDevice, stopwatch: Stopwatch) -> None:
    driver = gpu.driver.api
    work = gpu.load(PTX).kernel().prepare(LaunchConfig.of(1, 32), [0, 1])
    driver.fail["cuLaunchKernel"] = 701
    with pytest.raises(LaunchError, match="more registers"):
        stopwatch.batch(work, 3)
    assert driver.capturing is None
    driver.fail.clear()
    stopwatch.batch(work, 3).close()


def test_a_cold_launch_comes_right_after_the_flush(gpu: CudaDevice, stopwatch: Stopwatch) -> None:
    driver = gpu.driver.api
    work = gpu.load(PTX).kernel().prepare(LaunchConfig.of(1, 32), [0, 1])
    driver.calls.clear()
    assert stopwatch.cold(work) == pytest.approx(2.5e-3)
    order = ["cuMemsetD8Async", "cuEventRecord", "cuLaunchKernel", "cuEventRecord"]
    assert names(gpu, *order, "cuStreamSynchronize") == [*order, "cuStreamSynchronize"]
    assert driver.named("cuMemsetD8Async")[0][2] == FLUSH * 1024


def test_what_the_driver_says_of_a_gpu(gpu: CudaDevice) -> None:
    properties = gpu.properties
    assert (properties.multiprocessors, properties.clock, properties.l2_bytes) == (
        132,
        1980.0,
        1024,
    )
    assert (properties.memory_bytes, properties.bus) == (1 << 34, "0000:0F:00.0")
    assert gpu.free_bytes == 1 << 33


# ---- sensors ---------------------------------------------------------------------------------


class NVMLError(Exception):
    pass


class Nvml(ModuleType):
    """``pynvml`` with one GPU; what is in ``broken`` is not supported."""

    NVMLError, NVML_CLOCK_SM = NVMLError, 1

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.broken: set[str] = set()

    def _answer(self, name: str, value: Any) -> Any:
        if name in self.broken:
            raise NVMLError("Not Supported")
        return value

    def nvmlInit(self) -> None:
        self._answer("nvmlInit", None)

    def nvmlDeviceGetHandleByPciBusId(self, bus: bytes) -> str:
        assert bus == b"0000:0F:00.0"
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        assert (handle, kind) == ("handle", self.NVML_CLOCK_SM)
        return int(self._answer("clock", 1755))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return int(self._answer("power", 651_500))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return int(self._answer("limit", 700_000))

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.03"


def test_sensors(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    sensors = open_sensors(gpu.properties.bus)
    assert isinstance(sensors, Sensors)
    assert sensors.read() == Reading(1755, 651.5)
    assert (sensors.power_limit, sensors.driver) == (700, "580.159.03")
    nvml.broken = {"power", "limit"}
    assert sensors.read() == Reading(1755, None)
    assert sensors.power_limit is None
    nvml.broken = {"nvmlInit"}
    assert open_sensors("0000:0F:00.0") == "NVML does not answer: Not Supported"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    reason = open_sensors("0000:0F:00.0")
    assert isinstance(reason, str)
    assert "pip install" in reason
    assert '"nvidia-ml-py>=13"' in reason


def test_readings_are_taken_until_the_end(gpu: CudaDevice, stopwatch: Stopwatch) -> None:
    with sampled(lambda: Reading(1.0, 2.0), period=1e-3) as readings:
        deadline = time.monotonic() + 5
        while len(readings) < 3 and time.monotonic() < deadline:
            time.sleep(1e-3)
    count = len(readings)
    assert count >= 3
    time.sleep(5e-3)
    assert len(readings) == count
    with stopwatch.watching() as none:
        assert none == ()


# ---- memory in common ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("managed", "freed"), [(False, "cuMemFreeHost"), (True, "cuMemFree")], ids=["pinned", "managed"]
)
def test_memory_that_both_reach(gpu: CudaDevice, managed: bool, freed: str) -> None:
    driver = gpu.driver.api
    out = CommonBuffer(gpu, (2, 3), np.float32, managed=managed)
    assert (out.shape, out.dtype.name, out.nbytes) == ((2, 3), "float32", 24)
    assert not out.array.any()
    out.array[1, 2] = 7
    there = gpu.read(out.address, 24).view(np.float32)
    assert there.tolist() == [0, 0, 0, 0, 0, 7]
    gpu.fill(out.address, 24, 0xFF)
    assert np.isnan(out.numpy()).all()
    gpu.load(PTX).kernel().launch(1, 1, [out, 1])  # it is an argument like any buffer
    driver.calls.clear()
    out.close()
    out.close()
    assert names(gpu, "cuMemFree", "cuMemFreeHost") == [freed]
    driver.fail["cuMemAllocManaged" if managed else "cuMemHostAlloc"] = 2
    with pytest.raises(LaunchError, match=r"cannot allocate 24 bytes of (pinned|managed) memory"):
        CommonBuffer(gpu, (2, 3), np.float32, managed=managed)
