"""What a device is: the nouns every implementation offers and everything above it uses.

A device loads modules, a module has kernels, a kernel is launched on buffers. Nothing above this
room knows which implementation ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from ptxlab.isa.targets import Target
from ptxlab.syntax.parameters import Parameter

Dim = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What a launch tells: elapsed ``seconds`` (of the kernel on a GPU, of the emulation on a CPU)
    and, on the emulator, ``counters`` by name."""

    seconds: float
    counters: dict[str, int] = field(default_factory=dict)


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

    def launch(
        self, grid: Dim, block: Dim, args: Sequence[Any] = (), shared: int = 0
    ) -> LaunchResult:
        """Run the kernel to its end.

        ``grid`` and ``block`` are ints or up to three of them, ``shared`` is dynamic shared memory
        in bytes, ``args`` are buffers, numpy scalars or Python numbers, bound by the parameter list.
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

    def load(self, source: str | PathLike[str], *, options: Sequence[str] = ()) -> Module:
        """Load a ``.ptx`` or ``.cu`` file, or PTX text; ``options`` go to NVRTC (``-DBM=64``)."""
        ...

    def upload(self, array: npt.ArrayLike) -> Buffer:
        """Copy an array to the device; shape and type stay with the buffer."""
        ...

    def zeros(self, shape: Dim, dtype: str | npt.DTypeLike) -> Buffer:
        """Return a buffer of zeros; ``dtype`` is a PTX type name or anything numpy takes."""
        ...
