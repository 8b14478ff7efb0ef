"""What Triton asks of a CUDA driver, answered by a session: its C module in Python, and a launcher.

All above the C module (``triton.backends.nvidia.driver``) is Triton's own: scratch buffers, tensor
descriptors, hooks. Its compiler stops at PTX.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia

from ptxlab.clients import captures
from ptxlab.clients.borrowed import Borrowed
from ptxlab.clients.session import Session
from ptxlab.clients.torch.pinned import is_pinned
from ptxlab.clients.triton.memory import borrowed, whole_words
from ptxlab.clients.triton.tensor_maps import tensor_map
from ptxlab.device.protocol import Kernel, Module
from ptxlab.errors import PtxlabError
from ptxlab.isa.gpus import gpus_of, sms_of
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import CTA_THREADS, LaunchConfig


class KernelArgument(NamedTuple):
    """How an argument of Triton's becomes parameters: ``kind`` 0 is none, 1 one, 2 a tuple of them."""

    nested_tuple: Sequence[KernelArgument] | None
    type: int


class EmulatorDriver(nvidia.CudaDriver):  # type: ignore[misc]
    """The driver of an emulated GPU, for ``triton.runtime.driver.set_active``.

    ``cuda_tensors`` says that tensors are on "cuda" for the program.
    """

    def __init__(self, session: Session, *, cuda_tensors: bool) -> None:
        self.session = session
        self.cuda_tensors = cuda_tensors
        self.utils = _Utils(session, cuda_tensors=cuda_tensors)
        self.launcher_cls = _Launcher
        # What the C module would have brought.
        nvidia.PyKernelArg = KernelArgument
        nvidia.ARG_CONSTEXPR, nvidia.ARG_KERNEL, nvidia.ARG_TUPLE = 0, 1, 2

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Return major and minor."""
        return self.utils.get_device_capability(device)

    def get_current_device(self) -> int:
        """Return 0: there is one device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Choose the only device."""

    def get_current_stream(self, device: int = 0) -> int:
        """Return 0: every launch has ended when it returns."""
        return 0

    def get_current_target(self) -> Any:
        """Return what Triton compiles for."""
        return GPUTarget("cuda", self.session.device.target.capability, WARP)

    def get_active_torch_device(self) -> torch.device:
        """Return the device that tensors are to be on."""
        return torch.device("cuda", 0) if self.cuda_tensors else torch.device("cpu")

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Return nothing to clear: no cache is emulated."""
        return torch.empty(0, dtype=torch.int)

    def allocate_default_profile_scratch(
        self, size: int, alignment: int, stream: int
    ) -> torch.Tensor:
        """Return zeroed memory."""
        return torch.zeros(size, dtype=torch.int8)


class _Launcher(nvidia.CudaLauncher):  # type: ignore[misc]
    """Triton's own launcher, which hands on what memory the arguments have."""

    def __init__(self, src: Any, metadata: Any) -> None:
        super().__init__(src, metadata)
        names = src.fn.arg_names if hasattr(src, "fn") else ()
        self.names = [*names, *map(str, range(len(names), len(src.signature)))]

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, *rest: Any) -> None:
        """Launch a kernel on ``rest``: metadata twice, the hooks, and its arguments."""
        memory = borrowed(zip(self.names, rest[4:], strict=False))
        if "cas.b32" in function.program.module.source.text:
            memory = whole_words(memory)
        super().__call__(x, y, z, stream, (function, memory), *rest)


