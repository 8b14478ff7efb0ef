"""``ptxlab gemm``: run matrix multiplication algorithms and check every element of D."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from ptxlab.cli.common import (
    add_common,
    add_workers,
    emit,
    open_device,
    open_workers,
    tell_of_faster,
)
from ptxlab.cli.gemm_options import add_product
from ptxlab.cli.options import add
from ptxlab.cli.readers import count, listed, name_value, positive, real, types, words
from ptxlab.cli.terminal import terminal_width
from ptxlab.errors import PtxlabError, Unsupported

if TYPE_CHECKING:
    from ptxlab.gemm import Algorithm, Problem
    from ptxlab.gemm.ladder import Baseline
    from ptxlab.gemm.predicted import PredictedRung
    from ptxlab.isa.gpus import Gpu
    from ptxlab.prediction.chip import Chip

    Asked = tuple[Algorithm | Baseline, Problem]

EXAMPLE = """\
example:
  ptxlab gemm --algorithm tensor_core                         bf16 to f32, on the tensor cores
  ptxlab gemm --list                                          the ladder, from naive to tensor cores
  ptxlab gemm --all --size 256                                all of it, on the same inputs
  ptxlab gemm --explain                                       why each rung wins, counted
  ptxlab gemm --explain --gpu rtx4090 --format svg -o roofline.svg
  ptxlab gemm --predict --gpu rtx3090 --size 4096             how long each would take there
  ptxlab gemm --predict --gpu rtx3090 --size 4096 --algorithm warp_tiled --tiles    which tile is best there
  ptxlab gemm --algorithm naive --size 64 --dtype f32
  ptxlab gemm --algorithm tensor_core --m 1000 --n 777 --k 333 --layout tn --epilogue bias+relu
  ptxlab gemm --algorithm tensor_core --tile BM=64,WM=32

Computes D = epilogue(alpha * A * B + beta * D) with A m x k and B k x n, random, and compares every
element with float64, within a bound proven for the algorithm. Exit status 1 when an element is
outside it, when something beside D was written, or when two algorithms disagree."""

FORMATS = ("markdown", "svg", "png")
"""What the story of --explain can be beside text and JSON."""

PREDICTED = "csv"
"""What predictions can be."""

ALGORITHM = "tensor_core"
"""What is run by default: the last rung."""

SIZE = 512
"""The default m, n and k: enough for several CTAs and stages, seconds on the emulator."""


TYPES = ("f32", "tf32", "bf16", "f16", "s8", "e4m3", "e5m2", "mxfp8", "nvfp4")

WHICH = f"""
--algorithm NAME  a rung of the ladder, see --list (default {ALGORITHM}); NAME,NAME,... to --explain
--all             every algorithm that takes the problem, in one table
--list            list the algorithms, and run nothing
"""
PROBLEM = f"""
--explain    tell what each rung does better than the one before, by what is counted
--predict    predict the time on the GPU of --gpu from machine code, and run nothing
--tiles      with --predict: one algorithm's tiles beside each other, the fastest first
--gpu NAME   whose roofline to --explain with, such as a100 or h100 (default: that of --arch), or
             which to --predict for, more with commas or given again
--clock MHZ  of the GPU to --predict for (default boost)
--m N        rows of A (default --size)
--n N        columns of B (default --size)
--k N        columns of A (default --size)
--size N     m, n and k (default {SIZE})
--dtype      A and B; tf32 is f32 in memory, of mxfp8 and nvfp4 several share a scale (default: what the algorithm takes first, or all)
"""
DETAILS = """
--alpha X         factor of A * B (default 1)
--beta X          factor of what D was (default 0: D is not read)
--lda N           elements from one row of A in memory to the next
--ldb N           elements from one row of B in memory to the next
--ldd N           elements from one row of D in memory to the next
--tile BM=64,...  other sizes of the kernel's tile
--group N         CTA order: tile rows walked together, 1 for none
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(parser.add_mutually_exclusive_group(), WHICH)
    add(
        parser,
        PROBLEM,
        gpu=listed(words),
        clock=positive,
        m=count,
        n=count,
        k=count,
        size=count,
        dtype=types(TYPES),
    )
    add_product(parser)
    strides = dict.fromkeys(("lda", "ldb", "ldd"), count)
    add(parser, DETAILS, alpha=real, beta=real, **strides, tile=tile, group=count)
    parser.set_defaults(size=SIZE, alpha=1.0, beta=0.0, tile={})
    add_workers(parser)
    add_common(parser, (*FORMATS, PREDICTED))


def tile(text: str) -> dict[str, int]:
    """Read ``BM=64,BN=64``."""
    pairs = (name_value(part) for part in text.split(","))
    return {name.upper(): count(size) for name, size in pairs}


