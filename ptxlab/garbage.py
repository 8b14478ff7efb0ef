"""What makes a kernel of 100,000 objects quickly: no search for garbage meanwhile, and data classes that are soon made.

The search begins anew whenever some hundred objects more are there, and looks at all of them again and again: for a
kernel, which is 100,000 objects and holds hardly any garbage, as long as making them takes.
"""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

SELDOM = 200_000
"""How many objects more a command makes before it looks for garbage: what it imports and a kernel are about as many."""


def seldom() -> None:
    """Look for garbage seldom from now on: for a process that makes much that stays, and ends soon."""
    young, *older = gc.get_threshold()
    gc.set_threshold(max(young, SELDOM), *older)


def no_more() -> None:
    """Look for no garbage at the end of the process either: it takes a tenth of a second, and the memory ends with it.

    Unless Triton or CUTLASS is there, whose nanobind then complains of every object that is left.
    """
    if not {"triton", "cutlass"} & sys.modules.keys():
        gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage inside; a decorator too."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool, eq: bool = True, **more: Any) -> Callable[[type[T]], type[T]]:
        """Make of a class what ``dataclasses.dataclass`` does, frozen for mypy alone: then it is made in half of the time.

        Python's own sets each field of a frozen one by a call.
        """
        assert frozen
        return dataclasses.dataclass(eq=eq, unsafe_hash=eq, **more)


__all__ = ["no_more", "record", "seldom", "uncollected"]
