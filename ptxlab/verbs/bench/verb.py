"""``ptxlab bench``: the whole ladder side by side, timed on a GPU or counted on the emulator."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ptxlab.cli.common import add_common, add_workers, emit, open_device, open_workers
from ptxlab.cli.gemm_options import add_product
from ptxlab.cli.options import add
from ptxlab.cli.readers import positive, seconds, type_names, words
from ptxlab.cli.terminal import terminal_width
from ptxlab.errors import PtxlabError
from ptxlab.files import write_whole

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ptxlab.device.protocol import Device
    from ptxlab.device.stopwatch import Stopwatch
    from ptxlab.gemm.facts import KernelFacts
    from ptxlab.gemm.ladder import PlannedProblem
    from ptxlab.gemm.machine import MeasuredMachine
    from ptxlab.gemm.side_by_side import Absent
    from ptxlab.gemm.timing import Procedure
    from ptxlab.prediction.chip import Chip

EXAMPLE = """\
example:
  ptxlab bench                                      every kernel
  ptxlab bench --algorithm warp_tiled,tensor_core --sizes 1024,4096,metal
  ptxlab bench --dtype f16 --acc f16 --layout tn --format svg -o bench.svg
  ptxlab bench --predict --algorithm tiled,warp_tiled    measured beside predicted; --gpu where there is none
  ptxlab bench --tiles --algorithm tensor_core      other tiles: which are better, which cannot be
  ptxlab bench --algorithm warp_tiled --profile     the line for Nsight Compute

On a GPU each kernel is checked before and after it is timed, and takes turns with cuBLAS: in bursts
after a rest, and for seconds on end. What is wrong has no speed. On the emulator nothing is timed: it
counts what each kernel asks of the GPU, which is exact and the same everywhere. Exit status 1 when a
result is wrong.

sizes: 4096 or 1024x768x512 (m x n x k), or a name: powers (256 to 16384), metal, odd"""

GPU_SIZES, EMULATOR_SIZES = "4096", "256"
"""The usual sizes: large enough to fill a GPU, and seconds for all kernels on the emulator."""

COLD = 20
"""Launches with a cold cache, each timed by itself."""

TILES = "ptxlab gemm --predict --tiles compares predicted tiles"

NCU = "ncu --target-processes all --set full --import-source yes --clock-control none"


WHICH = f"""
--algorithm NAME[,...]      rungs of the ladder, see ptxlab gemm --list (default all kernels)
--sizes N|MxNxK|NAME[,...]  what to multiply (default {GPU_SIZES}, on the emulator {EMULATOR_SIZES})
--dtype f32|tf32|bf16|f16[,...]
                            A and B (default: what each algorithm takes first)
"""
TIMED = """
--rounds N   (default 3)
--rest S     before a burst (default 2)
--seconds S  of sustained work (default 3)
--cold       also launches that find nothing in the L2 cache
"""
PREDICTED = """
--predict   also the speed that machine code predicts, on the GPU that is measured or --gpu
--gpu NAME  with --predict: rtx3090, h100 ...
"""
OTHER = """
--tiles          compare tiles of one algorithm, and keep the best
--profile        print the line for Nsight Compute, and run nothing
--record FOLDER  also add the results to FOLDER/<gpu>-<date>.json (default benchmarks)
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(parser, WHICH, algorithm=words, dtype=type_names)
    add_product(parser)
    how = parser.add_argument_group("how it is timed")
    add(how, TIMED, rounds=positive, rest=seconds, seconds=seconds)
    add(parser, PREDICTED)
    other = parser.add_mutually_exclusive_group()
    add(other, OTHER, record={"nargs": "?", "const": "benchmarks"})
    parser.set_defaults(algorithm=(), dtype=(), rounds=3, rest=2.0, seconds=3.0)
    add_workers(parser)
    add_common(parser, ("csv", "svg", "png"))


