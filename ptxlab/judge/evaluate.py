"""A candidate judged, or many of them: ``ptxlab.evaluate`` and ``ptxlab.evaluate_many``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any

from ptxlab.device.loading import find_file
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS
from ptxlab.judge.arguments import Arguments
from ptxlab.judge.contained import zygote
from ptxlab.judge.judgement import Judgement
from ptxlab.judge.kernel_judge import Candidate, KernelJudge
from ptxlab.judge.limits import Limits
from ptxlab.judge.module_judge import ModuleJudge
from ptxlab.judge.task import KernelTask, Size
from ptxlab.judge.triton_function import is_triton, pickle_by_file
from ptxlab.prediction.chip import find
from ptxlab.workers import cluster, cores

if TYPE_CHECKING:
    from ptxlab.judge.module_task import ModuleTask


def evaluate(
    candidate: Candidate,
    reference: Any,
    *,
    arguments: Arguments | None = None,
    grid: Any = 1,
    block: Any = None,
    shared: Any = 0,
    cluster: Any = None,
    sizes: Mapping[str, Size] | None = None,
    kernel: str | None = None,
    options: Sequence[str] = (),
    baseline: Candidate | None = None,
    trusted_launch: Mapping[str, Any] | None = None,
    gpus: Sequence[str] = ("a100",),
    arch: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
) -> Judgement:
    """Say whether a kernel is right, safe and deterministic, and how fast it would be.

    ``candidate`` is a .cu or .ptx file, machine code, PTX text, or a function of Triton, whose ``arguments`` include its constexpr
    ones and whose ``block`` is 32 threads a warp. ``reference`` is a function in NumPy or PyTorch of the arguments by
    name, a file in Python that has it (``ptxlab.judge.references``), or a trusted kernel in CUDA C, PTX, machine code or Triton, whose
    numbers carry their bounds (``ptxlab.judge.trusted_kernel``); ``trusted_launch`` has what of its grid,
    block and shared memory differs from the candidate's, and the ``constants`` of a function of Triton. ``arguments`` are arrays to be drawn and numbers by
    name (``ptxlab.judge.arguments``), which like ``grid``, ``block`` and ``shared`` (bytes) may be functions of ``sizes``: a
    size is a number, or that and what it has to be a multiple of. Sizes too large to be emulated are made smaller, and the
    time is predicted for the full ones on ``gpus``, if any, beside that of a ``baseline`` kernel. ``arch`` is what the emulator
    is, by default the first GPU. ``options`` go to NVRTC. The same ``seed`` gives the same judgement.

    A candidate may also be a .py file with a ``ModelNew`` of PyTorch that launches kernels of Triton, of ``load_inline`` or of what calls the driver; ``reference`` is then
    one with ``Model``, ``get_inputs`` and ``get_init_inputs``, as KernelBench has it, and nothing else is to be told.

    Raises PtxlabError for arguments that do not fit the reference, Unsupported where no bound follows from it, and
    DeviceUnavailable on a system where a candidate has no process of its own, or without what it needs.
    """
    task = {**locals()}
    del task["candidate"], task["reference"]
    return _judging(candidate, reference, **task)(candidate)


def evaluate_many(
    candidates: Iterable[Candidate], reference: Any, *, workers: str | None = None, **task: Any
) -> Iterator[Judgement]:
    """Judge candidates of one task, all of a kind, on all processors, and yield judgements as they come.

    ``workers`` is ``tcp://HOST:PORT`` of a scheduler of Dask whose workers judge in place of this machine; they have to find
    a candidate's file where it is here. All else is that of ``evaluate``, and so are the errors: it raises PtxlabError before
    the first candidate.
    """
    waiting = list(candidates)
    if not waiting:
        return
    for each in waiting:
        _want_file(each)
    if workers is not None:
        if any(map(is_triton, (*waiting, reference))):
            pickle_by_file()
        with cluster(workers) as pool:
            for job in as_completed(
                [pool.submit(evaluate, each, reference, **task) for each in waiting]
            ):
                yield job.result()
        return
    assert evaluate.__kwdefaults__ is not None
    judged = _judging(waiting[0], reference, **{**evaluate.__kwdefaults__, **task})
    with ThreadPoolExecutor(cores()) as pool:
        for job in as_completed([pool.submit(judged, each) for each in waiting]):
            yield job.result()


def _judging(
    candidate: Candidate, reference: Any, *, gpus: Sequence[str], arch: str | None, limits: Limits | None, seed: int,
    kernel: str | None, options: Sequence[str], baseline: Candidate | None, **launch: Any,
) -> Callable[[Candidate], Judgement]:  # fmt: skip
    """Return what judges candidates like the first, with the trials and what should come of them made already."""
    if arch is not None and arch not in TARGETS:
        raise PtxlabError(f"there is no target {arch!r}", hint=f"targets are {', '.join(TARGETS)}")
    for gpu in gpus:
        find(gpu)  # or say now that there is none
    played = arch or (find(gpus[0]).gpu.target.name if gpus else DEFAULT_TARGET)
    limits = limits or Limits()
    task: KernelTask | ModuleTask
    if is_module(candidate):
        task = _module_task(os.fspath(reference), played, limits, seed)
    else:
        task = KernelTask(reference, arch=played, limits=limits, seed=seed, **launch)
    task.cases()
    zygote(modules=is_module(candidate))  # once, before several want it

    def judged(candidate: Candidate) -> Judgement:
        began = monotonic()
        judge: KernelJudge | ModuleJudge
        if isinstance(task, KernelTask):
            judge = KernelJudge(task, candidate, kernel, options)
            judge.run(gpus, baseline)
        else:
            judge = ModuleJudge(task, candidate)
            judge.run(gpus)
        return judge.judgement(monotonic() - began)

    return judged


def _want_file(candidate: Candidate) -> None:
    """Raise PtxlabError for a candidate whose file is not there."""
    if is_module(candidate):
        if not os.path.isfile(candidate):
            raise PtxlabError(f"there is no file {os.fspath(candidate)}")
    elif not is_triton(candidate) and "\n" not in os.fspath(candidate):
        find_file(candidate)


def is_module(candidate: Candidate) -> bool:
    """Say whether a candidate is a file in Python."""
    return not is_triton(candidate) and os.fspath(candidate).endswith(".py")


def _module_task(path: str, arch: str, limits: Limits, seed: int) -> ModuleTask:
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            raise DeviceUnavailable(
                f"{package} is not installed, which modules need", hint="pip install torch triton"
            )
    from ptxlab.judge.module_task import ModuleTask  # here: kernels can spare PyTorch

    return ModuleTask(path, arch, limits, seed)
