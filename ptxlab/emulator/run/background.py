"""Products that other cores compute while threads go on: what is seen is as if they were done already.

Of what has landed by the rules (``run.in_flight``) a product may still be computed. It reads shared memory and
writes registers, or Tensor Memory: whoever is about to write what it reads, or to touch what it writes, has it finish
first. So does whoever does not know what is going to be touched.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ptxlab.arrays import Array

Span = tuple[int, int]
"""Bytes of the shared memory of CTAs, each of which counts its own: the first one, and the one behind the last."""


def _always() -> bool:
    return True


class Task(Protocol):
    """Products that other cores compute, once it has been started."""

    def start(self) -> None: ...

    def is_done(self) -> bool: ...

    def finish(self) -> None:
        """Do what nobody has begun, and wait for the rest."""


class Background:
    """The tasks that are under way for a wave of so many ``ctas``, one after the other.

    Of each word of its shared memory ``objects`` says whether it is an mbarrier, which may change at any time. There is
    nothing under way where somebody watches, who ``may_see`` all.
    """

    def __init__(self, objects: Array, ctas: int, *, may_see: bool) -> None:
        self._objects = objects.reshape(ctas, -1)
        self._may_see = may_see
        self._tasks: deque[tuple[Task, Sequence[Span]]] = deque()
        self._beside = _always

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def begin(self, task: Task, reads: Sequence[Span]) -> None:
        """Have a task done that reads these bytes, behind those that are under way."""
        self._tasks.append((task, reads))
        if len(self._tasks) == 1:
            task.start()
        if self._may_see or not self._beside() or any(map(self._has_objects, reads)):
            self.finish()

    def go_on(self, beside: Callable[[], bool] = _always) -> None:
        """Have threads go on to something that may run ``beside`` tasks, or has none begin or be under way.

        The next task is started if the one at hand is done.
        """
        self._beside = beside
        if self._tasks:
            if not beside():
                self.finish()
            elif self._tasks[0][0].is_done():
                self._next()

    def finish(self) -> None:
        """Have all be done that is under way."""
        while self._tasks:
            self._next()

    def _next(self) -> None:
        task, _ = self._tasks.popleft()
        task.finish()
        if self._tasks:
            self._tasks[0][0].start()

    def about_to_write(self, span: Span | None) -> None:
        """Have that be done which reads some of these bytes, and what is before it; None are any."""
        first, end = (0, sys.maxsize) if span is None else span
        while any(
            begin < end and first < last for _, spans in self._tasks for begin, last in spans
        ):
            self._next()

    def _has_objects(self, span: Span) -> bool:
        first, end = span
        size = np.dtype(np.uint64).itemsize
        return bool(self._objects[:, first // size : -(-end // size)].any())
