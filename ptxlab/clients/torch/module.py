"""torch.cuda as it is with a GPU: PyTorch's own Python, on what its C module brings for CUDA.

``install`` gives torch._C the functions and classes that a build for CPUs has not, and has the modules
that derived classes from them do so again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from ptxlab.clients.torch import (
    compiling,
    exchange,
    generators,
    graphs,
    library,
    streams,
    subclasses,
)
from ptxlab.clients.torch.errors import refuse_while_capturing, require_device
from ptxlab.clients.torch.kernels import register
from ptxlab.clients.torch.memory import MEMORY, allocations, memory_stats
from ptxlab.clients.torch.special import SPECIAL
from ptxlab.isa.gpus import gpus_of, sms_of
from ptxlab.isa.occupancy import MULTIPROCESSORS
from ptxlab.isa.targets import WARP, Target
from ptxlab.launch_config import CTA_THREADS

CUDA_VERSION = "13.0"
"""The CUDA of PyTorch's own builds for GPUs."""
_DERIVED = {
    "streams": ("Stream", "ExternalStream", "Event"),
    "graphs": (
        "CUDAGraph",
        "graph",
        "graph_pool_handle",
        "is_current_stream_capturing",
        "make_graphed_callables",
    ),
}
"""The modules of torch.cuda with classes derived of torch._C's, and what torch.cuda has of them."""


@dataclass(frozen=True, slots=True)
class CudaDeviceProperties:
    """What PyTorch tells of a GPU; clocks are published ones, and 0 is told where nothing is published."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block_optin: int
    L2_cache_size: int
    clock_rate: int
    shared_memory_per_block: int = 48 << 10
    max_threads_per_block: int = CTA_THREADS
    regs_per_multiprocessor: int = 1 << 16
    warp_size: int = WARP
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    memory_clock_rate: int = 0
    memory_bus_width: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    uuid: str = "00000000-0000-0000-0000-000000000000"
    gcnArchName: str = ""


def properties(target: Target) -> CudaDeviceProperties:
    """Return the properties of the GPU that stands for a target."""
    gpu = next(iter(gpus_of(target)), None)
    sm = MULTIPROCESSORS[target.capability]
    return CudaDeviceProperties(
        f"ptxlab emulator, {target.name}",
        *divmod(target.capability, 10),
        total_memory=MEMORY,
        multi_processor_count=sms_of(target) or 1,
        max_threads_per_multi_processor=sm.warps * WARP,
        shared_memory_per_multiprocessor=sm.shared << 10,
        shared_memory_per_block_optin=target.shared_bytes,
        L2_cache_size=gpu.l2_mib << 20 if gpu else 0,
        clock_rate=gpu.clock * 1000 if gpu else 0,
    )


def install(target: Target) -> None:
    """Have PyTorch be one with the GPU that ``target`` is, until the process ends.

    Raises DeviceUnavailable for a PyTorch that ptxlab does not know.
    """
    library.enable()
    library.copy_at_once()
    register(SPECIAL)
    for name, value in _members(target).items():
        setattr(torch._C, name, value)
    told = properties(target)
    torch.cuda._get_device_properties = lambda device: told
    if torch.Generator is generators.Generator:
        compiling.forget()
        return
    torch.Generator = generators.Generator
    torch.Stream = streams.AnyStream
    exchange.install()
    subclasses.install()
    if torch.version.cuda is None:
        torch.version.cuda = CUDA_VERSION
    else:  # a build for GPUs would ask the GPU before it chooses between its own kernels
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
    for module, names in _DERIVED.items():
        derived = importlib.reload(importlib.import_module(f"torch.cuda.{module}"))
        for name in names:
            setattr(torch.cuda, name, getattr(derived, name))
    torch.cuda._exchange_device = _exchange_device
    torch.cuda._maybe_exchange_device = _maybe_exchange_device
    torch.UntypedStorage.__new__ = _storage
    torch.cuda._CudaDeviceProperties = CudaDeviceProperties
    torch.cuda._cudart = _Runtime()
    torch.cuda._is_in_bad_fork = lambda: allocations.forked
    torch.cuda.default_generators = (generators.default,)
    torch.cuda.nvtx._nvtx = _Nothing()
    torch.autograd._supported_activities = _profiled
    torch.autograd.profiler._supported_activities = _profiled
    torch.backends.cudnn.is_acceptable = lambda tensor: False
    compiling.prepare()


def _exchange_device(device: int) -> int:
    """Choose a device, and return the one before; a negative one is none."""
    require_device(device)
    return min(device, 0)


def _maybe_exchange_device(device: int) -> int:
    """Do the same as ``_exchange_device``; torch.compile tells functions apart."""
    return _exchange_device(device)


def _storage(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Make a storage, on "cuda" too."""
    if device is None or torch.device(device).type != "cuda":
        return torch._C.StorageBase.__new__(cls, *args, device=device, **kwargs)
    (size,) = args or (0,)
    return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()


