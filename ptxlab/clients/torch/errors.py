"""The errors of a GPU that a program meets, in PyTorch's words.

Sources: what PyTorch 2.13 for CUDA 13.0 and its CUDA runtime say; torch.cuda's own Python has the others.
"""

from __future__ import annotations

import torch

from ptxlab.clients import captures

_ERRORS = {
    "cudaErrorInvalidDevice": (101, "invalid device ordinal"),
    "cudaErrorStreamCaptureUnsupported": (900, "operation not permitted when stream is capturing"),
    "cudaErrorStreamCaptureInvalidated": (
        901,
        "operation failed due to a previous error during capture",
    ),
}
_DOCUMENTED = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"


def cuda_error(name: str) -> RuntimeError:
    """Return the error of PyTorch for one of the CUDA runtime, by its name there."""
    code, words = _ERRORS[name]
    help_ = (
        "GPU device may be out of range, do you have enough GPUs?"
        if name == "cudaErrorInvalidDevice"
        else f"Search for `{name}' in {_DOCUMENTED} for more information."
    )
    error: RuntimeError = torch.AcceleratorError(
        f"CUDA error: {words}\n{help_}\n"
        "For more detailed error information, run with CUDA_LOG_FILE=stderr\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )
    error.error_code = code  # type: ignore[attr-defined]
    return error


def refuse_while_capturing() -> None:
    """Raise the error of what waits for the GPU, where a capture is under way, which ends with one too."""
    if captures.active() is not None:
        captures.invalidate()
        raise cuda_error("cudaErrorStreamCaptureUnsupported")


def require_device(index: int | None) -> None:
    """Raise the error of a GPU that is not there, of which there is one."""
    if index is not None and index > 0:
        raise cuda_error("cudaErrorInvalidDevice")
