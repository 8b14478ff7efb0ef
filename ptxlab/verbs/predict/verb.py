"""``ptxlab predict``: how long a launch would take on a GPU that is not here, and what it waits for."""

from __future__ import annotations

import argparse
from contextlib import closing

from ptxlab.cli.common import add_common, emit, terminal_width
from ptxlab.cli.options import add
from ptxlab.cli.readers import positive
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch
from ptxlab.verbs.launching.watching import on_emulator

EXAMPLE = f"""\
example:
  ptxlab predict kernels/naive.cu --gpu rtx3090
  ptxlab predict kernels/tiled.cu --gpu a100 --clock 1410

The machine code for that very GPU is run on a model of one SM, clock by clock, from ptxas's own stalls
and scoreboards and published constants; the rest of the grid follows. docs/predict.md has what the model
said of published kernels, and how far off it was.

{ARGUMENTS}"""


OPTIONS = """
--gpu NAME   a100, rtx3090, rtx4090 ...; an unknown name lists them all
--clock MHZ  of its SMs (default the boost clock)
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    add(parser, OPTIONS, clock=positive)
    add_common(parser)
    parser.set_defaults(device="emulator", device_options=(), gpu="rtx3090")


def execute(args: argparse.Namespace) -> int:
    from ptxlab.machine.assembly import Assembly
    from ptxlab.prediction.chip import find
    from ptxlab.prediction.predict import load_for, of_launch, target_of
    from ptxlab.prediction.unfilled import UnfilledDevice
    from ptxlab.verbs.launching.launch import bind_launch, read_launch
    from ptxlab.verbs.predict import text as view

    on_emulator(
        args,
        "predict is for GPUs that are not here",
        "leave out --device; ptxlab run times a kernel on a GPU",
    )
    chip = find(args.gpu)
    args.arch = target_of(chip).name
    asked = read_launch(args, line_info=True)
    program, cubin = load_for(chip, asked.file, asked.options)
    assembly = Assembly(program, cubin)
    with closing(UnfilledDevice(target_of(chip))) as device:
        launch = bind_launch(asked, device, device.load(program))
        prediction = of_launch(
            assembly, launch.kernel, launch.config, launch.passed, chip, args.clock
        )
    emit(
        args,
        lambda: view.text(prediction, view.sources_of(prediction), terminal_width(args)),
        lambda: view.as_json(prediction),
    )
    return 0
