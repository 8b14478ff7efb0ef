"""``ptxlab run``: launch one kernel of a file with arguments from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ptxlab.cli.common import emit, open_device, tell_of_faster
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.files import write_whole
from ptxlab.verbs.launching.options import ARGUMENTS, add_run

if TYPE_CHECKING:
    from ptxlab.device.protocol import Module
    from ptxlab.device.stopwatch import Timing
    from ptxlab.verbs.launching.launch import Argument, PreparedLaunch

EXAMPLE = f"""\
example:
  ptxlab run ptx/mma_m16n8k16_bf16_f32.ptx
  ptxlab run ptx/mma_m16n8k16_bf16_f32.ptx --expect "d = d + a.astype(f32) @ b.astype(f32)" \\
      --tolerance 1e-5,1e-5
  ptxlab run saxpy.ptx --grid 2 --block 128 --arg n=256 --arg a=2.0 \\
      --arg "x=arange(256,f32)" --arg "y=randn(256,f32,seed=1)" --save y=y.npy
  ptxlab run program.cu -I include -- 256 128 64

A .cu file with a main, of which nothing is said about a launch or with arguments after --, is a program: it is
run by its main and with the options of ptxlab exec, such as --check, and nvcc compiles it. So do ptxlab check and profile.

{ARGUMENTS}

--expect takes the same arrays, or a NumPy expression over the arguments as they were before the
launch; types go by their PTX names. Exit status 1 when an element is not as expected. A kernel on a
GPU runs in a process of its own, which --timeout ends if it hangs."""

TIMED_SECONDS, TIMED_LAUNCHES = 1.0, (20, 1000)
"""How long --time goes on, and how many launches it makes at least and at most."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_run(parser)


def execute(args: argparse.Namespace) -> int:
    """Launch the kernel, print, save and compare the arrays it was given; 1 when one is wrong."""
    from ptxlab.verbs.launching.launch import bind_launch, read_launch
    from ptxlab.verbs.run import text as view
    from ptxlab.verbs.run.expecting import array_argument, compare, expected

    asked = read_launch(args)
    for name, _ in args.save:
        if name:
            array_argument("--save", name, asked.values)
    wanted = expected(args.expect, asked.values)
    with closing(open_device(args)) as device:
        if args.time and device.kind != "cuda":
            raise PtxlabError(
                "--time measures a GPU, and this is the emulator, whose seconds say nothing about one",
                hint="ptxlab profile FILE counts what the kernel does",
            )
        module = device.load(Path(asked.file), options=asked.options)
        if args.keep is not None:
            kept(args.keep, asked.file, module, device.target.name)
        launch = bind_launch(asked, device, module)
        result = launch.run()
        tell_of_faster(device, result.seconds)
        arguments = launch.arguments()
        timing = time(launch) if args.time else None
    by_name = {argument.name: argument for argument in arguments}
    expectations = tuple(
        compare(expectation, by_name[expectation.name], args.tolerance) for expectation in wanted
    )
    done = view.LaunchOutcome(launch, result, arguments, expectations, timing)
    save(args.save, arguments)
    emit(args, lambda: view.text(done), lambda: view.as_json(done))
    return 0 if done.right else 1


def kept(folder: str, file: str, module: Module, arch: str) -> None:
    """Write the PTX of a module that is loaded, and what ptxas makes of it."""
    from ptxlab.toolchain.nvjitlink import link_ptx
    from ptxlab.verbs.launching.keeping import keep

    cubin = None
    with suppress(DeviceUnavailable):
        cubin = link_ptx(module.tree.source.text, arch=arch, path=file) if module.tree else None
    keep(folder, file, module.tree, cubin, arch)


def save(saved: Sequence[tuple[str, str]], arguments: Sequence[Argument]) -> None:
    """Write the arrays that ``--save`` names; those of one .npz file go into it together."""
    from ptxlab.verbs.launching.arrays import npy, npz

    arrays = {
        argument.name: argument.value for argument in arguments if argument.before is not None
    }
    for path in dict.fromkeys(path for _, path in saved):
        names = [name for name, other in saved if other == path]
        if path.endswith(".npz"):
            chosen = arrays if "" in names else {name: arrays[name] for name in names}
            write_whole(path, npz(chosen))
        else:
            write_whole(path, npy(arrays[names[-1]]))


def time(launch: PreparedLaunch) -> Timing:
    """Launch again and again, on what the launches before left in the arrays."""
    from ptxlab.device.stopwatch import Timing

    fewest, most = TIMED_LAUNCHES
    seconds: list[float] = []
    while len(seconds) < fewest or (len(seconds) < most and sum(seconds) < TIMED_SECONDS):
        seconds.append(launch.run().seconds)
    return Timing.of(seconds, 1)
