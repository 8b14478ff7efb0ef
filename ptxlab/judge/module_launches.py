"""The launches of a module: kept as they are made, and predicted for a GPU that is not here."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ptxlab.clients.borrowed import Borrowed
from ptxlab.clients.session import Session
from ptxlab.device.emulator import EmulatorKernel, MachineCodeModule
from ptxlab.device.protocol import Kernel, LaunchResult, Module
from ptxlab.errors import LaunchError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.prediction.predict import load_for, of_launch
from ptxlab.prediction.unfilled import Shaped, UnfilledDevice
from ptxlab.prediction.what_if import EVERY


class LaunchRecord(Session):
    """A session that keeps its launches, what memory was ``written``, what all held that they could reach and
    were ``left``, and the ``fault`` that ended one.

    Unless it ``runs`` them, memory stays as it is; where it ``holds`` memory, none that a launch may use is given back.
    """

    def __init__(self, arch: str) -> None:
        super().__init__(arch, console=lambda text: None)
        self.runs, self.holds = True, False
        self.launches: list[tuple[Kernel, LaunchConfig, bytes, Sequence[Borrowed]]] = []
        self.written: list[tuple[int, int]] = []
        self.left: dict[int, Any] = {}
        self.fault: LaunchError | Unsupported | None = None

    def launch(
        self, kernel: Kernel, config: LaunchConfig, parameters: bytes, memory: Sequence[Any] = ()
    ) -> LaunchResult:
        kept = [*memory] if self.holds else [each._replace(owner=None) for each in memory]
        self.launches.append((kernel, config, parameters, kept))
        if not self.runs:
            kept += self._allocated()
            return LaunchResult(0.0, {"thread_instructions": 0})
        before = [_memory(each).copy() for each in memory]
        try:
            result = super().launch(kernel, config, parameters, memory)
        except (LaunchError, Unsupported) as error:
            self.fault = error
            raise
        for each, old in zip(memory, before, strict=True):
            changed = np.flatnonzero(_memory(each) != old)
            if changed.size:
                self.written.append((each.address, each.address + each.nbytes))
            self.left[each.address] = _memory(each).copy()
        return result

    def _allocated(self) -> Iterator[Borrowed]:
        """Yield the memory of the device, which every launch may use."""
        for each in self.device.memory.allocations:
            if each.writable:
                yield Borrowed(each.begin, each.end - each.begin, each.name, None)


def _memory(borrowed: Borrowed) -> Any:
    held: Any = (ctypes.c_uint8 * borrowed.nbytes).from_address(borrowed.address)
    return np.frombuffer(held, np.uint8)


def predicted(
    chip: Any,
    known: Mapping[int, Any],
    kernel: Kernel,
    config: LaunchConfig,
    parameters: bytes,
    memory: Sequence[Borrowed],
) -> Any:
    """Predict a launch: ``memory`` that its parameters point to is of floats, whose numbers nobody asks for.

    But those that are ``known``, arrays by their addresses.
    """
    assert isinstance(kernel, EmulatorKernel)
    device = UnfilledDevice(chip.gpu.target)
    assembly, module = _loaded(chip, kernel, device)
    block, held = bytearray(parameters), dict[int, Any]()
    for at in range(0, len(block) - 7, 8):  # a parameter may be a structure with pointers
        number = int.from_bytes(block[at : at + 8], "little")
        span = next((m for m in memory if m.address <= number < m.address + max(m.nbytes, 1)), None)
        if span is not None:
            told: Any = Shaped((max(1, span.nbytes // 4),), "float32")
            told = known.get(span.address, told)
            buffer = held.setdefault(span.address, device.upload(told))
            block[at : at + 8] = (buffer.address + number - span.address).to_bytes(8, "little")
    loaded = module.kernel(kernel.name)
    return of_launch(
        assembly, loaded, config, bytes(block), chip, memory=[*held.values()], what_if=[EVERY]
    )


def _loaded(chip: Any, kernel: EmulatorKernel, device: UnfilledDevice) -> tuple[Assembly, Module]:
    """Return the program of a kernel beside its machine code for a chip, and loaded on a device for that."""
    if not isinstance(kernel.module, MachineCodeModule):
        return load_for(device, kernel.program.module.source.text)
    cubin = kernel.module.cubin(kernel.name)
    if cubin.arch != device.target.name:
        raise Unsupported(
            f"{kernel.name} comes as machine code for {cubin.arch}, and {chip.name} runs that of {device.target.name}",
            hint="have the program compiled to PTX",
        )
    return Assembly(None, cubin), MachineCodeModule.of_assembled(device, kernel.module.tree, cubin)
