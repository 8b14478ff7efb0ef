"""PyTorch without a GPU, as a program finds it that asks for one: tensors on "cuda" are in this process.

Every tensor is on the CPU for PyTorch itself. One that the program made on the CPU, or copied there, is
marked, so that a copy between the two is a copy; all others are said to be on ``cuda:0``. One in pinned
memory, which a GPU reaches too, has a second mark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ptxlab.errors import Unsupported
from ptxlab.isa.gpus import gpus_of
from ptxlab.isa.occupancy import MULTIPROCESSORS
from ptxlab.isa.targets import WARP, Target

CUDA = torch.device("cuda", 0)
_ON_HOST = "_ptxlab_on_host"
_PINNED = "_ptxlab_pinned"
MEMORY = 1 << 34
"""Bytes of memory that the GPU says it has; allocations end where the machine's does."""


def install(target: Target) -> None:
    """Have PyTorch be one with a GPU, until the process ends."""
    for name, function in _cuda(target).items():
        setattr(torch.cuda, name, function)
    torch.Generator = Generator
    if _Tensors.active is None:
        _Tensors.active = _Tensors()
        _Tensors.active.__enter__()


class _Tensors(TorchFunctionMode):  # type: ignore[misc]
    """Sees every call of a function of PyTorch, and puts on the CPU what is asked of a GPU."""

    active: _Tensors | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        special = _SPECIAL.get(func)
        if special is not None:
            return special(*args, **kwargs or {})
        asked, given, named = _without_gpu(args, kwargs or {})
        found = func(*given, **named)
        inputs = [*_tensors(args), *_tensors(named.values())]
        on_host = asked.type == "cpu" if asked else all(map(is_on_host, inputs))
        for each in _tensors((found,)):
            if any(each is one for one in inputs):
                continue  # written in place, where it is
            if on_host or hasattr(each, _ON_HOST):
                setattr(each, _ON_HOST, on_host)
            if kwargs and kwargs.get("pin_memory"):
                setattr(each, _PINNED, True)
        return found


def is_on_host(tensor: torch.Tensor) -> bool:
    """Say whether the program takes a tensor to be on the CPU."""
    return getattr(tensor, _ON_HOST, False)


def is_out_of_reach(tensor: torch.Tensor) -> bool:
    """Say whether no GPU could reach the memory of a tensor: the host's, and not pinned."""
    return is_on_host(tensor) and not _is_pinned(tensor) and tensor.numel() > 0


def _is_pinned(tensor: torch.Tensor) -> bool:
    owner = tensor if tensor._base is None else tensor._base
    return getattr(owner, _PINNED, False)


def _without_gpu(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.device | None, list[Any], dict[str, Any]]:
    """Return the device that a call asks for, and its arguments with the CPU in its place."""
    asked: torch.device | None = None
    given, named = list(args), dict(kwargs)
    for index, value in enumerate(given):
        if isinstance(value, torch.device):
            asked, given[index] = value, _in_its_place(value)
    if (device := named.get("device")) is not None:
        asked = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        named["device"] = _in_its_place(asked)
    named.pop("pin_memory", None)
    return asked, given, named


