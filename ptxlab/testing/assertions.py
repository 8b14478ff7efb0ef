"""The assertions: bits that must be equal, launches that must be clean, registers that must hold a matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Dumped, Kernel
from ptxlab.errors import PtxlabError
from ptxlab.fragments.misplaced import Held
from ptxlab.launch_config import Dim, LaunchConfig
from ptxlab.matrix.catalog import find
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.observe.check import check
from ptxlab.verbs.check.text import text
from ptxlab.view.text import hexadecimal

if TYPE_CHECKING:
    from ptxlab.judge.judgement import Judgement
    from ptxlab.judge.kernel_judge import Candidate

SHOWN = 5
"""How many of the wrong elements a message names."""


def assert_bits_equal(actual: Buffer | npt.ArrayLike, expected: Buffer | npt.ArrayLike) -> None:
    """Assert that two arrays (or device buffers) have the same shape, type and bits.

    Unlike ``numpy.testing.assert_array_equal`` it tells -0 from 0 and one NaN from another, and finds
    equal NaNs equal. Raises AssertionError that names the first differing elements.
    """
    __tracebackhide__ = True
    got, other = _host(actual), _host(expected)
    if got.shape != other.shape or got.dtype != other.dtype:
        raise AssertionError(
            f"actual is {got.dtype}{list(got.shape)}, expected {other.dtype}{list(other.shape)}"
        )
    a, b = _bits(got), _bits(other)
    places = np.argwhere(a != b)
    if len(places):
        lines = (
            f"[{', '.join(map(str, index))}]  actual {got[index]} ({_hex(a[index])}), "
            f"expected {other[index]} ({_hex(b[index])})"
            for index in map(tuple, places)
        )
        head = f"{len(places)} of {got.size} elements differ"
        raise AssertionError(_message(head, lines, len(places)))


def assert_clean(
    kernel: Kernel, grid: Dim, block: Dim, args: Sequence[Any] = (), shared: int = 0
) -> None:
    """Assert that a launch has no race, missing wait, barrier misuse, bad access or uninitialised read.

    The launch happens here, on the emulator, which the kernel must be loaded on, with ``shared`` bytes of
    dynamic shared memory. Raises AssertionError
    with the findings, also where part of the launch could not be checked, and PtxlabError for a kernel
    of a GPU.
    """
    __tracebackhide__ = True
    report = check(kernel, LaunchConfig.of(grid, block, shared), args)
    if report.verdict != "clean":
        raise AssertionError(text(report))


def assert_fragment(
    dump: Dumped | npt.ArrayLike | None,
    expected: npt.ArrayLike,
    op: str,
    *,
    operand: str,
    dtype: str | None = None,
    acc: str | None = None,
    warp: int = 0,
) -> None:
    """Assert that a warp's registers hold ``expected`` in the layout of an instruction's operand.

    ``dump`` is what a launch with ``dump=`` found, or words [thread, register], unsigned integers; its registers are those of
    the operand in order. ``expected`` is the matrix (B is k x n), in a dtype as wide as the operand's
    elements. ``op``, ``dtype`` and ``acc`` name the instruction as for ``ptxlab.find``, ``operand`` is
    A, B, C or D, ``warp`` counts the warps (warpgroups where the instruction takes one) of all threads.
    Raises AssertionError that names the first wrong elements by lane, register, row and column, and
    PtxlabError for a matrix or a dump that cannot be of this operand.
    """
    __tracebackhide__ = True
    instruction = find(op, dtype, acc)
    layout = instruction.operand(operand)
    words = _words(dump, layout, warp)
    matrix = np.ascontiguousarray(expected)
    if matrix.shape != (layout.rows, layout.cols) or 8 * matrix.itemsize < layout.bits:
        raise PtxlabError(
            f"operand {operand} of {instruction.name} is {layout.rows} x {layout.cols} of "
            f"{layout.bits} bits, the matrix is {matrix.dtype}{list(matrix.shape)}"
        )
    raw = matrix.view(f"u{matrix.itemsize}").astype(np.uint64)
    held = layout.unpack(words).astype(np.uint64)
    wrong = np.argwhere(held != raw)
    if len(wrong):
        lines = (
            f"({row}, {col}), held by lane {register.lane} in register {register.register}, "
            f"element {register.element}: 0x{int(held[row, col]):x}, expected 0x{int(raw[row, col]):x}"
            for row, col in wrong.tolist()
            for register in layout.registers(row, col)[:1]
        )
        head = f"operand {operand} of {instruction.name}: {len(wrong)} elements are wrong"
        explained = Held(layout, words, raw).explained()
        raise AssertionError("\n  ".join((_message(head, lines, len(wrong)), *explained)))


def assert_kernel(candidate: Candidate, reference: Any, **task: Any) -> Judgement:
    """Assert that a kernel is right, safe, deterministic and honest, as ``ptxlab.evaluate`` judges it, and return what it says.

    ``candidate``, ``reference`` and the rest are those of ``ptxlab.evaluate``, and so are the errors; there is no prediction unless
    ``gpus`` are told. Raises AssertionError with the whole judgement.
    """
    from ptxlab.judge.evaluate import evaluate  # here: the other assertions can spare it
    from ptxlab.verbs.judge.text import text as judgement_text

    __tracebackhide__ = True
    judgement = evaluate(candidate, reference, **{"gpus": (), **task})
    if not judgement.passed:
        raise AssertionError(judgement_text(judgement))
    return judgement


def _words(dump: Dumped | npt.ArrayLike | None, layout: FragmentLayout, warp: int) -> Array:
    """Return the registers of one warp [lane, register]."""
    if dump is None:
        raise PtxlabError("the launch was asked for no dump", hint="launch with dump=Dump(...)")
    first = warp * layout.threads
    lanes = slice(first, first + layout.threads)
    if isinstance(dump, Dumped):
        if not dump.reached[lanes].all():
            raise AssertionError(f"not all threads of warp {warp} were at {dump.dump.at}")
        words: Array = dump.words[lanes]
    else:
        words = np.asarray(dump)[lanes]
    if words.shape != (layout.threads, layout.registers_per_lane):
        raise PtxlabError(
            f"operand {layout.operand} is in {layout.registers_per_lane} registers of "
            f"{layout.threads} threads, the dump has {list(words.shape)}"
        )
    return words


def _host(value: Buffer | npt.ArrayLike) -> Array:
    return value.numpy() if isinstance(value, Buffer) else np.asarray(value)


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


def _hex(bits: Any) -> str:
    return hexadecimal(int(bits), 8 * bits.dtype.itemsize)


def _message(head: str, lines: Iterable[str], count: int) -> str:
    more = [f"and {count - SHOWN} more"] if count > SHOWN else []
    return "\n  ".join((head, *islice(lines, SHOWN), *more))
