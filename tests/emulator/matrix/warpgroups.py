"""Running one wgmma on the emulator: shared memory and registers in, the registers of D out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.matrix.multiplication import MatrixInstruction
from tests.emulator.matrix.operands import pack

SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
BITS = {"none": 0, "32B": 0x10, "64B": 0x30, "128B": 0x70}
GROUP = 128


@dataclass(frozen=True)
class Placed:
    """How a matrix lies in shared memory, in the fields of a descriptor."""

    start: int
    leading: int
    stride: int
    swizzle: str = "none"
    major: str = "k"

    @classmethod
    def densely(cls, start: int, mn: int, k: int, swizzle: str, major: str) -> Self:
        """Put a matrix from ``start`` on without gaps, atom by atom, a span of k in each if k-major."""
        atom = 8 * SPANS[swizzle]
        if major == "k":
            return cls(start, atom * (mn // 8), atom, swizzle)
        offsets = (atom, atom * (k // 8))
        return cls(start, *(offsets if swizzle == "none" else offsets[::-1]), swizzle, major)

    @property
    def descriptor(self) -> int:
        fields = ((self.start, 0), (self.leading, 16), (self.stride, 32))
        return sum(value >> 4 << low for value, low in fields) | CODES[self.swizzle] << 62

    def address(self, mn: Any, k: Any, size: int) -> Any:
        """Return the byte of an element: PTX ISA, "Strides", and the swizzle of the whole address."""
        span = SPANS[self.swizzle]
        if self.major == "k":
            byte = k * size
            at = mn % 8 * span + mn // 8 * self.stride
            at = at + (byte // 16 * self.leading + byte % 16 if span == 16 else byte)
        else:
            byte = mn * size
            tile, line = byte // span, k // 8
            far = (self.stride, self.leading) if span == 16 else (self.leading, self.stride)
            at = byte % span + tile * far[0] + k % 8 * span + line * far[1]
        at = at + self.start
        return at ^ (at >> 3 & BITS[self.swizzle])

    def write(self, memory: Array, words: Array) -> None:
        """Put words [mn, k] of whole bytes into ``memory``."""
        mn, k = np.indices(words.shape)
        memory.view(words.dtype)[self.address(mn, k, words.itemsize) // words.itemsize] = words


def kernel(form: MatrixInstruction, tail: str, block: int, shared: int) -> tuple[str, int, int]:
    """Return a module, and how many 64-bit words a thread reads and writes.

    It reads A where it is in registers, both descriptors, metadata, whether D is added, and D.
    """
    count = form.operand("D").registers_per_lane
    kind = {"f32": "f32", "s32": "s32"}.get(form.d_type, "b32")
    a = [f"a{i}" for i in range(4 * (form.variant == "rs"))]
    d = [f"d{i}" for i in range(count)]
    inputs = [*((x, "b32") for x in a), ("da", "b64"), ("db", "b64"), ("e", "b32"), ("z", "b32")]
    inputs += [(x, kind) for x in d]
    size = 8 * len(inputs)
    loads = "\n".join(f"ld.global.{t} {x}, [rd+{8 * i}];" for i, (x, t) in enumerate(inputs))
    stores = "\n".join(f"st.global.{kind} [rq+{8 * i}], {x};" for i, x in enumerate(d))
    left = f"{{{', '.join(a)}}}" if a else "da"
    base = "mov.u64 rd, tile; shr.u64 rd, rd, 4; add.u64 da, da, rd; add.u64 db, db, rd;"
    text = f"""
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 image)
{{
.shared .align 1024 .b8 tile[{shared}];
{" ".join(f".reg .{t} {x};" for x, t in inputs)}
.reg .b32 r<9>; .reg .b64 rd; .reg .b64 rq; .reg .b64 rs; .reg .pred p<3>;
mov.u32 r0, %tid.x; mov.u32 r1, %ctaid.x;
ld.param.u64 rs, [image];
mov.u32 r2, {shared};
mad.wide.u32 rs, r1, r2, rs;
mad.wide.u32 rs, r0, 16, rs;
shl.b32 r3, r0, 4;
mov.u32 r4, tile; add.u32 r4, r4, r3;
copy:
setp.ge.u32 p1, r3, r2;
@p1 bra ready;
ld.global.v4.b32 {{r5, r6, r7, r8}}, [rs];
st.shared.v4.b32 [r4], {{r5, r6, r7, r8}};
add.u32 r3, r3, {16 * block}; add.u32 r4, r4, {16 * block}; add.u64 rs, rs, {16 * block};
bra copy;
ready:
bar.sync 0;
mad.lo.u32 r0, r1, {block}, r0;
ld.param.u64 rd, [in]; ld.param.u64 rq, [out];
mad.wide.u32 rd, r0, {size}, rd;
mad.wide.u32 rq, r0, {8 * count}, rq;
{loads}
{base}
setp.ne.b32 p0, z, 0;
wgmma.fence.sync.aligned;
{form.name} {{{", ".join(d)}}}, {left}, db{", e, 0" if form.metadata else ""}, p0{tail};
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
{stores}
}}
"""
    return text, len(inputs), count


def execute(
    form: MatrixInstruction,
    a: Array | Placed,
    b: Placed,
    memory: Array,
    c: Array,
    *,
    tail: str | None = None,
    adds: int = 1,
    metadata: Array | None = None,
    schedule: str = "late",
) -> Array:
    """Return D [CTAs, 64, n] of one warpgroup a CTA, as words.

    ``a`` are words [CTAs, 64, k] where A is in registers, ``memory`` is [CTAs, bytes], ``c`` words
    [CTAs, 64, n], ``metadata`` [CTAs, 128]. ``tail`` are the constants after scale-d.
    """
    ctas = len(memory)
    if tail is None:
        along_mn = [int(x.major == "mn") for x in (a, b) if isinstance(x, Placed)]
        trans = along_mn if form.a_type in ("f16", "bf16") else []
        tail = "" if form.d_type == "s32" else "".join(f", {x}" for x in (1, 1, *trans))
    text, inputs, count = kernel(form, tail, GROUP, memory.shape[1])
    record = np.zeros((ctas, GROUP, inputs), np.uint64)
    first = 0
    if isinstance(a, Placed):
        record[:, :, 0] = a.descriptor
    else:
        record[:, :, :4] = pack_groups("a", a)
        first = 4
    record[:, :, first + 1] = b.descriptor
    if metadata is not None:
        record[:, :, first + 2] = metadata
    record[:, :, first + 3] = adds
    record[:, :, first + 4 :] = pack_groups("c", c)
    with open_device("emulator", arch="sm_90a", schedule=schedule) as device:
        there = [
            device.upload(record),
            device.zeros((ctas, GROUP, count), "u64"),
            device.upload(memory),
        ]
        device.load(text).kernel("k").launch(ctas, GROUP, there)
        return unpack_groups(there[1].numpy(), form.n, c.itemsize)


def pack_groups(kind: str, words: Array) -> Array:
    """Return registers [CTAs, 128, registers]: those of mma for each warp's 16 rows, n 8 at a time."""
    ctas, _, cols = words.shape
    bits = 8 * words.itemsize
    by_warp = words.reshape(4 * ctas, 16, cols)
    if kind == "a":
        return pack("a", bits, by_warp).reshape(ctas, GROUP, -1)
    tiles = [pack("c", bits, by_warp[:, :, n : n + 8]) for n in range(0, cols, 8)]
    return np.concatenate(tiles, axis=-1).reshape(ctas, GROUP, -1)


def unpack_groups(registers: Array, n: int, size: int) -> Array:
    """Return D [CTAs, 64, n]: where ``pack_groups`` puts the number of each element."""
    ctas = len(registers)
    word = np.dtype(f"u{size}")
    places = pack_groups("c", np.arange(64 * n, dtype=np.uint32).reshape(1, 64, n))
    parts = np.ascontiguousarray(registers.astype(np.uint32)).view(word)
    d = np.zeros((ctas, 64 * n), word)
    d[:, places.reshape(-1).astype(int)] = parts.reshape(ctas, -1)
    return d.reshape(ctas, 64, n)
