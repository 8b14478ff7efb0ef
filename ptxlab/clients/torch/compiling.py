"""torch.compile: what dynamo and inductor take from a build for GPUs, in its place.

Inductor's kernels are in Triton and its wrappers in Python, so that no compiler of C is needed. They are
compiled in this process, whose Triton knows the emulator, and launched by Triton; of several
configurations the first runs, as times of emulation say nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from ptxlab.clients.imports import AfterImport, Hook


def prepare() -> None:
    """Have torch.compile work for "cuda", whether it has been imported or will be."""
    torch._C._dynamo.guards._empty_strided_cuda = _empty_strided
    torch._C._dynamo.guards._empty_strided_cpu_pinned = _empty_strided_pinned
    later = {name: hook for name, hook in _HOOKS.items() if name not in sys.modules}
    for name in _HOOKS.keys() - later.keys():
        _HOOKS[name](sys.modules[name])
    sys.meta_path.insert(0, AfterImport(later))


def forget() -> None:
    """Drop what inductor has compiled for another device."""
    code = sys.modules.get("torch._inductor.codecache")
    if code is None:
        return
    code.PyCodeCache.cache_clear()
    torch._dynamo.reset()
    sys.modules["torch._dynamo.device_interface"].caching_worker_device_properties.clear()
    hints = sys.modules.get("torch._inductor.runtime.hints")
    if hints is not None:
        hints.DeviceProperties.create.cache_clear()


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _empty_strided_pinned(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cpu").pin_memory()


def _interface(module: ModuleType) -> None:
    """Have dynamo's class of CUDA's functions be of those that are there now."""
    for name in ("Event", "Stream"):
        setattr(module.CudaInterface, name, getattr(torch.cuda, name))
    for name in ("exchange_device", "maybe_exchange_device"):
        setattr(module.CudaInterface, name, staticmethod(getattr(torch.cuda, f"_{name}")))
    module.CudaInterface.get_raw_stream = staticmethod(torch._C._cuda_getCurrentRawStream)


def _config(module: Any) -> None:
    module.compile_threads = 1
    module.use_static_triton_launcher = False


def _heuristics(module: Any) -> None:
    def first(tuner: Any, *args: Any, **kwargs: Any) -> None:
        """Keep the first configuration: none is timed."""
        del tuner.launchers[1:]

    module.CachingAutotuner.autotune_to_one_config = first


def _compiler(module: Any) -> None:
    def as_it_is(model: Any, *_: Any, **__: Any) -> Any:
        """Return a compiled model without a graph of CUDA's, which would only save time."""
        return model

    module.cudagraphify = as_it_is


_HOOKS: dict[str, Hook] = {
    "torch._inductor.compile_fx": _compiler,
    "torch._dynamo.device_interface": _interface,
    "torch._inductor.config": _config,
    "torch._inductor.runtime.triton_heuristics": _heuristics,
}
"""What is done to a module when it has been imported."""