def _in_its_place(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "cuda" else device


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _moved(tensor: torch.Tensor, found: torch.Tensor, *, to_host: bool) -> torch.Tensor:
    """Return ``found``, made of ``tensor``, on the host or not: a copy where that is another place."""
    if found is tensor and is_on_host(tensor) != to_host:
        found = tensor.clone()
    setattr(found, _ON_HOST, to_host)
    return found


def _pinned(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    if not _is_pinned(tensor):
        tensor = tensor.clone()
        setattr(tensor, _PINNED, True)
    return tensor


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    places = [value for value in args if isinstance(value, str | torch.device | torch.Tensor)]
    if args and isinstance(args[0], int) and not isinstance(args[0], bool):
        places, args = [torch.device("cuda", args[0])], (CUDA, *args[1:])
    given = [torch.device(value) if isinstance(value, str) else value for value in args]
    asked, given, named = _without_gpu(given, kwargs)
    to_host = is_on_host(tensor)
    if asked is not None:
        to_host = asked.type != "cuda"
    elif places:
        to_host = is_on_host(places[0])
    return _moved(tensor, torch.Tensor.to(tensor, *given, **named), to_host=to_host)


def _device(tensor: torch.Tensor) -> torch.device:
    place = torch.Tensor.device.__get__(tensor)
    return CUDA if place.type == "cpu" and not is_on_host(tensor) else place


_SPECIAL: dict[Any, Callable[..., Any]] = {
    torch.Tensor.to: _to,
    torch.Tensor.cuda: lambda tensor, *_, **__: _moved(tensor, tensor, to_host=False),
    torch.Tensor.cpu: lambda tensor, *_, **__: _moved(tensor, tensor, to_host=True),
    torch.Tensor.pin_memory: _pinned,
    torch.Tensor.is_pinned: lambda tensor, *_, **__: _is_pinned(tensor),
    torch.Tensor.record_stream: lambda *_: None,
    torch.Tensor.device.__get__: _device,
    torch.Tensor.is_cuda.__get__: lambda tensor: _device(tensor).type == "cuda",
    torch.Tensor.is_cpu.__get__: lambda tensor: _device(tensor).type == "cpu",
    torch.Tensor.get_device: lambda tensor: 0 if _device(tensor).type == "cuda" else -1,
}


class _Generators(type(torch._C.Generator)):  # type: ignore[misc]
    """All generators of PyTorch are instances of what stands in the place of their class."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_Generators):  # type: ignore[misc]
    """A source of random numbers, on "cuda" the same as on the CPU."""

    def __new__(cls, device: torch.device | str = "cpu") -> Any:
        return super().__new__(cls, _in_its_place(torch.device(device)))

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._asked = torch.device(device)

    @property
    def device(self) -> torch.device:
        return self._asked


class Stream:
    """A stream, on which nothing ever waits: what is launched has ended."""

    cuda_stream = 0
    stream_id = 0
    device = CUDA
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_stream(self, other: Stream) -> None:
        """Wait for nothing."""

    def wait_event(self, event: Event) -> None:
        """Wait for nothing."""

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        return True


class Event:
    """A time of this machine: what lies between two of them is the time of emulation."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._time = time.perf_counter()

    def record(self, stream: Stream | None = None) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end._time - self._time) * 1e3

    def wait(self, stream: Stream | None = None) -> None:
        """Wait for nothing."""

    def synchronize(self) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        return True


class _Device:
    """The context of a device, of which there is one."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _cuda(target: Target) -> dict[str, Any]:
    capability = divmod(target.capability, 10)
    name = f"ptxlab emulator, {target.name}"
    stream = Stream()
    properties = SimpleNamespace(
        name=name,
        major=capability[0],
        minor=capability[1],
        total_memory=MEMORY,
        multi_processor_count=gpus_of(target)[0].sms if gpus_of(target) else 1,
        warp_size=WARP,
        regs_per_multiprocessor=1 << 16,
        max_threads_per_multi_processor=MULTIPROCESSORS[target.capability].warps * WARP,
        shared_memory_per_multiprocessor=MULTIPROCESSORS[target.capability].shared << 10,
        shared_memory_per_block_optin=target.shared_bytes,
        gcnArchName="",
    )

    def nothing(*_: Any, **__: Any) -> None:
        """Do nothing."""

    def no_graphs(*_: Any, **__: Any) -> None:
        """Refuse what a program captures to launch it again."""
        raise Unsupported("CUDA graphs of PyTorch are not emulated", hint="launch without one")

    return {
        "Event": Event,
        "Stream": Stream,
        "ExternalStream": Stream,
        "CUDAGraph": no_graphs,
        "graph": no_graphs,
        "current_device": lambda: 0,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "device": _Device,
        "device_count": lambda: 1,
        "device_of": _Device,
        "empty_cache": nothing,
        "get_device_capability": lambda *_: capability,
        "get_device_name": lambda *_: name,
        "get_device_properties": lambda *_: properties,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "init": nothing,
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_, **__: target.capability >= 80,
        "is_current_stream_capturing": lambda: False,
        "is_initialized": lambda: True,
        "manual_seed": torch.default_generator.manual_seed,
        "manual_seed_all": torch.default_generator.manual_seed,
        "max_memory_allocated": lambda *_: 0,
        "mem_get_info": lambda *_: (MEMORY, MEMORY),
        "memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "reset_peak_memory_stats": nothing,
        "set_device": nothing,
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "set_stream": nothing,
        "stream": lambda chosen: chosen or stream,
        "synchronize": nothing,
    }
