"""A stopwatch for a GPU.

Work is recorded as a CUDA graph, which runs without waiting for the CPU between two kernels: what is
timed is the GPU, not Python. CUDA C++ Programming Guide, "CUDA Graphs"; Driver API, "Graph Management".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.cuda_driver import DriverError
from ptxlab.device.memory import Closing
from ptxlab.device.sensors import Reading, Sensors, sampled

StreamWork = Callable[[], None]
"""Puts something on a GPU's stream and does not wait for it; each call puts the same there."""

FLUSH = 4
"""What is written to flush the L2 cache, in sizes of it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one launch: the median, 20th and 80th percentile of ``samples`` batches of ``launches``."""

    median: float
    p20: float
    p80: float
    samples: int
    launches: int

    @classmethod
    def of(cls, seconds: Sequence[float], launches: int) -> Timing:
        """Return the timing of batches of ``launches`` that took so many ``seconds``."""
        p20, median, p80 = np.percentile(seconds, (20, 50, 80)) / launches
        return cls(float(median), float(p20), float(p80), len(seconds), launches)


class Batch(Closing):
    """Work recorded ``count`` times, to be done one right after the other."""

    def __init__(self, device: CudaDevice, work: StreamWork, count: int) -> None:
        self.device = device
        # Relaxed: a library may look something up while its work is recorded.
        mode = device.driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._ask("cuStreamBeginCapture", device.stream, mode)
        try:
            for _ in range(count):
                work()
        except BaseException:
            device.release("cuStreamEndCapture", device.stream)
            raise
        self._graph = self._ask("cuStreamEndCapture", device.stream)
        self._runnable = self._ask("cuGraphInstantiate", self._graph, 0)
        self._ask("cuGraphUpload", self._runnable, device.stream)

    def seconds(self) -> float:
        """Do all of it and return how long that took on the GPU."""

        def launch() -> None:
            self._ask("cuGraphLaunch", self._runnable, self.device.stream)

        return self.device.timed("run a batch", launch).seconds

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels it runs, each once; those it cannot learn are left out."""
        _, count = self._ask("cuGraphGetNodes", self._graph, 0)
        nodes, _ = self._ask("cuGraphGetNodes", self._graph, count)
        return tuple(dict.fromkeys(name for name in map(self._kernel, nodes[:count]) if name))

    def _kernel(self, node: Any) -> str:
        """Return the name of a node's kernel, "" for a node that is none or whose name is not known."""
        call, kinds = self.device.driver.call, self.device.driver.api.CUgraphNodeType
        if call("cuGraphNodeGetType", node) != kinds.CU_GRAPH_NODE_TYPE_KERNEL:
            return ""
        try:
            parameters = call("cuGraphKernelNodeGetParams", node)
            if int(parameters.func):
                name = call("cuFuncGetName", parameters.func)
            else:
                name = call("cuKernelGetName", parameters.kern)
        except DriverError:  # a library may keep its kernels to itself
            return ""
        return str(name.decode())

    def close(self) -> None:
        if self._graph is not None:
            self.device.release("cuGraphExecDestroy", self._runnable)
            self.device.release("cuGraphDestroy", self._graph)
            self._graph = None

    def _ask(self, function: str, *args: Any) -> Any:
        return self.device.call("run a batch", function, *args)


class Stopwatch(Closing):
    """Times work on ``device`` by the GPU's own clock. ``sensors`` may say why there are none."""

    def __init__(self, device: CudaDevice, sensors: Sensors | str) -> None:
        self.device = device
        self.sensors = sensors
        self._flushed = device.zeros(FLUSH * max(device.properties.l2_bytes, 1), "u8")

    def batch(self, work: StreamWork, count: int) -> Batch:
        """Record ``work``, which has been done before: nothing is loaded now."""
        return Batch(self.device, work, count)

    def cold(self, work: StreamWork) -> float:
        """Write more than the L2 cache holds, do ``work`` once right after that; return its seconds."""
        address, nbytes = self._flushed.address, self._flushed.nbytes
        stream = self.device.stream
        self.device.call("flush the L2 cache", "cuMemsetD8Async", address, 0, nbytes, stream)
        return self.device.timed("run with a cold cache", work).seconds

    def rest(self, seconds: float) -> None:
        """Leave the GPU idle."""
        time.sleep(seconds)

    def now(self) -> float:
        """Return the time on the wall, in seconds from anywhere."""
        return time.monotonic()

    @contextmanager
    def watching(self) -> Iterator[Sequence[Reading]]:
        """Read the sensors in a thread: the one that launches must not wait for them."""
        if isinstance(self.sensors, str):
            yield ()
            return
        with sampled(self.sensors.read) as readings:
            yield readings

    def close(self) -> None:
        """Release the memory that flushes the cache."""
        self._flushed.close()
