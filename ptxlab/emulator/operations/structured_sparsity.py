"""spcompress and spdecompress: two of every four numbers, where they were, and back again.

Of equal numbers the first are kept, of which the PTX ISA says that it is up to the GPU; so it is with the third and
fourth NaN of four. An index beyond its group stops the kernel.
Source: PTX ISA, "Data Movement and Conversion Instructions: spcompress", "spdecompress".
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.prepare.row import RowForm, UnknownForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.steps import write
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.numbers.formats import BF16, E2M3, E3M2, E4M3, E5M2, F16, Format
from ptxlab.syntax.tree import Operand

GROUP, KEPT = 4, 2
_MOST = 253
"""Registers of all operands together."""
_DESCRIBED: dict[str, tuple[Format | str, ...]] = {
    "b8": ("u8", "s8", E5M2, E4M3, E3M2, E2M3),
    "b16": (F16, BF16),
}
"""What bits 2 to 4 of a sparsity descriptor name, from 0 on, by the size of the numbers."""
_NAMES = "0: .f16/.u8, 1: .bf16/.s8, 2: .e5m2, 3: .e4m3, 4: .e3m2, 5: .e2m3"


def sizes(words: Array, kind: Format | str, *, least: bool, magnitude: bool) -> Array:
    """Return numbers that grow as those to be kept: -0 is less than +0, and NaN above all."""
    if isinstance(kind, str):
        values = words.astype(np.uint8).view(f"{'i' if kind == 's8' else 'u'}1").astype(np.int64)
        order = np.abs(values) if magnitude else values
        return -order if least else order
    size = words.astype(np.int64) & kind.nan
    negative = words >> words.dtype.type(kind.sign_bit) & 1 == 1
    order = size if magnitude else np.where(negative, ~size, size)
    largest = kind.largest if kind.infinity is None else kind.infinity
    kept: Array = np.where(size > largest, np.int64(1 << 40), -order if least else order)
    return kept


def largest_two(order: Array) -> Array:
    """Return which two of the four entries along the last axis are largest, in their order."""
    first = np.argsort(-order, axis=-1, kind="stable")[..., :KEPT]
    return np.sort(first, axis=-1)


def packed_indices(indices: Array, bits: int) -> Array:
    """Put fields of so many bits, [lanes, fields], into words, the first lowest; what is left is zero."""
    per_word = 32 // bits
    padded = np.pad(indices.astype(np.uint32), ((0, 0), (0, -indices.shape[1] % per_word)))
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    words: Array = np.bitwise_or.reduce(
        padded.reshape(len(indices), -1, per_word) << shifts, axis=-1
    )
    return words


def _fields(words: Array, bits: int) -> Array:
    """Return the fields of so many bits in words [lanes, words], the lowest of each first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    fields = words[..., np.newaxis] >> shifts & np.uint32((1 << bits) - 1)
    return fields.reshape(len(words), -1)


def _vectors(
    context: Context, counts: tuple[int, int, int], results: int
) -> tuple[list[list[Destination]], list[list[Source]]]:
    """Take three operands of so many registers each, of which the first are results."""
    if sum(counts) > _MOST:
        raise UnknownForm(f"has {sum(counts)} registers, and no more than {_MOST} are possible")
    written: list[list[Destination]] = []
    read: list[list[Source]] = []
    for operand, count in zip(context.instruction.operands, counts, strict=False):
        _require(context, operand, count)
        if len(written) < results:
            written.append(list(context.destinations(operand, "b32")))
        else:
            read.append(list(context.sources(operand, "b32")))
    return written, read


def _require(context: Context, operand: Operand, count: int) -> None:
    if len(context.elements(operand)) != count:
        context.reject(f"there are {count} registers in braces here", operand)


def _read(sources: list[Source], frame: Frame, threads: Threads) -> Array:
    """Return the words of the threads, [threads, registers]."""
    words = np.empty((threads.size, len(sources)), np.uint32)
    for at, source in enumerate(sources):
        words[:, at] = threads.pick(source.read(frame.registers))
    return words


def _write(destinations: list[Destination], frame: Frame, threads: Threads, words: Array) -> None:
    columns = [np.ascontiguousarray(column) for column in words.T]
    write(frame, threads.spread, destinations, columns)


