"""What a device is: it loads modules, a module has kernels, a kernel is launched on buffers.

Nothing above this room knows which device ran.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ptxlab.arrays import Array, Mask, Words
from ptxlab.device.arguments import pack, require_packed, spelled
from ptxlab.device.loading import Loadable, named, pick
from ptxlab.device.memory import Buffer
from ptxlab.device.shapes import check_directives
from ptxlab.device.snapshot import SharedSnapshot
from ptxlab.device.tensor_maps import DeviceTensorMap, TensorMaps
from ptxlab.device.variable import ModuleVariable, bytes_of, described
from ptxlab.emulator import Watcher, module_variables
from ptxlab.emulator.prepare.scope import Declared
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.instrument.places import DumpPlace
from ptxlab.isa.targets import Target
from ptxlab.launch_config import Dim, LaunchConfig
from ptxlab.pictured import Readable
from ptxlab.syntax import tree as ptx
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.names import called

Arguments = Sequence[Any] | bytes
"""The arguments of a launch one by one, or the parameter block that they become."""


@dataclass(frozen=True, slots=True)
class Dump:
    """Where to look at which registers of every thread during a launch.

    ``at`` and ``registers`` are those of ``ptxlab.instrument.places.find_places``: a line, a label or an
    instruction (``"mma.sync"``), and registers (``"%f1"``) or operands (``"D"``), none for all that the
    instruction names. A thread is looked at ``before`` the instruction or after it, the ``nth`` time
    (from 1) it is at one of the places; a guarded instruction is one for all its threads. D, A, B and C
    are operands of ``of``, if that is given, and not of the instruction there. When ``thread``, by its
    number in the grid, is looked at, the shared memory of its CTA is kept.
    """

    at: str | int
    registers: tuple[str, ...] = ()
    before: bool = False
    nth: int = 1
    of: str | int | None = None
    thread: int | None = None


@dataclass(frozen=True, slots=True)
class DumpedLaunch:
    """The launch that was looked into: its ``file``, the kind of ``device`` and the target it ran on, its shape.

    Of its lines ``unverified`` nobody has measured the bits.
    """

    file: str
    device: str
    arch: str
    config: LaunchConfig
    unverified: tuple[int, ...]

    @classmethod
    def of(cls, module: Module, config: LaunchConfig, result: LaunchResult) -> DumpedLaunch:
        """Return what is known of a launch of a module's kernel that had a result."""
        device = module.device
        return cls(module.path, device.kind, device.target.name, config, result.unverified)


