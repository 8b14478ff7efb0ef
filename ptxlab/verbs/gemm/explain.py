"""``ptxlab gemm --explain``: why each rung of the ladder wins, told by counted facts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from ptxlab.cli.common import emit, open_device
from ptxlab.cli.readers import suggestion
from ptxlab.errors import PtxlabError

if TYPE_CHECKING:
    from ptxlab.gemm import Problem
    from ptxlab.isa.gpus import Gpu

FORMATS = ("markdown", "svg")
"""What the story can be beside text and JSON."""


def execute(args: argparse.Namespace) -> int:
    """Count, print, and return 0 when every result is right, 1 when not."""
    from ptxlab.gemm.explain import explain
    from ptxlab.verbs.gemm import explain_json as gemm_explain_json
    from ptxlab.verbs.gemm import explain_text as view
    from ptxlab.verbs.gemm import roofline

    if args.device.startswith("cuda"):
        raise PtxlabError(
            "the story is told by what is counted, on the emulator",
            hint="leave out --device; ptxlab bench measures on a GPU",
        )
    gpu = choose_gpu(args)
    several = list(problems(args))
    if not several:
        raise PtxlabError(f"no algorithm computes {args.dtype} -> {args.acc}")
    sizes = dict(args.tile) if args.group is None else {**args.tile, "GROUP": args.group}
    if sizes and len(several) != 1:
        raise PtxlabError("--tile and --group are for one --algorithm")
    args.device = "emulator"
    with closing(open_device(args)) as device:
        found = explain(device, several, gpu, sizes)
    emit(
        args,
        lambda: view.text(found),
        gemm_explain_json.as_json(found),
        markdown=lambda: view.markdown(found),
        svg=lambda: roofline.svg(found),
    )
    return 0 if found.passed else 1


def choose_gpu(args: argparse.Namespace) -> Gpu:
    """Return the GPU of ``--gpu``, or the one that stands for ``--arch``; set ``--arch`` to its target."""
    from ptxlab.isa.gpus import GPUS, gpus_of
    from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS

    known = {gpu.name: gpu for gpu in GPUS}
    if args.gpu is None:
        args.arch = args.arch or DEFAULT_TARGET
        found = gpus_of(TARGETS[args.arch])
        if not found:
            raise PtxlabError(
                f"ptxlab has the published peaks of no GPU that is {args.arch}",
                hint=f"it has those of {', '.join(known)}",
            )
        return found[0]
    wanted = args.gpu.casefold().replace(" ", "")
    gpu = next((g for g in GPUS if g.name.casefold().replace(" ", "").startswith(wanted)), None)
    if gpu is None:
        close = suggestion(args.gpu, list(known))
        raise PtxlabError(f"no GPU {args.gpu!r}, choose from {', '.join(known)}{close}")
    targets = [name for name, target in TARGETS.items() if gpu in gpus_of(target)]
    if args.arch not in (None, *targets):
        raise PtxlabError(f"the {gpu.name} is {' or '.join(targets)}, not {args.arch}")
    args.arch = args.arch or targets[-1]
    return gpu


def problems(args: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    """Yield the algorithms to tell of, each with its problem, of the first of its types asked for."""
    from ptxlab.gemm import ALGORITHMS, find_algorithm
    from ptxlab.verbs.gemm.verb import fits, problem_of

    named = args.algorithm.split(",") if args.algorithm else []
    for name in named or ALGORITHMS:
        rung = find_algorithm(name)
        able = [pair for pair in rung.types if fits(args, *pair)]
        if named:
            first = (able or rung.types)[0]
            yield name, problem_of(args, args.dtype or first[0], args.acc or first[1])
        elif able and args.layout in rung.layouts and args.epilogue in rung.epilogues:
            yield name, problem_of(args, *able[0])
