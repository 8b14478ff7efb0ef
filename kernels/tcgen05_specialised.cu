// GEMM with tcgen05, specialised: a warp copies, a warp multiplies, four store the tile before.
//
// CTAs stay, and take every so many-th tile of D. Tensor Memory has two accumulators: while four
// warps load, finish and store the sums of a tile, the products of the next one are made in the
// other, and the ring goes on from one to the next. Sums are in registers only when they are done,
// so that no warp has to give any up for them.
//
// Instruction: tcgen05.mma, tcgen05.commit, cp.async.bulk.tensor.2d, mbarrier
// PTX ISA:     TensorCore 5th Generation Instructions
// Target:      sm_100a
// Launch:      grid any, block 192, dynamic shared memory STAGES * BK * (BM + BN) elements and
//              1024 bytes
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
// Run:         ptxlab run kernels/tcgen05_specialised.cu --kernel tcgen05_specialised --grid 1
//              --block 192 --shared 197632 --arg m=100 --arg n=136 --arg k=72
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

extern "C" __global__ void __launch_bounds__(32 * (WARPS + 2))
tcgen05_specialised(int m, int n, int k, const __grid_constant__ TensorMap a,
                    const __grid_constant__ TensorMap b, ACC* d, int ldd, f32 alpha, f32 beta,
                    const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const int tiles = tiles_along(k), warp = threadIdx.x / 32;
    const u32 all = tiles_of<BM, BN>(m, n);
    Ring ring = {shared_address(shared)};
    Accumulators accumulators = {ring.behind()};
    const u32 slot = accumulators.behind();
    if (warp == 0) allocate_tensor_memory<2 * BN>(slot);
    if (threadIdx.x == 0) {
        accumulators.init();
        ring.init(1);
    }
    __syncthreads();
    accumulators.memory = load_shared(slot);

    if (warp < WARPS) {
#pragma unroll 1
        for (u32 number = blockIdx.x; number < all; number += gridDim.x) {
            accumulators.store_part({d, ldd, m, n, alpha, beta, bias},
                                    tile_at<BM, BN>(number, m, n));
        }
    } else if (is_elected()) {
#pragma unroll 1
        for (u32 number = blockIdx.x; number < all; number += gridDim.x) {
            if (warp == WARPS) {
                const Place tile = tile_at<BM, BN>(number, m, n);
                ring.fill(tiles, [&](u32 stage, int p, u32 full) {
                    load_stage(stage, a, b, tile, p, full);
                });
            } else {
                accumulators.multiply_all(ring, tiles);
            }
        }
    }
    __syncthreads();
    if (warp == 0) free_tensor_memory<2 * BN>(accumulators.memory);
}
