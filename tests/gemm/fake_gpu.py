"""A GPU of host memory that multiplies in numpy whatever kernel of f32 is launched, in time of its own."""

from __future__ import annotations

import ctypes
import enum
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device import cuda_driver
from ptxlab.gemm import cublas
from tests.device.fake_driver import FakeDriver

STREAM = 77
LIBRARY = "cublas_kernel"
INTEGERS, POINTERS, FACTORS = (0, 1, 2, 4, 6, 8), (3, 5, 7, 11), (9, 10)
"""Where the sizes, the addresses and alpha and beta are among the arguments of every kernel."""


def matrix(address: int, rows: int, columns: int) -> Array:
    raw = (ctypes.c_float * (rows * columns)).from_address(address)
    return np.ctypeslib.as_array(raw).reshape(rows, columns)


class FakeGpu(FakeDriver):
    """``seconds`` is how long a launch takes, by kernel; others take a millisecond, or what ``cost``
    says of the first arguments of cuLaunchKernel.

    ``spoil`` gets D after a kernel, by name, and how often that ran before; ``ran`` counts launches.
    Those in ``idle`` write nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}
        self.cost: Callable[..., float] = lambda *launch: 1e-3
        self.spoil: dict[str, Callable[[Array, int], None]] = {}
        self.idle: set[str] = set()
        self.ran: dict[str, int] = {}
        self.handles = 0
        self.now = 0.0
        self.moments: dict[Any, float] = {}

    def _cuStreamCreate(self, flags: int) -> Any:
        return STREAM

    def _cuEventRecord(self, event: Any, stream: Any) -> tuple[()]:
        self.moments[event] = self.now
        return ()

    def _cuEventElapsedTime(self, began: Any, ended: Any) -> float:
        return 1e3 * (self.moments[ended] - self.moments[began])

    def _play(self, function: str, pointers: Any) -> None:
        if self.capturing is not None:
            self.capturing.append((function, pointers))
            return
        if isinstance(pointers, tuple):
            self._multiply(function.split()[-1], *pointers)
        else:
            work: Callable[[], None] = pointers
            work()

    def _cuLaunchKernel(self, *args: Any) -> tuple[()]:
        self._play(args[0], (args[9], self.cost(*args[:7])))
        return ()

    def _cuGraphLaunch(self, runnable: str, stream: Any) -> tuple[()]:
        for function, pointers in self.graphs[runnable.removeprefix("runnable ")]:
            self._play(function, pointers)
        return ()

    def _multiply(self, name: str, pointers: int, cost: float) -> None:
        each = (ctypes.c_void_p * 12).from_address(pointers)
        m, n, k, *_ = (ctypes.c_int32.from_address(each[i] or 0).value for i in INTEGERS)
        a, b, d, _ = (ctypes.c_uint64.from_address(each[i] or 0).value for i in POINTERS)
        self.finish(name, matrix(a, m, k), matrix(b, k, n), matrix(d, m, n), cost)

    def finish(self, name: str, a: Array, b: Array, d: Array, cost: float = 1e-3) -> None:
        if name not in self.idle:
            d[...] = a.astype(np.float64) @ b.astype(np.float64)
        before = self.ran.get(name, 0)
        if name in self.spoil:
            self.spoil[name](d, before)
        self.ran[name] = before + 1
        self.now += self.seconds.get(name, cost)


class Names(enum.IntEnum):
    N = 0
    T = 1
    DEFAULT = -1
    COMPUTE_32F = 68


class Library(ModuleType):
    """As much of ``nvmath.bindings.cublas`` as products of row-major f32 need."""

    Operation = GemmAlgo = ComputeType = Names

    class cuBLASError(Exception):
        pass

    def __init__(self, driver: FakeGpu) -> None:
        super().__init__("nvmath.bindings.cublas")
        self.driver = driver

    def create(self) -> int:
        self.driver.handles += 1
        return 5

    def destroy(self, handle: int) -> None:
        self.driver.handles -= 1

    def set_stream(self, handle: int, stream: int) -> None:
        assert stream == STREAM

    def set_workspace(self, handle: int, address: int, size: int) -> None:
        assert address

    def gemm_ex(self, *given: Any) -> None:
        n, m, k, b, a, d = (given[i] for i in (3, 4, 5, 7, 10, 14))

        def work() -> None:
            self.driver.finish(LIBRARY, matrix(a, m, k), matrix(b, k, n), matrix(d, m, n))

        self.driver._play(LIBRARY, work)


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Make this the only GPU, with cuBLAS, but with neither cublasLt nor NVML."""
    driver = FakeGpu()
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (driver, ""))
    monkeypatch.setattr(cublas, "WORKSPACE", 1024)
    for module in (ModuleType("nvmath"), ModuleType("nvmath.bindings"), Library(driver)):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("nvmath.bindings.cublasLt", "pynvml"):
        monkeypatch.setitem(sys.modules, name, None)
    return driver
