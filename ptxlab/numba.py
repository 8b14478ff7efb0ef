"""Numba without a GPU: the PTX of its kernels runs on the emulator, to the bit.

import ptxlab.numba

session = ptxlab.numba.use_emulator("sm_80")     # before numba.cuda is imported
kernel[blocks, threads](x, y)          # @numba.cuda.jit, as on a GPU
print(session.last.check())
"""

from __future__ import annotations

from importlib.util import find_spec

from ptxlab.clients.driver import install
from ptxlab.clients.session import Session
from ptxlab.errors import DeviceUnavailable


def use_emulator(arch: str = "sm_80", *, session: Session | None = None) -> Session:
    """Have numba-cuda compile for ``arch`` and launch on the emulator, until the process ends.

    It comes before ``numba.cuda`` is imported, which looks for a driver at once. It installs one, see
    ``ptxlab.driver.install``, and raises what that raises. Returns the session of all launches. Raises DeviceUnavailable where numba-cuda is not installed.
    """
    if find_spec("numba_cuda") is None:
        raise DeviceUnavailable(
            "numba-cuda is not installed, which kernels of numba.cuda need",
            hint="pip install 'numba-cuda[cu13]'",
        )
    return install(arch, session=session)
