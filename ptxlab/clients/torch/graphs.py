"""What torch.cuda.CUDAGraph is made of: the work of a capture, run again at each replay.

Sources: torch/_C/__init__.pyi, and the texts of ATen/cuda/CUDAGraph.cpp.
"""

from __future__ import annotations

import warnings
from itertools import count
from typing import Any

import torch

from ptxlab.clients import captures
from ptxlab.clients.captures import Capture, CaptureMode
from ptxlab.clients.torch import library, streams
from ptxlab.clients.torch.errors import cuda_error

_pools = count(1)
_MODES = {mode.name.lower(): mode for mode in CaptureMode}


def pool_handle() -> tuple[int, int]:
    """Return a name for the memory of graphs, of which nothing is kept apart."""
    return 0, next(_pools)


def is_capturing() -> bool:
    return captures.active() is not None


class GraphBase:
    """A graph of work on "cuda": operations of PyTorch and launches of Triton."""

    _capture: Capture | None
    _pool: Any
    _captured: bool

    def __new__(cls, keep_graph: bool = False) -> Any:
        made = super().__new__(cls)
        made._capture = None
        made._pool = None
        made._captured = False
        return made

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if self._captured:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
                "create a new instance."
            )
        if streams.current() == 0:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, "
                "it's ok to replay them on the default stream.)"
            )
        if captures.active() is not None:
            raise RuntimeError("Only one capture at a time is allowed in a process.")
        self._pool = pool or pool_handle()
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                f"{capture_error_mode}"
            )
        self._capture = Capture(captures.streams[streams.current()], _MODES[capture_error_mode])
        captures.begin(self._capture)
        library.copy_at_once(may=False)

    def capture_end(self) -> None:
        if self._capture is None or captures.active() is not self._capture:
            raise RuntimeError("capture_end() called before capture_begin().")
        captures.end(self._capture)
        library.copy_at_once()
        if self._capture.invalid:
            raise cuda_error("cudaErrorStreamCaptureInvalidated")
        if not self._capture.graph.nodes:
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be "
                "captured on wrong device or stream.",
                stacklevel=3,
            )
        self._captured = True

    capture_end_pre = capture_end

    def capture_end_post(self) -> None:
        """Do nothing: PyTorch from 2.15 on ends a capture in two steps, of which the first is all there is."""

    @property
    def _has_graph_exec(self) -> bool:
        return self._captured

    def instantiate(self) -> None:
        """Do nothing: a graph is ready when it has been captured."""

    def replay(self) -> None:
        if self._capture is None or not self._captured:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        with torch.no_grad():
            for node in self._capture.graph.nodes:
                node.work()

    def reset(self) -> None:
        self._capture = None
        self._captured = False

    def pool(self) -> Any:
        if not self._captured:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def pools(self) -> list[Any]:
        return [self.pool()]

    def register_generator_state(self, generator: Any) -> None:
        """Do nothing: each replay draws anew from the generator that was given."""

    def enable_debug_mode(self) -> None:
        """Do nothing: there is no graph of CUDA's to be shown."""
