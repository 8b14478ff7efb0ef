"""What a ``tcgen05.mma`` multiplies: its form and the instruction descriptor, read together.

Source: PTX ISA, "Matrix Shape", "Instruction descriptor" and "Major-ness supported by Strides" of tcgen05.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ptxlab.arrays import Array
from ptxlab.matrix import instruction_descriptor
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import container_bits
from ptxlab.matrix.instruction_descriptor import LONG_K
from ptxlab.matrix.tensor_memory_operand import QUARTER, DataPath

if TYPE_CHECKING:  # it makes tables that most programs can spare
    from ptxlab.matrix.tcgen05 import TensorCoreProduct

_PACKED = ("mxf4", "mxf4nvf4")
_BYTE = 8
_WORD_BYTES = 4
_TOGETHER = 128
"""How many rows, or columns, of scales lie side by side before the next four of each."""


@dataclass(frozen=True)
class TensorCoreProblem:
    """One product of ``m`` x ``n`` x ``k``, k being that of B: of types, majors and signs.

    ``scale_type`` is "" without scales, ``scale_ids`` are the first bytes of A's and B's. ``selector``
    is the sparsity selector. ``negates`` says that the product is subtracted.
    """

    form: TensorCoreProduct
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    d_type: str
    majors: tuple[str, str]
    negates: bool
    saturates: bool
    scale_type: str
    scale_ids: tuple[int, int]
    selector: int

    def __str__(self) -> str:
        both = self.a_type if self.a_type == self.b_type else f"{self.a_type} x {self.b_type}"
        return f"{self.m} x {self.n} x {self.k} of {both}, D {self.d_type}"

    @cached_property
    def path(self) -> DataPath:
        """How D lies."""
        form = self.form
        return DataPath.of(
            self.m, self.n, form.group, stationary=form.stationary, sparse=form.sparse
        )

    @property
    def operations(self) -> int:
        """The multiplications and additions of all CTAs together, zeros that a sparse A leaves out included."""
        return 2 * self.m * self.n * self.k

    @property
    def bits(self) -> int:
        """How many bits an element of A or B takes."""
        return 4 if self.form.kind in _PACKED else container_bits(self.a_type)

    @property
    def blocks(self) -> int:
        """How many scales a row of A has, 0 without. A sparse one has them for what is stored of it."""
        return self.a.cols // self.form.blocks if self.scale_type else 0

    @property
    def scale_words(self) -> tuple[int, ...]:
        """In how many words, one behind the other along k, the scales of A's rows and of B's columns are."""
        return tuple(-(-(first + self.blocks) // _WORD_BYTES) for first in self.scale_ids)

    def scale_cells(self, name: str) -> tuple[Array, Array]:
        """Return where the scales of A or B lie: lanes [copies, lines, 1] and columns [lines, words] of int64.

        A word has four along k, and the first of them is in the byte that the scale id says. CUTLASS's
        ``tmem_sf_frg`` says where the next word is, ``sm103_blockscaled_mma_warpspecialized`` what is in it.
        """
        path = self.path
        lanes, column = path.scales_of_a() if name == "A" else path.scales_of_b()
        words = np.arange(self.scale_words["AB".index(name)])
        apart = -(-column.size // _TOGETHER) * _TOGETHER // QUARTER
        return lanes[..., np.newaxis], column[:, np.newaxis] + apart * words

    @cached_property
    def a(self) -> SharedOperand:
        """A of one CTA; half of it where it is sparse."""
        return SharedOperand(
            "A", self.path.rows, self.k >> self.form.sparse, self.a_type, self.bits, self.majors[:1]
        )

    @cached_property
    def b(self) -> SharedOperand:
        """The columns of B that one CTA has."""
        n = self.n // self.form.group
        return SharedOperand("B", self.k, n, self.b_type, self.bits, self.majors[1:])


@lru_cache(maxsize=1024)
def problem(form: TensorCoreProduct, word: int) -> TensorCoreProblem:
    """Return what ``form`` multiplies by an instruction descriptor. Raises ValueError for what it cannot."""
    kind = form.kind
    values = instruction_descriptor.record(kind).decode(instruction_descriptor.checked(kind, word))
    [shapes] = form.shapes
    m, n = int(values["m"]), int(values["n"])
    k = LONG_K if values.get("k") == str(LONG_K) else shapes.k
    if (values["sparse"] == "yes") != form.sparse:
        raise ValueError(
            f"sparse is {values['sparse']} in the descriptor of a {'sparse' * form.sparse or 'dense'} product"
        )
    if k == LONG_K and form.sparse:
        raise ValueError(f"k of {k} is for dense products")
    if m not in shapes.m or n not in shapes.n:
        raise ValueError(f"m {m} and n {n} are none of {shapes}")
    if kind == "f16" and values["a type"] != values["b type"]:
        raise ValueError(f"A of {values['a type']} does not go with B of {values['b type']}")
    majors = str(values["major of a"]), str(values["major of b"])
    checked = TensorCoreProblem(
        form=form,
        m=m,
        n=n,
        k=k,
        a_type=str(values["a type"]),
        b_type=str(values["b type"]),
        d_type=str(values.get("d type", "f32")),
        majors=majors,
        negates=values.get("negate a") != values.get("negate b"),
        saturates=values.get("saturate") == "yes",
        scale_type=str(values.get("scale type", "")),
        scale_ids=(int(values.get("scale id of a", 0)), int(values.get("scale id of b", 0))),
        selector=int(values.get("sparsity selector", 0)),
    )
    _check_majors(checked)
    _check_scale_ids(checked)
    return checked


def _check_scale_ids(problem: TensorCoreProblem) -> None:
    """Raise ValueError where scales do not begin at a byte that they may: those of a k of 64 end in their word."""
    step = 1 if problem.blocks % 2 else 2
    last = _WORD_BYTES - (step if problem.k == LONG_K else problem.blocks)
    for name, first in zip("AB", problem.scale_ids, strict=True):
        if first % step or first > last:
            allowed = " or ".join(map(str, range(0, last + 1, step)))
            raise ValueError(
                f"scale id of {name.lower()} is {allowed} with {problem.blocks} scales a row, not {first}"
            )


def _check_majors(problem: TensorCoreProblem) -> None:
    """Raise ValueError for what cannot be contiguous along m or n."""
    for name, kind, major in zip(
        "AB", (problem.a_type, problem.b_type), problem.majors, strict=True
    ):
        if major == "mn" and problem.bits < _BYTE:
            raise ValueError(f"{name} of {kind} must be contiguous along k")
    step = 16 * problem.form.group
    if problem.majors[1] == "mn" and problem.bits == _BYTE and problem.n % step:
        raise ValueError(f"n is {problem.n}: of 8-bit B along n it is a multiple of {step}")
