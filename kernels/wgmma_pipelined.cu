// GEMM with wgmma and a ring: a producer warp has tiles copied while a warpgroup multiplies.
//
// A CTA has STAGES tiles of A and of B in shared memory, and two mbarriers for each. One thread of
// a warp of its own has an empty stage filled; `full` tells the warpgroup when the bytes are there,
// and `empty` tells the thread when they have been read. Nobody waits for everybody: there is no
// barrier of the CTA in the loop, and the copy engine is STAGES tiles ahead.
//
// The warpgroup lets one tile's products run while it waits for the next, so that the tensor cores
// never pause between two.
//
// Instruction: wgmma.mma_async, cp.async.bulk.tensor.2d, mbarrier
// PTX ISA:     Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions
// Launch:      grid ceil(m/BM) * ceil(n/BN), block 160, dynamic shared memory
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
// Macros:      DTYPE   type of A and B: bf16 (default), f16; gemm.cuh has the other macros that all
//                      kernels share
//              GROUP   tile rows in a group of CTAs, default 8
//              BM, BN  tile of a CTA, default 128 x 128
//              BK      step along k, 64
//              WM, WN  part of a warp, default 32 x 128
//              STAGES  tiles in the ring, default 3
// Run:         ptxlab run kernels/wgmma_pipelined.cu --kernel wgmma_pipelined --grid 2 --block 160
//              --shared 99328 --arg m=100 --arg n=136 --arg k=72
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
#define BN 128
#endif
#ifndef BK
#define BK 64
#endif
#ifndef WM
#define WM 32
#endif
#ifndef WN
#define WN 128
#endif
#ifndef STAGES
#define STAGES 3
#endif

#include "wgmma.cuh"

constexpr int WARPS = 4;  // that multiply

static_assert(CONSUMERS == 1, "one warpgroup has the whole tile");

extern "C" __global__ void __launch_bounds__(WARPGROUP + 32)
wgmma_pipelined(int m, int n, int k, const __grid_constant__ TensorMap a,
                const __grid_constant__ TensorMap b, ACC* d, int ldd, f32 alpha, f32 beta,
                const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const int tiles = tiles_along(k);
    Ring ring = {shared_address(shared)};
    if (threadIdx.x == 0) ring.init(WARPS);
    __syncthreads();

    if (threadIdx.x >= WARPGROUP) {
        if (lane_id() != 0) return;
        ring.fill(tiles, [&](u32 stage, int p, u32 full) {
            load_stage(stage, a, b, tile, p, full);
        });
    } else {
        Part part;
        part.multiply_all(ring, tiles, 0, [](u32 empty) {
            if (lane_id() == 0) mbarrier_arrive(empty);
        });
        part.store({d, ldd, m, n, alpha, beta, bias}, tile);
    }
}
