"""Activations of functions: frames whose constants and addresses are in place."""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.prepare import special
from ptxlab.emulator.prepare.program import Activation, Caller, Function
from ptxlab.emulator.run.registers import Array, Deferred
from ptxlab.emulator.run.wave import Frame, Wave


def activate(
    wave: Wave, function: Function, local_base: int, caller: Caller | None = None
) -> Activation:
    """Enter ``function``, whose local memory begins at ``local_base``."""
    layout = function.frame
    template = wave.constants.get(layout)
    if template is None:
        template = wave.constants[layout] = [
            _in_wave(wave, value) if isinstance(value, Deferred) else value
            for value in layout.initial
        ]
    registers = [
        _moved(value, local_base) if isinstance(value, Deferred) else value for value in template
    ]
    wave.reserve_local(local_base + layout.local_bytes)
    depth = 0 if caller is None else caller.activation.depth + 1
    return Activation(function, Frame(wave, layout, registers, local_base), caller, depth)


def _in_wave(wave: Wave, value: Deferred) -> Array | Deferred:
    """Return a register that is the same in all frames of a wave; others stay deferred."""
    if value.kind == "special":
        return special.TABLE[value.name](wave)
    if value.kind == "param":
        raw = wave.parameters[value.offset : value.offset + value.dtype.itemsize]
        return np.frombuffer(raw, value.dtype)
    if value.kind == "symbol":
        address = np.array([wave.symbols[value.name] + value.offset], np.uint64)
        return address.astype(value.dtype)
    if value.kind == "dynamic":
        return _moved(value, wave.dynamic_base)
    return value


def _moved(value: Deferred, base: int) -> Array:
    return np.array([base + value.offset], value.dtype)
