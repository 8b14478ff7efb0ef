"""A GEMM problem: its sizes, types and factors, its random inputs, and where they lie on a device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError, did_you_mean
from ptxlab.gemm.scaled import SCALED, ScaledMatrix, quantized
from ptxlab.numbers.formats import TF32
from ptxlab.numbers.rounding import narrow
from ptxlab.numbers.types import STORED, TYPES, limits

DTYPES = ("f32", "tf32", "bf16", "f16", "s8", *STORED, *SCALED)
ACCUMULATORS = ("f32", "f16")
LAYOUTS = ("nn", "nt", "tn", "tt")
EPILOGUES = ("none", "bias", "relu", "bias+relu")

LARGEST = 2**30
"""Sizes are ``int`` in the kernels, and a tile may reach over the edge."""

DEEPEST = {"s8": 2**17 - 1}
"""The largest k of types whose sums are of 32 bits, and exact."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a GEMM reads: A m x k and B k x n, D before it m x n, and the bias, n f32.

    Matrices are as they are multiplied, whatever their layout in memory. With beta = 0 ``d`` is NaN:
    it must not be read. ``bias`` is None where the epilogue has none. ``scaled`` are A and the transpose
    of B where numbers share scales: then ``a`` and ``b`` are what they stand for, as f32.
    """

    a: Array
    b: Array
    d: Array
    bias: Array | None
    scaled: tuple[ScaledMatrix, ScaledMatrix] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """D = epilogue(alpha * A * B + beta * D), A m x k and B k x n of ``dtype``, D of type ``acc``.

    The sums are of type ``acc`` too, those of ``s8`` of s32, which becomes ``acc`` at last. ``tf32`` is f32 in memory, which the kernel rounds to tf32
    (``cvt.rna.tf32.f32``), or the copy engine, of two as near to the even one. Numbers of ``mxfp8`` and ``nvfp4`` share scales along k, along which A and B then
    lie, packed, so that layout and rows are not the caller's (``ptxlab.gemm.scaled``). ``layout`` says of A and then of B whether it is stored as it is (``n``)
    or transposed (``t``), each row-major. ``lda``, ``ldb`` and ``ldd`` are the elements from one row
    in memory to the next, None for no more than the row has. ``alpha`` and ``beta`` are rounded to
    f32.

    Raises PtxlabError for a size below 0 or above 2^30, a k with which s8 would leave s32, a leading dimension below the row's length,
    a factor that is not finite, and for a word that is none of those above.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    acc: str = "f32"
    seed: int = 0
    layout: str = "nn"
    epilogue: str = "none"
    alpha: float = 1.0
    beta: float = 0.0
    lda: int | None = None
    ldb: int | None = None
    ldd: int | None = None

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise PtxlabError(f"{name} = {getattr(self, name)} is not between 0 and 2^30")
        if self.k > DEEPEST.get(self.dtype, LARGEST):
            raise PtxlabError(f"k = {self.k} is not below 2^17: sums of {self.dtype} have 32 bits")
        for name, known in (
            ("dtype", DTYPES),
            ("acc", ACCUMULATORS),
            ("layout", LAYOUTS),
            ("epilogue", EPILOGUES),
        ):
            given = getattr(self, name)
            if given not in known:
                raise PtxlabError(
                    f"{name} is one of {', '.join(known)}, not {given!r}",
                    hint=did_you_mean(given, known),
                )
        for name in ("alpha", "beta"):
            with np.errstate(over="ignore"):
                rounded = float(np.float32(getattr(self, name)))
            if not math.isfinite(rounded):
                raise PtxlabError(f"{name} = {getattr(self, name)} is not a finite f32")
            object.__setattr__(self, name, rounded)
        if self.dtype in SCALED and (self.lda, self.ldb) != (None, None):
            raise PtxlabError(
                f"A and B of {self.dtype} are packed along k, and have no lda and ldb",
                hint="leave them out",
            )
        for name, (_, width) in zip(("lda", "ldb", "ldd"), self.stored, strict=True):
            given = getattr(self, name)
            if given is not None and not width <= given <= LARGEST:
                raise PtxlabError(
                    f"{name} = {given} is not between {width}, the length of a row, and 2^30"
                )

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k} {self.types}"

    @property
    def types(self) -> str:
        """The type of A and B, and that of the sums and D, in words."""
        return f"{self.dtype} -> {self.acc}"

    @property
    def stored(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Rows and elements of a row of A, B and D as they lie in memory."""
        a, b = (self.m, self.k), (self.k, self.n)
        return (
            a[::-1] if self.layout[0] == "t" else a,
            b[::-1] if self.layout[1] == "t" else b,
            (self.m, self.n),
        )

    @property
    def leading(self) -> tuple[int, int, int]:
        """Elements from one row in memory to the next, of A, B and D; at least 1."""
        given = (self.lda, self.ldb, self.ldd)
        return tuple(  # type: ignore[return-value]
            max(width, 1) if given_stride is None else given_stride
            for given_stride, (_, width) in zip(given, self.stored, strict=True)
        )

    @property
    def flops(self) -> int:
        """Multiplications and additions, 2 m n k."""
        return 2 * self.m * self.n * self.k

    def inputs(self) -> Inputs:
        """Return the matrices: standard normal numbers rounded to their types, by ``seed`` alone.

        Integers are 32 times such numbers, as far as they reach. Zeros or small integers would be easier on a GPU's power supply, and so run faster.
        """
        generator = np.random.default_rng(self.seed)

        def normal(shape: tuple[int, ...], dtype: str) -> Array:
            values = generator.standard_normal(shape, np.float32)
            if dtype in DEEPEST:
                values = np.clip(np.rint(32 * values), *limits(dtype))
            values = values.astype(memory_type(dtype))
            if dtype == "tf32":  # never half-way between two: what rounds to nearest agrees
                values.view(np.uint32)[...] |= 1
            return values

        kind = SCALED.get(self.dtype)
        stored = "f32" if kind else self.dtype
        a, b = normal((self.m, self.k), stored), normal((self.k, self.n), stored)
        scaled = None
        if kind:
            scaled = quantized(a, kind), quantized(b.T, kind)
            a, b = scaled[0].values, scaled[1].values.T
        bias = normal((self.n,), "f32") if "bias" in self.epilogue else None
        if self.beta:
            return Inputs(a, b, normal((self.m, self.n), self.acc), bias, scaled)
        unread = np.full((self.m, self.n), np.nan, memory_type(self.acc))
        return Inputs(a, b, unread, bias, scaled)


def memory_type(dtype: str) -> np.dtype[Any]:
    return (TYPES | STORED)["f32" if dtype == "tf32" else dtype].dtype


def element_bits(dtype: str) -> int:
    """Return how many bits an element takes in memory."""
    return SCALED[dtype].bits if dtype in SCALED else 8 * memory_type(dtype).itemsize


def to_tf32(values: Array) -> Array:
    """Round finite f32 to tf32, which has 10 fraction bits: to nearest, ties away from zero.

    PTX ISA, "Data Movement and Conversion Instructions: cvt", ``.rna`` and ``.tf32``.
    """
    return narrow(values, TF32, "rna")


# ---- on a device --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceOperands:
    """The matrices of a problem, as it stores them, its bias and scales in the memory of a device."""

    problem: Problem
    a: Buffer
    b: Buffer
    d: Buffer
    bias: Buffer | None = None
    scales: tuple[Buffer, ...] = ()

    def arguments(self) -> list[Any]:
        """Return the arguments of a kernel, all of which take the same; rows with scales are of bytes."""
        p, (lda, ldb, ldd) = self.problem, self.problem.leading
        if self.scales:
            lda, ldb = self.a.shape[1], self.b.shape[1]
        matrices = [self.a, lda, self.b, ldb, self.d, ldd]
        return [p.m, p.n, p.k, *matrices, p.alpha, p.beta, self.bias or 0, *self.scales]

    def result(self) -> tuple[Array, int]:
        """Return D, and how many elements between its rows were written."""
        *_, leading = self.problem.leading
        return gathered(self.d.numpy(), self.problem.m, self.problem.n, leading)


@contextmanager
def uploaded(device: Device, problem: Problem, inputs: Inputs) -> Iterator[DeviceOperands]:
    """Put the matrices on the device as the problem stores them, until the end of the ``with``.

    Gaps between rows are NaN, so that reading one is seen, and memory ends with the last element of
    the last row, so that a device which knows the bounds of its memory sees what goes beyond.
    """
    if inputs.scaled:
        factors = [factor.packed() for factor in inputs.scaled]
        scales = [factor.scale_blocks() for factor in inputs.scaled]
    else:
        stored = zip((inputs.a, inputs.b), problem.layout, strict=True)
        matrices = [matrix.T if order == "t" else matrix for matrix, order in stored]
        factors, scales = list(map(spread, matrices, problem.leading[:2])), []
    with ExitStack() as stack:

        def put(array: Array) -> Buffer:
            return stack.enter_context(device.upload(array))

        a, b, d = map(put, (*factors, spread(inputs.d, problem.leading[2])))
        bias = None if inputs.bias is None else put(inputs.bias)
        yield DeviceOperands(problem, a, b, d, bias, tuple(map(put, scales)))


def spread(matrix: Array, leading: int) -> Array:
    """Return a matrix as it lies in memory, in one dimension, NaN between its rows, of integers the least."""
    rows, columns = matrix.shape
    memory = np.full((rows, leading), _gap(matrix.dtype), matrix.dtype)
    memory[:, :columns] = matrix
    last = (rows - 1) * leading + columns if rows and columns else 0
    return memory.reshape(-1)[:last]


def gathered(memory: Array, rows: int, columns: int, leading: int) -> tuple[Array, int]:
    """Return the matrix in ``memory``, and how many elements between its rows were written."""
    whole = np.full(rows * leading, _gap(memory.dtype), memory.dtype)
    whole[: len(memory)] = memory
    matrix = whole.reshape(rows, leading)
    bits = matrix.view(f"u{matrix.itemsize}")
    gap = np.array(_gap(matrix.dtype), matrix.dtype).view(bits.dtype)
    strays = np.count_nonzero(bits[:, columns:] != gap)
    return np.ascontiguousarray(matrix[:, :columns]), int(strays)


def _gap(dtype: np.dtype[Any]) -> float:
    """Return what lies between the rows of a matrix."""
    return np.iinfo(dtype).min if dtype.kind == "i" else np.nan
