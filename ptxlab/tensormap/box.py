"""What one copy with a tensor map moves: which bytes of global memory, to where in shared memory.

A copy is a list of rows, each contiguous on both sides, because what lies inside the tensor of a row
along dimension 0 is the same for all of them. A row is moved as one item of numpy.

    box = box_of(data)                               the 128 bytes of a map; kept for the next copy
    rows = box.rows((x, y))                          for im2col box.rows((c, w, h, n), (w, h)), for
                                                     im2col::w box.wide((c, w, h, n), halo, offset)
    moved = rows.gather(memory, base)                memory: bytes from the global address base on
    shared[box.units(address)] = moved               a load: shared memory in units of 16 bytes,
                                                     address: where in it; once for each CTA it is for
    rows.scatter(memory, base, shared[box.units(address)])       a store
    addresses, elements = rows.elements()            a reduction, which works on moved[elements]

Source: PTX ISA, "Tensors", "Im2col mode", "im2col::w and im2col::w::128 modes" and "Swizzling Modes"; CUDA C++
Programming Guide, "Swizzle Modes". What an RTX 5080 copied of rows shorter than their swizzle, and with im2col::w,
is on record in roundandr/Allegro (``nvidia_tma_sm120a.json``); that im2col::w::128 has its halos behind all else is as
mlc-ai/TIRx-harness has it (``im2col_origins``), which is held against a B200.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Integers, Octets
from ptxlab.errors import Unsupported
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.rounding import narrow
from ptxlab.tensormap.encoding import decode
from ptxlab.tensormap.tensor_map import PADDED_ROW, SWIZZLE_MODES, Im2col, TensorMap

Units = npt.NDArray[np.complex128]

SHARED_ALIGNMENT = 128
UNIT = np.dtype(np.complex128)
"""What moves 16 bytes as one item."""


class Box:
    """What copies with ``map`` move: ``count`` rows of ``row_bytes``, ``pitch`` bytes apart, ``nbytes`` in all.

    So many from the shared address on are those of the copy, whatever lies outside the tensor and whatever
    the swizzle, but for the gaps behind rows that are shorter than their swizzle's span. In global memory rows have ``packed_bytes``, and complete_tx counts ``counted``, which are
    without padding: public kernels for B200 wait for so many (CUTLASS's ``TmaTransactionBytes``,
    DeepGEMM's ``num_arrival_bytes``).

    Raises Unsupported for what NVIDIA does not document: interleaved layouts, and types with ``.ftz``.
    """

    def __init__(self, tensor_map: TensorMap, pixels: int | None = None) -> None:
        """Take ``pixels`` where the instruction says how many, and not the map."""
        _refuse(tensor_map)
        self.map = tensor_map
        self.row_bytes = tensor_map.row_bytes
        swizzled = tensor_map.swizzle != "none"
        self.pitch = SWIZZLE_MODES[tensor_map.swizzle].span if swizzled else self.row_bytes
        self.packed_bytes = tensor_map.along(tensor_map.inner)
        self.flips = tensor_map.swizzle.endswith("flip8B")
        packing = tensor_map.element.packing
        self.padding = packing if packing and packing.padded else None
        self._outer: tuple[tuple[int, int, int, int], ...] = ()  # size, stride, step, count
        if isinstance(tensor_map.box, Im2col):
            self.count = pixels or tensor_map.box.pixels
        else:
            steps, sizes = tensor_map.element_strides[1:], tensor_map.box[1:]
            counts = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
            self._outer = tuple(
                zip(tensor_map.dims[1:], tensor_map.strides, steps, counts, strict=True)
            )
            self.count = prod(counts)
        self.nbytes = self.count * self.pitch
        self.counted = self.count * self.packed_bytes
        self._units: dict[int, Integers] = {}
        self._of_pixels: dict[int, Box] = {}

    def rows(self, coordinates: Sequence[int], offsets: Sequence[int] = ()) -> BoxRows:
        """Return the rows of the copy at ``coordinates``, dimension 0 first.

        ``offsets`` are those of an im2col load, none are zeros. Raises ValueError for a number of
        coordinates other than the map's, and where the first pixel is outside its window.
        """
        tensor_map = self.map
        if len(coordinates) != tensor_map.rank:
            raise ValueError(f"{len(coordinates)} coordinates for {tensor_map.rank} dimensions")
        inner = coordinates[0]
        start, stop = self._inside(inner)
        if stop <= start:
            return BoxRows(self, _NOTHING, _NOTHING, 0, 0)
        begin = tensor_map.address + tensor_map.along(inner) + start
        numbers: Integers | slice
        if isinstance(tensor_map.box, Im2col):
            places, numbers = self._pixels(tensor_map.box, coordinates[1:], offsets)
        else:
            places, numbers, begin = self._lines(coordinates[1:], begin)
        return BoxRows(self, places + _signed(begin), numbers, start, stop)

    def wide(
        self, coordinates: Sequence[int], halo: int, offset: int, *, groups: int = 1
    ) -> BoxRows:
        """Return the rows of a load with im2col::w, or im2col::w::128, which has 4 ``groups`` of 32 pixels.

        Behind each group the walk from pixel to pixel goes on for ``halo`` of them. These lie behind all pixels, the
        first ones of all groups before the second ones. Raises ValueError as ``rows`` does.
        """
        tensor_map = self.map
        assert isinstance(tensor_map.box, Im2col)
        pixels = _GROUP * groups if groups > 1 else self.count
        for name, value, limit in (("wHalo", halo, _HALOS[groups]), ("wOffset", offset, _OFFSETS)):
            if value >= limit:
                raise ValueError(f"{name} is {value}, not below {limit}")
        count = pixels + groups * halo
        if count not in self._of_pixels:
            self._of_pixels[count] = Box(tensor_map, count)
        box = self._of_pixels[count]
        ends = pixels // groups * (1 + np.arange(groups))
        halos = np.add.outer(np.arange(halo), ends).reshape(-1)
        start, stop = self._inside(coordinates[0])
        turns = np.concatenate([np.arange(pixels), halos])
        places, numbers = box._line(tensor_map.box, coordinates[1:], offset, turns)
        if stop <= start:
            return BoxRows(box, _NOTHING, _NOTHING, 0, 0)
        begin = tensor_map.address + tensor_map.along(coordinates[0]) + start
        return BoxRows(box, places + _signed(begin), numbers, start, stop)

    def inside(self, coordinates: Integers) -> BoxRows | None:
        """Return the rows of all copies at ``coordinates`` [copies, rank] at once, with addresses [copies, rows].

        None unless these are tiles, and each lies inside the tensor as a whole.
        """
        tensor_map = self.map
        if isinstance(tensor_map.box, Im2col) or coordinates.shape[1] != tensor_map.rank:
            return None
        if self._step > 1 and (coordinates[:, 0] % self._step).any():
            return None
        from_start = coordinates.copy()
        from_start[:, 0] = from_start[:, 0] * tensor_map.element.bits // 8
        if from_start.min() < 0 or (from_start > self._last).any():
            return None
        begin = from_start @ self._strides + _signed(tensor_map.address)
        addresses = np.add.outer(begin, self._pattern.reshape(-1))
        return BoxRows(self, addresses, slice(None), 0, self.packed_bytes)

    def four(self, column: int, lines: Sequence[int]) -> BoxRows:
        """Return the rows of a copy of four rows of a matrix, wherever they lie, one behind the other.

        Raises ValueError for a map of anything but boxes of one row of a matrix.
        """
        tensor_map, box = self.map, self._of_four
        start, stop = self._inside(column)
        inside = [number for number, line in enumerate(lines) if 0 <= line < tensor_map.dims[1]]
        if stop <= start or not inside:
            return BoxRows(box, _NOTHING, _NOTHING, 0, 0)
        begin = tensor_map.address + tensor_map.along(column) + start
        places = np.array([lines[number] for number in inside], np.int64) * tensor_map.strides[0]
        return BoxRows(box, places + _signed(begin), np.array(inside, np.int64), start, stop)

    def units(self, address: int) -> Integers:
        """Return where each unit of 16 bytes lies of a copy at a shared ``address``, in such units.

        The swizzle is one of addresses, so that its pattern does not begin with the copy. Raises
        ValueError for an address that is no multiple of 128.
        """
        if address % SHARED_ALIGNMENT:
            raise ValueError(
                f"shared address {address:#x} is no multiple of {SHARED_ALIGNMENT}, as a copy with a "
                "tensor map needs"
            )
        mode = SWIZZLE_MODES[self.map.swizzle]
        phase = address % mode.period
        if phase not in self._units:
            row = UNIT_BYTES * np.arange(self.row_bytes // UNIT_BYTES)
            straight = phase + np.add.outer(self.pitch * np.arange(self.count), row).reshape(-1)
            self._units[phase] = (mode.swizzle(straight) - phase) // UNIT_BYTES
        return self._units[phase] + address // UNIT_BYTES

    def flipped(self, units: Integers, moved: Units) -> Units:
        """Return what is moved to ``units`` of shared memory: on every second line with its halves flipped."""
        halves = moved.view(np.uint64).reshape(*moved.shape, 2)
        odd = (units * UNIT_BYTES // SWIZZLE_MODES[self.map.swizzle].span % 2).astype(np.bool_)
        flipped: Units = np.where(odd[..., np.newaxis], halves[..., ::-1], halves).view(UNIT)
        return flipped[..., 0]

    def outside(self) -> Units:
        """Return what a copy from outside the tensor brings to shared memory.

        Which NaN it is nobody documents; this is the one that operations return.
        """
        return self.spread(self.fill())

    def fill(self) -> Octets:
        """Return the bytes of a copy from outside the tensor, without padding."""
        if self.map.fill == "zeros":
            return np.zeros(self.counted, np.uint8)
        form = FORMATS[self.map.dtype]
        return np.full(self.counted // self.map.size, form.nan_word, form.word).view(np.uint8)

    def spread(self, octets: Octets) -> Units:
        """Return the bytes of a copy with padding between them, if there is some.

        What is in that, nobody documents: it is all ones, so that it does not pass for numbers.
        """
        if self.padding is None:
            return octets.view(UNIT)
        moved = np.full((octets.size // self.padding.global_, self.padding.shared), 0xFF, np.uint8)
        moved[:, : self.padding.global_] = octets.reshape(-1, self.padding.global_)
        return moved.reshape(*octets.shape[:-1], -1).view(UNIT)

    def gathered(self, moved: Units) -> Octets:
        """Return the bytes of a store as they are in global memory: of numbers of 6 bits without the upper two."""
        octets = moved.view(np.uint8)
        if self.padding is None:
            return octets
        numbers = octets.reshape(-1, 4).astype(np.uint32) & 0x3F
        words = (numbers << np.arange(0, 24, 6, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
        packed: Octets = words.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].reshape(-1)
        return packed

    def _inside(self, inner: int) -> tuple[int, int]:
        """Return which bytes of a row at this coordinate are inside the tensor, those from one to the other.

        Raises ValueError for a coordinate in the middle of numbers that stay together, Unsupported for one in
        the middle of a byte.
        """
        tensor_map = self.map
        if inner % self._step:
            if self.padding is None:
                raise Unsupported(
                    f"coordinate {inner} of {tensor_map.dtype}, in the middle of a byte, is not modelled"
                )
            raise ValueError(
                f"coordinate {inner} is no multiple of {self._step}, as {tensor_map.dtype} needs along dimension 0"
            )
        stop = min(self.packed_bytes, tensor_map.along(tensor_map.dims[0] - inner))
        return tensor_map.along(max(0, -inner)), stop

    @cached_property
    def _step(self) -> int:
        """What a coordinate along dimension 0 is a multiple of."""
        return PADDED_ROW if self.padding else 2 if self.map.element.packing else 1

    @cached_property
    def _last(self) -> Integers:
        """Where a tile may begin at most, along dimension 0 in bytes."""
        inner = self.map.along(self.map.dims[0]) - self.packed_bytes
        outer = [size - 1 - step * (count - 1) for size, _, step, count in self._outer]
        return np.array([inner, *outer], np.int64)

    @cached_property
    def _strides(self) -> Integers:
        """The bytes from one element to the next along each dimension, of dimension 0 from one byte."""
        return np.array([1, *self.map.strides], np.int64)

    @cached_property
    def _of_four(self) -> Box:
        given = self.map.box
        if isinstance(given, Im2col) or len(given) != 2 or given[1] != 1:
            raise ValueError("four rows are copied with boxes of one row of a matrix")
        return Box(replace(self.map, box=(given[0], 4)))

    @cached_property
    def _pattern(self) -> Integers:
        """The offsets of a tile's rows from its first one; the last axis is dimension 1."""
        pattern = np.zeros((), np.int64)
        for _, stride, step, count in self._outer:
            pattern = np.add.outer(np.arange(count, dtype=np.int64) * (step * stride), pattern)
        return pattern

    @cached_property
    def _numbers(self) -> Integers:
        return np.arange(self.count).reshape(self._pattern.shape)

    def _lines(
        self, coordinates: Sequence[int], begin: int
    ) -> tuple[Integers, Integers | slice, int]:
        """Return the rows of a tile that are inside: their offsets, their numbers, where they begin.

        Inside is a range along each dimension.
        """
        inside: list[slice] = []
        whole = True
        for x, (size, stride, step, count) in zip(coordinates, self._outer, strict=True):
            low, high = max(0, -(x // step)), min(count, -((x - size) // step))
            if high <= low:
                return _NOTHING, _NOTHING, 0
            begin += x * stride
            whole = whole and (low, high) == (0, count)
            inside.append(slice(low, high))
        if whole:
            return self._pattern.reshape(-1), slice(None), begin
        part = tuple(reversed(inside))
        return self._pattern[part].reshape(-1), self._numbers[part].reshape(-1), begin

    def _pixels(
        self, box: Im2col, coordinates: Sequence[int], offsets: Sequence[int]
    ) -> tuple[Integers, Integers]:
        """Return the offsets and the numbers of the pixels that are inside the image.

        They follow each other through the window of an image as the digits of a number count, and
        from its end to the next image. Only the first line, plane and image begin in their middle.
        """
        tensor_map, spatial = self.map, coordinates[:-1]
        offsets = offsets or (0,) * len(spatial)
        turn = np.arange(self.count)
        offset = np.zeros(self.count, np.int64)
        inside = np.ones(self.count, np.bool_)
        for d, (x, shift) in enumerate(zip(spatial, offsets, strict=True)):
            size, step = tensor_map.dims[d + 1], tensor_map.element_strides[d + 1]
            low, high = box.lower[d] + shift, size + box.upper[d] + shift
            first = x + shift
            if not low <= first < high:
                raise ValueError(
                    f"coordinate {x} + {shift} of dimension {d + 1} is outside the window, which is "
                    f"{low} to {high - 1}"
                )
            count, left = -((low - high) // step), -((first - high) // step)
            turn, digit = np.divmod(turn + (count - left), count)
            position = low + digit * step
            position[turn == 0] += first - (low + (count - left) * step)
            offset += position * tensor_map.strides[d]
            inside &= (position >= 0) & (position < size)
        image = coordinates[-1] + turn
        offset += image * tensor_map.strides[-1]
        inside &= (image >= 0) & (image < tensor_map.dims[-1])
        numbers = np.flatnonzero(inside)
        return offset[numbers], numbers

    def _line(
        self, box: Im2col, coordinates: Sequence[int], shift: int, turns: Integers
    ) -> tuple[Integers, Integers]:
        """Return the offsets and the numbers of the pixels that are inside, of those so many ``turns`` from the first.

        The walk goes along one line of the window, and on in the same line of the next image. It may begin before the
        window.
        """
        tensor_map = self.map
        (x, *others, image), size, step = (
            coordinates,
            tensor_map.dims[1],
            tensor_map.element_strides[1],
        )
        low, high, first = box.lower[0] + shift, size + box.upper[0] + shift, x + shift
        if first >= high:
            raise ValueError(
                f"coordinate {x} + {shift} of dimension 1 is behind the window, which ends at {high - 1}"
            )
        count, left = -((low - high) // step), -((first - high) // step)
        line, digit = np.divmod(turns - left, count)
        position = np.where(turns < left, first + turns * step, low + digit * step)
        images = image + np.where(turns < left, 0, line + 1)
        fixed = zip(others, tensor_map.dims[2:-1], tensor_map.strides[1:-1], strict=True)
        offset = position * tensor_map.strides[0] + images * tensor_map.strides[-1]
        inside = (
            (position >= 0) & (position < size) & (images >= 0) & (images < tensor_map.dims[-1])
        )
        for coordinate, limit, stride in fixed:
            offset += coordinate * stride
            inside &= 0 <= coordinate < limit
        numbers = np.flatnonzero(inside)
        return offset[numbers], numbers


@dataclass(frozen=True, slots=True, eq=False)
class BoxRows:
    """The part of one copy that is inside the tensor: bytes ``start`` to ``stop`` of some rows.

    Or of several copies that are inside as a whole. ``addresses`` say where it begins in each of them, as signed numbers, ``numbers`` which rows of
    the box they are: an array, or a slice that is all.
    """

    box: Box
    addresses: Integers
    numbers: Integers | slice
    start: int
    stop: int

    @property
    def extent(self) -> tuple[int, int] | None:
        """The first address that is touched and the one behind the last; None where there is none."""
        if not self.addresses.size:
            return None
        first, last = int(self.addresses.min()), int(self.addresses.max())
        return first, last + self.stop - self.start

    def gather(self, memory: Octets, base: int) -> Units:
        """Return the bytes of the copy, in units, from ``memory``, which begins at address ``base``.

        What is outside the tensor is filled. All of ``extent`` must lie in ``memory``. Elements of
        tf32 are rounded to the nearest, of two the even one, as a bitwise test of Triton's on Hopper
        has it (``test_gluon_tma_round_f32_to_tf32``).
        """
        octets = self._filled(memory, base)
        if self.box.map.element.is_tf32:
            return narrow(octets.view(np.float32), FORMATS["tf32"]).view(UNIT)
        return self.box.spread(octets)

    def _filled(self, memory: Octets, base: int) -> Octets:
        box = self.box
        whole = isinstance(self.numbers, slice) and self.stop - self.start == box.packed_bytes
        if whole:
            items = _items(memory, self.stop - self.start)[self.addresses - base]
            return items.view(np.uint8)
        moved = box.fill()
        if self.addresses.size:
            items = _items(memory, self.stop - self.start)[self.addresses - base]
            self._part(moved)[self.numbers] = items
        return moved

    def scatter(self, memory: Octets, base: int, moved: Units) -> None:
        """Write what is inside the tensor of the bytes of a copy. Of rows at one address the last stays."""
        if self.addresses.size:
            rows = self._part(self.box.gathered(moved))[self.numbers]
            items = _items(memory, self.stop - self.start)
            items[self.addresses - base] = rows.reshape(self.addresses.shape)

    def of_each(self) -> list[BoxRows]:
        """Return the rows of each of several copies."""
        return [replace(self, addresses=addresses) for addresses in self.addresses]

    def elements(self) -> tuple[Integers, Integers]:
        """Return the address of every element that is inside, and its number in the box."""
        size, box = self.box.map.size, self.box
        along = np.arange(0, self.stop - self.start, size)
        first = np.arange(box.count)[self.numbers] * box.packed_bytes + self.start
        addresses = np.add.outer(self.addresses, along).reshape(-1)
        return addresses, np.add.outer(first, along).reshape(-1) // size

    def _part(self, moved: Octets) -> npt.NDArray[np.void]:
        """Return bytes ``start`` to ``stop`` of each row of a copy as an item."""
        pitch = self.box.packed_bytes
        item = np.dtype((np.void, self.stop - self.start))
        return np.ndarray((moved.size // pitch,), item, moved, self.start, (pitch,))


_NOTHING: Integers = np.zeros(0, np.int64)
_GROUP = 32
"""How many pixels a group of im2col::w::128 has."""
_OFFSETS, _HALOS = 32, {1: 512, 4: 32}
"""Below what wOffset and wHalo are: PTX ISA, "cp.async.bulk.tensor"."""


@lru_cache(maxsize=256)
def box_of(data: bytes) -> Box:
    """Return the box of a tensor map of 128 bytes, which is kept. Raises as ``decode`` and ``Box`` do."""
    return Box(decode(data))


def _refuse(tensor_map: TensorMap) -> None:
    if tensor_map.interleave != "none":
        reason = f"interleave {tensor_map.interleave}"
    elif tensor_map.dtype.endswith(".ftz"):
        reason = f"elements of {tensor_map.dtype}"
    elif isinstance(tensor_map.box, Im2col) and tensor_map.element_strides[-1] != 1:
        reason = f"im2col that takes every {tensor_map.element_strides[-1]}th image"
    else:
        return
    raise Unsupported(f"a tensor map with {reason} is not modelled: NVIDIA does not document it")


def _items(memory: Octets, nbytes: int) -> npt.NDArray[np.void]:
    """Return ``memory`` as overlapping items: item i is the bytes from i on."""
    return np.ndarray((memory.size - nbytes + 1,), np.dtype((np.void, nbytes)), memory, 0, (1,))


def _signed(address: int) -> int:
    """Return 64 bits as numpy's signed integers hold them."""
    return (address + (1 << 63)) % (1 << 64) - (1 << 63)
