"""The same dot products on a device, through the handwritten mma program of their types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab import resources
from ptxlab.device.protocol import Device, Kernel
from ptxlab.errors import PtxlabError
from ptxlab.matrix.mma import MMA, program
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.numbers.formats import Array
from ptxlab.numerics.models import models
from ptxlab.numerics.products import DotProducts


@dataclass(frozen=True, slots=True)
class Measured:
    """What a device gave: ``words`` [count], of which ``wrong`` are not those of its target's model."""

    name: str
    arch: str
    words: Array
    wrong: int


def measure(device: Device, products: DotProducts) -> Measured:
    """Add up all ``products`` on the device and compare with the model of its target.

    Raises PtxlabError when ptxlab has no program for their types.
    """
    (model,) = models(products.dtype, products.acc, [device.target.name])
    instruction = _instruction(device, products)
    kernel = device.load(resources.path(program(instruction))).kernel()
    a, b = _padded(products.a, instruction.k), _padded(products.b, instruction.k)
    words = np.empty_like(products.c)
    side = min(instruction.m, instruction.n)
    for start in range(0, products.count, side):
        some = slice(start, start + side)
        words[some] = _launch(device, kernel, instruction, a[:, some], b[:, some], products.c[some])
    wrong = int((words != model.compute(products)).sum())
    return Measured(device.name, device.target.name, words, wrong)


def _instruction(device: Device, products: DotProducts) -> MatrixInstruction:
    """Return the longest mma.sync of the types that the device runs: shorter ones fuse less."""
    types = (products.dtype, products.dtype, products.acc, products.acc)
    forms = [
        form
        for form in MMA
        if (form.a_type, form.b_type, form.c_type, form.d_type) == types
        and form.runs_on(device.target)
    ]
    longest = max(forms, key=lambda form: form.k, default=None)
    if longest is None or not resources.shipped(program(longest)):
        raise PtxlabError(
            f"ptxlab has no mma program of {products.dtype} into {products.acc} for {device.name}",
            hint="leave --device out to see the models alone",
        )
    return longest


def _padded(words: Array, k: int) -> Array:
    """Lengthen to a multiple of ``k`` with zeros, which changes no bit.

    A zero term never has the largest exponent alone, because that of C is not below it; and a step
    of nothing but zeros leaves C as it is.
    """
    return np.pad(words, ((0, -len(words) % k), (0, 0)))


def _launch(
    device: Device, kernel: Kernel, form: MatrixInstruction, a: Array, b: Array, c: Array
) -> Array:
    """Compute a few dot products as the diagonal of one tile, whose other elements are zero."""
    k, count = a.shape
    place = np.arange(count)
    left, right = np.zeros((form.m, k), a.dtype), np.zeros((k, form.n), b.dtype)
    tile = np.zeros((form.m, form.n), c.dtype)
    left[place], right[:, place], tile[place, place] = a.T, b, c
    with (
        device.upload(left) as a_there,
        device.upload(right) as b_there,
        device.upload(tile) as d_there,
    ):
        kernel.launch(grid=1, block=32, args=[a_there, b_there, d_there, k])
        words: Array = d_there.numpy()[place, place]
    return words
