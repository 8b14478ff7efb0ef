"""``ptxlab run``: launch one kernel of a file with arguments from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, emit, open_device, write_whole
from ptxlab.cli.readers import name_value, output_path, suggestion
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch

if TYPE_CHECKING:
    from ptxlab.cli.values import Value
    from ptxlab.verbs.launching.launching import Launch
    from ptxlab.verbs.launching.text import Argument, Timing

NAME = "run"
SUMMARY = "launch a kernel of any .ptx or .cu file with arguments from the command line"
EXAMPLE = f"""\
example:
  ptxlab run ptx/mma_m16n8k16_bf16_f32.ptx
  ptxlab run ptx/mma_m16n8k16_bf16_f32.ptx --expect "d = d + a.astype(f32) @ b.astype(f32)" \\
      --tolerance 1e-5,1e-5
  ptxlab run saxpy.ptx --grid 2 --block 128 --arg n=256 --arg a=2.0 \\
      --arg "x=arange(256,f32)" --arg "y=randn(256,f32,seed=1)" --save y=y.npy

{ARGUMENTS}

--expect takes the same arrays, or a NumPy expression over the arguments as they were before the
launch; types go by their PTX names. Exit status 1 when an element is not as expected. A kernel on a
GPU runs in a process of its own, which --timeout ends if it hangs."""

TIMED_SECONDS, TIMED_LAUNCHES = 1.0, (20, 1000)
"""How long --time goes on, and how many launches it makes at least and at most."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.description = EXAMPLE
    add_launch(parser)
    group = parser.add_argument_group("what becomes of the result")
    group.add_argument(
        "--save",
        action="append",
        default=[],
        type=saved,
        metavar="[NAME=]FILE",
        help="write an array to a .npy or .npz file after the launch; without NAME all, as .npz",
    )
    group.add_argument(
        "--expect",
        action="append",
        default=[],
        type=name_value,
        metavar="NAME=WHAT",
        help="what an array should hold after the launch",
    )
    group.add_argument(
        "--tolerance",
        type=tolerance,
        default=(0.0, 0.0),
        metavar="RTOL[,ATOL]",
        help="how far from it is right: atol + rtol |expected| (default 0,0)",
    )
    group.add_argument(
        "--time", action="store_true", help="launch again and again on a GPU, and time it"
    )
    add_common(parser)


def saved(text: str) -> tuple[str, str]:
    """Read ``NAME=FILE`` or ``FILE.npz`` of ``--save``; all arrays have the name ""."""
    name, equals, path = text.partition("=") if "=" in text else ("", "", text)
    if not path or bool(name) != bool(equals) or not (name or path.endswith(".npz")):
        raise ValueError(f"{text!r} is not NAME=FILE.npy, NAME=FILE.npz or FILE.npz")
    return name, output_path(path)


def tolerance(text: str) -> tuple[float, float]:
    """Read the relative and absolute error that ``--tolerance`` allows."""
    try:
        rtol, atol = (*map(float, text.split(",")), 0.0)[:2]
        if not (0 <= rtol < float("inf") and 0 <= atol < float("inf")) or text.count(",") > 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not RTOL or RTOL,ATOL") from None
    return rtol, atol


def execute(args: argparse.Namespace) -> int:
    """Launch the kernel, print, save and compare the arrays it was given; 1 when one is wrong."""
    from ptxlab.verbs.launching import launching
    from ptxlab.verbs.launching import text as view
    from ptxlab.verbs.run.expecting import compare, expected

    asked = launching.read_launch(args)
    check_saved(args.save, asked.values)
    wanted = expected(args.expect, asked.values)
    with closing(open_device(args)) as device:
        if args.time and device.kind != "cuda":
            raise PtxlabError(
                "--time measures a GPU, and this is the emulator, whose seconds say nothing about one",
                hint="ptxlab profile FILE counts what the kernel does",
            )
        launch = launching.bind_launch(asked, device)
        result = launch.run()
        arguments = launch.arguments()
        timing = time(launch) if args.time else None
    by_name = {argument.name: argument for argument in arguments}
    done = view.Launch(
        file=args.file,
        kernel=launch.kernel.name,
        device=device.kind,
        arch=device.target.name,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.asked.cluster,
        shared=launch.config.shared,
        seconds=result.seconds,
        counters=result.counters,
        arguments=arguments,
        expectations=tuple(compare(one, by_name[one.name], args.tolerance) for one in wanted),
        timing=timing,
    )
    save(args.save, arguments)
    emit(args, lambda: view.text(done), view.as_json(done))
    return 0 if done.right else 1


def check_saved(saved: Sequence[tuple[str, str]], values: Mapping[str, Value]) -> None:
    """Refuse, before any work is done, to save what is no array."""
    from ptxlab.cli.values import ArrayValue

    arrays = [name for name, value in values.items() if isinstance(value, ArrayValue)]
    for name, _ in saved:
        if name and name not in arrays:
            raise PtxlabError(
                f"--save {name}: no array argument has this name{suggestion(name, arrays)}",
                hint=f"arrays are {', '.join(arrays)}" if arrays else None,
            )


def save(saved: Sequence[tuple[str, str]], arguments: Sequence[Argument]) -> None:
    """Write the arrays that ``--save`` names; those of one .npz file go into it together."""
    from ptxlab.verbs.run.arrays import npy, npz

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


def time(launch: Launch) -> Timing:
    """Launch again and again, on what the launches before left in the arrays."""
    import numpy as np

    from ptxlab.verbs.launching.text import Timing

    fewest, most = TIMED_LAUNCHES
    seconds: list[float] = []
    while len(seconds) < fewest or (len(seconds) < most and sum(seconds) < TIMED_SECONDS):
        seconds.append(launch.run().seconds)
    p20, median, p80 = np.percentile(seconds, (20, 50, 80))
    return Timing(len(seconds), float(median), float(p20), float(p80))