def execute(args: argparse.Namespace) -> int:
    """Plan, measure, print; 0 when every result is right, 1 when not."""
    if args.gpu and not args.predict:
        raise PtxlabError("--gpu says what to --predict for")
    if args.predict and (args.tiles or args.profile):
        raise PtxlabError("--predict is not for --tiles and --profile", hint=TILES)
    if args.profile:
        if args.workers:
            raise PtxlabError(
                "--workers share out what the emulator counts; --profile runs nothing"
            )
        return show_profile(args)
    with closing(open_device(args)) as device, open_workers(args, device) as executor:
        if args.tiles:
            return compare_tiles(args, device, executor)
        if device.kind == "cuda":
            return time_ladder(args, device)
        return count_ladder(args, device, executor)


# ---- what is measured ---------------------------------------------------------------------------


def entries(args: argparse.Namespace, usual: str) -> list[PlannedProblem]:
    from ptxlab.gemm.ladder import Choice, plan, shapes

    choice = Choice(args.algorithm, args.dtype, args.acc, args.layout, args.epilogue, args.seed)
    planned = list(plan(shapes(args.sizes or usual), choice))
    if not planned:
        raise PtxlabError("no algorithm takes this: other --dtype, --acc, --layout or --epilogue")
    return planned


def procedure(args: argparse.Namespace) -> Procedure:
    from ptxlab.gemm.timing import Procedure

    return Procedure(args.rounds, args.rest, seconds=args.seconds, cold=COLD * args.cold)


# ---- on a GPU -----------------------------------------------------------------------------------


def time_ladder(args: argparse.Namespace, device: Device) -> int:
    from ptxlab.cli.progress import StatusLine
    from ptxlab.gemm.bench import bench, beside_measured
    from ptxlab.gemm.machine import machine_of
    from ptxlab.verbs.bench import text as view
    from ptxlab.view.csv import as_csv

    planned = entries(args, GPU_SIZES)
    with stopwatch_of(device) as stopwatch:
        gpu, status = stopwatch.device, StatusLine()
        machine = machine_of(gpu, stopwatch.sensors)
        chip = measured_chip(args, machine) if args.predict else None
        timed = bench(gpu, stopwatch, machine, planned, procedure(args), status)
        if chip:
            status("predicting")
            timed = beside_measured(timed, chip)
        status.clear()
    data = view.as_json(timed)
    if args.record:
        record(args.record, data)
    text, svg = (lambda: view.text(timed, terminal_width(args))), (lambda: view.svg(timed))
    emit(args, text, data, csv=lambda: as_csv(data["results"]), svg=svg)
    return 0 if timed.passed else 1


def measured_chip(args: argparse.Namespace, machine: MeasuredMachine) -> Chip | None:
    """Return what is predicted for: ``--gpu``, or the GPU that is measured, None where it is not modelled."""
    from ptxlab.prediction.chip import chip_of, find, gpu_driven

    if args.gpu:
        return find(args.gpu)
    try:
        return chip_of(gpu_driven(machine.gpu, machine.capability, machine.multiprocessors))
    except PtxlabError as error:
        print(f"ptxlab: nothing is predicted: {error}", file=sys.stderr)
        return None


def stopwatch_of(device: Device) -> Stopwatch:
    from ptxlab.device.sensors import open_sensors
    from ptxlab.device.stopwatch import Stopwatch
    from ptxlab.gemm.cublas import gpu_of

    gpu = gpu_of(device, "bench")
    return Stopwatch(gpu, open_sensors(gpu.properties.bus))


def record(folder: str, data: dict[str, Any]) -> None:
    from ptxlab.gemm.machine import with_run
    from ptxlab.view.json import plain

    path, content = with_run(folder, plain(data))
    write_whole(str(path), content)
    print(f"ptxlab: results are in {path}", file=sys.stderr)


# ---- on the emulator ----------------------------------------------------------------------------


