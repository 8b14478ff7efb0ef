"""cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: copies of boxes of tensors.

The copy engine works them out from the 128 bytes of a tensor map, which ``ptxlab.tensormap`` reads.
One instruction has a thread copy a whole box, so that copies are taken one by one.
Source: PTX ISA, "Data Movement and Conversion Instructions: Tensor copy".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.address_map import RANK_SHIFT
from ptxlab.emulator.operations.bulk import (
    CASTS_SINCE,
    EVICTED_LAST,
    EVICTED_LAST_SINCE,
    GROUPED,
    REDUCED,
    SIGNAL,
    SIGNALS,
    BulkCopies,
    Signal,
    casts,
    multicast,
    policy,
    reduction,
    start_in_group,
)
from ptxlab.emulator.operations.memory import HINT, state_space
from ptxlab.emulator.operations.order import nothing
from ptxlab.emulator.operations.tensor_map import map_at, read_map, read_maps
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import translate
from ptxlab.emulator.run.background import Span
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM, Allocation, Part
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import MemoryAccess, Tiles
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError, Unsupported
from ptxlab.isa.targets import Target
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Address, Operand
from ptxlab.tensormap.box import SHARED_ALIGNMENT, Box, BoxRows, box_of
from ptxlab.tensormap.tensor_map import SWIZZLE_MODES, Im2col, TensorMap

Result = TypeVar("Result")

Write = Callable[[BoxRows, Allocation, Array], None]
"""Put the data of a copy where its rows are in global memory."""

_WIDE, _WIDE_128, _STORED_WIDE = "im2col::w", "im2col::w::128", "im2col_no_offs::w"


@dataclass(frozen=True, slots=True)
class Tensor:
    """The operand ``[map, {coordinates}]``, with the offsets of an im2col load."""

    pieces: Sequence[Access]
    coordinates: Sequence[Source]
    offsets: Sequence[Source]
    mode: str
    to: str
    stores: bool
    target: Target

    @classmethod
    def of(
        cls,
        context: Context,
        form: RowForm,
        operand: Operand,
        offsets: Operand | None = None,
        *,
        stores: bool = False,
    ) -> Tensor:
        assert isinstance(operand, Address)
        return cls(
            map_at(context, replace(operand, extra=()), "generic", writes=False),
            context.sources(operand.extra[0], "s32"),
            () if offsets is None else context.sources(offsets, "u16"),
            form["mode"] or "tile",
            form["to"],
            stores,
            context.target,
        )

    def rows(self, frame: Frame, threads: Threads) -> list[BoxRows]:
        """Return what each thread has copied. Raise LaunchError or Unsupported for what cannot be."""
        maps = read_maps(self.pieces, frame, threads)
        coordinates = _columns(self.coordinates, "s32", frame, threads).tolist()
        offsets = _columns(self.offsets, "u16", frame, threads).tolist()
        rows = [
            attempt(self.pieces[0], frame, threads, at, partial(self._one, *given))
            for at, given in enumerate(zip(maps, coordinates, offsets, strict=True))
        ]
        if frame.wave.watched:
            for at, box_rows in enumerate(rows):
                thread, outside = int(threads.index[at]), not box_rows.addresses.size
                frame.wave.watcher.box(thread, box_rows.box.map, coordinates[at], outside=outside)
        return rows

    def together(self, frame: Frame, threads: Threads) -> BoxRows | None:
        """Return the rows of all threads' copies at once, None unless each is the whole tile of one map."""
        data = read_map(self.pieces, frame, threads) if self.mode == "tile" else None
        if data is None:
            return None
        try:
            box = box_of(data)
            self._require(box.map)
            if self.stores:
                _require_storable(box.map)
        except (ValueError, Unsupported):  # which is told of the thread that has it
            return None
        return box.inside(_columns(self.coordinates, "s32", frame, threads))

    def _require(self, tensor_map: TensorMap) -> None:
        """Raise ValueError for a map that the target has no copies with. Source: "Restriction on Tensor Copy instructions"."""
        packing, what = tensor_map.element.packing, f"a tensor map of {tensor_map.dtype}"
        if not tensor_map.is_plain and not self.target.runs("sm_100"):
            raise ValueError(f"{tensor_map.kind} is for sm_100 and newer, not {self.target.name}")
        if packing and self.to == "shared::cluster" and self.target.capability == 120:
            raise ValueError(
                f"{what} has no loads to {self.to} on {self.target.name}, but to shared::cta"
            )
        if packing and packing.shared == 16 and packing.global_ == 8 and self.stores:
            raise ValueError(f"{what} has no stores")
        if self.stores and tensor_map.swizzle.endswith("flip8B"):
            raise ValueError(f"a tensor map with swizzle {tensor_map.swizzle} has no stores")
        if (
            tensor_map.swizzle.endswith("atom64B")
            and packing
            and packing.padded
            and not self.stores
        ):
            raise ValueError(f"{tensor_map.kind} has no loads")
        if tensor_map.swizzle == "96B" and self.mode == _WIDE_128:
            raise ValueError(f"{tensor_map.kind} has no loads with {_WIDE_128}")

    def _one(self, data: bytes, coordinates: list[int], offsets: list[int]) -> BoxRows:
        box = box_of(data)
        self._require(box.map)
        made = "im2col" if isinstance(box.map.box, Im2col) else "tile"
        wide = "::w" in self.mode
        if not self.mode.startswith(made) or wide != box.map.is_wide:
            made += "::w" * box.map.is_wide
            raise ValueError(f"the tensor map is one of {made} mode, not {self.mode}")
        if self.stores and min(coordinates) < 0:
            raise ValueError(f"coordinates {coordinates} of a store, which are not negative")
        if self.stores:
            _require_storable(box.map)
            _require_inside(box.map, self.mode)
        if self.mode.endswith("4"):
            return box.four(coordinates[0], coordinates[1:])
        if wide:
            halo, shift = offsets or (0, 0)
            return box.wide(coordinates, halo, shift, groups=4 if self.mode == _WIDE_128 else 1)
        return box.rows(coordinates, offsets)


