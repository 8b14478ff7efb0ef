"""Independent jobs side by side: in this process, in several, or on a cluster of Dask.

A job is a function of a module and its arguments, all of which can be pickled. What comes of it depends
on them alone, so that neither the number of workers nor their order shows in a result.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ptxlab.errors import DeviceUnavailable, PtxlabError

Progress = Callable[[int, int], None]
"""Called again and again with how many of how many are done."""

Job = TypeVar("Job")
Result = TypeVar("Result")

VARIABLE = "PTXLAB_WORKERS"
"""The environment variable that says where jobs run unless they are told otherwise."""


def usual() -> str:
    """Return where jobs run by default: in as many processes as this one has processors."""
    return os.environ.get(VARIABLE) or str(_processors())


def cores() -> int:
    """Return how many processors one launch may use: all, or as many as there are workers by default."""
    where = usual()
    return max(1, int(where)) if where.isdecimal() else _processors()


def idle(asking: int) -> int:
    """Return how many processors nobody uses at this moment, all where the system does not say.

    So many threads run only to ask, and do not count.
    """
    try:
        running = int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        return _processors()
    return max(0, _processors() - running + asking)


@contextmanager
def executor(where: str) -> Iterator[Executor | None]:
    """Give what runs jobs ``where``: in so many processes, or by the scheduler at ``tcp://...``.

    For one process it is None, which stands for this one. Raises DeviceUnavailable without Dask's
    ``distributed``, or where no scheduler answers.
    """
    if where == "1":
        yield None
    else:
        with _processes(int(where)) if where.isdecimal() else cluster(where) as pool:
            yield pool


def results(
    executor: Executor | None, work: Callable[[Job], Result], jobs: Sequence[Job]
) -> Iterator[Result]:
    """Do the jobs and yield what comes of each, in their order.

    One job alone is done in this process. Raises what a job raises; those not begun are not begun then.
    """
    if executor is None or len(jobs) == 1:
        yield from map(work, jobs)
        return
    futures = [executor.submit(work, job) for job in jobs]
    try:
        for future in futures:
            yield future.result()
    except BrokenExecutor:
        raise PtxlabError(
            "a worker died, of too little memory perhaps", hint="--workers 1 has only this process"
        ) from None
    finally:
        for future in futures:
            future.cancel()


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _one_of_several() -> None:
    """Leave the other processors to the other processes, and an interrupt to the one that began them."""
    os.environ[VARIABLE] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # A child that is forked would inherit the locks of threads that it does not have.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _one_of_several) as pool:
        try:
            yield pool
        except BaseException:
            # Leaving would wait for what each worker does at the moment.
            for worker in list((pool._processes or {}).values()):
                worker.kill()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """Give what runs jobs by the scheduler of Dask at ``address``; see ``executor`` for what is raised."""
    try:
        from distributed import Client
    except ImportError:
        raise DeviceUnavailable(
            f"{address} is for Dask's distributed, which is not installed",
            hint="pip install 'ptxlab[cluster]'",
        ) from None
    client: Any
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise DeviceUnavailable(
            f"no Dask scheduler answers at {address}", hint=str(error).splitlines()[0]
        ) from None
    with client:
        yield client.get_executor(pure=False)
