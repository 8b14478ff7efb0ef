"""What a kernel should leave, said by a trusted kernel that is launched as it is, its numbers carrying their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.device.loading import is_machine_code
from ptxlab.device.memory import Buffer
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.judge.carrying import Carrying
from ptxlab.judge.rounding import Bounded, Rounding
from ptxlab.judge.triton_function import compiled, is_triton
from ptxlab.judge.trusted_kernel import TrustedKernel, is_float, roundings_of_a_term, taken
from ptxlab.launch_config import LaunchConfig
from ptxlab.numbers.formats import F32

_TRITON = TARGETS["sm_80"]
"""What a function of Triton is compiled for: products of later targets are asynchronous, and have no rule."""


class CarryingKernel(TrustedKernel):
    """A file in PTX, CUDA C or machine code, or a function of Triton with ``constants`` of its own, launched as ``config`` says."""

    def __init__(
        self,
        kernel: Any,
        names: list[str],
        config: Callable[[Mapping[str, int]], Mapping[str, Any]],
        target: Target,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(kernel, names, config)
        file = None if is_triton(kernel) else Path(kernel)
        engine = "sass" if file and is_machine_code(file) else "ptx"
        self._device, self._target = EmulatorDevice(target, engine=engine), target
        self._constants = constants or {}
        self._loaded = self._device.load(file).kernel() if file else None

    def named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._loaded is not None:
            return taken(self._loaded, arguments)
        known = {**arguments, **self._constants}
        return {name: known[name] for name in self.kernel.arg_names if name in known}

    def _left(self, arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Bounded]:
        config = LaunchConfig.of(**self.config(sizes))
        kernel, given, config = self._compiled(arguments, config)
        assert isinstance(kernel, EmulatorKernel)
        floats = [value.dtype for value in given.values() if is_float(value)]
        narrow = any(dtype != F32.dtype for dtype in floats)
        term = roundings_of_a_term(self._target) if narrow else 1.0
        carrying = Carrying(Rounding(self._target, F32.dtype), term)
        held = {
            name: self._device.upload(value)
            for name, value in given.items()
            if isinstance(value, np.ndarray)
        }
        try:
            kernel.watch(carrying).run(
                config, [held.get(name, each) for name, each in given.items()]
            )
            return {name: _bounded(carrying, buffer) for name, buffer in held.items()}
        except LaunchError as error:
            raise PtxlabError(f"the trusted kernel does not run: {error}") from None
        finally:
            for buffer in held.values():
                buffer.close()

    def _compiled(
        self, arguments: Mapping[str, Any], config: LaunchConfig
    ) -> tuple[Any, dict[str, Any], LaunchConfig]:
        """Return the kernel, its arguments, and its launch with the shared memory that it wants."""
        if self._loaded is not None:
            return self._loaded, self.named(arguments), config
        named = self.named(arguments)
        function = compiled(self.kernel, named, config.cta_threads, _TRITON)
        kernel = self._device.load(function.text).kernel()
        shared = max(config.shared, function.shared)
        return kernel, taken(kernel, function.passed(named)), replace(config, shared=shared)


def _bounded(carrying: Carrying, buffer: Buffer) -> Bounded:
    """Return what an array holds, and how far off that is."""
    array = buffer.numpy()
    number = array.astype(np.float64) if is_float(array) else array
    carried = carrying.memory(buffer.address)
    loaded = carried and carried.load(np.arange(array.size) * array.itemsize, array.itemsize)
    if not loaded:
        return Bounded(number, np.zeros(array.shape))
    numbers = loaded[1]
    return Bounded(numbers.value.reshape(array.shape), numbers.off.reshape(array.shape))