def _require_storable(tensor_map: TensorMap) -> None:
    if tensor_map.element.is_tf32:
        raise Unsupported("a store with a tensor map of tf32 is not modelled: NVIDIA is silent")


def _require_inside(tensor_map: TensorMap, mode: str) -> None:
    """Raise ValueError where a store with im2col_no_offs::w has a window that is more than the line."""
    box = tensor_map.box
    if isinstance(box, Im2col) and box.wide and (box.lower[0] < 0 or box.upper[0] > 0):
        raise ValueError(
            f"corners {box.lower[0]} and {box.upper[0]} of a store with {mode}, which stays in the tensor"
        )


def _columns(sources: Sequence[Source], kind: str, frame: Frame, threads: Threads) -> Array:
    """Return the values of vector operands, [threads, sources]."""
    dtype = TYPES[kind].dtype
    values = np.empty((threads.size, len(sources)), np.int64)
    for number, source in enumerate(sources):
        values[:, number] = threads.pick(source.read(frame.registers)).view(dtype)
    return values


def attempt(
    access: Access, frame: Frame, threads: Threads, at: int, make: Callable[[], Result]
) -> Result:
    """Return what ``make`` gives, with its errors as those of the thread at position ``at``."""
    wave = frame.wave
    try:
        return make()
    except Unsupported as error:
        raise Unsupported(error.message, location=wave.locate(access.line)) from None
    except ValueError as error:
        raise LaunchError(
            f"tensor copy by {wave.thread(int(threads.index[at]))}: {error}",
            location=wave.locate(access.line),
            kind="async",
        ) from None


