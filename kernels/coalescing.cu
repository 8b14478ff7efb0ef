// GEMM, rung 2: neighbouring threads take neighbouring columns.
//
// The same kernel as naive.cu with its axes swapped. A warp now computes 32 neighbours of one row
// of D: all its lanes read the same element of A, which is fetched once and handed to all, and 32
// neighbours of B, which are one whole cache line. Each fma still needs two loads.
//
// Instruction: fma.rn.f32
// PTX ISA:     Floating Point Instructions: fma
// Launch:      one thread for each element of D: grid ceil(m/BM) * ceil(n/BN), block BN x BM
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
// Macros:      BM, BN  tile of a CTA, default 32 x 32; gemm.cuh has those that all kernels share
// Run:         ptxlab run kernels/coalescing.cu --kernel coalescing --grid 2 --block 32,32
//              --arg m=40 --arg n=24 --arg k=16
//              --arg "a=randn(40x16,f32,seed=1)" --arg lda=16
//              --arg "b=randn(16x24,f32,seed=2)" --arg ldb=24
//              --arg "d=zeros(40x24,f32)" --arg ldd=24
//              --arg alpha=1 --arg beta=0 --arg bias=0
// Expect:      d is A * B, each element within k * 2^-24 of the sum of the magnitudes of its
//              products

#include "gemm.cuh"

#ifndef BM
#define BM 32
#endif
#ifndef BN
#define BN 32
#endif

extern "C" __global__ void __launch_bounds__(BM * BN)
coalescing(int m, int n, int k, const DTYPE* a, int lda, const DTYPE* b, int ldb, ACC* d, int ldd,
           f32 alpha, f32 beta, const f32* bias) {
    const MatrixA A = {a, lda, m, k};
    const MatrixB B = {b, ldb, k, n};
    const Output D = {d, ldd, m, n, alpha, beta, bias};
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const int row = tile.row + threadIdx.y, column = tile.column + threadIdx.x;
    if (row >= m || column >= n) return;

    f32 sum = 0;
    for (int p = 0; p < k; p++) sum += A(row, p) * B(p, column);
    D.store(row, column, sum);
}
