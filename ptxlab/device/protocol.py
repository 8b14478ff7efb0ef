"""What a device is: the nouns every implementation offers and everything above it uses.

A device loads modules, a module has kernels, a kernel is launched on buffers. Nothing above this
room knows which implementation ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from ptxlab.emulator import Watcher
from ptxlab.instrument.places import DumpPlace
from ptxlab.isa.targets import Target
from ptxlab.launch_config import Dim, LaunchConfig
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.tree import Module as Tree

Source = str | PathLike[str] | Tree
"""A program: the path of a ``.ptx`` or ``.cu`` file, PTX text, or PTX already parsed."""


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


class Closing(Protocol):
    """What holds something on a device until it is closed, at the latest at the end of a ``with``."""

    def close(self) -> None:
        """Release it. Closing twice is fine."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@runtime_checkable
class Buffer(Closing, Protocol):
    """Device memory holding one array. Close it, or use it in ``with``."""

    @property
    def address(self) -> int:
        """Where it begins, in the device's address space."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""
        ...

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        ...

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy of the contents on the host, after all work on the device is done."""
        ...


class Kernel(Protocol):
    """One entry of a module, ready to run."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters in order."""
        ...

    def watch(self, watcher: Watcher) -> Kernel:
        """Return this kernel prepared to tell ``watcher`` all that its launches do.

        Raises PtxlabError on a GPU, where only the results of a launch can be seen.
        """
        ...

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
        ...

    def run(
        self, config: LaunchConfig, args: Sequence[Any] = (), dump: Dump | None = None
    ) -> LaunchResult:
        """Run the kernel to its end, as ``launch`` does."""
        ...

    def prepare(self, config: LaunchConfig, args: Sequence[Any] = ()) -> Callable[[], None]:
        """Return a function that puts one launch on a GPU's stream and does not wait for it.

        The arguments are checked and bound once; buffers among them must stay. Raises PtxlabError on the emulator, where a launch has ended when it returns.
        """
        ...


class Module(Protocol):
    """A loaded program."""

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by name."""
        ...

    def kernel(self, name: str | None = None) -> Kernel:
        """Return the kernel called ``name``; None means the only one."""
        ...


class Device(Closing, Protocol):
    """A place where programs run. ``kind`` is "emulator" or "cuda"."""

    @property
    def kind(self) -> str:
        """``emulator`` or ``cuda``."""
        ...

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def target(self) -> Target:
        """What it is: the ``.target`` whose code runs here."""
        ...

    @property
    def note(self) -> str:
        """Why ``auto`` chose it and not a GPU, "" where it did not."""
        ...

    def load(self, source: Source, *, options: Sequence[str] = ()) -> Module:
        """Load a ``.ptx`` or ``.cu`` file, or PTX; ``options`` go to NVRTC (``-DBM=64``)."""
        ...

    def upload(self, array: npt.ArrayLike) -> Buffer:
        """Copy an array to the device; shape and type stay with the buffer."""
        ...

    def zeros(self, shape: Dim, dtype: str | npt.DTypeLike) -> Buffer:
        """Return a buffer of zeros; ``dtype`` is a PTX type name or anything numpy takes."""
        ...
