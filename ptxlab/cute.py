"""Programs in CuTe DSL without a GPU: their compiled PTX runs on the emulator, to the bit.

import ptxlab.cute

session = ptxlab.cute.use_emulator("sm_90a")
add(from_dlpack(x), from_dlpack(y))           # a function under @cute.jit, as on a GPU
print(session.last.check())
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

from ptxlab.clients.driver import install
from ptxlab.clients.imports import AfterImport
from ptxlab.clients.session import Session
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.isa.targets import DEFAULT_TARGET


def use_emulator(
    arch: str = DEFAULT_TARGET, *, cuda_tensors: bool = True, session: Session | None = None
) -> Session:
    """Have CuTe DSL compile for ``arch`` and launch on the emulator, until the process ends.

    It comes before ``cutlass`` is imported, and before anything else has loaded the CUDA driver. With
    ``cuda_tensors``, where PyTorch is installed, a program may say device="cuda", and what Triton launches, as for
    torch.compile, runs on the emulator too. Returns the session of all
    launches, ``session`` if one is given, which is of its own ``arch``.

    Raises DeviceUnavailable where CuTe DSL is not installed, PtxlabError for no target, where the process has a
    CUDA driver already, and where ``cutlass`` was imported.
    """
    if find_spec("nvidia_cutlass_dsl") is None:
        raise DeviceUnavailable(
            "CuTe DSL is not installed", hint="pip install 'nvidia-cutlass-dsl>=4.8'"
        )
    if "cutlass" in sys.modules:
        raise PtxlabError(
            "CuTe DSL was imported before, and has read what it compiles for and calls",
            hint="ptxlab.cute.use_emulator() comes before import cutlass",
        )
    session = session or Session(arch)
    if cuda_tensors and find_spec("torch") is not None:
        from ptxlab.clients.torch import module

        module.install(session.device.target)
        _with_triton(session)
    return install(session.device.target.name, session=session)


def _with_triton(session: Session) -> None:
    """Have Triton, if it is imported, launch in ``session``."""

    def activated(triton: ModuleType) -> None:
        from ptxlab.clients.triton.activation import activate

        activate(session, cuda_tensors=True)

    if "triton" in sys.modules:
        activated(sys.modules["triton"])
    else:
        sys.meta_path.insert(0, AfterImport({"triton": activated}))
