"""The driver's results (CUresult): their names and words, and which of them an error of ptxlab is.

Source: CUDA Driver API, "Data types used by CUDA driver".
"""

from __future__ import annotations

from enum import IntEnum

from ptxlab.errors import LaunchError, PtxlabError, PtxSyntaxError, Unsupported


class DriverResult(IntEnum):
    """What a function of the driver returns; names of failures begin with CUDA_ERROR_."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    NOT_INITIALIZED = 3
    STUB_LIBRARY = 34
    INVALID_DEVICE = 101
    INVALID_IMAGE = 200
    INVALID_CONTEXT = 201
    NO_BINARY_FOR_GPU = 209
    INVALID_PTX = 218
    FILE_NOT_FOUND = 301
    INVALID_HANDLE = 400
    ILLEGAL_STATE = 401
    NOT_FOUND = 500
    NOT_READY = 600
    ILLEGAL_ADDRESS = 700
    LAUNCH_TIMEOUT = 702
    ASSERT = 710
    HOST_MEMORY_ALREADY_REGISTERED = 712
    HOST_MEMORY_NOT_REGISTERED = 713
    MISALIGNED_ADDRESS = 716
    LAUNCH_FAILED = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    TENSOR_MEMORY_LEAK = 721
    NOT_SUPPORTED = 801
    STREAM_CAPTURE_UNSUPPORTED = 900
    STREAM_CAPTURE_INVALIDATED = 901
    STREAM_CAPTURE_MERGE = 902
    STREAM_CAPTURE_UNMATCHED = 903
    STREAM_CAPTURE_UNJOINED = 904
    STREAM_CAPTURE_ISOLATION = 905
    STREAM_CAPTURE_IMPLICIT = 906
    CAPTURED_EVENT = 907
    STREAM_CAPTURE_WRONG_THREAD = 908
    GRAPH_EXEC_UPDATE_FAILURE = 910
    UNKNOWN = 999

    @property
    def full_name(self) -> str:
        """The name as C has it."""
        return "CUDA_SUCCESS" if self is DriverResult.SUCCESS else f"CUDA_ERROR_{self.name}"


WORDS = {
    DriverResult.SUCCESS: "no error",
    DriverResult.INVALID_VALUE: "invalid argument",
    DriverResult.OUT_OF_MEMORY: "out of memory",
    DriverResult.NOT_INITIALIZED: "initialization error",
    DriverResult.STUB_LIBRARY: "CUDA driver is a stub library",
    DriverResult.INVALID_DEVICE: "invalid device ordinal",
    DriverResult.INVALID_IMAGE: "device kernel image is invalid",
    DriverResult.INVALID_CONTEXT: "invalid device context",
    DriverResult.NO_BINARY_FOR_GPU: "no kernel image is available for execution on the device",
    DriverResult.INVALID_PTX: "a PTX JIT compilation failed",
    DriverResult.FILE_NOT_FOUND: "file not found",
    DriverResult.INVALID_HANDLE: "invalid resource handle",
    DriverResult.ILLEGAL_STATE: "the operation cannot be performed in the present state",
    DriverResult.NOT_FOUND: "named symbol not found",
    DriverResult.NOT_READY: "device not ready",
    DriverResult.ILLEGAL_ADDRESS: "an illegal memory access was encountered",
    DriverResult.LAUNCH_TIMEOUT: "the launch timed out and was terminated",
    DriverResult.ASSERT: "device-side assert triggered",
    DriverResult.HOST_MEMORY_ALREADY_REGISTERED: (
        "part or all of the requested memory range is already mapped"
    ),
    DriverResult.HOST_MEMORY_NOT_REGISTERED: (
        "pointer does not correspond to a registered memory region"
    ),
    DriverResult.MISALIGNED_ADDRESS: "misaligned address",
    DriverResult.LAUNCH_FAILED: "unspecified launch failure",
    DriverResult.COOPERATIVE_LAUNCH_TOO_LARGE: "too many blocks in cooperative launch",
    DriverResult.TENSOR_MEMORY_LEAK: "a kernel exited without deallocating its Tensor Memory",
    DriverResult.NOT_SUPPORTED: "operation not supported",
    DriverResult.STREAM_CAPTURE_UNSUPPORTED: "operation not permitted when stream is capturing",
    DriverResult.STREAM_CAPTURE_INVALIDATED: (
        "operation failed due to a previous error during capture"
    ),
    DriverResult.STREAM_CAPTURE_MERGE: (
        "operation would result in a merge of separate capture sequences"
    ),
    DriverResult.STREAM_CAPTURE_UNMATCHED: "capture was not initiated in this stream",
    DriverResult.STREAM_CAPTURE_UNJOINED: "capturing stream has unjoined work",
    DriverResult.STREAM_CAPTURE_ISOLATION: (
        "dependency created on uncaptured work in another stream"
    ),
    DriverResult.STREAM_CAPTURE_IMPLICIT: (
        "operation would make the legacy stream depend on a capturing blocking stream"
    ),
    DriverResult.CAPTURED_EVENT: (
        "operation not permitted on an event last recorded in a capturing stream"
    ),
    DriverResult.STREAM_CAPTURE_WRONG_THREAD: (
        "attempt to terminate a thread-local capture sequence from another thread"
    ),
    DriverResult.GRAPH_EXEC_UPDATE_FAILURE: (
        "the graph update was not performed because it included changes which violated constraints "
        "specific to instantiated graph update"
    ),
    DriverResult.UNKNOWN: "unknown error",
}
"""What cuGetErrorString says, in the driver's words."""


