"""Tensor maps in memory: reading them, tensormap.replace and tensormap.cp_fenceproxy.

Source: PTX ISA, "Data Movement and Conversion Instructions: tensormap.replace" and "tensormap.cp_fenceproxy".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.memory import gather, scatter, state_space
from ptxlab.emulator.operations.order import fence, nothing
from ptxlab.emulator.operations.warp import ALIGNED
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import require
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import translate
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM, Region
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.isa.legality import parse_needs
from ptxlab.syntax.tree import Integer, Operand
from ptxlab.tensormap.encoding import MAP_BYTES, READ_BYTES
from ptxlab.tensormap.encoding import replace as replaced

PIECE = 16
_OF_BLACKWELL = "sm_100f sm_110f sm_120f 8.6"
_FIRST_PACKED = 13
"""The first of those values of elemtype that stand for types of 4 and 6 bits."""
_NEEDS_PACKED = parse_needs(_OF_BLACKWELL)
_OF_96_BYTES = 4
"""The number of a swizzle of 96 bytes, which has a bit of its own in a map."""
_NEEDS_96_BYTES = parse_needs("sm_103a sm_107a 8.8")
MAP_READ, MAP_WRITE = "read of a tensor map", "write of a tensor map"
MAP_REST = "read behind what is used of a tensor map"
_USED = READ_BYTES // PIECE
"""The pieces in which fields of a map are: behind them nothing needs to be written."""


def map_at(context: Context, operand: Operand, space: str, *, writes: bool) -> Sequence[Access]:
    base, offset = context.address(operand)
    verb = MAP_WRITE if writes else MAP_READ
    return [
        Access(space, base, offset + at, PIECE, context.line, verb, writes)
        for at in range(0, MAP_BYTES, PIECE)
    ]


def read_maps(pieces: Sequence[Access], frame: Frame, threads: Threads) -> list[bytes]:
    columns = [np.resize(gather(piece, frame, threads), threads.size) for piece in pieces]
    table = np.stack(columns, axis=1)
    return [row.tobytes() for row in table]


def read_map(pieces: Sequence[Access], frame: Frame, threads: Threads) -> bytes | None:
    """Return the one map that all threads read, None unless they see it at one place. What is a parameter is kept."""
    given = threads.pick(pieces[0].base.read(frame.registers))
    if len(given) > 1 and (given != given[0]).any():
        return None
    address, maps = int(given[0]) + pieces[0].offset, frame.wave.maps
    if address in maps:
        return maps[address]
    first_thread = Threads(threads.width, index=threads.index[:1])
    try:
        [first] = translate(pieces[0], frame, first_thread)
    except LaunchError:  # which is told of all threads that it is for
        return None
    memory, begin = first.memory, int(first.index[0]) * PIECE
    is_own = isinstance(memory, Region) and memory.name != "param"
    if is_own or begin + MAP_BYTES > memory.size:
        return None
    data = memory.data[begin : begin + MAP_BYTES].tobytes()
    if isinstance(memory, Region):
        maps[address] = data
    return data


def _write_maps(
    pieces: Sequence[Access], frame: Frame, threads: Threads, maps: list[bytes]
) -> None:
    items = np.frombuffer(b"".join(maps), ITEM[PIECE]).reshape(len(maps), -1)
    for number, piece in enumerate(pieces):
        scatter(piece, frame, threads, np.ascontiguousarray(items[:, number]))


def _replace(context: Context, form: RowForm) -> Step:
    """Change one field of a map."""
    address, *numbered, value = context.instruction.operands
    if form["field"] == "elemtype" and isinstance(value, Integer) and value.value >= _FIRST_PACKED:
        require(context, f"tensormap.replace.tile.elemtype {value.value}", _NEEDS_PACKED, value)
    if form["field"] == "swizzle_mode" and value == Integer(_OF_96_BYTES):
        require(context, f"{form.name} {_OF_96_BYTES}", _NEEDS_96_BYTES, value)
    space = state_space(form.modifiers)
    reads = map_at(context, address, space, writes=False)[:_USED]
    writes = map_at(context, address, space, writes=True)[:_USED]
    ordinal = numbered[0].value if numbered and isinstance(numbered[0], Integer) else 0
    source, field, line = context.source(value, form["T"]), form["field"], context.line
    has_96 = not _NEEDS_96_BYTES.missing(context.target)

    def run(frame: Frame, threads: Threads) -> None:
        given = threads.pick(source.read(frame.registers)).astype(np.uint64)
        values: Array = np.broadcast_to(given, (threads.size,))
        maps = read_maps(reads, frame, threads)
        for at, value in enumerate(values.tolist()):
            try:
                for name, number in _put(field, value) if has_96 else ((field, value),):
                    maps[at] = replaced(maps[at], name, number, ordinal)
            except ValueError as error:
                wave = frame.wave
                raise LaunchError(
                    f"tensormap.replace by {wave.thread(int(threads.index[at]))}: {error}",
                    location=wave.locate(line),
                ) from None
        _write_maps(writes, frame, threads, maps)

    return run


def _put(field: str, value: int) -> tuple[tuple[str, int], ...]:
    """Return the fields of a map that one of the instruction becomes. As ptxas has it for sm_103a."""
    if field != "swizzle_mode":
        return ((field, value),)
    is_96 = value == _OF_96_BYTES
    return ((field, 0 if is_96 else value), ("swizzle_96B", int(is_96)))


def _copy(context: Context, form: RowForm) -> Step:
    """Copy a map from shared to global memory, all threads of a warp the same one."""
    target, origin, size = context.operands(3)
    _require_map(context, size)
    writes = map_at(context, target, "global", writes=True)
    pieces = map_at(context, origin, "shared", writes=False)
    reads = [*pieces[:_USED], *(replace(piece, verb=MAP_REST) for piece in pieces[_USED:])]
    context.participants = ALIGNED

    def run(frame: Frame, threads: Threads) -> None:
        _write_maps(writes, frame, threads, read_maps(reads, frame, threads))

    return run


def _acquire(context: Context, form: RowForm) -> Step:
    """Order accesses to a tensor map, which they are."""
    address, size = context.operands(2)
    context.address(address)
    _require_map(context, size)
    return nothing


def _require_map(context: Context, size: Operand) -> None:
    if size != Integer(MAP_BYTES):
        context.reject(f"a tensor map has {MAP_BYTES} bytes", size)


_map = partial(row, mix="asynchronous copy", needs="sm_90a sm_100f sm_110f sm_120f 8.3")
_field = partial(_map, step=_replace, space="global shared::cta")
_start = "tensormap.replace.tile.<field>{.<space>}.b1024.<T>"
_field(_start, "[b8] T", field="global_address", T="b64")
_field(_start, "[b8] T", field="rank", T="b32")
_field(_start, "[b8] #u32<5 T", field="box_dim global_dim element_stride", T="b32")
_field(_start, "[b8] #u32<5 T", field="global_stride", T="b64")
for _mode, _modes in (
    ("elemtype", 16),
    ("interleave_layout", 3),
    ("swizzle_mode", 5),
    ("fill_mode", 2),
):
    _field(_start, f"[b8] #T<{_modes}", field=_mode, T="b32")
_field(
    _start,
    "[b8] #T<4",
    field="swizzle_atomicity",
    T="b32",
    needs=_OF_BLACKWELL,
)
_map(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.<scope>.sync.aligned",
    "[b8] [b8] #u32",
    step=_copy,
    collective=True,
    effects=Effects(fence="tensormap::generic"),
    needs="sm_90 8.3",
    scope="cta cluster gpu sys",
)
_fence = partial(
    row,
    mix="synchronization",
    fidelity="ordering",
    effects=Effects(fence="tensormap::generic"),
    needs="sm_90 8.3",
    scope="cta cluster gpu sys",
)
_fence("fence.proxy.tensormap::generic.release.<scope>", "", step=fence)
_fence("fence.proxy.tensormap::generic.acquire.<scope>", "[b8] #u32", step=_acquire)
