"""The result of ``ptxlab run`` as text and as JSON: what a kernel was given and what it left."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SCHEMA = "ptxlab.run/1"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument after the launch. ``dtype`` is its PTX type; a scalar has no ``before``.

    ``value`` is what the kernel left in an array (``before`` what it found there), or the scalar.
    """

    name: str
    dtype: str
    value: Array | int | float
    before: Array | None = None

    @property
    def changed(self) -> bool:
        """Say whether the kernel wrote other bits into the array than were there."""
        return self.before is not None and np.asarray(self.value).tobytes() != self.before.tobytes()


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: which kernel on which device, its shape, how long, and every argument."""

    file: str
    kernel: str
    device: str
    arch: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    seconds: float
    counters: dict[str, int]
    arguments: tuple[Argument, ...]


def text(launch: Launch) -> str:
    """Return the launch in one line, and below it every array, long ones abbreviated."""
    lines = [
        f"{launch.kernel}<<<{_dim(launch.grid)}, {_dim(launch.block)}>>> on {launch.device} "
        f"({launch.arch}), {launch.seconds:.3g} s"
        + (" of emulation" if launch.device == "emulator" else "")
    ]
    for argument in launch.arguments:
        if isinstance(argument.value, np.ndarray):
            shape = "x".join(map(str, argument.value.shape))
            mark = "changed" if argument.changed else "unchanged"
            lines += [f"\n{argument.name}  {argument.dtype} {shape}  {mark}", _body(argument)]
    return "\n".join(lines)


def as_json(launch: Launch) -> dict[str, Any]:
    """Return the launch as plain data; infinities and NaN, which JSON lacks, are strings."""
    return {
        "schema": SCHEMA,
        "file": launch.file,
        "kernel": launch.kernel,
        "device": launch.device,
        "arch": launch.arch,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared": launch.shared,
        "seconds": launch.seconds,
        "counters": launch.counters,
        "arguments": [_argument(argument) for argument in launch.arguments],
    }


def _dim(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"


def _body(argument: Argument) -> str:
    array = np.asarray(argument.value)
    if argument.dtype.startswith("b") and argument.dtype != "bf16":  # untyped bits, as bits
        digits = 2 * array.itemsize
        # numpy's stubs give an element the type of the array's, which Any cannot tell from void.
        shown: Any = {"int": lambda element: f"0x{int(element):0{digits}x}"}
        return np.array2string(
            array, threshold=64, edgeitems=3, max_line_width=100, formatter=shown
        )
    if array.dtype.kind not in "iu":  # bf16 prints like the others once it is as wide
        array = array.astype(np.float64 if array.itemsize == 8 else np.float32)
    return np.array2string(array, threshold=64, edgeitems=3, max_line_width=100, precision=6)


def _argument(argument: Argument) -> dict[str, Any]:
    common = {"name": argument.name, "dtype": argument.dtype}
    if not isinstance(argument.value, np.ndarray):
        return {**common, "value": _plain(argument.value)}
    values = argument.value
    if values.dtype.kind not in "iu":
        values = values.astype(np.float64)
    return {
        **common,
        "shape": list(values.shape),
        "changed": argument.changed,
        "values": _plain(values.tolist()),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