class RuntimeResult(IntEnum):
    """What functions of the CUDA runtime return, and none of the driver; names begin with cudaError."""

    INVALID_CONFIGURATION = 9
    INVALID_SYMBOL = 13
    MISSING_CONFIGURATION = 52
    INVALID_DEVICE_FUNCTION = 98


RUNTIME_WORDS = {
    RuntimeResult.INVALID_CONFIGURATION: "invalid configuration argument",
    RuntimeResult.INVALID_SYMBOL: "invalid device symbol",
    RuntimeResult.MISSING_CONFIGURATION: "__global__ function call is not configured",
    RuntimeResult.INVALID_DEVICE_FUNCTION: "invalid device function",
}

RUNTIME_NAMES: dict[int, str] = {
    DriverResult.SUCCESS: "Success",
    DriverResult.OUT_OF_MEMORY: "MemoryAllocation",
    DriverResult.NOT_INITIALIZED: "InitializationError",
    DriverResult.INVALID_IMAGE: "InvalidKernelImage",
    DriverResult.INVALID_CONTEXT: "DeviceUninitialized",
    DriverResult.NO_BINARY_FOR_GPU: "NoKernelImageForDevice",
    DriverResult.INVALID_HANDLE: "InvalidResourceHandle",
    DriverResult.NOT_FOUND: "SymbolNotFound",
    DriverResult.LAUNCH_FAILED: "LaunchFailure",
}
"""What the runtime calls a result that it has another word for."""


def runtime_name(result: DriverResult | RuntimeResult) -> str:
    """Return what the runtime calls a result: cudaErrorInvalidValue."""
    name = RUNTIME_NAMES.get(result, result.name.title().replace("_", ""))
    return f"cuda{name}" if result == DriverResult.SUCCESS else f"cudaError{name}"


_FAULTS = {
    "bounds": DriverResult.ILLEGAL_ADDRESS,
    "assertion": DriverResult.ASSERT,
    "alignment": DriverResult.MISALIGNED_ADDRESS,
    "barrier": DriverResult.LAUNCH_TIMEOUT,
    "deadlock": DriverResult.LAUNCH_TIMEOUT,
    "tensor memory leak": DriverResult.TENSOR_MEMORY_LEAK,
}
"""What a GPU reports for a fault, by the kind of the LaunchError."""


class Refused(Exception):
    """A call that ends with ``result``; ``why`` is for whoever runs the program, "" where that says all."""

    def __init__(self, result: DriverResult | RuntimeResult, why: str = "") -> None:
        super().__init__(why)
        self.result = result
        self.why = why


def result_of(error: PtxlabError) -> DriverResult:
    """Return what the driver would say in place of an error of ptxlab."""
    if isinstance(error, LaunchError):
        return _FAULTS.get(error.kind, DriverResult.LAUNCH_FAILED)
    if isinstance(error, PtxSyntaxError):
        return DriverResult.INVALID_PTX
    return (
        DriverResult.NOT_SUPPORTED if isinstance(error, Unsupported) else DriverResult.INVALID_VALUE
    )
