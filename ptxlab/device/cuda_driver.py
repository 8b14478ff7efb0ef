"""The functions of the CUDA driver. Nothing else in ptxlab imports the binding to it.

Source: CUDA Driver API, "Initialization" and "Version Management".
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from ptxlab.errors import DeviceUnavailable

OLDEST_DRIVER = 13000  # CUDA 13.0, as cuDriverGetVersion counts
LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
EMULATED = "ptxlab_slots"
"""The symbol that only the library has by which ptxlab stands in for the driver."""

_NONE = "no NVIDIA driver is installed"
_OWN = "the driver of this process is ptxlab's own, with the emulator behind it"
NO_DRIVER = "run on the emulator with --device emulator, or install the NVIDIA driver"


class DriverError(Exception):
    """A call of the driver that did not succeed: its ``code``, and the driver's words for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@cache
def _find_driver() -> tuple[Any, str]:
    """Return the driver's binding and "", or None and why there is none.

    The library is asked for before any call, and once: a call without it can block for ever. It comes
    before its binding, which whoever has no GPU need not wait for.
    """
    try:
        library = ctypes.CDLL(LIBRARY)
    except FileNotFoundError:
        return None, _NONE
    except OSError as error:
        absent = "no such file" in str(error).lower() or sys.platform == "emscripten"
        return None, _NONE if absent else f"the NVIDIA driver does not load: {error}"
    if hasattr(library, EMULATED):
        return None, _OWN
    try:
        from cuda.bindings import driver
    except ModuleNotFoundError:
        return None, "cuda-python is not installed"
    except ImportError as error:
        return None, f"cuda-python does not import: {error}"
    return driver, ""


class Driver:
    """The driver's functions, each returning its value alone and raising DriverError."""

    def __init__(self) -> None:
        self.api, reason = _find_driver()
        if self.api is None:
            raise DeviceUnavailable(f"no GPU can be used: {reason}", hint=NO_DRIVER)

    def call(self, function: str, *args: Any) -> Any:
        """Call ``function`` of the driver; several results come back as a tuple. Raises DriverError."""
        status, *values = getattr(self.api, function)(*args)
        if int(status):
            raise DriverError(int(status), self._text(status))
        return values[0] if len(values) == 1 else tuple(values)

    def _text(self, status: Any) -> str:
        error, text = self.api.cuGetErrorString(status)
        name = getattr(status, "name", str(status))
        return str(name) if int(error) or not text else f"{text.decode()} ({name})"


def driver_version() -> int:
    """Return the CUDA release of the driver, as 13000. Raises DeviceUnavailable without a driver."""
    try:
        return int(Driver().call("cuDriverGetVersion"))
    except DriverError as error:
        raise DeviceUnavailable(f"the CUDA driver does not say its version: {error}") from None


def gpu_count() -> int:
    """Return how many GPUs the driver shows. Raises DeviceUnavailable when it cannot be asked."""
    driver = Driver()
    try:
        driver.call("cuInit", 0)
        version = driver_version()
        count = int(driver.call("cuDeviceGetCount"))
    except DriverError as error:
        raise DeviceUnavailable(
            f"the CUDA driver does not start: {error}", hint=NO_DRIVER
        ) from None
    if version < OLDEST_DRIVER:
        raise DeviceUnavailable(
            f"the driver is for CUDA {version // 1000}.{version % 1000 // 10}; ptxlab needs 13.0",
            hint="install a driver of the R580 series or newer, or use --device emulator",
        )
    return count