_OF_CPU: set[torch.profiler.ProfilerActivity] = torch.autograd._supported_activities()


def _profiled() -> set[torch.profiler.ProfilerActivity]:
    """Return what PyTorch's profiler may be asked for: of "cuda" it hears nothing, which it takes for a GPU that did nothing."""
    return _OF_CPU | {torch.profiler.ProfilerActivity.CUDA}


def _stream(device: int = 0) -> tuple[int, int, int]:
    return streams.current(), 0, 1


def _members(target: Target) -> Mapping[str, Any]:
    """Return what torch._C has in a build for GPUs, of what programs and torch.cuda use."""
    return {
        "_has_cuda": True,
        "_CudaStreamBase": streams.StreamBase,
        "_CudaEventBase": streams.EventBase,
        "_CUDAGraph": graphs.GraphBase,
        "_CudaDeviceProperties": CudaDeviceProperties,
        "_cuda_CUDAAllocator_AllocatorState": object,
        "_graph_pool_handle": graphs.pool_handle,
        "_host_emptyCache": _nothing,
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_accelerator_setDeviceIndex": require_device,
        "_accelerator_exchangeDevice": _exchange_device,
        "_accelerator_maybeExchangeDevice": _maybe_exchange_device,
        "_accelerator_getStream": lambda device: torch.cuda.Stream(
            stream_id=streams.current(), device_index=0, device_type=1
        ),
        "_accelerator_setStream": lambda stream: streams.choose(stream.stream_id),
        "_accelerator_synchronizeDevice": lambda device: refuse_while_capturing(),
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_emptyCache": allocations.empty_cache,
        "_accelerator_emptyHostCache": _nothing,
        "_accelerator_getDeviceStats": lambda device: memory_stats(allocations),
        "_accelerator_resetAccumulatedStats": _nothing,
        "_accelerator_resetPeakStats": lambda device: allocations.reset_peak(),
        "_accelerator_getMemoryInfo": _Runtime.cudaMemGetInfo,
        **{
            f"_cuda_{name}": function
            for name, function in {
                "init": _nothing,
                "isInBadFork": lambda: allocations.forked,
                "getDeviceCount": lambda: 1,
                "getDevice": lambda: 0,
                "setDevice": require_device,
                "exchangeDevice": _exchange_device,
                "maybeExchangeDevice": _maybe_exchange_device,
                "canDeviceAccessPeer": lambda device, peer: False,
                "getArchFlags": lambda: target.name.rstrip("af"),
                "getCompiledVersion": lambda: 13000,
                "synchronize": refuse_while_capturing,
                "ipc_collect": _nothing,
                "sleep": _nothing,
                "set_sync_debug_mode": _nothing,
                "get_sync_debug_mode": lambda: 0,
                "getCurrentStream": _stream,
                "getCurrentRawStream": lambda device: streams.current(),
                "getDefaultStream": lambda device: (0, 0, 1),
                "getStreamFromExternal": lambda pointer, device: (pointer, 0, 1),
                "setStream": lambda stream_id, device_index, device_type: streams.choose(stream_id),
                "isCurrentStreamCapturing": graphs.is_capturing,
                "emptyCache": allocations.empty_cache,
                "memoryStats": lambda device: memory_stats(allocations),
                "resetPeakMemoryStats": lambda device: allocations.reset_peak(),
                "resetAccumulatedMemoryStats": _nothing,
                "getMemoryFraction": lambda device: 1.0,
                "setMemoryFraction": _nothing,
                "getAllocatorBackend": lambda: "native",
                "memorySnapshot": lambda *_: {"segments": [], "device_traces": []},
                "clearCublasWorkspaces": _nothing,
                "cudaCachingAllocator_is_enabled": lambda: True,
            }.items()
        },
    }


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


class _Nothing:
    """A module all of whose functions do nothing: what they tell a profiler is told nobody."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_, **__: 0


class _Runtime(_Nothing):
    """The functions of the CUDA runtime that torch.cuda.cudart() has."""

    cudaError = SimpleNamespace(success=0)

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:
        return MEMORY - allocations.reserved, MEMORY