@dataclass(frozen=True, slots=True, eq=False)
class Dumped(Readable):
    """The registers that a ``dump`` found in a ``launch``.

    ``words`` [thread, register] are the bits, zero-extended; threads are numbered CTA by CTA, x
    fastest, over the whole grid. ``passes`` [thread] is how often a thread was at one of the
    ``places``; where it is less than ``dump.nth`` the thread's words are 0. ``shared`` is what
    ``dump.thread`` had before it, None if it was not there.
    """

    dump: Dump
    places: tuple[DumpPlace, ...]
    words: Words
    passes: Words
    launch: DumpedLaunch
    shared: SharedSnapshot | None = None

    @property
    def registers(self) -> tuple[str, ...]:
        """What the columns are called at the first place."""
        return self.places[0].registers

    @property
    def types(self) -> tuple[str, ...]:
        """The PTX types of the columns."""
        return self.places[0].types

    @property
    def reached(self) -> Mask:
        """Which threads were looked at."""
        return self.passes >= self.dump.nth

    def __repr__(self) -> str:
        where = f"{'before' if self.dump.before else 'after'} {self.dump.at}"
        seen = f"{np.count_nonzero(self.reached)} of {self.passes.size} threads"
        return f"<dump of {', '.join(self.registers)} {where}: {seen}>"


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What a launch tells: elapsed ``seconds`` (of the kernel on a GPU, of the emulation on a CPU),
    on the emulator ``counters`` by name, and the registers that a ``dump`` asked for.

    What lines ``unverified`` of the PTX give, the emulator computes by the nearest rule that is known: no
    public measurement settles the bits (``Fidelity`` of ``ptxlab.matrix.form``).
    """

    seconds: float
    counters: dict[str, int] = field(default_factory=dict)
    dump: Dumped | None = None
    unverified: tuple[int, ...] = ()

    def __repr__(self) -> str:
        told = [
            f"{self.seconds:.3g} s",
            *(f"{count} {name}" for name, count in self.counters.items()),
        ]
        return f"<launch: {', '.join(told)}{f', {self.dump!r}' if self.dump else ''}>"


class Kernel(ABC):
    """One entry of a module, ready to run: ``name`` is what messages call it.

    ``parameters`` are in order; ``function`` is its PTX, None for one loaded from a cubin.
    """

    def __init__(
        self,
        device: Device,
        name: str,
        parameters: tuple[Parameter, ...],
        function: ptx.Function | None,
    ) -> None:
        self.device = device
        self.name = name
        self.parameters = parameters
        self.function = function

    def __repr__(self) -> str:
        takes = _few([f"{spelled(p)} {p.name}" for p in self.parameters])
        return f"<{self.device.kind} kernel {called(self.name)}({takes})>"

    def launch(
        self,
        grid: Dim,
        block: Dim,
        args: Sequence[Any] = (),
        shared: int = 0,
        dump: Dump | None = None,
        cluster: Dim | None = None,
        cooperative: bool = False,
    ) -> LaunchResult:
        """Run the kernel to its end.

        ``grid`` and ``block`` are ints or up to three of them, ``shared`` is dynamic shared memory
        in bytes, ``args`` are buffers, numpy scalars or Python numbers, bound by the parameter list.
        ``dump`` asks for registers on the way, which the result then holds. ``cluster`` is the shape
        of a thread block cluster in CTAs, which divides the grid; the CTAs of a ``cooperative``
        launch are on the GPU all at the same time.

        Raises PtxlabError for sizes and arguments that do not fit the kernel or the GPU, and LaunchError for a
        fault while it runs, with the line and the thread where they are known.
        """
        return self.run(LaunchConfig.of(grid, block, shared, cluster, cooperative), args, dump)

    def run(
        self, config: LaunchConfig, args: Arguments = (), dump: Dump | None = None
    ) -> LaunchResult:
        """Run the kernel to its end, as ``launch`` does, with arguments or their block, packed already."""
        return self.launch_packed(config, self.packed(args), dump)

    def launch_packed(
        self,
        config: LaunchConfig,
        parameters: bytes | bytearray | memoryview,
        dump: Dump | None = None,
    ) -> LaunchResult:
        """Run the kernel to its end, as ``launch`` does, with its parameter block as it is.

        ``parameters`` has each value at the offset of its parameter, in the byte order of the GPU, and
        ends with the last of them.
        """
        self._require_launchable(config)
        packed = require_packed(self.name, self.parameters, parameters)
        return self._run(config, packed) if dump is None else self._dumped(dump, config, packed)

    def _require_launchable(self, config: LaunchConfig) -> None:
        self.device.require_open()
        if self.function is not None:
            check_directives(self.function, config)

    def packed(self, args: Arguments) -> bytes:
        """Return the arguments of a launch as ``launch_packed`` takes them.

        Raises PtxlabError for those that do not fit the parameters, or lie on another device.
        """
        if isinstance(args, bytes):
            return args
        for index, value in enumerate(args):
            held = value.buffer if isinstance(value, DeviceTensorMap) else value
            if isinstance(held, Buffer) and held.device is not self.device:
                raise PtxlabError(
                    f"kernel {called(self.name)}: argument {index} lies on another device",
                    hint="upload it to the device that runs the kernel",
                )
        return pack(self.name, self.parameters, args)

    def prepare(self, config: LaunchConfig, args: Sequence[Any] = ()) -> Callable[[], None]:
        """Return a function that puts one launch on a GPU's stream and does not wait for it.

        The arguments are checked and bound once; buffers among them must stay. Raises PtxlabError
        on the emulator, where a launch has ended when it returns.
        """
        raise PtxlabError(
            f"kernel {called(self.name)} is on {self.device.name}, which runs every launch to its end",
            hint="--device cuda has a stream for launches to wait in",
        )

    def watch(self, watcher: Watcher) -> Kernel:
        """Return this kernel, all of whose launches tell ``watcher`` what they do.

        Raises PtxlabError on a GPU, where only the results of a launch can be seen.
        """
        raise PtxlabError(
            f"kernel {called(self.name)} is on {self.device.name}, where nobody can watch it run",
            hint='load it on the emulator: open_device("emulator"), or --device emulator',
        )

    @abstractmethod
    def _run(self, config: LaunchConfig, parameters: bytes) -> LaunchResult: ...

    @abstractmethod
    def _dumped(self, dump: Dump, config: LaunchConfig, parameters: bytes) -> LaunchResult: ...


class Kernels(Mapping[str, Kernel]):
    """The kernels of a ``module`` by name, each made when it is asked for and nobody has it."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def __getitem__(self, name: str) -> Kernel:
        return self._module.made(name)

    def __contains__(self, name: object) -> bool:
        return name in self._module.names

    def __iter__(self) -> Iterator[str]:
        return iter(self._module.names)

    def __len__(self) -> int:
        return len(self._module.names)

    def __repr__(self) -> str:
        return f"<kernels {_few(list(self)) or 'none'}>"


