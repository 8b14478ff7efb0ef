"""What adds up a dot product on a target: the model of its arithmetic, and a device that has it.

A device runs the handwritten mma program of the types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab import resources
from ptxlab.arrays import Array
from ptxlab.device.protocol import Device, Kernel
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import TARGETS, DotProduct, Target, UnpackedDotProduct
from ptxlab.matrix.mma import MMA, program
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.numbers.dissect import SumStep, explain
from ptxlab.numbers.fused_step import OPERANDS, operand_formats
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_software import multiply_add_bytes
from ptxlab.numerics.products import DotProducts

ModelRules = DotProduct | UnpackedDotProduct

MMA_SYNC = "mma.sync"
INSTRUCTIONS = {MMA_SYNC: "sm_75", "wgmma": "sm_90a"}
"""What adds up, and the target that it needs."""

BYTES_AT_ONCE = 32
"""The k of an instruction on 8-bit numbers: longer dot products are several of them."""


@dataclass(frozen=True, slots=True)
class Model:
    """Targets whose ``instruction`` gives the same bits for some types, and the arithmetic they share."""

    targets: tuple[str, ...]
    rules: ModelRules
    instruction: str = MMA_SYNC

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The targets among them that are thought to do the same, which nobody has measured."""
        return tuple(name for name in self.targets if not TARGETS[name].measured)

    def compute(self, products: DotProducts) -> Array:
        """Return the result of every dot product as words, [count]."""
        dtype, acc, rules = products.dtype, products.acc, self.rules
        d = products.c[None, None]
        for piece in _instructions(products):
            a, b = products.a[None, piece], products.b[piece, None]
            if isinstance(rules, DotProduct):
                d = multiply_add(a, b, d, dtype=dtype, acc=acc, rules=rules)
            else:
                d = multiply_add_bytes(a, b, d, a_type=dtype, b_type=dtype, acc=acc, rules=rules)
        words: Array = d[0, 0]
        return words

    def steps(self, products: DotProducts) -> tuple[SumStep, ...]:
        """Return the steps in which the first of the dot products is added up."""
        steps: list[SumStep] = []
        for piece in _instructions(products):
            explained = explain(
                products.a[piece, 0].tolist(),
                products.b[piece, 0].tolist(),
                steps[-1].word if steps else int(products.c[0]),
                dtype=products.dtype,
                acc=products.acc,
                rules=self.rules,
            )
            for step in explained:  # which counts the products of its instruction from 0
                terms = [
                    term if term.k is None else replace(term, k=term.k + piece.start)
                    for term in step.terms
                ]
                steps.append(replace(step, terms=tuple(terms)))
        return tuple(steps)


def _instructions(products: DotProducts) -> Iterator[slice]:
    """Cut k as it is cut by instructions, where that changes bits."""
    once = BYTES_AT_ONCE if products.operand.word_bits == 8 else products.k
    for start in range(0, products.k, once):
        yield slice(start, min(start + once, products.k))


def models(
    dtype: str, acc: str, targets: Sequence[str] = (), instruction: str = MMA_SYNC
) -> tuple[Model, ...]:
    """Return the different arithmetics of ``dtype`` into ``acc``, of ``targets`` or of all.

    Raises PtxlabError for types that do not go together, where no target has the ``instruction`` on
    them, and for a target named that has not.
    """
    try:
        operand_formats(dtype, dtype, acc)
    except Unsupported as error:
        raise PtxlabError(error.message, hint=error.hint) from None
    groups: dict[ModelRules, list[str]] = {}
    having = [name for name in TARGETS if TARGETS[name].runs(INSTRUCTIONS[instruction])]
    for name in dict.fromkeys(targets) or having:
        rules = _rules(TARGETS[name], dtype, instruction) if name in having else None
        if rules is not None:
            groups.setdefault(rules, []).append(name)
        elif targets:
            types = ", ".join(TARGETS[name].arithmetic.types)
            hint = f"it multiplies {types}" if name in having else f"{', '.join(having)} has it"
            raise PtxlabError(f"{name} has no {instruction} of {dtype}", hint=hint)
    if not groups:
        raise PtxlabError(f"no target has {instruction} of {dtype}")
    return tuple(Model(tuple(names), rules, instruction) for rules, names in groups.items())


def _rules(target: Target, dtype: str, instruction: str) -> ModelRules | None:
    known = target.arithmetic
    if dtype not in known.types:
        return None
    if OPERANDS[dtype].word_bits != 8:
        return known.dot16
    return known.dot8 if instruction == MMA_SYNC else known.dot8_async


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
    positions = np.arange(count)
    left, right = np.zeros((form.m, k), a.dtype), np.zeros((k, form.n), b.dtype)
    tile = np.zeros((form.m, form.n), c.dtype)
    left[positions], right[:, positions], tile[positions, positions] = a.T, b, c
    with (
        device.upload(left) as a_there,
        device.upload(right) as b_there,
        device.upload(tile) as d_there,
    ):
        kernel.launch(grid=1, block=32, args=[a_there, b_there, d_there, k])
        words: Array = d_there.numpy()[positions, positions]
    return words
