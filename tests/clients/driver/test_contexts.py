"""Contexts: which is current, which are there, and what they limit."""

from __future__ import annotations

import pytest

from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import Refused
from ptxlab.clients.driver.table import ROWS
from ptxlab.clients.session import Session
from ptxlab.emulator.run.host import HEAP_BYTES
from tests.clients.driver.calls import Driver


def test_who_retains_the_primary_context() -> None:
    driver = Driver()
    assert driver("cuDevicePrimaryCtxGetState") == (0, 1)
    assert driver("cuDevicePrimaryCtxRetain") == driver.primary
    driver("cuDevicePrimaryCtxSetFlags_v2", 4)
    driver("cuDevicePrimaryCtxRelease_v2")
    assert driver("cuDevicePrimaryCtxGetState") == (4, 1)
    driver("cuDevicePrimaryCtxRelease_v2")
    assert driver("cuDevicePrimaryCtxGetState") == (4, 0)
    assert driver.result("cuDevicePrimaryCtxRelease_v2") == "INVALID_CONTEXT"
    assert driver.result("cuCtxDestroy_v2", driver.primary) == "INVALID_CONTEXT"
    assert driver("cuDevicePrimaryCtxRetain") == driver.primary


def test_contexts_are_a_stack() -> None:
    driver = Driver()
    first, second = driver("cuCtxCreate_v2", 1), driver("cuCtxCreate_v4", 0, 8)
    assert driver("cuCtxGetCurrent") == second
    assert driver("cuCtxGetFlags") == 8
    driver("cuCtxSetFlags", 16)
    assert driver("cuCtxGetFlags") == 16
    driver("cuCtxSetCurrent", driver.primary)  # in place of the second
    assert driver("cuCtxPopCurrent_v2") == driver.primary
    assert driver("cuCtxPopCurrent_v2") == first
    driver("cuCtxPushCurrent_v2", second)
    assert driver("cuCtxGetFlags") == 16
    driver("cuCtxDestroy_v2", second)
    assert driver("cuCtxGetCurrent") == driver.primary
    assert driver.result("cuCtxPushCurrent_v2", second) == "INVALID_HANDLE"
    driver("cuCtxSetCurrent", 0)
    assert driver("cuCtxGetCurrent") == 0
    assert driver.result("cuCtxCreate_v4", 1, 0) == "NOT_SUPPORTED"


def test_before_there_is_a_context() -> None:
    gpu = EmulatedGpu(Session("sm_80"))
    with pytest.raises(Refused):
        ROWS["cuInit"].call(gpu, (1,))
    assert not gpu.initialized
    driver = Driver()
    driver("cuCtxSetCurrent", 0)
    assert driver("cuCtxGetCurrent") == 0
    assert driver.result("cuCtxGetFlags") == "INVALID_CONTEXT"


def test_limits() -> None:
    driver = Driver()
    heap, stack = 2, 0
    assert driver("cuCtxGetLimit", heap) == HEAP_BYTES
    for nbytes in (HEAP_BYTES, 4096):
        driver("cuCtxSetLimit", heap, nbytes)
        assert driver("cuCtxGetLimit", heap) == nbytes
    assert driver.result("cuCtxSetLimit", heap, HEAP_BYTES + 1) == "NOT_SUPPORTED"
    driver("cuCtxSetLimit", stack, HEAP_BYTES + 1)
    assert driver("cuCtxGetLimit", heap) == 4096
    for name in ("cuCtxGetLimit", "cuCtxSetLimit"):
        assert driver.result(name, 3, *[1] * (name == "cuCtxSetLimit")) == "NOT_SUPPORTED"


def test_a_device_that_is_not_there_and_attributes_that_are_not_known() -> None:
    driver = Driver()
    with pytest.raises(Refused) as caught:
        ROWS["cuDeviceComputeCapability"].call(driver.gpu, (1, 1, 1))
    assert caught.value.result.name == "INVALID_DEVICE"
    assert driver("cuDeviceComputeCapability") == (8, 0)
    threads_of_a_warp, textures, memory_clock, unknown = 10, 22, 36, 100_000
    assert driver("cuDeviceGetAttribute", threads_of_a_warp) == 32
    assert driver("cuDeviceGetAttribute", textures) == 0
    assert driver("cuDeviceGetAttribute", memory_clock) == 0
    assert driver.result("cuDeviceGetAttribute", unknown) == "NOT_SUPPORTED"


def test_results_have_somewhere_to_go() -> None:
    """Some may be left out, and NULL is then not written to; of others it is an error."""
    driver = Driver()
    ROWS["cuCtxGetStreamPriorityRange"].call(driver.gpu, (0, 0))
    with pytest.raises(Refused) as caught:
        ROWS["cuCtxGetFlags"].call(driver.gpu, (0,))
    assert caught.value.result.name == "INVALID_VALUE"


def test_what_is_missing_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    driver = Driver()
    for text in ("cuFoo is missing", "cuFoo is missing", "cuBar is missing"):
        driver.gpu.say(text)
    assert capsys.readouterr().err.splitlines() == [
        "ptxlab: cuFoo is missing",
        "ptxlab: cuBar is missing",
    ]
