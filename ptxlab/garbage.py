"""Python's search for garbage, put off while much is made that stays.

It begins anew whenever some hundred objects more are there, and looks at all of them again and again: for a
kernel, which is 100,000 objects and holds hardly any garbage, as long as making them takes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 50_000
"""How many objects more a command makes before it looks for garbage: what it imports is about as many."""


def seldom() -> None:
    """Look for garbage seldom from now on: for a process that makes much that stays, and ends soon."""
    young, *older = gc.get_threshold()
    gc.set_threshold(max(young, SELDOM), *older)


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
