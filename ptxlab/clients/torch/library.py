"""PyTorch's C++ library, told that there is one CUDA device.

A PyTorch for CPUs knows tensors on "cuda": their dispatch keys, autocast, autograd, the thread in which
their backward runs. What it lacks is two objects: the guard of the current device, and the hooks that
say whether there is CUDA at all. The library brings a guard for a device that is not there, for
tensors that are only traced, and puts it in the place of one that counts no devices; it refuses events,
which here it has. Of the hooks it brings those that say no; here some of them say yes.

Who has a ``copy_`` of his own on "cuda" leaves copies between devices to PyTorch's for all devices, for which
nobody else can register one: it asks a stub for the copy of CUDA, which here is that of the CPU, on the same memory.

Sources: c10/core/impl/DeviceGuardImplInterface.h, ATen/native/DispatchStub.h, and the headers of the hooks, which come
with PyTorch and are read, as they say at which place of the table of virtual functions a hook is.
"""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ptxlab.clients.torch import streams
from ptxlab.errors import DeviceUnavailable

_POINTER = ctypes.sizeof(ctypes.c_void_p)
_CUDA = 1
"""c10::DeviceType::CUDA, the place of CUDA's guard in the registry of guards."""
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_HOOKS = "_ZTVN2at18CUDAHooksInterfaceE"
_GET_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_COPY_STUB = "_ZN2at6native9copy_stubE"
_COPY_OF_CPU = "_ZN2at6native12DispatchStubIPFvRNS_14TensorIteratorEbENS0_31copy_stub_DECLARE_DISPATCH_typeEE7DEFAULTE"
_TRUE = ("hasCUDA", "hasPrimaryContext", "init", "isBuilt", "isAvailable", "versionRuntimeCuDNN")
"""The hooks that say yes, one of which nothing is asked but to return, and a version too old for all."""
_DECLARED = re.compile(r"virtual\s+~(?P<destructor>\w+)|virtual\s[^;{]*?(?P<name>\w+)\(")
_LEFT_OUT = re.compile(r"//[^\n]*|/\*.*?\*/|#ifdef USE_ROCM.*?#endif", re.DOTALL)

_kept: list[Any] = []
"""What the library points to."""


@cache
def enable() -> None:
    """Have the library see one CUDA device, until the process ends.

    Raises DeviceUnavailable for a PyTorch whose library is another.
    """
    folder = Path(torch.__file__).parent
    try:
        guard, yes = _guard(ctypes.CDLL(str(folder / "lib" / "libc10.so")))
        _give_events(guard, folder)
        _hook(_torch_cpu(), folder, yes)
    except (OSError, ValueError, AttributeError) as error:
        raise DeviceUnavailable(
            f"PyTorch {torch.__version__} cannot be given a device that is not there: {error}",
            hint="ptxlab knows PyTorch 2.13; use_emulator(cuda_tensors=False) goes with any",
        ) from error


def copy_at_once(*, may: bool = True) -> None:
    """Say whether the library ``may`` copy between devices by itself, of which no graph that is captured would know.

    A library that has no such stub, of another PyTorch, goes on refusing.
    """
    with suppress(ValueError):
        stub = (ctypes.c_void_p * (_CUDA + 1)).in_dll(_torch_cpu(), _COPY_STUB)
        copy = ctypes.c_void_p.in_dll(_torch_cpu(), _COPY_OF_CPU)
        stub[_CUDA] = copy.value if may else None


def _torch_cpu() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


def _guard(c10: ctypes.CDLL) -> tuple[int, int]:
    """Return the guard of CUDA, and a function of it that returns CUDA's number, which is true."""
    registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(c10, _REGISTRY)
    none = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
    function = ctypes.cast(none, ctypes.c_void_p).value
    # A guard all of whose functions return 0: it counts no devices, and is not asked for more.
    table = (ctypes.c_void_p * 64)(*[function] * 64)
    counting_none = ctypes.c_void_p(ctypes.addressof(table))
    registry[_CUDA] = ctypes.addressof(counting_none)
    _kept.extend((none, table, counting_none))
    torch._C._ensureCUDADeviceGuardSet()
    guard = registry[_CUDA]
    if guard is None or guard == ctypes.addressof(counting_none):
        raise ValueError("it has no guard for one")
    type_of = _at(_at(guard))
    number = ctypes.CFUNCTYPE(ctypes.c_uint8, ctypes.c_void_p)(type_of)(guard)
    if number != _CUDA:
        raise ValueError("its guard is of another device")
    return guard, type_of


def _give_events(guard: int, folder: Path) -> None:
    """Have a guard without events have those of ``streams``."""
    header = folder / "include" / "c10" / "core" / "impl" / "DeviceGuardImplInterface.h"
    names = virtual_functions(header.read_text(encoding="utf-8"))
    table = (ctypes.c_void_p * len(names)).from_address(_at(guard))
    with_events = type(table)(*table)
    for name, function in streams.GUARD.items():
        with_events[names.index(name)] = ctypes.cast(function, ctypes.c_void_p)
    _kept.append(with_events)
    ctypes.c_void_p.from_address(guard).value = ctypes.addressof(with_events)


def _hook(library: ctypes.CDLL, folder: Path, yes: int) -> None:
    """Have the hooks of a library without CUDA, but that these say there is some."""
    headers = folder / "include" / "ATen" / "detail"
    names = [
        name
        for header in ("AcceleratorHooksInterface.h", "CUDAHooksInterface.h")
        for name in virtual_functions((headers / header).read_text(encoding="utf-8"))
    ]
    places = [names.index(name) for name in _TRUE]
    size = len(names) + 2  # before the functions are an offset and the type
    original = (ctypes.c_void_p * size).in_dll(library, _HOOKS)
    table = (ctypes.c_void_p * size)(*original)
    for slot in places:
        table[2 + slot] = yes
    _kept.append(table)
    get = getattr(library, _GET_HOOKS)
    get.restype = ctypes.c_void_p
    ctypes.c_void_p.from_address(get()).value = ctypes.addressof(table) + 2 * _POINTER


def virtual_functions(header: str) -> list[str]:
    """Return what the header of a class adds to the table of virtual functions, in its order."""
    names: list[str] = []
    for match in _DECLARED.finditer(_LEFT_OUT.sub("", header)):
        # Of a destructor there are two, for objects that are deleted and for others.
        names += [match["name"]] if match["name"] else ["~", "~"]
    return names


def _at(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0