def execute(args: argparse.Namespace) -> int:
    """Run, print, and return 0 when every result is right, 1 when not."""
    if args.format == PREDICTED and not args.predict:
        raise PtxlabError(f"--format {PREDICTED} is for --predict")
    if args.explain:
        if args.predict:
            raise PtxlabError("--explain counts and --predict predicts: choose one")
        if args.list or args.all:
            raise PtxlabError("--explain is not for --list or --all: it is of all rungs anyway")
        return explain_ladder(args)
    if args.predict:
        if args.list:
            raise PtxlabError("--predict is not for --list")
        return predict_all(args)
    if args.workers and not args.all:
        raise PtxlabError("--workers share out what --all, --explain and --predict do")
    if args.clock or args.tiles:
        raise PtxlabError("--clock and --tiles are for --predict")
    if args.gpu or args.format in FORMATS:
        raise PtxlabError(
            f"--gpu and --format {'|'.join(FORMATS)} are for --explain",
            hint="--predict says how long it would take on a GPU",
        )
    if args.list:
        return show_list(args)
    return run_all(args) if args.all else run_one(args)


def show_list(args: argparse.Namespace) -> int:
    from ptxlab.gemm import LADDER
    from ptxlab.verbs.gemm import text

    rungs = [
        rung for rung in LADDER.values() if any(fits(args, dtype, acc) for dtype, acc in rung.types)
    ]
    emit(
        args,
        lambda: text.text_of_list(rungs, terminal_width(args)),
        lambda: text.list_as_json(rungs),
    )
    return 0


def run_all(args: argparse.Namespace) -> int:
    from ptxlab.cli.progress import LaunchProgress
    from ptxlab.gemm.survey import all_types, survey
    from ptxlab.verbs.gemm import text

    if tile_of(args):
        raise PtxlabError("--tile and --group are for one --algorithm, not for --all")
    types = [pair for pair in all_types() if fits(args, *pair)]
    if not types:
        raise PtxlabError(f"no algorithm computes {args.dtype} -> {args.acc}")
    problem = problem_of(args, *types[0])
    with closing(open_device(args)) as device, open_workers(args, device) as executor:
        surveyed = survey(device, problem, types, executor, LaunchProgress(what="algorithms"))
    width = terminal_width(args)
    emit(args, lambda: text.text_of_all(surveyed, width), lambda: text.all_as_json(surveyed))
    return 0 if surveyed.passed else 1


def run_one(args: argparse.Namespace) -> int:
    from ptxlab.gemm import find_algorithm, run
    from ptxlab.verbs.gemm import text

    rung = find_algorithm(args.algorithm or ALGORITHM)
    first = next((pair for pair in rung.types if fits(args, *pair)), rung.types[0])
    problem = problem_of(args, args.dtype or first[0], args.acc or first[1])
    with closing(open_device(args)) as device:
        result = run(device, problem, rung, tile_of(args))
        tell_of_faster(device, result.launched.seconds)
    emit(args, lambda: text.text(result), lambda: text.as_json(result))
    return 0 if result.passed else 1


def explain_ladder(args: argparse.Namespace) -> int:
    from ptxlab.cli.progress import LaunchProgress
    from ptxlab.gemm.explain import explain
    from ptxlab.verbs.gemm import roofline, story

    if args.device.startswith("cuda"):
        raise PtxlabError(
            "the story is told by what is counted, on the emulator",
            hint="leave out --device; ptxlab bench measures on a GPU",
        )
    gpu = choose_gpu(args)
    several = list(problems(args))
    if not several:
        raise PtxlabError(f"no algorithm computes {args.dtype} -> {args.acc}")
    sizes = tile_of(args)
    if sizes and len(several) != 1:
        raise PtxlabError("--tile and --group are for one --algorithm")
    args.device = "emulator"
    with closing(open_device(args)) as device, open_workers(args, device) as executor:
        progress = LaunchProgress(what="algorithms")
        explanation = explain(device, several, gpu, sizes, executor, progress)
    for rung in explanation.absent:
        what = f"without {rung.algorithm} ({rung.dtype} to {rung.acc}): {rung.reason}"
        print(f"ptxlab: {what}", file=sys.stderr)
    if not explanation.steps:
        raise Unsupported(f"{args.arch} has no rung of these types")
    emit(
        args,
        lambda: story.text(explanation, terminal_width(args)),
        lambda: story.as_json(explanation),
        markdown=lambda: story.markdown(explanation),
        svg=lambda: roofline.svg(explanation),
    )
    return 0 if explanation.passed else 1


