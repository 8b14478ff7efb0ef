"""PTX run by both engines: the emulator, and the interpreter of the machine code that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.device.loading import load_assembled
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.prediction.code import decode
from ptxlab.prediction.launch import Launch
from ptxlab.prediction.machine import Machine
from ptxlab.prediction.memory import Region
from ptxlab.toolchain.assembly import Assembly

Words = npt.NDArray[np.uint32]


class Both:
    """A program of several kernels, loaded by the emulator and as machine code."""

    def __init__(self, source: str, arch: str) -> None:
        self._arch, self._source = arch, source
        self._assembly = Assembly(*load_assembled(source, TARGETS[arch]))

    def run(
        self, name: str, grid: int, block: int, args: Sequence[Any], out: int
    ) -> tuple[Words, Words | None]:
        """Return what argument number ``out`` holds after a kernel, from the emulator and the machine."""
        with closing(open_device("emulator", arch=self._arch)) as device:
            kernel = device.load(self._source).kernel(name)
            passed = [device.upload(one) if isinstance(one, np.ndarray) else one for one in args]
            buffers = [one for one in passed if isinstance(one, Buffer)]
            regions = [Region(one.address, one.nbytes, one.numpy()) for one in buffers]
            config = LaunchConfig.of(grid, block)
            code = decode(self._assembly.cubin, self._assembly.functions, name)
            launch = Launch(
                device.target, config, bytes(kernel.packed(passed)), regions, floats=True
            )
            machine = Machine(code, launch, range(grid))
            machine.run()
            buffer = passed[out]
            end = buffer.address + buffer.nbytes
            computed = machine.memory.load(np.arange(buffer.address, end, 4, dtype=np.uint64))
            kernel.run(config, passed)
            return buffer.numpy().view(np.uint32).reshape(-1), computed
