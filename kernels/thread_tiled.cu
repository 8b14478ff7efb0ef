// GEMM, beside the rungs: TM x TN results a thread, without shared memory and without a barrier.
//
// A thread owns TM rows and TN columns of D, both spread over the CTA's tile so that the lanes of a
// warp read neighbours. For each p it loads TM elements of A and TN of B straight from global
// memory and multiplies each with each: TM + TN loads for TM * TN fma, where coalescing.cu needs
// two for one. What several threads read, the L1 cache holds; nobody waits for anybody.
// Beyond an edge a thread repeats the last row or column, so that the loop has no conditions: what
// it adds up there is not stored.
//
// Instruction: fma.rn.f32, ld.global.f32
// PTX ISA:     Data Movement and Conversion Instructions: ld
// Launch:      grid ceil(m/BM) * ceil(n/BN), block BM * BN / (TM * TN)
// Parameters:  m      rows of A and D
//              n      columns of B and D
//              k      columns of A and rows of B
//              a      pointer to A, m x k DTYPE
//              lda    elements from one row of A in memory to the next
//              b      pointer to B, k x n DTYPE
//              ldb    elements from one row of B in memory to the next
//              d      pointer to D, m x n ACC
//              ldd    elements from one row of D to the next
//              alpha  factor of A * B
//              beta   factor of what D was
//              bias   pointer to n f32, read only with BIAS
// Macros:      BM, BN  tile of a CTA, default 64 x 64; gemm.cuh has those that all kernels share
//              TM, TN  results of a thread, default 4 x 4; they divide BM and BN
// Run:         ptxlab run kernels/thread_tiled.cu --kernel thread_tiled --grid 2 --block 256
//              --arg m=40 --arg n=70 --arg k=50
//              --arg "a=randn(40x50,f32,seed=1)" --arg lda=50
//              --arg "b=randn(50x70,f32,seed=2)" --arg ldb=70
//              --arg "d=zeros(40x70,f32)" --arg ldd=70
//              --arg alpha=1 --arg beta=0 --arg bias=0
// Expect:      d is A * B, each element within k * 2^-24 of the sum of the magnitudes of its
//              products

#include "gemm.cuh"

#ifndef BM
#define BM 64
#endif
#ifndef BN
#define BN 64
#endif
#ifndef TM
#define TM 4
#endif
#ifndef TN
#define TN 4
#endif

constexpr int DOWN = BM / TM, ACROSS = BN / TN;  // threads, and from one result to the next

static_assert(BM % TM == 0 && BN % TN == 0, "a CTA's tile is made of whole parts of threads");

extern "C" __global__ void __launch_bounds__(DOWN * ACROSS)
thread_tiled(int m, int n, int k, const DTYPE* a, int lda, const DTYPE* b, int ldb, ACC* d, int ldd,
             f32 alpha, f32 beta, const f32* bias) {
    const MatrixA A = {a, lda, m, k};
    const MatrixB B = {b, ldb, k, n};
    const Output D = {d, ldd, m, n, alpha, beta, bias};
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const int row = tile.row + threadIdx.x / ACROSS, column = tile.column + threadIdx.x % ACROSS;

    f32 sum[TM][TN] = {};
    for (int p = 0; p < k; p++) {
        f32 x[TM], y[TN];
#pragma unroll
        for (int i = 0; i < TM; i++) x[i] = A(min(row + DOWN * i, m - 1), p);
#pragma unroll
        for (int j = 0; j < TN; j++) y[j] = B(p, min(column + ACROSS * j, n - 1));
#pragma unroll
        for (int i = 0; i < TM; i++) {
#pragma unroll
            for (int j = 0; j < TN; j++) sum[i][j] += x[i] * y[j];
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
#pragma unroll
        for (int j = 0; j < TN; j++) D.store(row + DOWN * i, column + ACROSS * j, sum[i][j]);
    }
}
