// GEMM with tcgen05: one thread has the tensor cores multiply, and the sums are in no register.
//
// A CTA owns a BM x BN tile of D and walks along k in steps of BK. One thread has the copy engine
// fetch a tile of A and one of B, waits for their bytes, and has the tensor cores multiply them;
// that is all there is to the loop. The sums are in Tensor Memory from the first product to the
// last. Then four warps load 32 rows each, finish and store them.
//
// What is missing: while tiles are copied nothing is multiplied, and the other way round.
//
// Instruction: tcgen05.mma, cp.async.bulk.tensor.2d, mbarrier
// PTX ISA:     TensorCore 5th Generation Instructions
// Target:      sm_100a
// Launch:      grid ceil(m/BM) * ceil(n/BN), block 128, dynamic shared memory BK * (BM + BN)
//              elements and 1024 bytes
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
//              BM, BN  tile of a CTA, default 128 x 128
//              BK      step along k, 64
//              WM, WN  part of a warp, default 32 x 128
//              STAGES  1
// Run:         ptxlab run kernels/tcgen05.cu --kernel tcgen05 --grid 2 --block 128
//              --shared 33792 --arg m=100 --arg n=136 --arg k=72
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
#define STAGES 1
#endif

#include "tcgen05.cuh"

static_assert(STAGES == 1, "tiles are copied one at a time");

extern "C" __global__ void __launch_bounds__(32 * WARPS)
tcgen05(int m, int n, int k, const __grid_constant__ TensorMap a,
        const __grid_constant__ TensorMap b, ACC* d, int ldd, f32 alpha, f32 beta,
        const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const u32 stage = shared_address(shared), full = stage + STAGE_BYTES, read = full + 8;
    const u32 slot = full + 16;
    if (threadIdx.x < 32) allocate_tensor_memory<BN>(slot);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_init(read, 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    const u32 sums = load_shared(slot);

    if (threadIdx.x < 32 && is_elected()) {
#pragma unroll 1
        for (int i = 0; i < tiles_along(k); i++) {
            load_stage(stage, a, b, tile, BK * i, full);
            mbarrier_wait(full, i % 2);
            multiply(sums, stage, i == 0);
            commit(read);
            mbarrier_wait(read, i % 2);
        }
    }
    __syncthreads();  // the last product is done
    tensor_fence_after();
    store({d, ldd, m, n, alpha, beta, bias}, sums, tile);
    __syncthreads();
    if (threadIdx.x < 32) free_tensor_memory<BN>(sums);
}
