"""What nvcc compiles into a program of the host: its fat binaries, kernels and variables, and the launches of ``<<<...>>>``.

A kernel is called by the address of its function of the host, a variable by that of its copy there.

Source: crt/host_runtime.h of the CUDA Toolkit; CUDA Runtime API, "Execution Control" and "Memory Management".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ptxlab.clients.captures import Stream
from ptxlab.clients.driver import copies, launches
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.modules import DriverFunction, Loaded, image_at, open_image
from ptxlab.clients.driver.results import Refused, RuntimeResult
from ptxlab.clients.driver.table import answers, handles, store
from ptxlab.errors import PtxlabError
from ptxlab.launch_config import LaunchConfig

_Sizes = tuple[int, int, int]

_answers = partial(answers, needs="runtime")


@handles("symbol")
@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable of a program, called ``name`` on the GPU."""

    absent: ClassVar = RuntimeResult.INVALID_SYMBOL
    loaded: Loaded
    name: str

    def place(self, offset: int = 0) -> int:
        """Return the address of ``offset`` bytes into it, which copies keep within it."""
        if self.name not in self.loaded.module.variables:
            raise Refused(RuntimeResult.INVALID_SYMBOL)
        return int(self.loaded.module.variable(self.name).address) + offset


@_answers("__cudaRegisterFatBinary", "u64", returns="u64")
def register_fatbin(gpu: EmulatedGpu, wrapper: int) -> int:
    return Loaded(gpu, lambda: open_image(gpu, image_at(wrapper), "<program>")).handle


@_answers("__cudaRegisterFatBinaryEnd", "u64", returns="i32")
@_answers("__cudaUnregisterFatBinary", "u64", returns="i32")
def registered(gpu: EmulatedGpu, fatbin: int) -> int:
    return 0


@_answers("__cudaInitModule", "module", returns="u8")
def initialize_module(gpu: EmulatedGpu, loaded: Loaded) -> int:
    return 1


@_answers(
    "__cudaRegisterFunction", "module u64 -u64 text -i32 -u64 -u64 -u64 -u64 -u64", returns="i32"
)
def register_function(gpu: EmulatedGpu, loaded: Loaded, host: int, name: bytes) -> int:
    gpu.register(host, DriverFunction(loaded, name.decode()))
    return 0


@_answers("__cudaRegisterVar", "module u64 -u64 text -i32 -u64 -i32 -i32", returns="i32")
def register_variable(gpu: EmulatedGpu, loaded: Loaded, host: int, name: bytes) -> int:
    gpu.register(host, Symbol(loaded, name.decode()))
    return 0


# ---- launches -------------------------------------------------------------------------------


@_answers("__cudaPushCallConfiguration", "dim3 dim3 u64 u64", returns="u32")
def push(gpu: EmulatedGpu, grid: _Sizes, block: _Sizes, shared: int, stream: int) -> int:
    gpu.thread.configurations.append((grid, block, shared, stream))
    return 0


@_answers("__cudaPopCallConfiguration", "u64 u64 u64 u64")
def pop(gpu: EmulatedGpu, grid_at: int, block_at: int, shared_at: int, stream_at: int) -> None:
    if not gpu.thread.configurations:
        raise Refused(RuntimeResult.MISSING_CONFIGURATION)
    grid, block, shared, stream = gpu.thread.configurations.pop()
    store(grid_at, struct.pack("<3I", *grid))
    store(block_at, struct.pack("<3I", *block))
    store(shared_at, struct.pack("<Q", shared))
    store(stream_at, struct.pack("<Q", stream))


@_answers("__cudaGetKernel", "out:u64 u64")
@_answers("cudaGetKernel", "out:u64 u64")
@_answers("cudaGetFuncBySymbol", "out:u64 u64")
def kernel(gpu: EmulatedGpu, host: int) -> int:
    gpu.held(host, DriverFunction)
    return host


def _launch(
    gpu: EmulatedGpu, function: DriverFunction, grid: _Sizes, block: _Sizes, pointers: int, shared: int,
    stream: Stream, *, cooperative: bool = False,
) -> None:  # fmt: skip
    try:
        config = LaunchConfig.of(grid, block, shared, cooperative=cooperative)
    except PtxlabError as error:
        raise Refused(RuntimeResult.INVALID_CONFIGURATION, str(error)) from None
    if function.name not in function.loaded.module.kernels:
        raise Refused(RuntimeResult.INVALID_DEVICE_FUNCTION)
    launches.put(gpu, stream, function, config, launches.packed(function, pointers, 0))


_LAUNCH = "function dim3 dim3 u64 u64 stream"
_answers("__cudaLaunchKernel", _LAUNCH)(_launch)
_answers("cudaLaunchKernel", _LAUNCH)(_launch)
_answers("cudaLaunchCooperativeKernel", _LAUNCH)(partial(_launch, cooperative=True))


@_answers("cudaLaunchKernelExC", "u64 function u64")
@_answers("cudaLaunchKernelEx", "u64 function u64")  # as CuTe DSL calls it
def launch_with_attributes(
    gpu: EmulatedGpu, config: int, function: DriverFunction, pointers: int
) -> None:
    launches.launch_with_attributes(gpu, config, function, pointers, 0)


# ---- variables ------------------------------------------------------------------------------


@_answers("cudaMemcpyToSymbol", "symbol u64 u64 u64 -i32", waits=True)
@_answers("cudaMemcpyToSymbolAsync", "symbol u64 u64 u64 -i32 queue:memcpy")
def copy_to(gpu: EmulatedGpu, symbol: Symbol, source: int, nbytes: int, offset: int) -> None:
    copies.copy(gpu, symbol.place(offset), source, nbytes)


@_answers("cudaMemcpyFromSymbol", "u64 symbol u64 u64 -i32", waits=True)
@_answers("cudaMemcpyFromSymbolAsync", "u64 symbol u64 u64 -i32 queue:memcpy")
def copy_from(gpu: EmulatedGpu, to: int, symbol: Symbol, nbytes: int, offset: int) -> None:
    copies.copy(gpu, to, symbol.place(offset), nbytes)


@_answers("cudaGetSymbolAddress", "out:u64 symbol")
def symbol_address(gpu: EmulatedGpu, symbol: Symbol) -> int:
    return symbol.place()


@_answers("cudaGetSymbolSize", "out:u64 symbol")
def symbol_size(gpu: EmulatedGpu, symbol: Symbol) -> int:
    symbol.place()
    return int(symbol.loaded.module.variable(symbol.name).nbytes)