class Module(ABC):
    """A program on ``device``, its kernels by their ``names``; ``path`` is what errors call it.

    ``tree`` is its PTX, None for a cubin. What is wrong with a kernel, or not modelled, is an error when
    this kernel is asked for. A kernel holds its module and not the other way round: who lets go of both
    need not wait for Python's search for garbage.
    """

    def __init__(
        self,
        device: Device,
        path: str,
        tree: ptx.PtxModule | None,
        names: Iterable[str],
    ) -> None:
        self.device = device
        self.path = path
        self.tree = tree
        self.names = tuple(names)
        self._made: WeakValueDictionary[str, Kernel] = WeakValueDictionary()

    def __repr__(self) -> str:
        kernels = _few(list(self.kernels)) or "none"
        return f"<{self.device.kind} module {self.path}: kernels {kernels}>"

    @property
    def kernels(self) -> Kernels:
        """The kernels by name."""
        return Kernels(self)

    def made(self, name: str) -> Kernel:
        """Return the kernel of exactly this name. Raises KeyError where there is none."""
        kernel = self._made.get(name)
        if kernel is None:
            kernel = self._made[name] = self._make(name)
        return kernel

    def kernel(self, name: str | None = None) -> Kernel:
        """Return the kernel called ``name``; None means the only one. Raises PtxlabError where there is none."""
        return pick(self.kernels, name, self.path)

    def variable(self, name: str) -> ModuleVariable:
        """Return the ``.global`` or ``.const`` variable called ``name``, as it is in this module.

        That of a cubin is known by its size alone, in bytes. Raises PtxlabError where there is none.
        """
        self.device.require_open()
        known = None if self.tree is None else named(self.variables, name, "variable", self.path)
        address, nbytes = self._located(name if known is None else known[1].name)
        what = bytes_of(name, nbytes) if known is None else described(known)
        return ModuleVariable(self.device, self, self.path, what, address)

    @cached_property
    def variables(self) -> Mapping[str, Declared]:
        """The variables that the PTX declares."""
        return {} if self.tree is None else module_variables(self.tree)

    @abstractmethod
    def _make(self, name: str) -> Kernel: ...

    @abstractmethod
    def _located(self, name: str) -> tuple[int, int]:
        """Return the address of a variable and its size in bytes."""


class Device(TensorMaps):
    """A place where programs run, to be closed, or used in ``with``.

    ``target`` is what it is: the ``.target`` whose code runs here. ``note`` says why ``auto`` chose
    it and not a GPU, "" where it did not.
    """

    target: Target
    note = ""

    def __repr__(self) -> str:
        return f"<{self._called}, {self.target.name}{'' if self.is_open else ', closed'}>"

    @property
    def _called(self) -> str:
        return self.kind

    @abstractmethod
    def load(self, source: Loadable, *, options: Sequence[str] = ()) -> Module:
        """Load a ``.ptx`` or ``.cu`` file, or PTX; ``options`` go to NVRTC (``-DBM=64``).

        Raises PtxSyntaxError, or ToolchainError for CUDA C, with the line; Unsupported for what is for another
        target, and PtxlabError where there is no such file.
        """

    def map(self, memory: Array | int, nbytes: int | None = None) -> int:
        """Have kernels use memory of this process in place, and return its address for them.

        ``memory`` is a contiguous array of any shape and type, or the address of ``nbytes`` that have to stay until ``unmap``.
        An array stays by itself; a store to a read-only one is a fault. Raises PtxlabError for what is no
        such memory, or overlaps what is mapped, and Unsupported on a GPU.
        """
        raise Unsupported(
            f"memory of this process is not mapped on {self.name}: its driver would pin whole pages, in "
            "which other things lie",
            hint="device.upload(array) copies it; --device emulator maps it",
        )

    def unmap(self, memory: Array | int) -> None:
        """Take back what ``map`` did, by its address or its array, of any shape and type.

        Raises PtxlabError where nothing is mapped.
        """
        raise PtxlabError(f"nothing of this process is mapped on {self.name}")


_SHOWN = 5
"""How many names a representation lists."""


def _few(names: Sequence[str]) -> str:
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more])
