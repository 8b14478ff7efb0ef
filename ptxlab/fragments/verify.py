"""Looking at an instruction on a device: launch, dump, compare, report."""

from __future__ import annotations

from os import PathLike

from ptxlab.device.protocol import Device
from ptxlab.errors import Unsupported
from ptxlab.fragments import receipts
from ptxlab.fragments.compare import mismatches
from ptxlab.fragments.dump import Instrumented
from ptxlab.fragments.fill import ADDRESSING, NUMBERED, Fill, inputs
from ptxlab.fragments.program import handwritten
from ptxlab.fragments.report import FragmentReport
from ptxlab.isa import MatrixInstruction


def verify(
    device: Device,
    instruction: MatrixInstruction,
    fill: Fill = NUMBERED,
    ptx: str | PathLike[str] | None = None,
) -> FragmentReport:
    """Run ``instruction`` on ``device`` and compare registers and result with the prediction.

    ``fill`` is what the report shows; launches with numbered A and B and with an addressed C and D
    follow, because only they tell every element from every other. ``ptx`` is another program than
    the handwritten one, with the same parameters (file or text). Raises Unsupported for an
    instruction without a handwritten one, and when the device's target has no such instruction.
    """
    if not instruction.runs_on(device.target):
        raise Unsupported(
            f"{instruction.name} needs {instruction.minimum_target}, "
            f"the device is {device.target.name}"
        )
    own = handwritten(instruction)
    program = Instrumented.load(device, instruction, own if ptx is None else ptx)
    fills = dict.fromkeys((fill, NUMBERED, ADDRESSING))
    runs = tuple(program.run(inputs(instruction, each)) for each in fills)
    found = mismatches(instruction, runs)
    proven = device.kind == "cuda" and not any(m.where == "register" for m in found)
    return FragmentReport(
        instruction=instruction,
        device_kind=device.kind,
        device_name=device.name,
        target=device.target,
        runs=runs,
        mismatches=found,
        hardware=device.name if proven else receipts.hardware(instruction),
    )