class BoxCopies:
    """Boxes on their way, one for each thread: ``rows`` in global memory, ``places`` in shared memory.

    They may be taken together, as one that all threads have. A load has a place for each CTA that it is for, and a
    store has one; ``write`` makes it a store.
    ``allocations`` are where the rows lie, None for a box outside of its tensor. ``written`` are the bytes of each
    CTA's shared memory that loads write, None where they are not taken together.
    """

    def __init__(
        self,
        frame: Frame,
        rows: list[BoxRows],
        places: list[list[Array]],
        allocations: list[Allocation | None],
        write: Write | None,
        written: Span | None = None,
    ) -> None:
        self.written = written
        wave = frame.wave
        self._region = wave.regions["shared"]
        self._of_cta = wave.shared_pitch // UNIT_BYTES
        self._first = wave.shared_base // UNIT_BYTES
        self._shared = self._region.items(UNIT_BYTES)
        self._rows = rows
        self._places = places
        self._write = write
        self._allocations = allocations
        self._data: dict[int, Array] = {}

    def read(self, chosen: Array | None) -> None:
        """Read the boxes of the threads at the positions ``chosen`` (None for all), each once."""
        if chosen is not None:
            self._take_apart()
        for at in range(len(self._rows)) if chosen is None else chosen.tolist():
            if at in self._data:
                continue
            rows, allocation = self._rows[at], self._allocations[at]
            if self._write is not None:
                self._data[at] = self._shared[self._places[at][0]]
            elif allocation is None:
                self._data[at] = rows.box.outside()
            else:
                self._data[at] = rows.gather(allocation.data, allocation.address)

    def moved(self) -> list[MemoryAccess]:
        loads = self._write is None
        moved = []
        for at, rows in enumerate(self._rows):
            as_it_is = rows.addresses.ndim == 1 and not rows.box.flips and rows.box.padding is None
            for places in self._places[at]:
                first, owner, box = places * UNIT_BYTES, np.full(places.shape, at), rows.box
                # A copy begins at 128 bytes of its CTA's own, in which a swizzle keeps its units.
                start = first.min(keepdims=True)
                start = start - start % (self._of_cta * UNIT_BYTES) % SHARED_ALIGNMENT
                tiles = Tiles(box.map.swizzle, box.pitch, box.count, start)
                offset = UNIT_BYTES * np.arange(places.size) if as_it_is else None
                moved.append(
                    MemoryAccess(self._region, first, UNIT_BYTES, owner, loads, tiles, offset)
                )
            memory = self._allocations[at]
            if memory is not None:
                addresses, numbers = rows.elements()
                first, size = addresses - memory.address, rows.box.map.size
                owner, offset = np.full(first.shape, at), numbers * size if as_it_is else None
                moved.append(MemoryAccess(memory, first, size, owner, not loads, offset=offset))
        return moved

    def _take_apart(self) -> None:
        """Have the boxes of stores as one for each thread, if they are taken together."""
        if self._rows[0].addresses.ndim == 1:
            return
        [rows], [[places]], [allocation] = self._rows, self._places, self._allocations
        self._rows = rows.of_each()
        self._places = [[own] for own in places]
        self._allocations = [allocation] * len(self._rows)
        self._data = dict(enumerate(self._data[0])) if self._data else {}

    def land(self, chosen: Array | None) -> None:
        self.read(chosen)
        for at in range(len(self._rows)) if chosen is None else chosen.tolist():
            allocation = self._allocations[at]
            if self._write is None:
                for places in self._places[at]:
                    self._shared[places] = self._arranged(
                        self._rows[at].box, places, self._data[at]
                    )
            elif allocation is not None:
                self._write(self._rows[at], allocation, self._data[at])

    def _arranged(self, box: Box, places: Array, data: Array) -> Array:
        """Return what a box brings to these places, in their order."""
        if not box.flips:
            return data
        return box.flipped(places % self._of_cta + self._first, data.reshape(places.shape))


def _allocation(frame: Frame, rows: BoxRows) -> Allocation | None:
    """Return where the rows lie, None for a box outside of its tensor. Raise ValueError elsewhere."""
    if rows.extent is None:
        return None
    first, end = rows.extent
    allocation = frame.wave.memory.find(first)
    if allocation is None or end > allocation.address + allocation.size:
        raise ValueError(
            f"the box reaches from {first:#x} to {end:#x} in global memory, which no allocation holds"
        )
    return allocation


