"""The driver's results (CUresult): their names and words, and which of them an error of ptxlab is.

Source: CUDA Driver API, "Data types used by CUDA driver".
"""

from __future__ import annotations

from enum import IntEnum

from ptxlab.errors import LaunchError, PtxlabError, PtxSyntaxError, Unsupported


class Result(IntEnum):
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
    NOT_FOUND = 500
    NOT_READY = 600
    ILLEGAL_ADDRESS = 700
    LAUNCH_TIMEOUT = 702
    HOST_MEMORY_ALREADY_REGISTERED = 712
    HOST_MEMORY_NOT_REGISTERED = 713
    MISALIGNED_ADDRESS = 716
    LAUNCH_FAILED = 719
    NOT_SUPPORTED = 801
    UNKNOWN = 999

    @property
    def full_name(self) -> str:
        """The name as C has it."""
        return "CUDA_SUCCESS" if self is Result.SUCCESS else f"CUDA_ERROR_{self.name}"


WORDS = {
    Result.SUCCESS: "no error",
    Result.INVALID_VALUE: "invalid argument",
    Result.OUT_OF_MEMORY: "out of memory",
    Result.NOT_INITIALIZED: "initialization error",
    Result.STUB_LIBRARY: "CUDA driver is a stub library",
    Result.INVALID_DEVICE: "invalid device ordinal",
    Result.INVALID_IMAGE: "device kernel image is invalid",
    Result.INVALID_CONTEXT: "invalid device context",
    Result.NO_BINARY_FOR_GPU: "no kernel image is available for execution on the device",
    Result.INVALID_PTX: "a PTX JIT compilation failed",
    Result.FILE_NOT_FOUND: "file not found",
    Result.INVALID_HANDLE: "invalid resource handle",
    Result.NOT_FOUND: "named symbol not found",
    Result.NOT_READY: "device not ready",
    Result.ILLEGAL_ADDRESS: "an illegal memory access was encountered",
    Result.LAUNCH_TIMEOUT: "the launch timed out and was terminated",
    Result.HOST_MEMORY_ALREADY_REGISTERED: (
        "part or all of the requested memory range is already mapped"
    ),
    Result.HOST_MEMORY_NOT_REGISTERED: (
        "pointer does not correspond to a registered memory region"
    ),
    Result.MISALIGNED_ADDRESS: "misaligned address",
    Result.LAUNCH_FAILED: "unspecified launch failure",
    Result.NOT_SUPPORTED: "operation not supported",
    Result.UNKNOWN: "unknown error",
}
"""What cuGetErrorString says, in the driver's words."""

_FAULTS = {
    "bounds": Result.ILLEGAL_ADDRESS,
    "alignment": Result.MISALIGNED_ADDRESS,
    "barrier": Result.LAUNCH_TIMEOUT,
    "deadlock": Result.LAUNCH_TIMEOUT,
}
"""What a GPU reports for a fault, by the kind of the LaunchError."""


class Refused(Exception):
    """A call that ends with ``result``; ``why`` is for whoever runs the program, "" where that says all."""

    def __init__(self, result: Result, why: str = "") -> None:
        super().__init__(why)
        self.result = result
        self.why = why


def result_of(error: PtxlabError) -> Result:
    """Return what the driver would say in place of an error of ptxlab."""
    if isinstance(error, LaunchError):
        return _FAULTS.get(error.kind, Result.LAUNCH_FAILED)
    if isinstance(error, PtxSyntaxError):
        return Result.INVALID_PTX
    return Result.NOT_SUPPORTED if isinstance(error, Unsupported) else Result.INVALID_VALUE
