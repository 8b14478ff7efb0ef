"""ptxlab: the low-level exploration toolkit for PTX and NVIDIA's tensor cores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ptxlab.judging import judged_by
from ptxlab.pictured import painted_by

if TYPE_CHECKING:
    from ptxlab.device.opening import open_device
    from ptxlab.device.protocol import Dump
    from ptxlab.errors import (
        DeviceUnavailable,
        LaunchError,
        PtxlabError,
        PtxSyntaxError,
        ToolchainError,
        Unsupported,
    )
    from ptxlab.judge.evaluate import evaluate, evaluate_many
    from ptxlab.launch_config import LaunchConfig
    from ptxlab.layouts.layout import Layout, Swizzle
    from ptxlab.matrix.catalog import find
    from ptxlab.prediction.predict import predict
    from ptxlab.tensormap.tensor_map import Im2col

__version__ = "0.1.0"

__all__ = [
    "DeviceUnavailable",
    "Dump",
    "Im2col",
    "LaunchConfig",
    "LaunchError",
    "Layout",
    "PtxSyntaxError",
    "PtxlabError",
    "Swizzle",
    "ToolchainError",
    "Unsupported",
    "__version__",
    "evaluate",
    "evaluate_many",
    "find",
    "open_device",
    "predict",
]

# Where each public name lives. They are imported on first use, so that `import ptxlab` costs nothing.
_HOMES = {
    "Dump": "ptxlab.device.protocol",
    "LaunchConfig": "ptxlab.launch_config",
    "evaluate": "ptxlab.judge.evaluate",
    "evaluate_many": "ptxlab.judge.evaluate",
    "open_device": "ptxlab.device.opening",
    "predict": "ptxlab.prediction.predict",
    "find": "ptxlab.matrix.catalog",
    "Im2col": "ptxlab.tensormap.tensor_map",
    "Layout": "ptxlab.layouts.layout",
    "Swizzle": "ptxlab.layouts.layout",
    "DeviceUnavailable": "ptxlab.errors",
    "LaunchError": "ptxlab.errors",
    "PtxSyntaxError": "ptxlab.errors",
    "PtxlabError": "ptxlab.errors",
    "ToolchainError": "ptxlab.errors",
    "Unsupported": "ptxlab.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ptxlab' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


# A notebook's pictures are drawn by a room of verbs, which is imported with the first of them.
painted_by(lambda: import_module("ptxlab.verbs.notebook"))
# So is the judge of what a program has launched.
judged_by(lambda: import_module("ptxlab.judge.evaluate").evaluate)


def __dir__() -> list[str]:
    return sorted(__all__)