def _places(
    access: Access, copies: BulkCopies, frame: Frame, rows: list[BoxRows]
) -> list[list[Array]]:
    """Return for each thread where its box lies in shared memory, in units, once for each CTA."""
    base = copies.address(access, frame)
    address = base + np.uint64(access.offset % (1 << 64))
    [part] = translate(access, frame, copies.owners, base)
    region = frame.wave.regions["shared"]
    places: list[list[Array]] = [[] for _ in rows]
    inside = (address & np.uint64((1 << RANK_SHIFT) - 1)).astype(np.int64)
    index = np.broadcast_to(part.index, inside.shape)
    for thread, offset, unit in zip(
        copies.thread.tolist(), inside.tolist(), index.tolist(), strict=True
    ):
        box = rows[thread].box
        units = attempt(access, frame, copies.threads, thread, partial(box.units, offset))
        if offset + box.nbytes > region.size:
            raise _outside(access, frame, copies.threads, thread, offset + box.nbytes)
        places[thread].append(units + (unit - offset // UNIT_BYTES))
    return places


def _together(
    access: Access,
    copies: BulkCopies,
    frame: Frame,
    rows: BoxRows,
    write: Write | None = None,
) -> BoxCopies | None:
    """Return the copies of all threads as one, None unless all is where it may be, and alike in every thread."""
    base = copies.address(access, frame)
    address = base + np.uint64(access.offset % (1 << 64))
    inside = (address & np.uint64((1 << RANK_SHIFT) - 1)).astype(np.int64)
    box, threads, ctas = rows.box, copies.threads, inside.size // copies.threads.size
    if not ctas or not np.array_equal(copies.thread, np.repeat(np.arange(threads.size), ctas)):
        return None
    offset, last = int(inside[0]), int(inside.max())
    alike = ((inside - offset) % SWIZZLE_MODES[box.map.swizzle].period == 0).all()
    outside = last + box.nbytes > frame.wave.regions["shared"].size
    if not alike or outside or offset % SHARED_ALIGNMENT:
        return None
    try:
        allocation = _allocation(frame, rows)
    except ValueError:  # which is told of the thread whose box it is
        return None
    [part] = translate(access, frame, copies.owners, base)
    units = box.units(offset) - offset // UNIT_BYTES
    places = np.add.outer(np.broadcast_to(part.index, inside.shape), units)
    of_each = [places[number::ctas] for number in range(ctas)]
    first = frame.wave.regions["shared"].first
    low, high = int(inside.min()) - first, last - first
    written = low + UNIT_BYTES * int(units.min()), high + UNIT_BYTES * (int(units.max()) + 1)
    return BoxCopies(frame, [rows], [of_each], [allocation], write, written)


def _outside(access: Access, frame: Frame, threads: Threads, at: int, end: int) -> LaunchError:
    wave = frame.wave
    return LaunchError(
        f"{access.verb} to byte {end:#x} of shared memory, of which a CTA has "
        f"{wave.regions['shared'].size:#x}, by {wave.thread(int(threads.index[at]))}",
        location=wave.locate(access.line),
        kind="bounds",
    )


def load(context: Context, form: RowForm) -> Step:
    """Copy a box to shared memory of one CTA, or of several; what is outside the tensor is filled."""
    operands = list(context.instruction.operands)
    policy(context, form, operands)
    mask = multicast(context, form, operands)
    target, source, barrier, *offsets = operands
    tensor = Tensor.of(context, form, source, *offsets)
    write = _in_shared(context, target, form["to"], "write")
    signal = Signal.of(context, form, barrier, pairs=form["group"] == "cta_group::2")

    def run(frame: Frame, threads: Threads) -> None:
        copies = BulkCopies.of(frame, threads, mask)
        rows = None if frame.wave.watched else tensor.together(frame, threads)
        boxes = None if rows is None else _together(write, copies, frame, rows)
        if rows is not None and boxes is not None:
            signal.start(frame, copies, boxes, np.full(copies.thread.size, rows.box.counted))
            return
        each = tensor.rows(frame, threads)
        boxes = _boxes(frame, threads, write, each, _places(write, copies, frame, each), None)
        nbytes = np.array([row.box.counted for row in each])[copies.thread]
        signal.start(frame, copies, boxes, nbytes)

    return run


def store(context: Context, form: RowForm) -> Step:
    """Copy a box to global memory, or reduce it into that; what is outside the tensor is left out."""
    operands = list(context.instruction.operands)
    policy(context, form, operands)
    target, origin = operands
    tensor = Tensor.of(context, form, target, stores=True)
    read = _in_shared(context, origin, "shared::cta", "read")
    write = _reducing(form) if form["op"] else _storing

    def run(frame: Frame, threads: Threads) -> None:
        copies = BulkCopies.of(frame, threads, None)
        rows = None if form["op"] or frame.wave.watched else tensor.together(frame, threads)
        boxes = None if rows is None else _together(read, copies, frame, rows, write)
        if boxes is None:
            each = tensor.rows(frame, threads)
            boxes = _boxes(frame, threads, read, each, _places(read, copies, frame, each), write)
        start_in_group(frame, threads, boxes)

    return run


def _boxes(
    frame: Frame,
    threads: Threads,
    access: Access,
    rows: list[BoxRows],
    places: list[list[Array]],
    write: Write | None,
) -> BoxCopies:
    allocations = [
        attempt(access, frame, threads, at, partial(_allocation, frame, row))
        for at, row in enumerate(rows)
    ]
    return BoxCopies(frame, rows, places, allocations, write)


def _in_shared(context: Context, operand: Operand, space: str, verb: str) -> Access:
    base, offset = context.address(operand)
    what = f"tensor copy {verb}"
    return Access(
        state_space([space]), base, offset, UNIT_BYTES, context.line, what, verb == "write"
    )


def _storing(rows: BoxRows, memory: Allocation, data: Array) -> None:
    rows.scatter(memory.data, memory.address, data)


def _reducing(form: RowForm) -> Write:
    """Return how a box is reduced into memory, by the type of its map."""

    def write(rows: BoxRows, memory: Allocation, data: Array) -> None:
        kind, name = rows.box.map.element.scalar, rows.box.map.dtype
        if not any(form["op"] in op.split() and name in types.split() for op, _, types in REDUCED):
            raise Unsupported(f"{form.name} of a tensor of {name} does not exist")
        addresses, numbers = rows.elements()
        part = Part(memory, (addresses - memory.address) // kind.bytes)
        reduction(form, kind)(part, data.view(ITEM[kind.bytes])[numbers])

    return write


def prefetch(context: Context, form: RowForm) -> Step:
    """Take a hint; only its operands are checked."""
    operands = list(context.instruction.operands)
    policy(context, form, operands)
    Tensor.of(context, form, *operands)
    return nothing


# ---- rows -----------------------------------------------------------------------------------

_row = partial(row, mix="asynchronous copy", needs="sm_90 8.0")
_FOUR = "sm_100f sm_110f 8.6"
_NEEDS = {
    "": "sm_90 8.0",
    "cta_group::1": _FOUR,
    "cta_group::2": _FOUR,
    "tile::gather4": _FOUR,
    "tile::scatter4": _FOUR,
    _WIDE: _FOUR,
    _WIDE_128: _FOUR,
    _STORED_WIDE: "sm_107f 9.4",
}
_TILE, _IM2COL = "1d 2d 3d 4d 5d", "3d 4d 5d"
_START = "cp.async.bulk.tensor.<dim>.<to>.global"
for _hint, _policy in (("", ""), (f".{HINT}", " b64")):
    for _mode, _dims, _name, _tensor, _more in (
        ("{.<mode>}", _TILE, "tile", "&s32*dim", ""),
        (".<mode>", _IM2COL, "im2col", "&s32*dim", " u16*dim-2"),
        *(  # wHalo and wOffset, whatever the dimensions
            (".<mode>", f"{dim}d", f"{_WIDE} {_WIDE_128}", "&s32*dim", f" u16*dim-{dim - 2}")
            for dim in (3, 4, 5)
        ),
        (".<mode>", "2d", "tile::gather4", "&s32*dim+3", ""),
    ):
        _shaped = partial(_row, dim=_dims, mode=_name)
        for _cast, _mask, _casts in casts():
            _shaped(
                f"{_START}{_mode}.{SIGNAL}{{.<group>}}{_cast}{_hint}",
                f"[b8@to] {_tensor} [b64@to]{_more}{_mask}{_policy}",
                step=load,
                needs=_NEEDS | CASTS_SINCE,
                effects=SIGNALS,
                to="shared::cluster",
                group="cta_group::1 cta_group::2",
                **_casts,
            )
        _shaped(
            f"{_START}{_mode}.{SIGNAL}{{.<group>}}{_hint}",
            f"[b8@to] {_tensor} [b64@to]{_more}{_policy}",
            step=load,
            needs={**_NEEDS, "": "sm_90 8.6", "tile::gather4": "sm_100 8.6", _WIDE: "sm_100 8.6"},
            effects=SIGNALS,
            to="shared::cta",
            group="cta_group::1 cta_group::2",
        )
        for _evicted in ("",) if _hint else ("", f".{EVICTED_LAST}"):
            _shaped(
                f"cp.async.bulk.prefetch.tensor.<dim>.L2.global{_mode}{_hint}{_evicted}",
                f"{_tensor}{_more}{_policy}",
                step=prefetch,
                needs=_NEEDS | {EVICTED_LAST: EVICTED_LAST_SINCE},
            )
        if not _hint:
            _shaped(
                f"applypriority.async.bulk.tensor.<dim>{{.global}}.bulk_group{_mode}.L2::evict_normal",
                f"{_tensor}{_more}",
                step=prefetch,
                needs="sm_107f 9.4",
            )
    for _mode, _dims, _name, _tensor in (
        ("{.<mode>}", _TILE, "tile", "&s32*dim"),
        (".<mode>", _IM2COL, f"im2col_no_offs {_STORED_WIDE}", "&s32*dim"),
        (".<mode>", "2d", "tile::scatter4", "&s32*dim+3"),
    ):
        _stores = partial(_row, step=store, effects=GROUPED, dim=_dims, mode=_name, needs=_NEEDS)
        _end = f"{_mode}.bulk_group{_hint}"
        _stores(f"cp.async.bulk.tensor.<dim>.global.shared::cta{_end}", f"{_tensor} [b8]{_policy}")
        if _name == "tile::scatter4":
            continue
        _stores(
            f"cp.reduce.async.bulk.tensor.<dim>.global.shared::cta.<op>{_end}",
            f"&s32*dim [b8]{_policy}",
            effects=replace(GROUPED, atomic=True),
            op="add min max inc dec and or xor",
        )
