"""Contexts. There is one memory and one set of modules behind all of them.

Source: CUDA Driver API, "Primary Context Management" and "Context Management".
"""

from __future__ import annotations

from ptxlab.clients.driver.gpu import DriverContext, EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers
from ptxlab.emulator.run.host import HEAP_BYTES

_LIMITS = {0: 1024, 1: 1 << 20, 2: HEAP_BYTES, 5: 64}
"""What cuCtxGetLimit says first: bytes of stack, printf buffer and heap, granularity of L2 fetches."""

_HEAP = 2


@answers("cuDevicePrimaryCtxRetain", "out:u64 device", needs="init")
def retain(gpu: EmulatedGpu) -> int:
    gpu.primary.users += 1
    if not gpu.primary.handle:
        gpu.primary.handle = gpu.handle(gpu.primary)
    return gpu.primary.handle


def be_ready(gpu: EmulatedGpu) -> None:
    """Do what the runtime does before it is first used: initialize, and have the primary context be current."""
    gpu.initialized = True
    if not gpu.contexts:
        push(gpu, retain(gpu))


@answers("cuDevicePrimaryCtxRelease", "device", since=-1, needs="init")
@answers("cuDevicePrimaryCtxRelease_v2", "device", needs="init")
def release(gpu: EmulatedGpu) -> None:
    if not gpu.primary.users:
        raise Refused(DriverResult.INVALID_CONTEXT)
    gpu.primary.users -= 1


@answers("cuDevicePrimaryCtxReset", "device", since=-1, needs="init")
@answers("cuDevicePrimaryCtxReset_v2", "device", needs="init")
def reset(gpu: EmulatedGpu) -> None:
    """What is there stays."""


@answers("cuDevicePrimaryCtxSetFlags", "device u32", since=-1, needs="init")
@answers("cuDevicePrimaryCtxSetFlags_v2", "device u32", needs="init")
def set_primary_flags(gpu: EmulatedGpu, flags: int) -> None:
    gpu.primary.flags = flags


@answers("cuDevicePrimaryCtxGetState", "device out:u32 out:i32", needs="init")
def primary_state(gpu: EmulatedGpu) -> tuple[int, int]:
    return gpu.primary.flags, int(gpu.primary.users > 0)


@answers("cuCtxCreate_v2", "out:u64 u32 device", since=3020, needs="init")
def create(gpu: EmulatedGpu, flags: int) -> int:
    context = DriverContext(flags=flags)
    context.handle = gpu.handle(context)
    gpu.contexts.append(context)
    return context.handle


@answers("cuCtxCreate_v3", "out:u64 -u64 i32 u32 device", since=11040, needs="init")
@answers("cuCtxCreate_v4", "out:u64 u64 u32 device", since=12050, needs="init")
def create_with_parameters(gpu: EmulatedGpu, parameters: int, flags: int) -> int:
    if parameters:
        raise Refused(DriverResult.NOT_SUPPORTED, "a context of some of the SMs is not there")
    return create(gpu, flags)


@answers("cuCtxDestroy", "u64", since=-1, needs="init")
@answers("cuCtxDestroy_v2", "u64", needs="init")
def destroy(gpu: EmulatedGpu, handle: int) -> None:
    context = gpu.held(handle, DriverContext)
    if context is gpu.primary:
        raise Refused(DriverResult.INVALID_CONTEXT)
    gpu.drop(handle, DriverContext)
    if context in gpu.contexts[-1:]:
        gpu.contexts.pop()


@answers("cuCtxSetCurrent", "u64", needs="init")
def set_current(gpu: EmulatedGpu, handle: int) -> None:
    del gpu.contexts[-1:]
    if handle:
        push(gpu, handle)


@answers("cuCtxPushCurrent", "u64", since=-1, needs="init")
@answers("cuCtxPushCurrent_v2", "u64", needs="init")
def push(gpu: EmulatedGpu, handle: int) -> None:
    gpu.contexts.append(gpu.held(handle, DriverContext))


@answers("cuCtxPopCurrent", "out?:u64", since=-1)
@answers("cuCtxPopCurrent_v2", "out?:u64")
def pop(gpu: EmulatedGpu) -> int:
    return gpu.contexts.pop().handle


@answers("cuCtxGetCurrent", "out:u64", needs="init")
def current(gpu: EmulatedGpu) -> int:
    return gpu.context.handle if gpu.contexts else 0


@answers("cuCtxGetId", "u64 out:u64")
@answers("cuCtxGetApiVersion", "u64 out:u32")
def identity(gpu: EmulatedGpu, handle: int) -> int:
    return (gpu.held(handle, DriverContext) if handle else gpu.context).handle


@answers("cuCtxGetDevice", "out:i32", since=2000)
def device_of_current(gpu: EmulatedGpu) -> int:
    return 0


@answers("cuCtxGetDevice_v2", "out:i32 u64", since=13000)
@answers("cuCtxSynchronize_v2", "u64", since=13000, waits=True)
def of_context(gpu: EmulatedGpu, handle: int) -> int:
    if handle:
        gpu.held(handle, DriverContext)
    return 0


@answers("cuCtxSynchronize", since=2000, waits=True)
@answers("cuCtxResetPersistingL2Cache")
@answers("cuProfilerStart")
@answers("cuProfilerStop")
def nothing(gpu: EmulatedGpu) -> None:
    """Every call has ended when it returns."""


@answers("cuCtxGetFlags", "out:u32")
def flags(gpu: EmulatedGpu) -> int:
    return gpu.context.flags


@answers("cuCtxSetFlags", "u32")
def set_flags(gpu: EmulatedGpu, flags: int) -> None:
    gpu.context.flags = flags


@answers("cuCtxGetLimit", "out:u64 i32")
def limit(gpu: EmulatedGpu, which: int) -> int:
    if which not in _LIMITS:
        raise Refused(DriverResult.NOT_SUPPORTED)
    return gpu.context.limits.get(which, _LIMITS[which])


@answers("cuCtxSetLimit", "i32 u64")
def set_limit(gpu: EmulatedGpu, which: int, value: int) -> None:
    if which not in _LIMITS:
        raise Refused(DriverResult.NOT_SUPPORTED)
    if which == _HEAP and value > HEAP_BYTES:
        raise Refused(
            DriverResult.NOT_SUPPORTED, f"malloc of kernels has {HEAP_BYTES} bytes and no more"
        )
    gpu.context.limits[which] = value


@answers("cuCtxGetCacheConfig", "out:i32")
@answers("cuCtxGetSharedMemConfig", "out:i32")
def no_preference(gpu: EmulatedGpu) -> int:
    return 0


@answers("cuCtxSetCacheConfig", "i32")
@answers("cuCtxSetSharedMemConfig", "i32")
@answers("cuCtxDisablePeerAccess", "u64")
def preference(gpu: EmulatedGpu, wanted: int) -> None:
    """What only time would tell."""


@answers("cuCtxGetStreamPriorityRange", "out?:i32 out?:i32")
def priorities(gpu: EmulatedGpu) -> tuple[int, int]:
    return 0, 0
