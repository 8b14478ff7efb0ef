# mypy: ignore-errors
"""Kernels in Triton, and programs around them; imported late, as Triton and PyTorch take seconds."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Add vectors."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    total = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)
    tl.store(out + at, total, mask=mask)


@triton.jit
def matmul(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Multiply row-major matrices whose sizes are multiples of the tile."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + ks)[None, :])
        right = tl.load(b + (k + ks)[:, None] * N + cols[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + cols[None, :], total)


@triton.jit
def matmul_tma(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same with tensor descriptors made on the host."""
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([row, k]), b.load([k, col]), total)
    c.store([row, col], total)


@triton.jit
def copy_tma(x, out, N, BLOCK: tl.constexpr):
    """Copy a square matrix with tensor descriptors made on the device, in scratch memory."""
    source = tl.make_tensor_descriptor(x, [N, N], [N, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, [N, N], [N, 1], [BLOCK, BLOCK])
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    target.store(at, source.load(at))


@triton.jit
def grouped(pointers, out, n, BLOCK: tl.constexpr):
    """Sum each of the vectors whose addresses lie in memory."""
    group = tl.program_id(0)
    vector = tl.load(pointers + group).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + group, tl.sum(tl.load(vector + at, mask=at < n, other=0.0)))


@triton.jit
def last_wins(out):
    """Store a number that depends on which program is the last."""
    tl.store(out, tl.program_id(0))


@triton.jit
def shifted(x, out, BLOCK: tl.constexpr):
    """Read one element beyond a vector."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at + 1)
    tl.store(out + at, value)


@triton.jit
def repeated(x, TIMES: tl.constexpr, out):
    """Multiply a number by a constant that is not the last argument."""
    tl.store(out, tl.load(x) * TIMES)


@triton.jit
def counted(out, by):
    """Add to a number, which may have 16 bits."""
    tl.atomic_add(out, by)


@triton.jit
def telling(x, BLOCK: tl.constexpr):
    """Print, and assert that no number is negative."""
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_print("value", value)
    tl.device_assert(value >= 0, "negative")


CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 128}, num_stages=4),  # needs 384 KiB
    triton.Config({"BM": 32, "BN": 32, "BK": 32}, num_stages=2),
    triton.Config({"BM": 16, "BN": 16, "BK": 32}, num_stages=2),
]
tuned = triton.autotune(CONFIGS, key=["K"])(matmul)


def product(left, right, kernel=matmul, *, tile=(64, 64, 32), **options):
    """Return the product of two matrices in float32."""
    (m, k), n = left.shape, right.shape[1]
    out = torch.empty((m, n), device=left.device, dtype=torch.float32)
    bm, bn, bk = tile
    kernel[m // bm, n // bn](left, right, out, k, n, BM=bm, BN=bn, BK=bk, **options)
    return out
