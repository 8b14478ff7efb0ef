"""What code of the host that CuTe DSL compiles to be called by TVM-FFI asks of CuTe DSL's runtime: to load its kernels.

Source: ``declare_extern_funcs`` and ``insert_lazy_init_cuda`` in CuTe DSL's ``tvm_ffi_provider.py``.
"""

from __future__ import annotations

import ctypes

from ptxlab.clients.driver import modules, runtime
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.table import answers

PREFIX = "cuda_dialect_"
"""With what the names of these functions begin, which are neither the driver's nor the runtime's."""

_BEGIN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_LOAD = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
_TELL = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)


answers("cuda_dialect_get_error_name", "i32", needs="runtime", returns="u64")(runtime.error_name)


@answers("cuda_dialect_init_library_once", "u64 u64 u64 u64", needs="runtime", returns="i32")
def load_once(gpu: EmulatedGpu, state: int, begin: int, load: int, tell: int) -> int:
    """Have the code load its library, unless its handle is at ``state`` already; -1 where it cannot, and it is told."""
    kept, library = ctypes.c_uint64.from_address(state), ctypes.c_uint64()
    if kept.value:
        return 0
    error = _BEGIN(begin)(ctypes.addressof(library)) or _LOAD(load)(ctypes.addressof(library), 0)
    if error:
        _TELL(tell)(b"RuntimeError", ctypes.string_at(runtime.error_name(gpu, error)))
        return -1
    kept.value = library.value
    return 0


@answers("cuda_dialect_unload_library_once", "u64", needs="runtime", returns="i32")
def unload_once(gpu: EmulatedGpu, state: int) -> int:
    kept = ctypes.c_uint64.from_address(state)
    library, kept.value = kept.value, 0
    if library:
        modules.unload(gpu, library)
    return 0
