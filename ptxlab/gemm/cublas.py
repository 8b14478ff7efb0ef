"""cuBLAS and cublasLt on a problem's matrices, where there are a GPU and nvmath's bindings.

Both libraries take column-major matrices. A row-major one is the transpose of such, so they are asked
for D^T = op(B)^T op(A)^T, n x m, whose columns are the rows of D: B comes first, and the layouts stay.

Everything is put to one stream, with 32 MiB of workspace, which is what NVIDIA's own benchmarks give.
A first run, on a scratch D, is not timed: it loads the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from ptxlab.device.cuda import CudaDevice
from ptxlab.device.protocol import Device
from ptxlab.device.stopwatch import StreamWork
from ptxlab.errors import DeviceUnavailable, LaunchError
from ptxlab.gemm.problem import DeviceOperands, Problem
from ptxlab.installation import adding_extra

WORKSPACE = 32 << 20
CANDIDATES = 16
"""How many of the algorithms that cublasLt's heuristic proposes are tried."""
REPEATS = 3

# cudaDataType, in library_types.h.
_DATA_TYPES = {"f32": 0, "tf32": 0, "f16": 2, "bf16": 14}


@contextmanager
def cublas(gpu: CudaDevice, operands: DeviceOperands) -> Iterator[StreamWork]:
    """Yield what computes D with ``cublasGemmEx`` and its default algorithm."""
    api = _bindings("cublas")
    x, p = operands, operands.problem
    lda, ldb, ldd = p.leading
    alpha, beta = _factors(p)
    with _library(api, gpu, x) as (handle, workspace, scratch, stream):
        api.set_stream(handle, stream)
        api.set_workspace(handle, workspace, WORKSPACE)

        def multiply(d: int) -> StreamWork:
            return lambda: api.gemm_ex(
                handle, *_operations(api, p), p.n, p.m, p.k, alpha.ctypes.data,
                x.b.address, _DATA_TYPES[p.dtype], ldb,
                x.a.address, _DATA_TYPES[p.dtype], lda, beta.ctypes.data,
                d, _DATA_TYPES[p.acc], ldd, _compute_type(api, p), api.GemmAlgo.DEFAULT,
            )  # fmt: skip

        gpu.timed("warm up cuBLAS", multiply(scratch))
        yield multiply(x.d.address)


@contextmanager
def cublaslt(gpu: CudaDevice, operands: DeviceOperands) -> Iterator[StreamWork]:
    """Yield what computes D with the fastest of the algorithms that cublasLt's heuristic proposes."""
    lt, types = _bindings("cublasLt"), _bindings("cublas")
    x, p = operands, operands.problem
    lda, ldb, ldd = p.leading
    if p.k == 0 or (p.acc == "f16" and x.bias is not None):
        raise DeviceUnavailable("cublasLt has no empty sums, and no bias of f32 for D of f16")
    alpha, beta = _factors(p)
    with _library(lt, gpu, x) as (handle, workspace, scratch, stream), ExitStack() as stack:

        def make(what: str, *arguments: Any) -> int:
            made: int = getattr(lt, f"{what}_create")(*arguments)
            stack.callback(getattr(lt, f"{what}_destroy"), made)
            return made

        def give(what: str, owner: int, name: str, value: int) -> None:
            attributes = f"{what.title().replace('_', '')}Attribute"  # such as MatmulDescAttribute
            attribute = getattr(lt, attributes)[name]
            cell = np.array([value], getattr(lt, f"get_{what}_attribute_dtype")(attribute))
            getattr(lt, f"{what}_set_attribute")(owner, attribute, cell.ctypes.data, cell.nbytes)

        operation = make("matmul_desc", _compute_type(types, p), _DATA_TYPES[p.acc])
        first, second = _operations(types, p)
        give("matmul_desc", operation, "TRANSA", first)
        give("matmul_desc", operation, "TRANSB", second)
        give("matmul_desc", operation, "EPILOGUE", lt.Epilogue[_EPILOGUES[p.epilogue]])
        if x.bias is not None:
            give("matmul_desc", operation, "BIAS_POINTER", x.bias.address)
        (a_rows, a_columns), (b_rows, b_columns), _ = p.stored
        layouts = (
            make("matrix_layout", _DATA_TYPES[p.dtype], b_columns, b_rows, ldb),
            make("matrix_layout", _DATA_TYPES[p.dtype], a_columns, a_rows, lda),
            make("matrix_layout", _DATA_TYPES[p.acc], p.n, p.m, ldd),
        )
        preference = make("matmul_preference")
        give("matmul_preference", preference, "MAX_WORKSPACE_BYTES", WORKSPACE)

        proposed = lt.MatmulHeuristicResult(CANDIDATES)
        count = np.zeros(1, np.int32)
        lt.matmul_algo_get_heuristic(
            handle, operation, *layouts, layouts[2], preference, CANDIDATES, proposed.ptr,
            count.ctypes.data,
        )  # fmt: skip
        if not count[0]:
            raise LaunchError("cublasLt proposes no algorithm for this problem")

        def multiply(number: int, d: int) -> StreamWork:
            # The algorithm is the first member of a proposal.
            return lambda: lt.matmul(
                handle, operation, alpha.ctypes.data, x.b.address, layouts[0],
                x.a.address, layouts[1], beta.ctypes.data, d, layouts[2], d, layouts[2],
                proposed[number].ptr, workspace, WORKSPACE, stream,
            )  # fmt: skip

        def seconds(number: int) -> float:
            timings = [
                gpu.timed("try cublasLt", multiply(number, scratch)) for _ in range(REPEATS + 1)
            ]
            return min(result.seconds for result in timings[1:])

        best = min(range(int(count[0])), key=seconds)
        yield multiply(best, x.d.address)


