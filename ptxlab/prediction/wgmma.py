"""Products of warpgroups: how long they hold the tensor cores, and how deep these are.

A product of m64nNk16 takes N / 2 cycles of an SM that multiplies 4096 FLOP a clock. What is in shared
memory comes at 128 bytes a clock, A too where it lies there: with N below 64 that is slower, 16 + N / 4
cycles. NVIDIA H100 Tensor Core GPU Architecture: the rate, and the width of shared memory.
"""

from __future__ import annotations

import re

from ptxlab.errors import Unsupported
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.code import DecodedInstruction
from ptxlab.prediction.operands import SassAddress

OPCODES = ("HGMMA", "QGMMA", "IGMMA")
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)$")
_SHARED_BYTES = 128
_TYPES = {"HGMMA": "f16", "QGMMA": "e4m3", "IGMMA": "s8"}
_AS_F16 = {"e4m3": 2, "s8": 2}
"""So many times the rate of f16: NVIDIA H100 data sheet."""
_NAMES = {"BF16": "bf16", "TF32": "tf32"}
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "s8": 8}


def held(i: DecodedInstruction, chip: Chip) -> float:
    """Return how many cycles a product holds the tensor core of each sub-partition."""
    m, n, k = shape(i)
    dtype, acc = _types(i)
    of_f16 = chip.gpu.tensor.get(("f16", "f32"))
    rate = (
        _AS_F16[dtype] * of_f16
        if of_f16 and dtype in _AS_F16
        else chip.gpu.tensor.get((dtype, acc))
    )
    if rate is None or i.has("SP"):
        raise Unsupported(f"no timing is known of '{i.sass.text}'")
    first = next(iter(i.sources), None)
    rows = n + (m if isinstance(first, SassAddress) else 0)
    return max(2 * m * n * k / rate, rows * k * _BITS[dtype] / 8 / _SHARED_BYTES)


def shape(i: DecodedInstruction) -> tuple[int, int, int]:
    """Return m, n and k of a product."""
    found = _SHAPE.match(i.sass.modifiers[0])
    if found is None:
        raise Unsupported(f"no timing is known of '{i.sass.text}'")
    m, n, k = map(int, found.groups())
    return m, n, k


def _types(i: DecodedInstruction) -> tuple[str, str]:
    opcode, modifiers = i.sass.opcode, i.sass.modifiers
    dtype = next((_NAMES[one] for one in modifiers if one in _NAMES), _TYPES[opcode])
    acc = "s32" if opcode == "IGMMA" else "f16" if modifiers[1] == "F16" else "f32"
    return dtype, acc