def _compress(context: Context, form: RowForm) -> Step:
    """Keep two of every four numbers, as the descriptor of each thread says."""
    bits, index_bits, repeat = (
        int(form[name].lstrip("bx")) for name in ("element", "index", "num")
    )
    counts = -(-repeat * index_bits // bits), repeat, 2 * repeat
    context.operands(4)
    (metadata, kept), (data,) = _vectors(context, counts, 2)
    descriptor = context.source(context.instruction.operands[3], "b32")
    kinds, line = _DESCRIBED[form["element"]], context.line

    def compressed(words: Array, code: int) -> tuple[Array, Array]:
        groups = _fields(words, bits).reshape(len(words), -1, GROUP)
        order = sizes(groups, kinds[code >> 2], least=bool(code & 2), magnitude=bool(code & 1))
        chosen = largest_two(order)
        values = np.take_along_axis(groups, chosen, axis=-1).reshape(len(words), -1)
        return packed_indices(chosen.reshape(len(words), -1), index_bits), packed_indices(
            values, bits
        )

    def run(frame: Frame, threads: Threads) -> None:
        words, codes = _read(data, frame, threads), _read([descriptor], frame, threads)[:, 0]
        results = [np.empty((threads.size, count), np.uint32) for count in counts[:2]]
        for code in sorted(set(codes.tolist())):
            same = codes == code
            if code >> 2 >= len(kinds):
                raise LaunchError(
                    f"spcompress with the descriptor {code:#x} by {frame.wave.thread(int(threads.index[same.argmax()]))}",
                    location=frame.wave.locate(line),
                    hint=f"bits 2 to 4 name what numbers of {bits} bits there are ({_NAMES}), bits above are 0",
                    kind="async",
                )
            for result, part in zip(results, compressed(words[same], code), strict=True):
                result[same] = part
        for destinations, result in zip((metadata, kept), results, strict=True):
            _write(destinations, frame, threads, result)

    return run


def _decompress(context: Context, form: RowForm) -> Step:
    """Put numbers back to where their indices say, and zeros beside them."""
    bits, index_bits, repeat = (
        int(form[name].lstrip("bx")) for name in ("element", "index", "num")
    )
    few, many = (int(part) for part in form["factor"].removeprefix("sp::").split(":"))
    counts = tuple(-(-each * repeat // 32) for each in (many * bits, few * index_bits, few * bits))
    if few * bits > 32 or many > 1 << index_bits:
        raise UnknownForm(
            f"does not take .{form['factor']} of .{form['element']} with .{form['index']}"
        )
    if many * bits * repeat < 32 or counts[0] > 128:
        raise UnknownForm(f"does not take .{form['num']}: the result has 1 to 128 registers")
    context.operands(3)
    (data,), (metadata, kept) = _vectors(context, (counts[0], counts[1], counts[2]), 1)
    line = context.line

    def run(frame: Frame, threads: Threads) -> None:
        values = _fields(_read(kept, frame, threads), bits)[:, : few * repeat]
        indices = _fields(_read(metadata, frame, threads), index_bits)[:, : few * repeat]
        beyond = (indices >= many).any(axis=1)
        if beyond.any():
            at = int(beyond.argmax())
            raise LaunchError(
                f"spdecompress with an index of {int(indices[at].max())} in groups of {many} by "
                f"{frame.wave.thread(int(threads.index[at]))}",
                location=frame.wave.locate(line),
                hint="what a GPU does then is up to it",
                kind="async",
            )
        groups = np.zeros((threads.size, repeat, many), np.uint32)
        lanes = np.arange(threads.size)[:, np.newaxis]
        for at in range(few):
            groups[lanes, np.arange(repeat), indices[:, at::few]] = values[:, at::few]
        _write(data, frame, threads, packed_indices(groups.reshape(threads.size, -1), bits))

    return run


_row = partial(
    row,
    operands="@registers",  # which are counted and held against their types here
    mix="conversion",
    needs="sm_107a 9.4",
    element="b8 b16",
    index="b2 b4",
    num="x1 x2 x4 x8 x16 x32 x64",
)
_row("spcompress.<element>.<index>.sp::2:4.<num>", step=_compress, fidelity="unverified")
_row(
    "spdecompress.<element>.<index>.<factor>.<num>",
    step=_decompress,
    factor="sp::1:2 sp::1:4 sp::1:8 sp::1:16 sp::2:4 sp::2:8 sp::2:16 sp::4:8 sp::4:16",
)
