"""What a device is: it loads modules, a module has kernels, a kernel is launched on buffers.

Nothing above this room knows which device ran.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.device.arguments import pack
from ptxlab.device.loading import Loadable, pick
from ptxlab.device.memory import Buffer, Memory
from ptxlab.device.shapes import check_directives
from ptxlab.emulator import Watcher
from ptxlab.errors import PtxlabError
from ptxlab.instrument.places import DumpPlace
from ptxlab.isa.targets import Target
from ptxlab.launch_config import Dim, LaunchConfig
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.tree import Function


@dataclass(frozen=True, slots=True)
class Dump:
    """Where to look at which registers of every thread during a launch.

    ``at`` and ``registers`` are those of ``ptxlab.instrument.places.find_places``: a line, a label or an
    instruction (``"mma.sync"``), and registers (``"%f1"``) or operands (``"D"``), none for all that the
    instruction names. A thread is looked at ``before`` the instruction or after it, the ``nth`` time
    (from 1) it is at one of the places; a guarded instruction is one for all its threads.
    """

    at: str | int
    registers: tuple[str, ...] = ()
    before: bool = False
    nth: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Dumped:
    """The registers that a ``dump`` found.

    ``words`` [thread, register] are the bits, zero-extended; threads are numbered CTA by CTA, x
    fastest, over the whole grid. ``passes`` [thread] is how often a thread was at one of the
    ``places``; where it is less than ``dump.nth`` the thread's words are 0.
    """

    dump: Dump
    places: tuple[DumpPlace, ...]
    words: npt.NDArray[np.uint64]
    passes: npt.NDArray[np.uint64]

    @property
    def registers(self) -> tuple[str, ...]:
        """What the columns are called at the first place."""
        return self.places[0].registers

    @property
    def types(self) -> tuple[str, ...]:
        """The PTX types of the columns."""
        return self.places[0].types

    @property
    def reached(self) -> npt.NDArray[np.bool_]:
        """Which threads were looked at."""
        return self.passes >= self.dump.nth


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What a launch tells: elapsed ``seconds`` (of the kernel on a GPU, of the emulation on a CPU),
    on the emulator ``counters`` by name, and the registers that a ``dump`` asked for."""

    seconds: float
    counters: dict[str, int] = field(default_factory=dict)
    dump: Dumped | None = None


class Kernel(ABC):
    """One entry of a module, ready to run: ``name`` is what messages call it.

    ``parameters`` are in order; ``function`` is its PTX, None for one loaded from a cubin.
    """

    def __init__(
        self,
        device: Device,
        name: str,
        parameters: tuple[Parameter, ...],
        function: Function | None,
    ) -> None:
        self.device = device
        self.name = name
        self.parameters = parameters
        self.function = function

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
        """
        return self.run(LaunchConfig.of(grid, block, shared, cluster, cooperative), args, dump)

    def run(
        self, config: LaunchConfig, args: Sequence[Any] = (), dump: Dump | None = None
    ) -> LaunchResult:
        """Run the kernel to its end, as ``launch`` does."""
        parameters = self.bound(config, args)
        if dump is None:
            return self._run(config, parameters)
        return self._dumped(dump, config, args)

    def bound(self, config: LaunchConfig, args: Sequence[Any]) -> bytes:
        """Return the arguments of a launch as a parameter block, and check that it can be made."""
        self.device.require_open()
        if self.function is not None:
            check_directives(self.function, config)
        for index, value in enumerate(args):
            if isinstance(value, Buffer) and value.device is not self.device:
                raise PtxlabError(
                    f"kernel {self.name}: argument {index} lies on another device",
                    hint="upload it to the device that runs the kernel",
                )
        return pack(self.name, self.parameters, args)

    def prepare(self, config: LaunchConfig, args: Sequence[Any] = ()) -> Callable[[], None]:
        """Return a function that puts one launch on a GPU's stream and does not wait for it.

        The arguments are checked and bound once; buffers among them must stay. Raises PtxlabError
        on the emulator, where a launch has ended when it returns.
        """
        raise PtxlabError(
            f"kernel {self.name} is on {self.device.name}, which runs every launch to its end",
            hint="--device cuda has a stream for launches to wait in",
        )

    def watch(self, watcher: Watcher) -> Kernel:
        """Return this kernel, all of whose launches tell ``watcher`` what they do.

        Raises PtxlabError on a GPU, where only the results of a launch can be seen.
        """
        raise PtxlabError(
            f"kernel {self.name} is on {self.device.name}, where nobody can watch it run",
            hint='load it on the emulator: open_device("emulator"), or --device emulator',
        )

    @abstractmethod
    def _run(self, config: LaunchConfig, parameters: bytes) -> LaunchResult: ...

    @abstractmethod
    def _dumped(self, dump: Dump, config: LaunchConfig, args: Sequence[Any]) -> LaunchResult: ...


class Kernels(Mapping[str, Kernel]):
    """The kernels of a module by name, each made when it is first asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], Kernel]]) -> None:
        self._makers = makers
        self._made: dict[str, Kernel] = {}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class Module:
    """A loaded program, its ``kernels`` by name; ``path`` is what errors call it.

    What is wrong with a kernel, or not modelled, is an error when this kernel is asked for.
    """

    def __init__(self, path: str, makers: Mapping[str, Callable[[], Kernel]]) -> None:
        self.path = path
        self.kernels = Kernels(makers)

    def kernel(self, name: str | None = None) -> Kernel:
        """Return the kernel called ``name``; None means the only one."""
        return pick(self.kernels, name, self.path)


class Device(Memory):
    """A place where programs run, to be closed, or used in ``with``.

    ``target`` is what it is: the ``.target`` whose code runs here. ``note`` says why ``auto`` chose
    it and not a GPU, "" where it did not.
    """

    target: Target
    note = ""

    @abstractmethod
    def load(self, source: Loadable, *, options: Sequence[str] = ()) -> Module:
        """Load a ``.ptx`` or ``.cu`` file, or PTX; ``options`` go to NVRTC (``-DBM=64``)."""
