"""The emulator as a device: PTX on the CPU, bit for bit what the target's GPU would give."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from ptxlab.arrays import Array, Octets
from ptxlab.device.dump import DumpRecorder, places_of
from ptxlab.device.host_memory import address_of, host_memory
from ptxlab.device.loading import Loadable, is_machine_code, load_assembled, load_cubins, load_ptx
from ptxlab.device.protocol import Device, Dump, Dumped, DumpedLaunch, Kernel, LaunchResult, Module
from ptxlab.device.shapes import clusters, counts_clusters
from ptxlab.emulator import (
    Executable,
    GlobalMemory,
    Program,
    Schedule,
    Watcher,
    launch,
    load,
    place_variables,
    print_text,
)
from ptxlab.emulator.prepare.scope import Declared, size_of
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import Target
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax import tree as ptx
from ptxlab.syntax.functions import parameters
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Function
from ptxlab.tensormap.encoding import encode
from ptxlab.tensormap.tensor_map import TensorMap
from ptxlab.workers import Progress

if TYPE_CHECKING:
    from ptxlab.machine.image import KernelImage, ModuleImage
    from ptxlab.toolchain.cubin import Cubin, Used


class EmulatorKernel(Kernel):
    """A kernel on the emulator, whose launches tell ``watcher`` what they do; with the number of a ``cta`` its cluster alone runs."""

    device: EmulatorDevice
    function: Function

    def __init__(
        self,
        module: EmulatorModule,
        executable: Executable,
        function: Function,
        watcher: Watcher | None = None,
        cta: int | None = None,
    ) -> None:
        super().__init__(
            module.device, function.name, parameters(function, module.tree.source), function
        )
        self.module = module
        self.executable = executable
        self.watcher = watcher
        self.cta = cta

    @property
    def program(self) -> Program:
        return self.executable.program

    def watch(self, watcher: Watcher, cta: int | None = None) -> EmulatorKernel:
        return EmulatorKernel(self.module, self.executable, self.function, watcher, cta)

    def _run(self, config: LaunchConfig, parameters: bytes) -> LaunchResult:
        cluster = clusters(self.function, config)
        if cluster is not None and prod(cluster) > 1 and not self.device.target.runs("sm_90"):
            raise Unsupported(
                f"kernel {called(self.name)} is to run in clusters of {cluster}, and "
                f"{self.device.target.name} has none",
                hint="GPUs from sm_90 on have them: --arch sm_90a",
            )
        grid = config.grid
        if cluster is not None and counts_clusters(self.function):
            x, y, z = (size * part for size, part in zip(grid, cluster, strict=True))
            grid = x, y, z
        began = perf_counter()
        self.module.place(self.program.variables)
        launched = launch(
            self.executable,
            replace(config, grid=grid, cluster=cluster),
            parameters,
            self.device.memory,
            self.module.addresses,
            self.device.progress,
            self.device.console,
            self.watcher,
            self.device.schedule,
            self.device.most_instructions,
            self.cta,
        )
        return LaunchResult(perf_counter() - began, launched.counters, None, launched.unverified)

    def _dumped(self, dump: Dump, config: LaunchConfig, parameters: bytes) -> LaunchResult:
        places = places_of(self.program.module, self.function, dump)
        recorder = DumpRecorder(dump, places, config.threads)
        result = self.watch(recorder).launch_packed(config, parameters)
        launch = DumpedLaunch.of(self.module, config, result)
        words, passes, shared = recorder.words, recorder.passes, recorder.shared
        return replace(result, dump=Dumped(dump, places, words, passes, launch, shared))


class EmulatorModule(Module):
    """A program on the emulator: a kernel is prepared, with what it reaches, when it is asked for.

    ``addresses`` are those of its variables that have a place in memory. ``brought`` is the fatbin that its PTX came in,
    which may have machine code too.
    """

    device: EmulatorDevice
    tree: ptx.PtxModule
    brought: bytes = b""

    def __init__(self, device: EmulatorDevice, tree: ptx.PtxModule) -> None:
        self.addresses: dict[str, int] = {}
        self._entries = {function.name: function for function in tree.entries}
        self._executables: dict[str, Executable] = {}
        super().__init__(device, tree.source.path, tree, self._entries)

    def anew(self) -> EmulatorModule:
        """Return the program loaded once more, with variables of its own."""
        return EmulatorModule(self.device, self.tree)

    def place(self, variables: Mapping[str, Declared]) -> None:
        """Put those of ``variables`` into memory that have no place yet."""
        place_variables(self.tree, variables, self.device.memory, self.addresses)

    def _located(self, name: str) -> tuple[int, int]:
        self.place(self.variables)
        return self.addresses[name], size_of(*self.variables[name])

    def _make(self, name: str) -> EmulatorKernel:
        function = self._entries[name]
        if name not in self._executables:
            self._executables[name] = load(self.tree, self.device.target, name)
        return EmulatorKernel(self, self._executables[name], function)


class MachineCodeModule(EmulatorModule):
    """A program that was assembled for the device: of each kernel it is the machine code that runs.

    Kernels and variables are called as in its PTX. A kernel of which an instruction is not modelled is
    Unsupported when it is asked for.
    """

    @classmethod
    def of_cubins(
        cls, device: EmulatorDevice, cubins: Sequence[Cubin], path: str
    ) -> MachineCodeModule:
        """Load what there is no PTX of: its parameters are called ``param_0`` and so on.

        Who made it nobody knows: what does not wait for what it reads is refused.
        """
        from ptxlab.machine.image import read_image
        from ptxlab.machine.lift.module import declared

        images = [read_image(cubin.image, cubin.arch) for cubin in cubins]
        return cls(device, declared(images, path), images, checked=True)

    @classmethod
    def of_assembled(
        cls, device: EmulatorDevice, tree: ptx.PtxModule, cubin: Cubin
    ) -> MachineCodeModule:
        """Load what was assembled from PTX, whose names it keeps."""
        from ptxlab.machine.image import read_image

        return cls(device, tree, [read_image(cubin.image, cubin.arch)])

    def __init__(
        self,
        device: EmulatorDevice,
        tree: ptx.PtxModule,
        images: Sequence[ModuleImage],
        *,
        checked: bool = False,
    ) -> None:
        super().__init__(device, tree)
        self._parts, self._checked = images, checked
        self._images = {name: image for image in images[::-1] for name in image.kernels}

    def image(self, kernel: str) -> KernelImage:
        """Return a kernel as the cubin has it that it is part of."""
        return self._images[kernel].kernels[kernel]

    def cubin(self, kernel: str) -> Cubin:
        """Return the machine code that a kernel is part of."""
        return self.image(kernel).assembly.cubin

    @property
    def used(self) -> Mapping[str, Used]:
        """What the machine code says that its kernels use."""
        return {name: image.kernels[name].entry.used for name, image in self._images.items()}

    def anew(self) -> MachineCodeModule:
        return MachineCodeModule(self.device, self.tree, self._parts, checked=self._checked)

    def origins(self, name: str) -> Mapping[int, int]:
        """Return by the lines of a kernel's machine code those of the PTX that they were made from."""
        from ptxlab.machine.lift.listing import origins

        kernel = self.kernels[name]
        assert isinstance(kernel, EmulatorKernel)
        return origins(self._images[name].kernels[name], kernel.program.module.source.text)

    def _make(self, name: str) -> EmulatorKernel:
        from ptxlab.machine.lift import lift

        path = self.tree.source.path.removesuffix(" (PTX)")
        listing = f"{path} (SASS)"
        lifted = lift(self._images[name], [name], listing, self.tree, checked=self._checked)
        [function] = lifted.entries
        return EmulatorKernel(self, load(lifted, self.device.target, name), function)


