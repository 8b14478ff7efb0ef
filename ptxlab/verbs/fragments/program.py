"""``--ptx FILE``: every ``mma`` of any kernel, each operand's registers beside what they should hold.

What that is, its arguments say: an operand should hold the tile of an argument that most of its numbers come
from, and D the product of what A, B and C held.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ptxlab.arrays import Array
from ptxlab.cli.common import emit, open_device
from ptxlab.device.loading import find_file, is_cuda, is_machine_code
from ptxlab.device.protocol import Dump
from ptxlab.errors import PtxlabError
from ptxlab.files import read_text
from ptxlab.fragments.handwritten import is_as_ours
from ptxlab.fragments.misplaced import Held
from ptxlab.fragments.numbers import decode
from ptxlab.instrument.places import OPERANDS, DumpPlace, find_places
from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.naming import named as catalog_named
from ptxlab.observe.profile import count
from ptxlab.observe.rounding import UNIT
from ptxlab.syntax.names import called
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import Name, Vector
from ptxlab.verbs.dump import expecting
from ptxlab.verbs.dump.expecting import OperandComparison, patterns
from ptxlab.verbs.dump.inferring import tile_of
from ptxlab.verbs.dump.text import ShownDump, operands
from ptxlab.verbs.launching.expression import evaluate
from ptxlab.verbs.launching.launch import PreparedLaunch, bind_launch, read_launch
from ptxlab.verbs.launching.values import named

SCHEMA = "ptxlab.fragments.program/1"
DEFAULT_PLACE = "mma.sync"
MOST = 8
"""How many instructions are looked at, unless the user says which."""
_EXACT = ("f16", "bf16", "tf32", "f64", "s8", "u8", "s4", "u4")
"""The types of A of which products are added up with no less than what D has."""


@dataclass(frozen=True, slots=True)
class Looked:
    """One instruction at its first time: operands beside what they should hold, and those of which nobody knows.

    ``warp`` is the first one of CTA 0 that was there, None if none was.
    """

    line: int
    instruction: str
    warp: int | None
    comparisons: tuple[OperandComparison, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()


def is_of_its_own(args: argparse.Namespace, launched: bool) -> bool:
    """Say whether the program of ``--ptx`` is launched with its own arguments.

    One kernel with the parameters of ptxlab's own programs, and one mma, is given matrices instead.
    """
    if launched or is_cuda(args.ptx) or is_machine_code(args.ptx):
        return True
    text = read_text(find_file(args.ptx))
    return not is_as_ours(parse(text, args.ptx, skim=True))


def run(args: argparse.Namespace) -> int:
    """Run, print, and return 0 when all is where it should be, 1 when not."""
    for name in ("op", "dtype", "acc", "operand", "full", "lane", "element"):
        if getattr(args, name):
            raise PtxlabError(
                f"--{name} is about one instruction, --ptx {args.ptx} has its own",
                hint="--at chooses among them, and ptxlab dump shows what they hold",
            )
    args = argparse.Namespace(**{**vars(args), "file": args.ptx})
    asked = read_launch(args)
    with closing(open_device(args)) as device:
        module = device.load(Path(asked.file), options=asked.options)
        kernel = module.kernel(asked.kernel)
        assert module.tree is not None
        assert kernel.function is not None
        at = args.at or DEFAULT_PLACE
        places = find_places(module.tree, kernel.function, at, needs_registers=False)
        launched = partial(bind_launch, asked, device, module)
        there = _executed(launched(), sorted(places, key=_line))
        most = None if args.at else MOST
        looked = [_look(launched, place) for place in there[:most]]
        left = [_line(place) for place in there[len(looked) :]]
        where = f"{called(kernel.name)} of {args.ptx} on {device.kind} ({device.target.name})"
        data = {
            "schema": SCHEMA,
            "file": args.ptx,
            "kernel": kernel.name,
            "device": device.kind,
            "arch": device.target.name,
            "instructions": [asdict(each) for each in looked],
            "not_looked_at": left,
        }
    ptx = " of its PTX" * is_cuda(args.ptx)
    emit(args, lambda: text(where, looked, left, ptx), data)
    return 1 if any(comparison.wrong for each in looked for comparison in each.comparisons) else 0


def _line(place: DumpPlace) -> int:
    return place.instruction.position.line


def _executed(launch: PreparedLaunch, places: Sequence[DumpPlace]) -> list[DumpPlace]:
    """Leave out what no warp executes, as copies of a loop for other sizes, where that is counted."""
    if launch.device.kind == "cuda":
        return list(places)
    profile = count(launch.kernel, launch.config, launch.passed)
    executed = {line.number for line in profile.lines if line.counts.executed}
    reached = [place for place in places if _line(place) in executed]
    if not reached:
        raise PtxlabError(
            f"the launch comes by none of {len(places)} instructions",
            hint="--grid, --block and --arg say how it is launched",
        )
    return reached


def _look(launched: Callable[[], PreparedLaunch], place: DumpPlace) -> Looked:
    """Launch twice, and compare what is in registers before and after an instruction."""
    line, name = _line(place), place.instruction.name
    letters = [
        letter
        for letter, operand in zip(OPERANDS, place.instruction.operands, strict=False)
        if isinstance(operand, (Vector, Name))
    ]
    sources = tuple(letter for letter in letters if letter != "D")
    launch = launched()
    before = _shown(launch, Dump(line, sources, before=True))
    after = before and _shown(launched(), Dump(line, ("D",)))
    if before is None or after is None:
        return Looked(line, name, None, (), (("all", "no whole warp of CTA 0 came by"),))
    values = named(launch.asked.values)
    comparisons: list[OperandComparison] = []
    unknown: list[tuple[str, str]] = []
    held: dict[str, tuple[FragmentLayout, Array]] = {}
    for layout, first in operands(before):
        words = _words(before, layout, first)
        held[layout.operand] = layout, words
        tile = tile_of(layout, words, values)
        if tile is None:
            unknown.append((layout.operand, _why(layout, words)))
            continue
        wanted = {layout.operand: (tile, np.asarray(evaluate(tile, values)))}
        comparisons += expecting.compare(before, wanted, (0.0, 0.0), values)
    for layout, first in operands(after):
        product = _product(name, held, _words(after, layout, first))
        if product is None:
            unknown.append(("D", "its product is not worked out here"))
        else:
            comparisons.append(product)
    return Looked(line, name, before.warp, tuple(comparisons), tuple(unknown))


def _shown(launch: PreparedLaunch, dump: Dump) -> ShownDump | None:
    """Return what the first whole warp of CTA 0 that came by had, None if none did."""
    dumped = launch.run(dump).dump
    assert dumped is not None
    warps = launch.config.cta_threads // WARP
    came = dumped.reached[: warps * WARP].reshape(warps, WARP).all(axis=1)
    if not came.any():
        return None
    return ShownDump(dumped.launch, (0,), int(np.argmax(came)), None, None, dumped)


def _words(shown: ShownDump, layout: FragmentLayout, first: int) -> Array:
    threads = shown.holders(layout.threads)
    return shown.dumped.words[threads, first : first + layout.registers_per_lane]


def _why(layout: FragmentLayout, words: Array) -> str:
    """Say why it is unknown what registers should hold."""
    values = np.unique(layout.unpack(words))
    if len(values) == 1:
        value = float(decode(layout, values)[0])
        return f"all of its elements are {value:g}: nothing tells them apart"
    return "no array argument has a tile with half of its numbers"


def _product(
    name: str, held: Mapping[str, tuple[FragmentLayout, Array]], words: Array
) -> OperandComparison | None:
    """Compare D with the product of what A, B and C held, as far as rounding lets it be known."""
    form = catalog_named(name)
    if not isinstance(form, MatrixInstruction) or form.metadata is not None or form.scales:
        return None
    layout = form.operand("D")
    if form.operand("A").dtype not in _EXACT or layout.matrices > 1 or len(held) < len("ABC"):
        return None
    a, b, c = (
        decode(layout, layout.unpack(words)).astype(np.float64)
        for layout, words in (held[x] for x in "ABC")
    )
    with np.errstate(all="ignore"):
        product, size = a @ b + c, np.abs(a) @ np.abs(b) + np.abs(c)
    got = layout.unpack(words).astype(np.uint64)
    value = decode(layout, got).astype(np.float64)
    bound = 2 * (form.k + 2) * UNIT.get(layout.dtype, 0.0) * size
    right = ~(np.abs(value - product) > bound)
    wanted = patterns(layout, product.astype(np.int64) if layout.dtype == "s32" else product)
    assert wanted is not None
    compared = Held(layout, words, np.where(right, got, wanted))
    return OperandComparison(
        "D", "A @ B + C", got.size, len(compared.wrong), tuple(compared.explained())
    )


def text(where: str, looked: Sequence[Looked], left: Sequence[int], ptx: str) -> str:
    blocks = [[where]]
    for each in looked:
        warp = "" if each.warp is None else f", warp {each.warp}"
        lines = [f"line {each.line}{ptx}  {each.instruction}{warp}"]
        told = {compared.operand: expecting.text(compared) for compared in each.comparisons}
        told |= {operand: [f"{operand} is unknown: {why}"] for operand, why in each.unknown}
        lines += [f"  {line}" for operand in sorted(told) for line in told[operand]]
        blocks.append(lines)
    if left:
        blocks.append([f"{len(left)} more, the next on line {left[0]}: --at LINE"])
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"