class _Utils:
    """The functions of Triton's C module for CUDA, with its names and arguments."""

    def __init__(self, session: Session, *, cuda_tensors: bool) -> None:
        self.session = session
        self.cuda_tensors = cuda_tensors
        self.fill_tma_descriptor_tiled = tensor_map
        self.fill_tma_descriptor_im2col = tensor_map

    def load_binary(
        self, name: str, program: bytes, shared: int, device: int
    ) -> tuple[Module, Kernel, Kernel, Kernel, int]:
        """Load PTX: the module, the kernel, and its registers, spilled ones, and most threads.

        In place of a number of registers is the kernel, which ``activation`` assembles when asked.
        """
        module = self.session.load(program.decode(), f"{name}.ptx")
        kernel = module.kernel(name)
        return module, kernel, kernel, kernel, CTA_THREADS

    def unload_module(self, module: Module) -> None:
        """Keep a module: the same program may come again."""

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """Choose the only device."""

    def get_default_stream(self, device: int) -> int:
        return 0

    def is_stream_capturing(self, stream: int) -> bool:
        """Say whether launches are recorded in a graph, to run when it is replayed."""
        return captures.active() is not None

    def get_device_capability(self, device: int) -> tuple[int, int]:
        return divmod(self.session.device.target.capability, 10)

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return what Triton and its users ask of a GPU; clocks and widths are published ones."""
        target = self.session.device.target
        gpu = next(iter(gpus_of(target)), None)
        return {
            "max_shared_mem": target.shared_bytes,
            "max_num_regs": 1 << 16,
            "multiprocessor_count": sms_of(target) or 1,
            "warpSize": WARP,
            "sm_clock_rate": gpu.clock * 1000 if gpu else 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def cuOccupancyMaxActiveClusters(self, function: Kernel, shared: int, ctas: int) -> int:
        """Return how many clusters may run at once: one at least, as they take turns."""
        return 1

    def set_printf_fifo_size(self, size: int) -> None:
        """Do nothing: what programs print is never lost."""

    def build_signature_metadata(self, types: Sequence[str]) -> tuple[str, ...]:
        """Return the types of parameters as ``launch`` takes them."""
        return tuple("*" if type.startswith("*") else type for type in types)

    def launch(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: tuple[Kernel, list[Borrowed]],
        cooperative: bool,
        dependent: bool,
        metadata: tuple[int, int, int],
        launch_metadata: Any,
        enter_hook: Callable[[Any], None] | None,
        exit_hook: Callable[[Any], None] | None,
        global_scratch: Any,
        profile_scratch: Any,
        annotations: Sequence[KernelArgument],
        signature: Sequence[str],
        arguments: Sequence[Any],
    ) -> None:
        """Run a kernel to its end; ``metadata`` are its warps, the CTAs of a cluster, and shared bytes."""
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if x * y * z > 0:
            kernel, memory = function
            scratch = (global_scratch, profile_scratch)
            values = _flat(kernel.name, arguments, annotations)
            given = [*zip(signature, values, strict=True)]
            if self.cuda_tensors:
                _require_reachable(value for type_, value in given if type_ == "*")
            block = packed(kernel, [*given, *(("*", pointer) for pointer in scratch)])
            lent = {borrowed_memory.address for borrowed_memory in memory}
            memory += [
                borrowed_memory
                for borrowed_memory in borrowed(
                    zip(("global scratch", "profile scratch"), scratch, strict=True)
                )
                if borrowed_memory.address not in lent
            ]
            warps, ctas, shared = metadata
            cluster = None if ctas == 1 else ctas
            config = LaunchConfig.of((x * ctas, y, z), warps * WARP, shared, cluster, cooperative)
            if captures.active() is None:
                self.session.launch(kernel, config, block, memory)
            else:
                captures.add(lambda: self.session.launch(kernel, config, block, memory))
        if exit_hook is not None:
            exit_hook(launch_metadata)


def _require_reachable(pointers: Iterable[Any]) -> None:
    """Raise ValueError in the words of Triton's C module for a tensor that is on the CPU."""
    for value in pointers:
        tensor = getattr(value, "base", value)
        if not isinstance(tensor, torch.Tensor) or tensor.is_cuda or tensor.data_ptr() == 0:
            continue
        if not is_pinned(tensor):
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")


def _flat(
    kernel: str, arguments: Sequence[Any], annotations: Sequence[KernelArgument]
) -> Iterator[Any]:
    """Yield the arguments that a kernel is given, without constants, those of tuples one by one.

    As in Triton's C module a constant keeps its place and is not read, so those at the end may be left out.
    """
    for index, (nested, kind) in enumerate(annotations):
        if kind == nvidia.ARG_CONSTEXPR:
            continue
        if index >= len(arguments):
            raise PtxlabError(
                f"kernel {kernel} takes {len(annotations)} arguments and is given {len(arguments)}: "
                "on a GPU Triton reads beyond them",
                hint="a compiled kernel takes constants (tl.constexpr) too, in their places before other arguments",
            )
        if kind == nvidia.ARG_TUPLE:
            assert nested is not None
            yield from _flat(kernel, arguments[index], nested)
        else:
            yield arguments[index]


def packed(kernel: Kernel, values: Sequence[tuple[str, Any]]) -> bytes:
    """Return the parameter block for values of Triton's types."""
    parameters = kernel.parameters
    if len(values) != len(parameters):
        raise PtxlabError(
            f"kernel {kernel.name} takes {len(parameters)} parameters, and Triton gives {len(values)}",
            hint="ptxlab knows Triton 3.7 to 3.9",
        )
    block = bytearray(parameters[-1].offset + parameters[-1].size if parameters else 0)
    for parameter, (type_, value) in zip(parameters, values, strict=True):
        data = _encoded(type_, value)[: parameter.size]
        block[parameter.offset : parameter.offset + len(data)] = data
    return bytes(block)


def _encoded(type_: str, value: Any) -> bytes:
    """Return a value as Triton's C module has it; a float of a type is rounded as there."""
    if type_ == "*":
        return _pointer(value).to_bytes(8, "little")
    if type_ == "nvTmaDesc":
        return bytes(value)
    if type_[0] in "iu":
        return (int(value) & (1 << 64) - 1).to_bytes(8, "little")
    return _FLOATS[type_](float(value))


def _pointer(value: Any) -> int:
    if value is None:
        return 0
    return value if isinstance(value, int) else int(value.data_ptr())


def _f32(value: float) -> bytes:
    with np.errstate(over="ignore"):
        return np.float32(value).tobytes()


_FLOATS: Mapping[str, Callable[[float], bytes]] = {
    "fp16": lambda value: struct.pack("<e", value),
    "bf16": lambda value: _f32(value)[2:],  # which cuts off what does not fit
    "fp32": _f32,
    "f32": _f32,
    "fp64": lambda value: struct.pack("<d", value),
}
