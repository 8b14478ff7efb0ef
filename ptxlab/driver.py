"""The CUDA driver without a GPU: libcuda.so.1 for this process, behind which is the emulator.

import ptxlab.driver

session = ptxlab.driver.install(arch="sm_80")
...                        # cuda.core, cuda.bindings or tinygrad, as on a GPU
print(session.last.check())
"""

from ptxlab.clients.driver import install

__all__ = ["install"]
