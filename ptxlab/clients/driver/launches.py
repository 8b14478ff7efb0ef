"""Launches, each of which has ended when its call returns.

Source: CUDA Driver API, "Execution Control".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from ptxlab.clients.borrowed import named
from ptxlab.clients.captures import NodeKind, Stream
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.modules import DriverFunction
from ptxlab.clients.driver.occupancy import resident_ctas
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, fetch
from ptxlab.isa.gpus import sms_of
from ptxlab.launch_config import LaunchConfig

_END, _BUFFER, _SIZE = range(3)  # CU_LAUNCH_PARAM_...


def packed(function: DriverFunction, pointers: int, extra: int) -> bytes:
    """Return the parameter block of a launch, from pointers to each argument, or from one to all."""
    parameters = function.parameters
    if not parameters:
        return b""
    nbytes = parameters[-1].offset + parameters[-1].size
    if pointers:
        block = bytearray(nbytes)
        places = fetch(pointers, f"<{len(parameters)}Q")
        for parameter, at in zip(parameters, places, strict=True):
            begin, size = parameter.offset, parameter.size
            block[begin : begin + size] = ctypes.string_at(at, size)
        return function.completed(bytes(block))
    given: dict[int, int] = {}
    while extra and (kind := fetch(extra, "<Q")[0]) != _END:
        given[kind] = fetch(extra + 8, "<Q")[0]
        extra += 16
    if _BUFFER not in given or fetch(given.get(_SIZE, 0), "<Q")[0] < nbytes:
        raise Refused(
            DriverResult.INVALID_VALUE, f"{function.name} takes {nbytes} bytes of parameters"
        )
    return function.completed(ctypes.string_at(given[_BUFFER], nbytes))


def ready(
    gpu: EmulatedGpu, function: DriverFunction, config: LaunchConfig, parameters: bytes
) -> Callable[[], None]:
    """Return a launch, to be run now or whenever a graph comes to it. Raises Refused for one that cannot be."""
    if config.shared > function.most_shared:
        raise Refused(
            DriverResult.INVALID_VALUE,
            f"{function.name} has {function.most_shared} bytes of dynamic shared memory, and the launch "
            f"asks for {config.shared}: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES allows more",
        )
    if config.block == (1, 1, 1) and function.threads_of_tiles:
        config = replace(config, block=function.threads_of_tiles)
    if config.cooperative:
        _require_room(gpu, function, config)
    called = gpu.called

    def run() -> None:
        memory = [*named(gpu.lent(), called)]
        gpu.seconds += gpu.session.launch(function.kernel, config, parameters, memory).seconds

    return run


def put(
    gpu: EmulatedGpu,
    stream: Stream,
    function: DriverFunction,
    config: LaunchConfig,
    parameters: bytes,
) -> None:
    stream.put(NodeKind.KERNEL, ready(gpu, function, config, parameters))


def _require_room(gpu: EmulatedGpu, function: DriverFunction, config: LaunchConfig) -> None:
    """Raise Refused for a grid whose CTAs cannot be on the GPU all at once."""
    sms = sms_of(gpu.target)
    grid = prod(config.grid)
    if sms is None or grid <= sms:
        return
    each = resident_ctas(gpu, function, prod(config.block), config.shared)
    if grid > each * sms:
        raise Refused(
            DriverResult.COOPERATIVE_LAUNCH_TOO_LARGE,
            f"a cooperative launch of {function.name} has {grid:,} CTAs, and {gpu.target.name} has room for "
            f"{each * sms:,}: {each} on each of {sms} SMs",
        )


@answers("cuLaunchKernel", "function u32 u32 u32 u32 u32 u32 u32 stream u64 u64")
def launch(gpu: EmulatedGpu, function: DriverFunction, *given: Any) -> None:
    *sizes, shared, stream, pointers, extra = given
    config = LaunchConfig.of(sizes[:3], sizes[3:], shared)
    put(gpu, stream, function, config, packed(function, pointers, extra))


@answers("cuLaunchCooperativeKernel", "function u32 u32 u32 u32 u32 u32 u32 stream u64")
def launch_cooperative(gpu: EmulatedGpu, function: DriverFunction, *given: Any) -> None:
    *sizes, shared, stream, pointers = given
    config = LaunchConfig.of(sizes[:3], sizes[3:], shared, cooperative=True)
    put(gpu, stream, function, config, packed(function, pointers, 0))


_ATTRIBUTE_BYTES = 72
_COOPERATIVE, _CLUSTER = 2, 4
_OF_TIME = frozenset({0, 1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 17})
"""Attributes of a launch that results do not depend on, where a launch ends before the next begins."""


@answers("cuLaunchKernelEx", "u64 function u64 u64")
def launch_with_attributes(
    gpu: EmulatedGpu, at: int, function: DriverFunction, pointers: int, extra: int
) -> None:
    stream = gpu.stream(fetch(at, "<32xQ")[0])
    put(gpu, stream, function, read_config(at), packed(function, pointers, extra))


def read_config(at: int) -> LaunchConfig:
    """Read a ``CUlaunchConfig``. Raises Refused for an attribute that results may depend on and that is not modelled."""
    *sizes, shared, _, attributes, count = fetch(at, "<7I4xQQI")
    cluster, cooperative = None, False
    for number in range(count):
        which, *values = fetch(attributes + number * _ATTRIBUTE_BYTES, "<i4x3I")
        if which == _COOPERATIVE:
            cooperative = values[0] != 0
        elif which == _CLUSTER:
            cluster = values
        elif which not in _OF_TIME:
            raise Refused(
                DriverResult.NOT_SUPPORTED, f"attribute {which} of a launch is not modelled"
            )
    return LaunchConfig.of(sizes[:3], sizes[3:], shared, cluster, cooperative)


@answers("cuOccupancyMaxActiveClusters", "out:i32 function u64")
def active_clusters(gpu: EmulatedGpu, function: DriverFunction, at: int) -> int:
    """Return how many clusters all SMs hold: at most, as nobody says which SMs a cluster may be spread over."""
    config = read_config(at)
    sms = sms_of(gpu.target)
    if sms is None or config.cluster is None:
        raise Refused(DriverResult.NOT_SUPPORTED, f"no GPU is known that is {gpu.target.name}")
    ctas = resident_ctas(gpu, function, prod(config.block), config.shared)
    return sms * ctas // prod(config.cluster)


@answers("cuLaunchHostFunc", "queue:host u64 u64")
def call_host(gpu: EmulatedGpu, function: int, data: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(data)
