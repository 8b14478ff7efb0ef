"""A kernel in CUDA C or PTX, in its own process: compiled, launched, checked, predicted, as a judge asks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.cache import source
from ptxlab.clients.faults import at_source
from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.device.loading import is_cuda, is_machine_code
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Kernel
from ptxlab.device.shapes import declared
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.judge.candidate import plain_error, plain_report
from ptxlab.judge.last_writer import LastWriter
from ptxlab.judge.speed import plain
from ptxlab.launch_config import LaunchConfig
from ptxlab.native.compiler import has
from ptxlab.observe.check import Checker
from ptxlab.observe.check_report import CHECKS
from ptxlab.prediction.chip import find
from ptxlab.prediction.kept import ROOMS
from ptxlab.prediction.predict import load_for, of_launch
from ptxlab.prediction.unfilled import Shaped, UnfilledDevice
from ptxlab.prediction.what_if import EVERY
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.names import called
from ptxlab.toolchain import LINE_INFO, nvdisasm, nvrtc
from ptxlab.toolchain.wheels import ToolAbsent


class KernelCandidate:
    """The kernel ``kernel`` of a file or a PTX text ``source``, for ``arch``; ``options`` go to NVRTC."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._source, self._name = job["source"], job["kernel"]
        self._options = job["options"]
        binary = "\n" not in self._source and is_machine_code(self._source)
        engine = "sass" if binary else "ptx"
        self._device = EmulatorDevice(TARGETS[job["arch"]], console=_unheard, engine=engine)
        self._device.most_instructions = job["limits"]["instructions"]
        self._contained = job["contained"]
        self._kernel: EmulatorKernel | None = None
        self._last: dict[str, Any] = {}

    def load(self) -> dict[str, Any]:
        """Compile it, and tell what it is called and takes."""
        options = [*self._options, LINE_INFO] if self._is_cuda else self._options
        source = self._source if "\n" in self._source else Path(self._source)
        kernel = self._device.load(source, options=options).kernel(self._name)
        assert isinstance(kernel, EmulatorKernel)
        self._kernel = kernel
        return {
            "kernel": kernel.name,
            "called": called(kernel.name),
            "parameters": [parameter.name for parameter in kernel.parameters],
            "block": declared(kernel.function, "reqntid"),
            "contained": self._contained,
        }

    @property
    def _is_cuda(self) -> bool:
        return "\n" not in self._source and is_cuda(self._source)

    def launch(
        self,
        arguments: Mapping[str, Any],
        config: Mapping[str, Any],
        schedule: str = "late",
        checked: bool = False,
        aliases: Mapping[str, str] | None = None,
        shifted: bool = False,
    ) -> dict[str, Any]:
        """Launch it, and tell what all arrays hold then, the fault that ended it, and what a check found.

        Arguments that are ``aliases`` of others are the same memory. Those that are ``shifted`` begin at an
        element behind an address that is aligned.
        """
        self._last = {
            "arguments": arguments,
            "config": config,
            "aliases": aliases,
            "shifted": shifted,
        }
        kernel, passed, held = self._bound()
        self._device.schedule = schedule
        checker = Checker(CHECKS) if checked else None
        fault: LaunchError | Unsupported | None = None
        try:
            (kernel.watch(checker) if checker else kernel).run(_config(config), passed)
        except (LaunchError, Unsupported) as error:
            fault = error
        return {
            "arrays": {name: buffer.numpy()[-size:] if shifted else buffer.numpy()
                       for name, (buffer, size) in held.items()},
            "report": checker and plain_report(checker.report(kernel.name, fault)),
            "fault": fault and plain_error(_at_source(kernel, fault)),
        }  # fmt: skip

    def written_by(self, name: str, index: int) -> dict[str, Any]:
        """Make the last launch again, and tell who wrote an element of an array last."""
        kernel, passed, held = self._bound()
        buffer, size = held[name]
        first = buffer.dtype.itemsize * (index + prod(buffer.shape) - size)
        writer = LastWriter(buffer.address + first, buffer.dtype.itemsize)
        with suppress(LaunchError, Unsupported):  # what is wanted is who wrote before
            kernel.watch(writer).run(_config(self._last["config"]), passed)
        return writer.told(kernel)

    def _bound(self) -> tuple[EmulatorKernel, list[Any], dict[str, tuple[Buffer, int]]]:
        """Return the kernel, its arguments on a device without any others, and the arrays with their elements."""
        assert self._kernel is not None
        shifted, aliases = self._last["shifted"], self._last["aliases"] or {}
        held: dict[str, tuple[Buffer, int]] = {}
        for name, value in self._last["arguments"].items():
            if isinstance(value, np.ndarray) and name not in aliases:
                flat = (
                    np.concatenate([value.reshape(-1)[:1], value.reshape(-1)]) if shifted else value
                )
                held[name] = self._device.upload(flat), value.size
        passed: list[Any] = []
        given = bound(self._kernel, self._last["arguments"])
        for parameter, (name, value) in zip(self._kernel.parameters, given.items(), strict=True):
            if isinstance(value, np.ndarray):
                buffer, _ = held[aliases.get(name, name)]
                value = np.uint64(buffer.address + buffer.dtype.itemsize) if shifted else buffer
            passed.append(_passed(parameter, value))
        return self._kernel, passed, held

    def predict(
        self, gpu: str, arguments: Mapping[str, Any], config: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Predict a launch, of whose arrays of floats only type and shape are told."""
        chip = find(gpu)
        options = [*self._options, LINE_INFO] if self._is_cuda else self._options
        source = self._source if "\n" in self._source else Path(self._source)
        device = UnfilledDevice(chip.gpu.target)
        assembly, module = load_for(device, source, options)
        kernel = module.kernel(self._name)
        passed: list[Any] = []
        for parameter, value in zip(
            kernel.parameters, bound(kernel, arguments).values(), strict=True
        ):
            told: Any = Shaped(*value["shaped"]) if isinstance(value, dict) else value
            array = device.upload(told) if hasattr(told, "shape") else told
            passed.append(_passed(parameter, array))
        prediction = of_launch(assembly, kernel, _config(config), passed, chip, what_if=[EVERY])
        return plain([prediction])


def bound(kernel: Kernel, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in the order of the kernel's parameters: by their names, or else as they stand."""
    names = [parameter.name for parameter in kernel.parameters]
    if set(names) == set(arguments):
        return {name: arguments[name] for name in names}
    if len(names) == len(arguments):
        given = zip(names, arguments, strict=True)
        if all(own == name or name not in names for own, name in given):
            return dict(arguments)
    raise PtxlabError(
        f"{called(kernel.name)} takes {', '.join(names) or 'no arguments'}, not {', '.join(arguments)}",
        hint="arguments have the names of the kernel's parameters, or stand in their order",
    )


def _passed(parameter: Parameter, value: Any) -> Any:
    """Return a value as a parameter takes it: an address in a structure of nothing else, as CuTe DSL declares, as bytes."""
    if parameter.type != "b8" or not isinstance(value, Buffer | np.uint64):
        return value
    address = value.address if isinstance(value, Buffer) else int(value)
    return address.to_bytes(parameter.size, "little")


def preload() -> None:
    """Import what every kernel wants before any is there, and what that puts off until it is first called."""
    has()
    source(*ROOMS)
    for tool in (nvrtc.load, nvdisasm.version, nvdisasm.program):
        with suppress(ToolAbsent):  # which a candidate is told that wants it
            tool()


def _at_source(
    kernel: EmulatorKernel, fault: LaunchError | Unsupported
) -> LaunchError | Unsupported:
    """Return a fault with the line of the source, which a report tells by that of the PTX."""
    return at_source(kernel, fault) if isinstance(fault, LaunchError) else fault


def _config(told: Mapping[str, Any]) -> LaunchConfig:
    return LaunchConfig.of(**told)


def _unheard(text: str) -> None:
    """Leave what a kernel prints."""