def count_ladder(args: argparse.Namespace, device: Device, executor: Executor | None) -> int:
    from ptxlab.cli.progress import StatusLine
    from ptxlab.gemm.facts import facts_of
    from ptxlab.gemm.predicted import predict_ladder
    from ptxlab.gemm.side_by_side import Absent, RungJob, each
    from ptxlab.prediction.chip import find
    from ptxlab.verbs.bench import facts as view
    from ptxlab.view.csv import as_csv

    if args.record:
        raise PtxlabError("there is nothing to record: a speed needs a GPU")
    planned = entries(args, EMULATOR_SIZES)
    chip = None
    if args.predict:
        if not args.gpu:
            raise PtxlabError(
                "--predict is for a GPU, and none is here", hint="say which: --gpu rtx3090"
            )
        chip = find(args.gpu)
    counted_facts: list[KernelFacts] = []
    absent: list[Absent] = []
    jobs = [RungJob(rung, entry.problem) for entry in planned for rung in entry.rungs]
    status = StatusLine()
    counting = each(device, facts_of, jobs, executor, excused=lambda _: len(jobs) > 1)
    for job in jobs:
        status(f"{job.problem}: counting {job.rung.name}")
        counted = next(counting)
        if isinstance(counted, Absent):
            absent.append(counted)
        else:
            counted_facts.append(counted)
    jobs = [RungJob(facts.algorithm, facts.problem) for facts in counted_facts]
    status("predicting")
    told = predict_ladder(jobs, chip, None, executor) if chip else ()
    predicted = {(rung.rung.name, rung.problem): rung for rung in told}
    status.clear()
    width = terminal_width(args)
    data = view.bench_as_json(counted_facts, absent, device.target.name, predicted)
    emit(
        args,
        lambda: view.text(counted_facts, absent, width, predicted),
        data,
        csv=lambda: as_csv(data["results"]),
        svg=lambda: view.svg(counted_facts),
    )
    return 0 if data["passed"] else 1


# ---- tiles --------------------------------------------------------------------------------------


def compare_tiles(args: argparse.Namespace, device: Device, executor: Executor | None) -> int:
    """Compare the tiles of one algorithm on one problem; keep the best where they are timed."""
    from dataclasses import replace

    from ptxlab.cli.progress import LaunchProgress
    from ptxlab.gemm import tile_file
    from ptxlab.gemm.tiles import compare_counted, compare_timed
    from ptxlab.verbs.bench import tiles as view
    from ptxlab.view.csv import as_csv

    timed = device.kind == "cuda"
    planned = entries(args, GPU_SIZES if timed else EMULATOR_SIZES)
    if len(args.algorithm) != 1 or len(planned) != 1:
        raise PtxlabError("--tiles compares those of one --algorithm, of one size and type")
    if args.format in ("svg", "png"):
        raise PtxlabError("--tiles has no picture, only text, JSON and CSV")
    problem, (rung,) = planned[0].problem, planned[0].rungs
    progress, kept = LaunchProgress(what="tiles"), ""
    if timed:
        much = replace(procedure(args), seconds=0.0)
        with stopwatch_of(device) as stopwatch:
            gpu = stopwatch.device
            comparison = compare_timed(gpu, stopwatch, problem, rung, much, progress)
    else:
        comparison = compare_counted(device, problem, rung, progress, executor)
    best = comparison.candidates[0]
    if best.timing is not None:
        tile_file.keep(device, comparison.algorithm, problem, best.tile, comparison.tflops(best))
        kept = str(tile_file.path())
    data = view.as_json(comparison, kept)
    emit(
        args,
        lambda: view.text(comparison, kept, terminal_width(args)),
        data,
        csv=lambda: as_csv(data["tiles"]),
    )
    return 0


# ---- Nsight Compute -----------------------------------------------------------------------------


def show_profile(args: argparse.Namespace) -> int:
    """Print, for every kernel asked for, the command that profiles one launch of it."""
    from ptxlab.gemm import Algorithm

    commands = []
    for entry in entries(args, GPU_SIZES):
        p = entry.problem
        for rung in entry.rungs:
            if not isinstance(rung, Algorithm):
                continue
            options = [
                f"--algorithm {rung.name} --m {p.m} --n {p.n} --k {p.k} --dtype {p.dtype}",
                f"--acc {p.acc} --layout {p.layout} --epilogue {p.epilogue}",
            ]
            of_it = f"--kernel-name {rung.entry} --launch-count 1"
            commands.append(f"{NCU} {of_it} ptxlab gemm --device cuda {' '.join(options)}")
    emit(args, "\n".join(commands), {"schema": "ptxlab.bench.profile/1", "commands": commands})
    return 0
