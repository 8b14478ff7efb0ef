"""Looking at an instruction on a device: launch it with its registers dumped, compare, report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from os import PathLike

from ptxlab.arrays import Array
from ptxlab.device.loading import load_ptx
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Device, Kernel
from ptxlab.errors import Unsupported
from ptxlab.fragments import receipts
from ptxlab.fragments.handwritten import (
    explained,
    find_mma,
    handwritten,
    matrices,
    mismatches,
    registers,
    verifiable,
)
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.probe_kernel import module
from ptxlab.fragments.probes import ProbeKernel, filled, probe_kernels
from ptxlab.fragments.probes.kernel import launch
from ptxlab.fragments.report import FragmentReport, FragmentRun, Mismatch
from ptxlab.instrument.rewrite import Probe, dump_registers
from ptxlab.instrument.sites import instructions
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.wmma_move import WmmaMove
from ptxlab.syntax.parser import parse
from ptxlab.syntax.printer import to_text
from ptxlab.syntax.tree import Function, Instruction, PtxModule

_OVER = ("wgmma.wait_group", "tcgen05.wait::ld")
"""What results of asynchronous instructions are there after."""


@dataclass(frozen=True, slots=True)
class Watched:
    """An operand: its layout, its registers in the program, and whether they are looked at ``after``."""

    layout: FragmentLayout
    registers: tuple[str, ...]
    after: bool


def verify(
    device: Device,
    instruction: Form,
    fill: Fill = "numbered",
    ptx: str | PathLike[str] | None = None,
) -> FragmentReport:
    """Run ``instruction`` on ``device`` and compare registers and result with the prediction.

    ``fill`` is what the report shows. Of an instruction with a handwritten program, that is run:
    launches with numbered A and B and with an addressed C and D follow, because only they tell every
    element from every other. ``ptx`` is another such program, with the same parameters (file or text).
    Of all others a generated program shows the fill, and one-hot probes tell the elements. Raises
    Unsupported when the device's target has no such instruction, or ptxlab no program for it.
    """
    if not instruction.runs_on(device.target):
        raise Unsupported(
            f"{instruction.name} needs {instruction.minimum_target}, "
            f"the device is {device.target.name}",
            hint="--device emulator plays any target" if device.kind != "emulator" else None,
        )
    if ptx is not None or instruction in verifiable():
        runs, mismatches, told = _handwritten(device, instruction, fill, ptx)
        probes, own_layout = 0, False
    else:
        runs, told = (_generated(device, instruction, fill),), ()
        probes, mismatches, own_layout = _probed(device, instruction)
    proven = device.kind == "cuda" and not any(m.where != "memory" for m in mismatches)
    return FragmentReport(
        instruction=instruction,
        device_kind=device.kind,
        device_name=device.name,
        target=device.target,
        runs=runs,
        probes=probes,
        mismatches=mismatches,
        hardware=device.name if proven else receipts.hardware(instruction),
        own_layout=own_layout,
        explained=told,
    )


def leaves_open(device: Device) -> bool:
    """Say whether the device's own choices, where PTX promises nothing, are unknown.

    The layouts of ``wmma`` are those of ptxlab's emulator alone.
    """
    return device.kind != "emulator"


def _probed(device: Device, form: Form) -> tuple[int, tuple[Mismatch, ...], bool]:
    """Return how many probes ran, what is wrong, and whether what PTX leaves open is other than here."""
    every: list[ProbeKernel] = list(probe_kernels(form, target=device.target.name))
    bodies = [(form, probe_kernel.body) for probe_kernel in every]
    loaded = device.load(module(bodies, device.target.name))
    mismatches: list[Mismatch] = []
    other = False
    for probe_kernel, kernel in zip(every, loaded.kernels.values(), strict=True):
        words = launch(device, kernel, probe_kernel)
        wrong = probe_kernel.wrong(words, leaves_open(device))
        mismatches += probe_kernel.mismatches(words, wrong)
        other |= len(probe_kernel.wrong(words, promised_only=False)) > len(wrong)
    return sum(probe_kernel.count for probe_kernel in every), tuple(mismatches), other


def _handwritten(
    device: Device, form: Form, fill: Fill, ptx: str | PathLike[str] | None
) -> tuple[tuple[FragmentRun, ...], tuple[Mismatch, ...], tuple[str, ...]]:
    """Launch one warp of a program on what each of the fills means, with dumps, and compare.

    What is wrong follows, element by element and in sentences.
    """
    instruction, own = handwritten(form)
    program = load_ptx(own if ptx is None else ptx, device.target)
    entry, statement = find_mma(program, instruction)
    names = registers(program, statement, instruction)
    watched = [Watched(o, names[o.operand], o.operand == "D") for o in instruction.operands]
    kernel = _dumping(device, program, entry, (statement, statement), watched)

    def run(fill: Fill) -> FragmentRun:
        given = matrices(instruction, fill)
        with (
            device.upload(given["A"]) as a,
            device.upload(given["B"]) as b,
            device.upload(given["C"]) as d,
        ):

            def launch(dump: Buffer) -> Array:
                kernel.launch(1, WARP, [a, b, d, instruction.k, dump])
                return d.numpy()

            return _run(device, watched, fill, launch)

    fills: tuple[Fill, ...] = (fill, "numbered", "addressing")
    runs = tuple(map(run, dict.fromkeys(fills)))
    wrong = mismatches(instruction, runs)
    told = explained(instruction, runs) if wrong else ()
    line = statement.position.line
    return runs, wrong, tuple(f"line {line}: {sentence}" for sentence in told)


def _generated(device: Device, form: Form, fill: Fill) -> FragmentRun:
    """Launch a warp or warpgroup of a generated program on what ``fill`` means, and dump its registers."""
    probe_kernel = filled(form, fill)
    program = parse(module([(form, probe_kernel.body)], device.target.name), f"<{form.name}>")
    (entry,) = program.entries
    every = (site.instruction for site in instructions(entry))
    statement, *after = dropwhile(lambda each: each.name != form.name, every)
    done = next((over for over in after if over.name.startswith(_OVER)), statement)
    watched = list(_watched(form))
    kernel = _dumping(device, program, entry, (statement, done), watched)

    def result(dump: Buffer) -> Array | None:
        return probe_kernel.result(launch(device, kernel, probe_kernel, dump))

    return _run(device, watched, fill, result, probe_kernel.body.threads)


def _dumping(
    device: Device,
    program: PtxModule,
    entry: Function,
    around: tuple[Instruction, Instruction],
    watched: Sequence[Watched],
) -> Kernel:
    """Return a kernel of the program that dumps operands before one statement and after another."""
    probes = [Probe(around[each.after].position, each.registers, each.after) for each in watched]
    text = to_text(dump_registers(program, entry.name, probes))
    return device.load(text).kernel(entry.name)


def _run(
    device: Device,
    watched: Sequence[Watched],
    fill: Fill,
    launch: Callable[[Buffer], Array | None],
    threads: int = WARP,
) -> FragmentRun:
    """Return what ``launch``, which is given the buffer, leaves in the registers, and its result."""
    slots = sum(len(each.registers) for each in watched)
    with device.zeros((threads, slots), "u64") as dump:
        result = launch(dump)
        words = dump.numpy()
    held: dict[str, Array] = {}
    first = 0
    for each in watched:
        columns = words[:, first : first + len(each.registers)]
        own = columns[: each.layout.threads]  # of several warps the first
        held[each.layout.operand] = own.astype(f"u{each.layout.register_bits // 8}")
        first += len(each.registers)
    after = frozenset(each.layout.operand for each in watched if each.after)
    return FragmentRun(fill, held, after, result)


def _watched(form: Form) -> Iterator[Watched]:
    """Yield the operands of an instruction, with what generated programs call their registers."""
    roles = {operand.name: operand.role for operand in form.signature}
    for layout in form.operands:
        letter = layout.operand.lower()
        names = tuple(f"{letter}{i}" for i in range(layout.registers_per_lane))
        role = roles["r" if isinstance(form, WmmaMove) else letter]
        yield Watched(layout, names, after=role == "result")