def predict_all(args: argparse.Namespace) -> int:
    from ptxlab.prediction.chip import find
    from ptxlab.verbs.gemm import predicted

    if not args.gpu or args.device.startswith("cuda"):
        raise PtxlabError(
            "--predict is for a GPU that is not here", hint="say which: --gpu rtx3090"
        )
    if args.arch or args.format in FORMATS:
        raise PtxlabError(
            f"--arch and --format {'|'.join(FORMATS)} are not for --predict",
            hint="the code is that of --gpu",
        )
    several = list(problems(args))
    if tile_of(args) and len(several) != 1:
        raise PtxlabError("--tile and --group are for one --algorithm")
    chips = {chip.gpu.name: chip for chip in map(find, args.gpu)}
    if args.tiles and (len(several) != 1 or tile_of(args)):
        raise PtxlabError("--tiles compares those of one --algorithm and one --dtype")
    by_gpu = predicted_rungs(args, several, list(chips.values()))
    every = [rung for rungs in by_gpu for rung in rungs]
    if not any(rung.prediction for rung in every):
        raise Unsupported(every[0].reason if every else "no algorithm computes these types")
    width = terminal_width(args)
    emit(
        args,
        lambda: "\n\n".join(predicted.text(rungs, width) for rungs in by_gpu),
        lambda: predicted.as_json(every),
        csv=lambda: predicted.csv(every),
    )
    return 0


def predicted_rungs(
    args: argparse.Namespace, several: list[Asked], chips: list[Chip]
) -> list[list[PredictedRung]]:
    """Predict algorithms, or the tiles of one, for each GPU."""
    from ptxlab.cli.progress import LaunchProgress
    from ptxlab.gemm.predicted import predict_ladder, predict_tiles
    from ptxlab.gemm.side_by_side import RungJob
    from ptxlab.workers import executor, usual

    by_gpu: list[list[PredictedRung]] = []
    progress = LaunchProgress(what="tiles" if args.tiles else "algorithms")
    jobs = [RungJob(rung, problem, tile_of(args)) for rung, problem in several]
    with executor(args.workers or usual()) as workers:
        for chip in chips:
            if args.tiles:
                by_gpu.append(predict_tiles(*several[0], chip, args.clock, progress, workers))
                continue
            before, rungs = len(jobs) * len(by_gpu), []
            for rung in predict_ladder(jobs, chip, args.clock, workers):
                rungs.append(rung)
                progress(before + len(rungs), len(jobs) * len(chips))
            by_gpu.append(rungs)
    return by_gpu


def choose_gpu(args: argparse.Namespace) -> Gpu:
    """Return the GPU of ``--gpu``, or the one that stands for ``--arch``; set ``--arch`` to its target."""
    from ptxlab.isa.gpus import GPUS, gpus_of
    from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS
    from ptxlab.prediction.chip import gpu_called

    if len(args.gpu) > 1:
        raise PtxlabError(
            "--explain has the roofline of one GPU", hint="--predict compares several"
        )
    if not args.gpu:
        args.arch = args.arch or DEFAULT_TARGET
        gpus = gpus_of(TARGETS[args.arch])
        if not gpus:
            raise PtxlabError(
                f"ptxlab has the published peaks of no GPU that is {args.arch}",
                hint=f"it has those of {', '.join(gpu.name for gpu in GPUS)}",
            )
        return gpus[0]
    gpu = gpu_called(args.gpu[0])
    targets = [name for name, target in TARGETS.items() if gpu in gpus_of(target)]
    if args.arch not in (None, *targets):
        raise PtxlabError(f"the {gpu.name} is {' or '.join(targets)}, not {args.arch}")
    args.arch = args.arch or targets[-1]
    return gpu


def problems(args: argparse.Namespace) -> Iterator[tuple[Algorithm | Baseline, Problem]]:
    """Yield the algorithms to tell of, each with its problem, of the first of its types asked for."""
    from ptxlab.gemm import ALGORITHMS, find_algorithm

    named = args.algorithm.split(",") if args.algorithm else []
    for name in named or ALGORITHMS:
        rung = find_algorithm(name)
        able = [pair for pair in rung.types if fits(args, *pair)]
        if named:
            first = (able or rung.types)[0]
            yield rung, problem_of(args, args.dtype or first[0], args.acc or first[1])
        elif (
            able and args.layout in rung.layouts_of(able[0][0]) and args.epilogue in rung.epilogues
        ):
            yield rung, problem_of(args, *able[0])


# ---- what is asked for --------------------------------------------------------------------------


def fits(args: argparse.Namespace, dtype: str, acc: str) -> bool:
    return args.dtype in (None, dtype) and args.acc in (None, acc)


def tile_of(args: argparse.Namespace) -> dict[str, int]:
    return {**args.tile, **({} if args.group is None else {"GROUP": args.group})}


def problem_of(args: argparse.Namespace, dtype: str, acc: str) -> Problem:
    from ptxlab.gemm import Problem
    from ptxlab.view.json import members

    m, n, k = (args.size if value is None else value for value in (args.m, args.n, args.k))
    others = members(args, "seed", "layout", "epilogue", "alpha", "beta", "lda", "ldb", "ldd")
    return Problem(m, n, k, dtype, acc, **others)