_EPILOGUES = {"none": "DEFAULT", "bias": "BIAS", "relu": "RELU", "bias+relu": "RELU_BIAS"}


def gpu_of(device: Device, library: str) -> CudaDevice:
    """Return ``device`` as the GPU that ``library`` runs on; raise DeviceUnavailable for another."""
    if not isinstance(device, CudaDevice):
        raise DeviceUnavailable(
            f"{library} needs a GPU, and this is {device.name}",
            hint="the emulator has the kernels, and the CPU has numpy",
        )
    return device


def library_version() -> str | None:
    """Return the version of cuBLAS, "13.1.0", or None where it cannot be asked."""
    try:
        number = int(_bindings("cublasLt").get_version())
    except Exception:
        return None
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _bindings(name: str) -> Any:
    try:
        return import_module(f"nvmath.bindings.{name}")
    except ImportError as error:
        raise DeviceUnavailable(
            f"{name} cannot be called: {error}",
            hint=f"install what is missing with: {adding_extra('bench')}",
        ) from None


@contextmanager
def _library(
    api: Any, gpu: CudaDevice, operands: DeviceOperands
) -> Iterator[tuple[int, int, int, int]]:
    """Yield a handle of the library, a workspace, a place like D's, and the GPU's stream.

    What the library complains about becomes an error of ours; the reasons that it does not load
    are no class of their own, but those of the bindings are.
    """
    stream, name = gpu.lend("a library"), api.__name__.rpartition(".")[2]
    try:
        handle = api.create()
    except Exception as error:
        raise DeviceUnavailable(
            f"{name} does not start: {error}",
            hint=f"install what is missing with: {adding_extra('bench')}",
        ) from None
    errors = ("cuBLASError", "cuBLASLtError")
    failed = tuple(getattr(api, error) for error in errors if hasattr(api, error))
    try:
        with (
            gpu.zeros(WORKSPACE, "u8") as workspace,
            gpu.zeros(operands.d.shape, operands.d.dtype) as scratch,
        ):
            yield handle, workspace.address, scratch.address, stream
    except failed as error:
        raise LaunchError(f"{name} does not compute this problem: {error}") from None
    finally:
        api.destroy(handle)


def _operations(api: Any, problem: Problem) -> tuple[int, int]:
    """Return what is done to B and to A, as they are for a column-major library."""
    known = {"n": api.Operation.N, "t": api.Operation.T}
    return known[problem.layout[1]], known[problem.layout[0]]


def _compute_type(api: Any, problem: Problem) -> int:
    """Return how sums are made: in f32, never of tf32 unless that is the problem's type, or in f16."""
    if problem.acc == "f16":
        name = "COMPUTE_16F"
    elif problem.dtype == "tf32":
        name = "COMPUTE_32F_FAST_TF32"
    else:
        name = "COMPUTE_32F"
    compute_type: int = api.ComputeType[name]
    return compute_type


def _factors(problem: Problem) -> tuple[Any, Any]:
    """Return alpha and beta in host memory, of the type of the sums."""
    kind = np.float16 if problem.acc == "f16" else np.float32
    return np.array([problem.alpha], kind), np.array([problem.beta], kind)
