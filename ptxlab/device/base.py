"""What both devices share: buffers that hold an array, and the checks before any launch."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ptxlab.device.arguments import pack
from ptxlab.device.loading import pick
from ptxlab.device.protocol import Closing, Dump, LaunchResult, Source
from ptxlab.device.shapes import check_directives, dtype_of, host_array, shape_of
from ptxlab.emulator import Watcher
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import Target
from ptxlab.launch_config import Dim, LaunchConfig
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.tree import Function


class DeviceBuffer(Closing):
    """Device memory holding one array, released by ``close``, by ``with``, or when unreachable."""

    def __init__(self, device: BaseDevice, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.device = device
        self._shape = shape
        self._dtype = dtype
        device.require_open()
        self._address = device.allocate(self.nbytes, f"buffer {dtype}{list(shape)}")
        self._release = weakref.finalize(self, device.free, self._address)
        self._release.atexit = False  # the process takes its memory with it

    @property
    def address(self) -> int:
        """Where it begins, in the device's address space."""
        if not self._release.alive:
            raise PtxlabError("this buffer is closed")
        return self._address

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(np.prod(self._shape, dtype=object)) * self._dtype.itemsize

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy of the contents on the host."""
        self.device.require_open()
        raw = self.device.read(self.address, self.nbytes)
        return raw.view(self._dtype).reshape(self._shape)

    def close(self) -> None:
        """Release the memory. Closing twice is fine."""
        self._release()

    def __repr__(self) -> str:
        state = f"at {self._address:#x}" if self._release.alive else "closed"
        return f"<{self.device.kind} buffer {self._dtype}{list(self._shape)} {state}>"


class BaseDevice(Closing, ABC):
    """Arrays in device memory, over four operations on bytes."""

    buffer_type: type[DeviceBuffer] = DeviceBuffer
    is_open = True
    target: Target
    note = ""

    @property
    @abstractmethod
    def kind(self) -> str:
        """``emulator`` or ``cuda``."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call this device."""

    @abstractmethod
    def load(self, source: Source, *, options: Sequence[str] = ()) -> BaseModule[Any]:
        """Load a program; see ``ptxlab.device.protocol.Device``."""

    @abstractmethod
    def allocate(self, nbytes: int, name: str) -> int:
        """Reserve memory and return its address; ``name`` is what errors call it."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Release what ``allocate`` returned."""

    @abstractmethod
    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy a contiguous array to device memory."""

    @abstractmethod
    def fill_zero(self, address: int, nbytes: int) -> None:
        """Set device memory to zero."""

    @abstractmethod
    def read(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Copy device memory to a new array of bytes, after all work on the device is done."""

    def close(self) -> None:
        """Release the device and what it holds. Closing twice is fine."""
        self.is_open = False

    def require_open(self) -> None:
        """Raise PtxlabError once the device is closed."""
        if not self.is_open:
            raise PtxlabError(f"this device ({self.name}) is closed")

    def upload(self, array: npt.ArrayLike) -> DeviceBuffer:
        """Copy an array to the device; shape and type stay with the buffer."""
        data = host_array(array)
        buffer = self.buffer_type(self, data.shape, data.dtype)
        if data.nbytes:
            self.write(buffer.address, data)
        return buffer

    def zeros(self, shape: Dim, dtype: str | npt.DTypeLike) -> DeviceBuffer:
        """Return a buffer of zeros; ``dtype`` is a PTX type name or anything numpy takes."""
        buffer = self.buffer_type(self, shape_of(shape), dtype_of(dtype))
        if buffer.nbytes:
            self.fill_zero(buffer.address, buffer.nbytes)
        return buffer


class BaseKernel(ABC):
    """A kernel of a loaded module. ``function`` is its PTX, None for one loaded from a cubin."""

    def __init__(
        self,
        device: BaseDevice,
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
        """Run the kernel to its end; see ``ptxlab.device.protocol.Kernel``."""
        return self.run(LaunchConfig.of(grid, block, shared, cluster, cooperative), args, dump)

    def run(
        self, config: LaunchConfig, args: Sequence[Any] = (), dump: Dump | None = None
    ) -> LaunchResult:
        """Run the kernel to its end; see ``ptxlab.device.protocol.Kernel``."""
        parameters = self.bound(config, args)
        if dump is None:
            return self._run(config, parameters)
        if self.function is None:
            raise Unsupported(
                f"kernel {self.name} is machine code, whose registers cannot be dumped",
                hint="load its .ptx or .cu",
            )
        return self._dumped(dump, self.function, config, args)

    def bound(self, config: LaunchConfig, args: Sequence[Any]) -> bytes:
        """Return the arguments of a launch as a parameter block, and check that it can be made."""
        self.device.require_open()
        if self.function is not None:
            check_directives(self.function, config)
        for index, value in enumerate(args):
            if isinstance(value, DeviceBuffer) and value.device is not self.device:
                raise PtxlabError(
                    f"kernel {self.name}: argument {index} lies on another device",
                    hint="upload it to the device that runs the kernel",
                )
        return pack(self.name, self.parameters, args)

    def prepare(self, config: LaunchConfig, args: Sequence[Any] = ()) -> Callable[[], None]:
        """Raise PtxlabError: launches are put on a GPU's stream, no other device has one."""
        raise PtxlabError(
            f"kernel {self.name} is on {self.device.name}, which runs every launch to its end",
            hint="--device cuda has a stream for launches to wait in",
        )

    def watch(self, watcher: Watcher) -> BaseKernel:
        """Raise PtxlabError: the emulator's kernels can be watched, no others."""
        raise PtxlabError(
            f"kernel {self.name} is on {self.device.name}, where nobody can watch it run",
            hint='load it on the emulator: open_device("emulator"), or --device emulator',
        )

    @abstractmethod
    def _run(self, config: LaunchConfig, parameters: bytes) -> LaunchResult: ...

    @abstractmethod
    def _dumped(
        self, dump: Dump, function: Function, config: LaunchConfig, args: Sequence[Any]
    ) -> LaunchResult: ...


_Kernel = TypeVar("_Kernel", bound=BaseKernel)


class BaseModule(Generic[_Kernel]):
    """The kernels of one program by name; ``path`` is what errors call it."""

    def __init__(self, path: str, kernels: Sequence[_Kernel]) -> None:
        self.path = path
        self.kernels = {kernel.name: kernel for kernel in kernels}

    def kernel(self, name: str | None = None) -> _Kernel:
        """Return the kernel called ``name``; None means the only one."""
        return pick(self.kernels, name, self.path)
