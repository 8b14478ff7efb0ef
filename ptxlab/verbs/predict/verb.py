"""``ptxlab predict``: how long a launch would take on a GPU that is not here, and what it waits for."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.failures import say
from ptxlab.cli.options import How, add
from ptxlab.cli.readers import listed, positive, target, words
from ptxlab.cli.terminal import terminal_width
from ptxlab.errors import PtxlabError, ToolchainError, Unsupported
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch
from ptxlab.verbs.launching.watching import on_emulator

if TYPE_CHECKING:
    from ptxlab.prediction.chip import Chip
    from ptxlab.prediction.model import Prediction
    from ptxlab.verbs.launching.launch import Asked

EXAMPLE = f"""\
example:
  ptxlab predict kernels/naive.cu --gpu rtx3090
  ptxlab predict kernels/tiled.cu --gpu a100 --clock 1410
  ptxlab predict kernels/tiled.cu --gpu a100 --gpu h100 --gpu rtx4090      side by side

The machine code for that very GPU is run on a model of one SM, clock by clock, from ptxas's own stalls
and scoreboards and published constants; the rest of the grid follows. docs/predict.md has what the model
said of published kernels, and how far off it was.

{ARGUMENTS}"""


DEFAULT = "rtx3090"

OPTIONS = """
--gpu NAME   a100, rtx3090, rtx4090 ..., or a file that tells of one, mine.toml; more with commas or given
             again, or all, side by side (default rtx3090, or the first of --arch); an unknown name lists them
--clock MHZ  of its SMs (default the boost clock, or what the limit of power leaves tensor cores and FMA pipes, of those
             where that was measured)
--cold       the launch begins alone and the L2 cache has nothing, as under Nsight Compute and in benchmarks that empty it
--what-if CHANGES  what it would take otherwise, predicted too: occupancy=2,smem=conflict-free,dram=inf,stalls=0
             are made together; again for more; "all" is each alone, the one that saves most first
--assume LINE=yes  of what depends on data that is not computed: that a branch at this line is taken, or memory there is asked;
             no: that it is not; FILE:LINE in a header; again for more
--compare FILE  another program, launched alike, that this one is compared with: the one of before
"""


def assumed(text: str) -> tuple[str, bool]:
    """Read ``64=yes``."""
    where, _, holds = text.partition("=")
    if not where or holds not in ("yes", "no"):
        raise ValueError(f"{text!r} is no line that is assumed, such as 64=yes or 64=no")
    return where, holds == "yes"


READERS: dict[str, How] = {
    "gpu": listed(words), "clock": positive, "what-if": [str], "assume": [assumed],
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    add(parser, OPTIONS, **READERS)
    add_common(parser, ("csv",), many_targets=True, target=target_or_gpu)
    parser.set_defaults(device="emulator", device_options=())


def target_or_gpu(text: str) -> str:
    """Read ``--arch``, of which a GPU stays as it is called: others of its target take another time."""
    from ptxlab.prediction.chip import is_gpu

    return text if is_gpu(text) else target(text)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.cli.progress import LaunchProgress
    from ptxlab.verbs.launching.launch import read_launch
    from ptxlab.verbs.predict import text as view

    on_emulator(
        args,
        "predict is for GPUs that are not here",
        "leave out --device; ptxlab run times a kernel on a GPU",
    )
    gpus = [chip.found(args.cold) for chip in chips(args.gpu, args.arch)]
    args.arch = gpus[0].gpu.target.name  # so that no header chooses one
    before = [read_launch(copied(args, args.compare))] if args.compare else []
    asked = read_launch(args)
    if before:
        pairs = [
            (each.file, predicted(each, chip, args)) for each in (*before, asked) for chip in gpus
        ]
        compared = view.compared_json(pairs)
        text = view.compared_text(pairs, terminal_width(args))
        emit(args, text, compared, csv=lambda: view.csv(compared))
        return 0
    progress = LaunchProgress(what="GPUs")
    predictions: list[Prediction] = []
    left_out: dict[str, str] = {}
    for number, chip in enumerate(gpus):
        progress(number, len(gpus))
        try:
            predictions.append(predicted(asked, chip, args))
        except (ToolchainError, Unsupported) as error:
            if "all" not in args.gpu or (chip is gpus[-1] and not predictions):
                raise
            lines = error.message.splitlines()
            left_out[chip.gpu.name] = next((line for line in lines if "error" in line), lines[0])
    progress(len(gpus), len(gpus))
    if left_out:
        why = next(iter(left_out.values()))
        say(f"ptxlab: left out are {', '.join(left_out)}, where it does not run: {why}")
    data = view.as_json(predictions)
    emit(
        args,
        lambda: view.text(predictions, terminal_width(args)),
        data,
        csv=lambda: view.csv(data),
    )
    return 0


def copied(args: argparse.Namespace, file: str) -> argparse.Namespace:
    """Return the same options for another program, whose header may complete them otherwise."""
    return argparse.Namespace(**vars(args) | {"file": file})


def chips(names: list[str], archs: list[str]) -> list[Chip]:
    """Return the GPUs that are meant: those named, or the first of each target. Raises PtxlabError for both that differ."""
    from ptxlab.isa.gpus import gpus_of
    from ptxlab.isa.targets import TARGETS
    from ptxlab.prediction.chip import chip_of, find, is_gpu
    from ptxlab.prediction.chip import names as known

    gpus = {arch: (find(arch).gpu,) if is_gpu(arch) else gpus_of(TARGETS[arch]) for arch in archs}
    if "all" in names:
        able = [gpu for each in gpus.values() for gpu in each]
        names = [name for name in known() if not archs or find(name).gpu in able]
    if not archs:
        return list({chip.gpu.name: chip for chip in map(find, names or [DEFAULT])}.values())
    if missing := [arch for arch, able in gpus.items() if not able]:
        raise PtxlabError(
            f"no GPU of {missing[0]} is known", hint=f"--gpu names one: {', '.join(known())}"
        )
    if not names:
        return [chip_of(able[0]) for able in gpus.values()]
    named = [find(name) for name in names]
    for chip in named:
        if not any(chip.gpu in able for able in gpus.values()):
            raise PtxlabError(
                f"{chip.gpu.name} is {chip.gpu.target.name}, and --arch says {', '.join(archs)}",
                hint="leave out --arch: the program is compiled for the GPU",
            )
    return named


def predicted(asked: Asked, chip: Chip, args: argparse.Namespace) -> Prediction:
    """Compile the program for a chip and predict the launch there, and with each of some changes."""
    from ptxlab.prediction.predict import load_for, of_launch
    from ptxlab.prediction.unfilled import UnfilledDevice
    from ptxlab.verbs.launching.launch import bind_launch

    with closing(UnfilledDevice(chip.gpu.target)) as device:
        assembly, module = load_for(device, asked.file, asked.options)
        launch = bind_launch(asked, device, module)
        config = launch.config
        return of_launch(
            assembly,
            launch.kernel,
            config,
            launch.passed,
            chip,
            args.clock,
            what_if=args.what_if,
            assume=dict(args.assume),
        )
