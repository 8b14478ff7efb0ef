"""The result of ``ptxlab run`` as text and as JSON: what a kernel was given and what it left."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxlab.device.protocol import Kernel, LaunchResult
from ptxlab.instrument.sites import instructions
from ptxlab.launch_config import short
from ptxlab.syntax.names import brief
from ptxlab.verbs.launching.launch import Argument, PreparedLaunch
from ptxlab.verbs.run.expecting import Expectation
from ptxlab.view.fidelity import unverified
from ptxlab.view.json import members
from ptxlab.view.text import hexadecimal, number

if TYPE_CHECKING:
    from ptxlab.device.stopwatch import Timing

SCHEMA = "ptxlab.run/2"


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """A launch, what it told, and its arguments after it.

    ``expectations`` are what the user expected of arrays, ``timing`` how long repeated launches took.
    """

    launch: PreparedLaunch
    result: LaunchResult
    arguments: tuple[Argument, ...]
    expectations: tuple[Expectation, ...] = ()
    timing: Timing | None = None

    @property
    def right(self) -> bool:
        return not any(expectation.wrong for expectation in self.expectations)


def text(outcome: LaunchOutcome) -> str:
    """Return the launch in one line, below it every array, long ones abbreviated, and the verdicts."""
    launch, device = outcome.launch, outcome.launch.device
    config = launch.config
    more = f", clusters of {short(config.cluster)}" if config.cluster else ""
    more += ", cooperative" if config.cooperative else ""
    lines = [
        f"{brief(launch.kernel.name)}{config.chevrons}{more} on "
        f"{device.kind} ({device.target.name}), {outcome.result.seconds:.3g} s"
        + (" of emulation" if device.kind == "emulator" else ""),
        *unverified(outcome.result.unverified),
    ]
    if outcome.timing is not None:
        lines.append(_timing(outcome.timing))
    for argument in outcome.arguments:
        if isinstance(argument.value, np.ndarray):
            shape = "x".join(map(str, argument.value.shape))
            mark = "changed" if argument.changed else "unchanged"
            lines += [f"\n{argument.name}  {argument.dtype} {shape}  {mark}", _body(argument)]
    for expectation in outcome.expectations:
        lines += ["", *_verdict(expectation)]
    if not outcome.right and _multiplies(outcome.launch.kernel):
        lines.append(
            f"whether the operands of its mma are in place: ptxlab fragments --ptx {outcome.launch.asked.file}"
        )
    return "\n".join(lines)


def _multiplies(kernel: Kernel) -> bool:
    scoped = () if kernel.function is None else instructions(kernel.function)
    return any(each.instruction.name.startswith("mma.sync") for each in scoped)


def as_json(outcome: LaunchOutcome) -> dict[str, Any]:
    launch = outcome.launch
    return {
        "schema": SCHEMA,
        "file": launch.asked.file,
        "kernel": launch.kernel.name,
        "device": launch.device.kind,
        "arch": launch.device.target.name,
        **members(launch.config, "grid", "block", "cluster", "shared", "cooperative"),
        **members(outcome.result, "seconds", "counters", "unverified"),
        "arguments": [_argument(argument) for argument in outcome.arguments],
        "timing": (
            {"launches": outcome.timing.samples, **members(outcome.timing, "median", "p20", "p80")}
            if outcome.timing
            else None
        ),
        "expectations": [asdict(expectation) for expectation in outcome.expectations],
        "passed": outcome.right if outcome.expectations else None,
    }


def _body(argument: Argument) -> str:
    array = np.asarray(argument.value)
    if argument.dtype.startswith("b") and argument.dtype != "bf16":  # untyped bits, as bits
        # numpy's stubs give an element the type of the array's, which Any cannot tell from void.
        shown: Any = {"int": lambda element: hexadecimal(int(element), 8 * array.itemsize)}
        return np.array2string(
            array, threshold=64, edgeitems=3, max_line_width=100, formatter=shown
        )
    if array.dtype.kind not in "iu":  # bf16 prints like the others once it is as wide
        array = array.astype(np.float64 if array.itemsize == 8 else np.float32)
    return np.array2string(array, threshold=64, edgeitems=3, max_line_width=100, precision=6)


def _timing(timing: Timing) -> str:
    median, p20, p80 = (1e6 * seconds for seconds in (timing.median, timing.p20, timing.p80))
    return (
        f"median {median:.2f} us, p20 {p20:.2f}, p80 {p80:.2f} over {timing.samples} launches, "
        "with what the caches kept of the one before"
    )


def _verdict(expectation: Expectation) -> list[str]:
    rtol, atol = expectation.rtol, expectation.atol
    bound = f"within rtol {rtol:g}, atol {atol:g}" if rtol or atol else "exactly"
    error = f"largest error {expectation.largest_error:.3g}"
    if not expectation.wrong:
        return [f"{expectation.name} is right: {expectation.expected} {bound}, {error}"]
    return [
        f"{expectation.name} is wrong: {expectation.wrong} of {expectation.elements} elements are "
        f"not {expectation.expected} {bound}, {error}"
    ] + [
        f"  {expectation.name}[{','.join(map(str, d.index))}] is {number(d.value)}, "
        f"not {number(d.expected)}"
        for d in expectation.differences
    ]


def _argument(argument: Argument) -> dict[str, Any]:
    common = {"name": argument.name, "dtype": argument.dtype}
    if not isinstance(argument.value, np.ndarray):
        return {**common, "value": argument.value}
    values = argument.value
    return {**common, "shape": list(values.shape), "changed": argument.changed, "values": values}
