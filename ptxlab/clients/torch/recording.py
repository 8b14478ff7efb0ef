"""The graph that is being captured: what would run on a GPU is recorded, to run at each replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ptxlab.clients.torch.errors import cuda_error

Work = Callable[[], object]


@dataclass(slots=True, eq=False)
class Recording:
    """What has been captured, in order; ``invalid`` after what cannot be."""

    work: list[Work] = field(default_factory=list)
    invalid: bool = False


active: Recording | None = None
"""The recording under way, of which there is one in a process at most."""


def add(work: Work) -> None:
    """Record what is to run at each replay."""
    assert active is not None
    active.work.append(work)


def refuse() -> None:
    """Raise the error of what waits for the GPU, where a capture is under way."""
    if active is not None:
        invalidate()
        raise cuda_error("cudaErrorStreamCaptureUnsupported")


def invalidate() -> None:
    """Have the capture that is under way, if there is one, end with an error."""
    if active is not None:
        active.invalid = True
