"""A product of CUDA C with inline PTX, compiled by NVRTC for sm_100a."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.toolchain import compile_cuda, link_ptx

SOURCE = r"""
#include <cuda_fp16.h>
using u32 = unsigned;
using u64 = unsigned long long;

__device__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// K-major, 64-byte swizzle: rows of 64 bytes, eight of them 512 bytes.
__device__ u64 descriptor(const void *p)
{
    return (u64)((shared_address(p) & 0x3ffff) >> 4) | (u64)(512 >> 4) << 32 | 1ull << 46 | 4ull << 61;
}

extern "C" __global__ void __launch_bounds__(128) product(const __half *a, const __half *b, float *d)
{
    __shared__ __align__(1024) __half tile_a[128 * 32], tile_b[32 * 32];
    __shared__ u64 done;
    __shared__ u32 slot;
    u32 thread = threadIdx.x;
    auto put = [](__half *tile, const __half *from, u32 row) {
        for (u32 unit = 0; unit < 4; unit++)
            ((uint4 *)tile)[row * 4 + (unit ^ (row / 2 % 4))] = ((const uint4 *)from)[row * 4 + unit];
    };
    put(tile_a, a, thread);
    if (thread < 32) {
        put(tile_b, b, thread);
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;"
                     :: "r"(shared_address(&slot)) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }
    if (thread == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared_address(&done)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    u32 memory = slot;
    if (thread == 0) {
        // D f32, A and B f16, n 32, m 128
        u32 what = 1u << 4 | (32 / 8) << 17 | (128 / 16) << 24;
        for (u32 step = 0; step < 2; step++)
            asm volatile("{\n.reg .pred adds;\nsetp.ne.u32 adds, %4, 0;\n"
                         "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, adds;\n}"
                         :: "r"(memory), "l"(descriptor(tile_a) + 2 * step),
                            "l"(descriptor(tile_b) + 2 * step), "r"(what), "r"(step) : "memory");
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" :: "l"(&done) : "memory");
    }
    asm volatile("{\n.reg .pred over;\nwait:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], 0;\n@!over bra wait;\n}"
                 :: "r"(shared_address(&done)) : "memory");
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    for (u32 column = 0; column < 32; column += 4) {
        float x, y, z, w;
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];\n"
                     "tcgen05.wait::ld.sync.aligned;"
                     : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "r"(memory + column));
        *(float4 *)(d + thread * 32 + column) = make_float4(x, y, z, w);
    }
    __syncthreads();
    if (thread < 32)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" :: "r"(memory));
}
"""


@pytest.mark.parametrize("schedule", ["late", "random:1"])
def test_a_product_in_cuda_c(schedule: str) -> None:
    ptx = compile_cuda(SOURCE, path="product.cu", arch="sm_100a")
    assert "product" in link_ptx(ptx, arch="sm_100a").kernels
    gpu = open_device("emulator", arch="sm_100a", schedule=schedule)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, (rows, 32)).astype(np.float16) for rows in (128, 32))
    d = gpu.zeros((128, 32), "f32")
    gpu.load(ptx).kernel("product").launch(
        grid=1, block=128, args=[gpu.upload(a), gpu.upload(b), d]
    )
    np.testing.assert_array_equal(d.numpy(), a.astype(float) @ b.astype(float).T)
