"""The CUDA driver's library for this process, behind which is the emulator."""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
from typing import Any

from ptxlab.clients import cupy, cute, runtime_binding, tilelang
from ptxlab.clients.driver import linked_runtime
from ptxlab.clients.driver.starting import PROCESSORS
from ptxlab.clients.imports import AfterImport, Hook
from ptxlab.clients.numba import keep_ptx
from ptxlab.clients.session import Session
from ptxlab.device.cuda_driver import LIBRARY
from ptxlab.errors import PtxlabError

_installed: Session | None = None


def _reset_at_end(taichi: Any) -> None:
    """Have Taichi give back what it has while there is a Python that answers, and not when C++ ends."""
    atexit.register(taichi.reset)


def _be_ready(torch: Any) -> None:
    """Have the primary context be current, as PyTorch makes it with its first tensor."""
    from ptxlab.clients.driver.contexts import be_ready
    from ptxlab.clients.driver.library import loaded

    be_ready(loaded().gpu)


_HOOKS: dict[str, Hook] = {
    runtime_binding.MODULE: runtime_binding.answer,
    cute.FIRST: cute.prepare,
    cute.COMPILER: cute.name_when_compiled,
    cute.EXECUTOR: cute.load_ptx,
    cute.PROVIDER: cute.load_ptx_when_called,
    "torch": _be_ready,
    "taichi": _reset_at_end,
    cupy.FIRST: cupy.prepare,
    cupy.RAW: cupy.be_exact,
    **dict.fromkeys(cupy.WITH_RUNTIME, linked_runtime.answer),
    tilelang.FIRST: tilelang.prepare,
    tilelang.COMPILER: tilelang.compile_ptx,
}
"""What is done when a client's module has been imported."""


def install(arch: str = "sm_80", *, session: Session | None = None) -> Session:
    """Have this process find an emulated GPU of ``arch`` where it looks for the CUDA driver.

    Programs that call the driver themselves then run unchanged: cuda.bindings, cuda.core, tinygrad, CuTe DSL, and
    Numba, which is made to load PTX. It has to come before any of them has loaded the driver, and lasts as
    long as the process. Returns the session of all launches, ``session`` if one is given, which is of its
    own ``arch``; calling again for the same returns the same one.

    Raises PtxlabError where the process has a driver already, where the emulator is installed as another
    GPU, for no target, and on other systems than Linux on x86-64 and aarch64.
    """
    global _installed
    if _installed is not None:
        if session not in (None, _installed) or _installed.device.target.name != arch:
            raise PtxlabError(
                f"the driver of this process is already an emulated {_installed.device.target.name}",
                hint="a process has one driver; another GPU takes another process",
            )
        return _installed
    _require_possible()
    from ptxlab.clients.driver.library import load

    _installed = load(session or Session(arch))
    keep_ptx(_installed.device.target.name)
    for module, hook in _HOOKS.items():
        if module in sys.modules:
            hook(sys.modules[module])
    sys.meta_path.insert(0, AfterImport(_HOOKS))
    return _installed


def _require_possible() -> None:
    """Raise PtxlabError unless this process can be given a driver."""
    if sys.platform != "linux" or platform.machine() not in PROCESSORS:
        raise PtxlabError(
            f"the driver can be emulated on Linux on {' and '.join(PROCESSORS)}, and this is "
            f"{sys.platform} on {platform.machine()}",
            hint="open_device('emulator') runs kernels everywhere",
        )
    if _is_loaded():
        raise PtxlabError(
            "this process has loaded a CUDA driver already",
            hint="call ptxlab.driver.install before what uses the driver is imported or first used",
        )


def _is_loaded() -> bool:
    try:
        ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
