"""The table of functions, held against what NVIDIA's binding says of the same functions."""

from __future__ import annotations

import ctypes

import pytest

import ptxlab.clients.driver.library  # noqa: F401, whose import fills the table
from ptxlab.clients.driver.results import WORDS, DriverResult
from ptxlab.clients.driver.table import ROWS, AnsweredFunction, Dim3, named

OTHERS = {
    "cuCtxGetDevice_v2", "cuCtxSynchronize_v2", "cuStreamGetCtx_v2", "cuGraphInstantiate_v2",
}  # fmt: skip
"""Of these the binding has another version."""

WIDE = {
    "size_t", "cuuint64_t", "CUdeviceptr", "CUcontext", "CUstream", "CUevent", "CUmodule",
    "CUfunction", "CUlibrary", "CUkernel", "CUmemoryPool", "CUhostFn", "CUstreamCallback",
    "CUmemLocation", "CUoccupancyB2DSize", "CUgraph", "CUgraphExec", "CUgraphNode",
    "CUuserObject", "cudaGraph_t", "cudaGraphExec_t", "cudaGraphNode_t", "cudaEvent_t", "cudaKernel_t", "cudaLibrary_t", "cudaStream_t", "cudaFunction_t", "unsigned PY_LONG_LONG",
    "struct cudaMemLocation", "cudaMemPool_t", "cudaHostFn_t", "cudaStreamCallback_t",
}  # fmt: skip
WORDS_OF = {
    Dim3: "dim3", ctypes.c_int32: "i32", ctypes.c_uint8: "u8", ctypes.c_uint16: "u16", ctypes.c_uint32: "u32",
}  # fmt: skip
"""All others are as wide as an address."""
NARROW = {
    "unsigned char": "u8",
    "unsigned short": "u16",
    "unsigned int": "u32",
    "cuuint32_t": "u32",
}


def signatures(binding: str = "cydriver") -> dict[str, list[str]]:
    """Return the C types of the arguments of every function of a binding, by its name without a version."""
    module = pytest.importorskip(f"cuda.bindings.{binding}")
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    types_of = {}
    for function, capsule in module.__pyx_capi__.items():
        given = name(capsule).decode().partition("(")[2].removesuffix(")")
        types_of[function] = [] if given == "void" else given.split(", ")
    return types_of


def expected(kind: str) -> str:
    if "*" in kind or kind in WIDE:
        return "u64"
    if kind == "dim3":
        return kind
    return NARROW.get(kind, "i32")  # the rest are int and enumerations


def taken(row: AnsweredFunction) -> list[str]:
    kinds = [WORDS_OF.get(c_type, "u64") for c_type in row.c_types]
    # An enumeration has the bits of either.
    return [
        "i32" if row.name.startswith("cuGetError") and kind == "u32" else kind for kind in kinds
    ]


def test_arguments_are_those_of_the_driver() -> None:
    known = signatures()
    of_driver = [row for row in ROWS.values() if row.needs != "runtime"]
    newest = {row.base: row for row in sorted(of_driver, key=lambda row: row.since)}
    compared = [row for base, row in newest.items() if base in known and row.name not in OTHERS]
    assert len(compared) > 130
    wrong = {
        row.name: (taken(row), known[row.base])
        for row in compared
        if taken(row) != [expected(kind) for kind in known[row.base]]
    }
    assert wrong == {}
    unknown = {row.name for base, row in newest.items() if base not in known}
    assert unknown == {"cuGraphInstantiateWithFlags"}, "names that the driver does not have"


COMPILED = {
    "__cudaGetKernel": "kernel* void*",
    "__cudaInitModule": "void**",
    "__cudaLaunchKernel": "cudaKernel_t dim3 dim3 void** size_t cudaStream_t",
    "__cudaPopCallConfiguration": "dim3* dim3* size_t* void*",
    "__cudaPushCallConfiguration": "dim3 dim3 size_t CUstream",
    "__cudaRegisterFatBinary": "void*",
    "__cudaRegisterFatBinaryEnd": "void**",
    "__cudaRegisterFunction": "void** char* char* char* int uint3* uint3* dim3* dim3* int*",
    "__cudaRegisterVar": "void** char* char* char* int size_t int int",
    "__cudaUnregisterFatBinary": "void**",
    "cudaLaunchCooperativeKernel": "void* dim3 dim3 void** size_t cudaStream_t",
    "cudaLaunchKernel": "void* dim3 dim3 void** size_t cudaStream_t",
    "cudaLaunchKernelEx": "config* func* args**",
    "cudaLaunchKernelExC": "config* void* void**",
    "cudaEventElapsedTime_v2": "float* cudaEvent_t cudaEvent_t",
    "cudaGetDeviceProperties_v2": "cudaDeviceProp* int",
    "cudaGetFuncBySymbol": "cudaFunction_t* void*",
    "cudaGetKernel": "kernel* void*",
    "cudaGetSymbolAddress": "void** void*",
    "cudaGetSymbolSize": "size_t* void*",
    "cudaMemcpyFromSymbol": "void* void* size_t size_t cudaMemcpyKind",
    "cudaOccupancyMaxActiveClusters": "int* void* config*",
    "cudaMemcpyFromSymbolAsync": "void* void* size_t size_t cudaMemcpyKind cudaStream_t",
    "cudaMemcpyToSymbol": "void* void* size_t size_t cudaMemcpyKind",
    "cudaMemcpyToSymbolAsync": "void* void* size_t size_t cudaMemcpyKind cudaStream_t",
    "cuda_dialect_get_error_name": "int",
    "cuda_dialect_init_library_once": "void* void* void* void*",
    "cuda_dialect_unload_library_once": "void*",
}  # fmt: skip
"""What the binding has not: what nvcc compiles into a program (crt/host_runtime.h), and what CuTe DSL's code calls."""


def test_arguments_are_those_of_the_runtime() -> None:
    known = signatures("cyruntime") | {name: types.split() for name, types in COMPILED.items()}
    rows = [row for row in ROWS.values() if row.needs == "runtime"]
    assert len(rows) > 90
    unknown = {row.name for row in rows if row.name not in known}
    assert unknown == set()
    wrong = {
        row.name: (taken(row), known[row.name])
        for row in rows
        if taken(row) != [expected(kind) for kind in known[row.name]]
    }
    assert wrong == {}


def test_functions_are_found_by_name_and_release() -> None:
    answered = {
        (name, version): row and row.name
        for name, version in (
            ("cuMemAlloc", 3020), ("cuCtxCreate", 3020), ("cuCtxCreate", 11040),
            ("cuCtxCreate", 13000), ("cuMemAlloc_v2", 3020), ("cuMemAllocFoo", 13000),
            ("cuEventElapsedTime", 12000), ("cuCtxSynchronize", 12000), ("cuCtxCreate", 12050),
            ("cuCtxCreate", 12049), ("cuCtxCreate", 11039),
        )
        for row in [named(name, version)]
    }  # fmt: skip
    assert list(answered.values()) == [
        "cuMemAlloc_v2", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuMemAlloc_v2", None,
        "cuEventElapsedTime", "cuCtxSynchronize", "cuCtxCreate_v4", "cuCtxCreate_v3", "cuCtxCreate_v2",
    ]  # fmt: skip


def test_results_are_those_of_the_driver() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    assert {result.full_name: int(result) for result in DriverResult} == {
        result.name: int(result)
        for result in driver.CUresult
        if int(result) in set(map(int, DriverResult))
    }
    assert set(WORDS) == set(DriverResult)