class EmulatorDevice(Device):
    """An emulated GPU of one ``target``, whose ``engine`` runs programs as PTX (``ptx``) or as machine code (``sass``).

    ``progress`` is called during a launch with the CTAs done and their total, ``console`` with what
    programs print. ``note`` says why ``auto`` chose the emulator, "" when it was
    asked for, ``schedule`` when asynchronous work lands (``late``, ``early``, ``random:SEED``). A launch of which all
    threads together execute more than ``most_instructions`` is stopped.
    """

    kind = "emulator"

    def __init__(
        self,
        target: Target,
        *,
        progress: Progress | None = None,
        console: Callable[[str], None] = print_text,
        note: str = "",
        schedule: str = "late",
        engine: str = "ptx",
    ) -> None:
        Schedule(schedule)
        self.engine = engine
        self.schedule = schedule
        self.target = target
        self.progress = progress
        self.console = console
        self.note = note
        self.most_instructions: int | None = None
        self.memory = GlobalMemory()

    @contextmanager
    def rehearsing(self, progress: Progress | None = None) -> Iterator[None]:
        """Have memory as it is now again at the end, and nobody hear what programs print meanwhile.

        Launches tell a ``progress`` of their own, if that is given.
        """
        heard = self.console, self.progress
        self.console, self.progress = _unheard, progress or self.progress
        try:
            with self.memory.kept():
                yield
        finally:
            self.console, self.progress = heard

    @property
    def name(self) -> str:
        return f"ptxlab emulator, {self.target.name}"

    def load(self, source: Loadable, *, options: Sequence[str] = ()) -> Module:
        self.require_open()
        if self.engine == "sass" and is_machine_code(source):
            cubins = load_cubins(source, self.target)
            return MachineCodeModule.of_cubins(self, cubins, os.fspath(source))
        if self.engine == "sass":
            return MachineCodeModule.of_assembled(
                self, *load_assembled(source, self.target, options)
            )
        return EmulatorModule(self, load_ptx(source, self.target, options))

    def map(self, memory: Array | int, nbytes: int | None = None) -> int:
        self.require_open()
        held = host_memory(memory, nbytes)
        self.memory.map(held.address, held.nbytes, held.name, memory, writable=held.writable)
        return held.address

    def unmap(self, memory: Array | int) -> None:
        self.require_open()
        self.memory.unmap(address_of(memory))

    def allocate(self, nbytes: int, name: str) -> int:
        return self.memory.allocate(nbytes, name)

    def free(self, address: int) -> None:
        if self.is_open:
            self.memory.free(address)

    def write(self, address: int, data: Array) -> None:
        self.memory.write(address, np.frombuffer(data.tobytes(), np.uint8))

    def fill_zero(self, address: int, nbytes: int) -> None:
        """Leave it: the emulator allocates zeros, which take no memory before they are written to."""

    def read(self, address: int, nbytes: int) -> Octets:
        return np.asarray(self.memory.read(address, nbytes), np.uint8)

    def encode_tensor_map(self, tensor_map: TensorMap) -> bytes:
        """Return the 128 bytes of a tensor map as the emulator's copy engine reads them."""
        return encode(tensor_map)

    def close(self) -> None:
        super().close()
        self.memory = GlobalMemory()


def _unheard(text: str) -> None:
    """Leave out what a program prints: it did so when it was launched."""
