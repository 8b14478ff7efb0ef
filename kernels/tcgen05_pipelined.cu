// GEMM with tcgen05 and a ring: one thread has tiles copied while another has them multiplied.
//
// A CTA has STAGES tiles of A and of B in shared memory, and two mbarriers for each. One thread has
// an empty stage filled; `full` tells another when the bytes are there, and that one issues their
// products. A commit behind them tells `empty` when they have been read. Nobody waits for products:
// the tensor cores have the next ones in their queue before they are done, and the copy engine is
// STAGES tiles ahead.
//
// What is missing: while D is stored nothing is multiplied.
//
// Instruction: tcgen05.mma, tcgen05.commit, cp.async.bulk.tensor.2d, mbarrier
// PTX ISA:     TensorCore 5th Generation Instructions
// Target:      sm_100a
// Launch:      grid ceil(m/BM) * ceil(n/BN), block 128, dynamic shared memory
//              STAGES * BK * (BM + BN) elements and 1024 bytes
// Parameters:  m      rows of A and D
//              n      columns of B and D
//              k      columns of A and rows of B
//              a      tensor map of A as it lies in memory, boxes of 64 x 64, swizzle 128B
//              b      tensor map of B, the same
//              d      pointer to D, m x n ACC
//              ldd    elements from one row of D to the next
//              alpha  factor of A * B
//              beta   factor of what D was
//              bias   pointer to n f32, read only with BIAS
// Macros:      DTYPE   type of A and B: bf16 (default), f16, tf32 (f32 in memory), e4m3, e5m2, s8;
//                      gemm.cuh has the other macros that all kernels share
//              GROUP   tile rows in a group of CTAs, default 8
//              BM, BN  tile of a CTA, default 128 x 256
//              BK      step along k, 64
//              WM, WN  part of a warp, default 32 x 256
//              STAGES  tiles in the ring, default 4
// Run:         ptxlab run kernels/tcgen05_pipelined.cu --kernel tcgen05_pipelined --grid 1
//              --block 128 --shared 197632 --arg m=100 --arg n=136 --arg k=72
//              --arg "A=randn(100x72,bf16,seed=1)" --arg "a=tma(A,box=64x64,swizzle=128B)"
//              --arg "B=randn(72x136,bf16,seed=2)" --arg "b=tma(B,box=64x64,swizzle=128B)"
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
//              --arg alpha=1 --arg beta=0 --arg bias=0
// Expect:      d is A * B, each element within 5 * (2^-23 + 17 * 2^-25) of the sum of the
//              magnitudes of its products

#ifndef DTYPE
#define DTYPE bf16
#endif
#ifndef GROUP
#define GROUP 8
#endif
#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 256
#endif
#ifndef BK
#define BK 64
#endif
#ifndef WM
#define WM 32
#endif
#ifndef WN
#define WN 256
#endif
#ifndef STAGES
#define STAGES 4
#endif

#include "tcgen05.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS)
tcgen05_pipelined(int m, int n, int k, const __grid_constant__ TensorMap a,
                  const __grid_constant__ TensorMap b, ACC* d, int ldd, f32 alpha, f32 beta,
                  const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const int tiles = tiles_along(k);
    Ring ring = {shared_address(shared)};
    const u32 done = ring.behind(), slot = done + 8;
    if (threadIdx.x < 32) allocate_tensor_memory<BN>(slot);
    if (threadIdx.x == 0) {
        mbarrier_init(done, 1);
        ring.init(1);
    }
    __syncthreads();
    const u32 sums = load_shared(slot);

    const int warp = threadIdx.x / 32;
    if (warp == 0 && is_elected()) {
        ring.fill(tiles, [&](u32 stage, int p, u32 full) {
            load_stage(stage, a, b, tile, p, full);
        });
    } else if (warp == 1 && is_elected()) {
#pragma unroll 1
        for (int i = 0; i < tiles; i++, ring.next()) {
            mbarrier_wait(ring.full(), ring.parity);
            multiply(sums, ring.tiles(), i == 0);
            commit(ring.empty());
        }
        commit(done);
        mbarrier_wait(done, 0);
    }
    __syncthreads();  // the last product is done
    tensor_fence_after();
    store({d, ldd, m, n, alpha, beta, bias}, sums, tile);
    __syncthreads();
    if (threadIdx.x < 32) free_tensor_memory<BN>(sums);
}
