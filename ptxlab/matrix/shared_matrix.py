"""What ``wgmma`` and ``tcgen05`` read through a matrix descriptor: which bytes of shared memory are which elements.

A matrix is read in units of 16 bytes, along its major direction. Each index of the other direction has
a line of units, and 8 lines (4 in one mode) lie a span of the swizzling mode apart from each other.
Before the swizzle unit u of line l is at

    start + span (l mod 8) + across (l div 8) + 16 (u mod p) + along (u div p)

for p units a span. ``along`` is the leading byte offset and ``across`` the stride byte offset; without
swizzle it is the other way round in a matrix contiguous along m or n. The swizzle moves units by their
address in shared memory, wherever the matrix starts. Where ``tcgen05`` says so, the leading offset is an
address: that of the first line's bytes behind the span that the start lies in.

Numbers of four and six bits in bytes lie as 16 of them in 16 bytes, one behind the other, and padding.

Source: PTX ISA, "Strides" and "Matrix Descriptor Format" of wgmma, "Shared memory descriptor" and
"Packing formats" of tcgen05; CUTLASS, ``mma_sm90_desc.hpp`` and ``mma_sm100_desc.hpp``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.matrix.bit_record import BitRecord
from ptxlab.matrix.canonical import MODES, UNIT_BYTES
from ptxlab.matrix.descriptor import ADDRESS_BITS, TCGEN05_DESCRIPTOR, WGMMA_DESCRIPTOR
from ptxlab.matrix.form import SharedOperand

_LINES = 8
_PERIOD = max(mode.period for mode in MODES.values())
_ABSOLUTE = np.uint64(TCGEN05_DESCRIPTOR.field("leading offset mode").encode("absolute"))
_WHOLE_PERIODS = WGMMA_DESCRIPTOR.field("start address").encode((1 << ADDRESS_BITS) - _PERIOD)
"""The bits of a start address that move a matrix together with the pattern of its swizzle."""


def addresses(
    operand: SharedOperand, major: str, descriptors: Array, record: BitRecord = WGMMA_DESCRIPTOR
) -> Array:
    """Return the byte addresses [descriptors, lines, units] of int64 of what ``operand`` is read from.

    ``descriptors`` are words [descriptors] of uint64 made as ``record`` says. Addresses count from the beginning of a CTA's shared memory and
    may lie behind its end. Raises ValueError for a descriptor that says what is not modelled.
    """
    moves = np.where(descriptors & _ABSOLUTE, np.uint64(0), descriptors & np.uint64(_WHOLE_PERIODS))
    patterns, which = np.unique(descriptors ^ moves, return_inverse=True)
    start = moves.astype(np.int64) * UNIT_BYTES
    units = np.stack([_pattern(operand, major, int(word), record) for word in patterns])
    return np.asarray(units[which] + start[:, np.newaxis, np.newaxis])


def core_matrices(units: Array) -> Array:
    """Return units [descriptors, lines, units] as [descriptors, core matrices, 8]: a unit of 8 lines each.

    They have as many lines as there are where those are fewer, and the units' type, whatever that is.
    """
    count, lines, across = units.shape
    together = min(_LINES, lines)
    atoms = units.reshape(count, lines // together, together, across).swapaxes(2, 3)
    return atoms.reshape(count, -1, together)


def elements(operand: SharedOperand, major: str, units: Array) -> Array:
    """Return the matrices [rows, cols, descriptors] in units [descriptors, lines, units] of 16 bytes.

    Units are of any type of 16 bytes. Elements are raw words of their size, uint8 to uint64; smaller ones come
    one a byte.
    """
    octets = np.ascontiguousarray(units).view(np.uint8)
    if operand.bits == 4:
        lines = np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)
    elif operand.bits < 8:
        lines = np.unpackbits(octets, axis=-1, bitorder="little")
    else:
        lines = octets.view(f"u{operand.bits // 8}")
    by_row = lines.transpose(1, 2, 0)
    return np.ascontiguousarray(by_row if _has_rows(operand, major) else by_row.swapaxes(0, 1))


def _has_rows(operand: SharedOperand, major: str) -> bool:
    """Say whether a line of units is a row of the matrix, and not a column."""
    return (operand.operand == "A") == (major == "k")


def unpadded(octets: Array, bits: int) -> Array:
    """Return numbers of ``bits``, 16 in each 16 bytes of uint8 [..., bytes], one a byte, in its low bits."""
    units = octets.reshape(*octets.shape[:-1], -1, UNIT_BYTES)[..., : 2 * bits]
    each = np.unpackbits(units, axis=-1, bitorder="little").reshape(*units.shape[:-1], -1, bits)
    packed = np.packbits(each, axis=-1, bitorder="little")
    return packed.reshape(octets.shape)


@lru_cache(maxsize=1024)
def _pattern(operand: SharedOperand, major: str, descriptor: int, record: BitRecord) -> Array:
    """Return the addresses [lines, units] for one descriptor."""
    fields = record.decode(descriptor)
    mode = MODES[str(fields["swizzle"])]
    start, leading, stride, base = (
        int(fields[name])
        for name in ("start address", "leading byte offset", "stride byte offset", "base offset")
    )
    lines, length = operand.rows, operand.cols
    if not _has_rows(operand, major):
        lines, length = length, lines
    line, unit = np.ix_(np.arange(lines), np.arange(length * operand.bits // (8 * UNIT_BYTES)))
    per_span = mode.span // UNIT_BYTES
    swizzled = per_span > 1
    if base:
        raise ValueError(f"base offset {base} in a matrix descriptor is not modelled")
    absolute = fields.get("leading offset mode") == "absolute"
    if absolute and not (mode.name == "128B" and major == "k"):
        raise ValueError(f"an absolute leading offset with swizzle {mode.name} does not exist")
    if swizzled and major == "k" and unit.size > per_span:
        raise ValueError(
            f"swizzle {mode.name} of rows of {unit.size * UNIT_BYTES} bytes is not modelled"
        )
    along, across = (leading, stride) if swizzled or major == "k" else (stride, leading)
    in_line = UNIT_BYTES * (unit % per_span) + along * (unit // per_span)
    to_line = mode.span * (line % mode.lines) + across * (line // mode.lines)
    begins = np.full(unit.shape, start)
    if absolute:
        behind = start % mode.span + in_line >= mode.span
        begins[behind] = leading - (mode.span - start % mode.span)
    return np.asarray(mode.swizzle(begins + to_line + in_line))
