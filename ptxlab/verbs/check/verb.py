"""``ptxlab check``: what is wrong with a launch, found on the emulator."""

from __future__ import annotations

import argparse
from contextlib import closing

from ptxlab.cli.common import add_common, emit, open_device
from ptxlab.cli.readers import one_of, words
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch

EXAMPLE = f"""\
example:
  ptxlab check kernels/tensor_core.cu
  ptxlab check my.ptx --grid 4 --block 128 --arg "x=zeros(512,f32)" --checks race,async --strict

checks:
  race           accesses to shared memory by threads of a CTA that no barrier orders: an error
                 between warps, a warning within one, information where both write the same value;
                 accesses to global memory by two CTAs or warps, without a fence and a flag between
  async          memory that a cp.async still reads or writes, and copies nobody has waited for
  barrier        barriers and warp instructions that threads do not reach as they must
  deadlock       threads that wait for each other for ever
  bounds         accesses outside every allocation, to read-only memory, or from one variable in shared
                 memory into another
  alignment      addresses that are no multiple of the access, rows of ldmatrix among them
  uninitialized  reads of shared memory, local memory and registers before they are written, and of
                 lanes that take no part in a shuffle: an error where the value reaches a store, an
                 address, a branch or a returned value, else information

Races in shared memory are found by what the program orders, not by luck: if a byte is raced for, some
race for it is reported. Only bar.sync, barrier and bar.warp.sync order shared memory here; what threads
order by a fence and a flag is not followed, which is said where it matters. In global memory a fence of
the CTA that wrote and a strong read (atom, ld.acquire, volatile) of the other that follows it count
as order, whatever the flag: a missing fence is found, one of the wrong variable is not, and nor is a race
within a warp. A fault (barrier, deadlock, bounds, alignment) stops the launch. Not checked: arrays
in global memory that were never written (what comes from --arg is).

The verdict is clean, findings, or incomplete where something of the launch cannot be checked. Exit
status 0 when nothing worse than warnings was found, 1 otherwise and when incomplete.

{ARGUMENTS}"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    parser.add_argument(
        "--checks", type=checks, metavar="NAME,...", help="what to check (default all of the above)"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 for a warning, as for an error"
    )
    add_common(parser)


def checks(text: str) -> tuple[str, ...]:
    from ptxlab.observe.check_report import CHECKS

    return tuple(one_of("check", name, CHECKS) for name in words(text))


def execute(args: argparse.Namespace) -> int:
    from ptxlab.observe.check import check, incomplete
    from ptxlab.observe.check_report import CHECKS
    from ptxlab.verbs.check import text as view
    from ptxlab.verbs.launching.launch import bind_launch, read_launch
    from ptxlab.view.sources import read_sources

    if args.device.startswith("cuda"):
        raise PtxlabError(
            "ptxlab checks on the emulator; a GPU runs Compute Sanitizer",
            hint="leave out --device, or run compute-sanitizer --tool racecheck ptxlab run ...",
        )
    asked = read_launch(args, line_info=True)
    args.device = "emulator"
    wanted = args.checks or CHECKS
    with closing(open_device(args)) as device:
        try:
            launch = bind_launch(asked, device)
        except Unsupported as error:
            report = incomplete(asked.file, wanted, error)
        else:
            report = check(launch.kernel, launch.config, launch.passed, wanted)
    places = [f.source for f in report.findings] + [f.other_source for f in report.findings]
    sources = read_sources({place.path for place in places if place is not None})
    emit(args, lambda: view.text(report, sources), lambda: view.as_json(report))
    return int(report.failed(strict=args.strict))
