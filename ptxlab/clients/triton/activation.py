"""Triton changed in place: it compiles to PTX, launches on the emulator, and tunes nothing.

Each change holds while the driver of the emulator is the active one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import AsmDict, CompiledKernel
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources, PTXASError
from triton.runtime.jit import JITFunction

from ptxlab.clients.session import Session
from ptxlab.clients.torch import extensions
from ptxlab.clients.torch.module import install
from ptxlab.clients.triton.driver import EmulatorDriver
from ptxlab.device.protocol import Kernel

# Imported when it is asked for, which few programs do.
if TYPE_CHECKING:
    from ptxlab.toolchain.cubin import Cubin, Resources

_changed = False


def activate(session: Session, *, cuda_tensors: bool) -> None:
    """Have ``session`` run what Triton launches from now on."""
    global _changed
    if not _changed:
        _changed = True
        _replace(CUDABackend, "make_cubin", _program)
        _replace(CUDABackend, "hash", _hash)
        _replace(AsmDict, "__missing__", _machine_code)
        _replace(Autotuner, "prune_configs", _first_that_fits)
        CompiledKernel.n_regs = _Resource("n_regs", lambda used: used.registers)
        CompiledKernel.n_spills = _Resource("n_spills", lambda used: used.stack // 4)
    for function in gc.get_referrers(JITFunction):  # its instances are among them
        if issubclass(type(function), JITFunction):
            function.device_caches.clear()  # what was compiled for another target
    if cuda_tensors:
        install(session.device.target)
        extensions.install(session)
    driver.set_active(EmulatorDriver(session, cuda_tensors=cuda_tensors))


def _replace(owner: type, name: str, replacement: Callable[..., Any]) -> None:
    """Have ``replacement``, which is given the original first, be a method while the emulator is active."""
    original = getattr(owner, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(driver.active, EmulatorDriver):
            return replacement(original, self, *args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(owner, name, method)


class _Resource:
    """What of a GPU a kernel takes: the number that a driver told, or what NVIDIA's assembler says."""

    def __init__(self, name: str, of: Callable[[Resources], int]) -> None:
        self.name = name
        self.of = of

    def __get__(self, kernel: Any, owner: type) -> Any:
        if kernel is None:
            return self
        if self.name not in kernel.__dict__:
            raise AttributeError(f"{self.name} is known when the kernel is loaded")
        told = kernel.__dict__[self.name]
        if isinstance(told, Kernel):
            cubin = _assembled(kernel.asm["ptx"], told.device.target.name, f"{told.name}.ptx")
            told = kernel.__dict__[self.name] = self.of(cubin.kernels[told.name])
        return told

    def __set__(self, kernel: Any, told: Any) -> None:
        kernel.__dict__[self.name] = told


def _program(
    original: object, backend: Any, src: str, metadata: Any, options: Any, capability: int
) -> bytes:
    """Return the PTX in place of machine code."""
    return src.encode()


def _machine_code(original: Callable[[Any, str], str], forms: Any, form: str) -> str:
    """Return the SASS of a kernel's PTX, where that is asked for, as Triton shows it."""
    if form == "sass":
        assert isinstance(driver.active, EmulatorDriver)
        cubin = _assembled(forms["ptx"], driver.active.session.device.target.name)
        return original(AsmDict(cubin=cubin.image), form)
    return original(forms, form)


def _assembled(ptx: str, arch: str, path: str = "<ptx>") -> Cubin:
    from ptxlab.toolchain import link_ptx

    return link_ptx(ptx, arch=arch, path=path)


def _hash(original: Callable[[Any], str], backend: Any) -> str:
    """Keep programs for the emulator apart from those for a GPU in Triton's cache."""
    return f"{original(backend)}-ptxlab"


_told: set[Any] = set()


def _first_that_fits(original: Callable[..., Any], tuner: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return the first configuration that compiles and fits on the GPU: none is timed."""
    configurations = original(tuner, kwargs)
    for chosen in configurations:
        given = {**kwargs, **chosen.all_kwargs()}
        if chosen.pre_hook is not None:
            chosen.pre_hook({**tuner.nargs, **given})
        try:
            kernel = tuner.fn.run(*tuner.nargs.values(), **{**given, "warmup": True})
            kernel._init_handles()
        except (OutOfResources, CompileTimeAssertionFailure, PTXASError):
            continue
        if not _told and len(configurations) > 1:
            print(
                "ptxlab: autotuned kernels run in their first configuration that fits: times of "
                "emulation say nothing",
                file=sys.stderr,
            )
        _told.add(tuner)
        return [chosen]
    return list(configurations)
