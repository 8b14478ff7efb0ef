"""Code of the host that loads its kernels when it is first called, as CuTe DSL compiles it for TVM-FFI."""

from __future__ import annotations

import ctypes

import pytest

from ptxlab.clients.driver.host_code import _BEGIN, _LOAD, _TELL
from ptxlab.clients.driver.table import ROWS
from tests.clients.driver.calls import Driver

INVALID_VALUE = 1


class HostCode:
    """Two functions of compiled code, which end with these results, what they were called with, and what they told."""

    def __init__(self, driver: Driver, begins: int = 0, loads: int = 0) -> None:
        text = b".version 8.0 .target sm_80 .address_size 64 .visible .entry k() { ret; }"
        self.held = ctypes.c_char_p(text)
        self.state = ctypes.c_uint64()
        self.calls: list[str] = []

        def begin(at: int) -> int:
            self.calls.append("begin")
            library = driver("cuLibraryLoadData", ctypes.cast(self.held, ctypes.c_void_p).value)
            ctypes.c_uint64.from_address(at).value = library
            return begins

        def load(at: int, device: int) -> int:
            library = ctypes.c_uint64.from_address(at).value
            self.calls.append(f"load {driver('cuLibraryGetKernelCount', library)} on {device}")
            return loads

        def tell(kind: bytes, words: bytes) -> None:
            self.calls.append(f"{kind.decode()}: {words.decode()}")

        self.functions = _BEGIN(begin), _LOAD(load), _TELL(tell)
        self.given = [ctypes.cast(each, ctypes.c_void_p).value for each in self.functions]

    def called(self, driver: Driver) -> int:
        row = ROWS["cuda_dialect_init_library_once"]
        return row.call(driver.gpu, (ctypes.addressof(self.state), *self.given))


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


def test_it_is_loaded_once_and_unloaded(driver: Driver) -> None:
    code = HostCode(driver)
    assert (code.called(driver), code.called(driver)) == (0, 0)
    assert code.calls == ["begin", "load 1 on 0"]
    library = code.state.value
    assert driver("cuLibraryGetKernelCount", library) == 1
    for _ in range(2):
        driver("cuda_dialect_unload_library_once", ctypes.addressof(code.state))
        assert code.state.value == 0
    assert driver.result("cuLibraryGetKernelCount", library) == "INVALID_HANDLE"


@pytest.mark.parametrize(
    ("begins", "loads", "calls"),
    [(INVALID_VALUE, 0, ["begin"]), (0, INVALID_VALUE, ["begin", "load 1 on 0"])],
)
def test_what_fails_is_told(driver: Driver, begins: int, loads: int, calls: list[str]) -> None:
    code = HostCode(driver, begins, loads)
    assert code.called(driver) == -1
    assert code.calls == [*calls, "RuntimeError: cudaErrorInvalidValue"]
    assert code.state.value == 0
    name = ROWS["cuda_dialect_get_error_name"].call(driver.gpu, (INVALID_VALUE,))
    assert ctypes.string_at(name) == b"cudaErrorInvalidValue"
