"""Who judges a launch that a program has made: a room above that of launches, which ``ptxlab/__init__.py`` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Protocol


class Judged(Protocol):
    """What is said of a kernel: see ``ptxlab.judge.judgement.Judgement``, which has more."""

    @property
    def passed(self) -> bool:
        """Whether it is all that a kernel has to be."""
        ...

    @property
    def verdict(self) -> str:
        """``passed``, or what it is not."""
        ...

    @property
    def score(self) -> Mapping[str, float | None]:
        """How much it is of each."""
        ...

    def as_text(self) -> str:
        """Return what ``ptxlab judge`` says of it."""
        ...

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file."""
        ...


Judge = Callable[..., Judged]
_judge: Callable[[], Judge] | None = None


def judged_by(judge: Callable[[], Judge]) -> None:
    """Have ``judge()`` be who is asked, called when a launch is judged for the first time."""
    global _judge
    _judge = judge


def judge(**task: Any) -> Judged:
    """Have a kernel judged, with the arguments of ``ptxlab.evaluate``."""
    assert _judge is not None
    return _judge()(**task)
