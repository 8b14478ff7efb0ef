"""Triton programs without a GPU: their compiled PTX runs on the emulator, to the bit.

import ptxlab.triton

session = ptxlab.triton.use_emulator("sm_90a")
kernel[grid](x, y, BLOCK=128)
print(ptxlab.triton.last_launch().check())
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from ptxlab.clients.launched import Launched
from ptxlab.clients.session import Session
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.isa.targets import DEFAULT_TARGET

_TRITON = "triton>=3.7"
_session: Session | None = None


def use_emulator(
    arch: str = DEFAULT_TARGET, *, cuda_tensors: bool = True, session: Session | None = None
) -> Session:
    """Have Triton compile for ``arch`` and launch on the emulator, until the process ends.

    Tensors of PyTorch are in the memory of this process. With ``cuda_tensors`` a program may say
    device="cuda" and find ``torch.cuda`` available; without, its tensors are on the CPU. An autotuned
    kernel runs in the first of its configurations that fits, as times of emulation say nothing. Returns
    the session of all launches, ``session`` if one is given, which is of its own ``arch``.

    Raises DeviceUnavailable where Triton or PyTorch is not installed, PtxlabError for no target.
    """
    global _session
    _require()
    from ptxlab.clients.triton.activation import activate

    _session = session or Session(arch)
    activate(_session, cuda_tensors=cuda_tensors)
    return _session


def last_launch() -> Launched:
    """Return the latest launch, to be checked, profiled, or dumped. Raises PtxlabError if there is none."""
    if _session is None or _session.last is None:
        raise PtxlabError(
            "no kernel was launched on the emulator",
            hint="ptxlab.triton.use_emulator() comes first",
        )
    return _session.last


def _require() -> None:
    """Raise DeviceUnavailable unless Triton and PyTorch can be imported."""
    for package, needed in (("triton", _TRITON), ("torch", "torch")):
        if find_spec(package) is None:
            raise DeviceUnavailable(
                f"{package} is not installed, which programs in Triton need",
                hint=f"pip install {needed!r}",
            )
    version = metadata.version("triton")
    if tuple(map(int, version.split(".")[:2])) < (3, 7):
        raise DeviceUnavailable(
            f"Triton {version} is older than ptxlab knows it", hint=f"pip install {_TRITON!r}"
        )
