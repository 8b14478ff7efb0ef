// GEMM, rung 1: one thread for each element of D, and the wrong axis.
//
// Every thread walks one row of A and one column of B. Neighbouring threads (threadIdx.x) take
// neighbouring rows, so a warp reads 32 rows of A at once and writes 32 rows of D at once: 32 cache
// lines where one would do. Swapping the two axes makes this kernel ten times faster.
//
// Instruction: fma.rn.f32
// PTX ISA:     Floating Point Instructions: fma
// Launch:      one thread for each element of D: grid ceil(m/32) by ceil(n/32), block 32 x 32
// Parameters:  m    rows of A and D
//              n    columns of B and D
//              k    columns of A and rows of B
//              a    pointer to A, m x k DTYPE, row-major
//              lda  elements from one row of A to the next
//              b    pointer to B, k x n DTYPE, row-major
//              ldb  elements from one row of B to the next
//              d    pointer to D, m x n f32, row-major
//              ldd  elements from one row of D to the next
// Macros:      DTYPE  type of A and B: f32 (default), f16, bf16
// Run:         ptxlab run kernels/naive.cu --kernel naive --grid 2,1 --block 32,32
//              --arg m=40 --arg n=24 --arg k=16
//              --arg "a=randn(40x16,f32,seed=1)" --arg lda=16
//              --arg "b=randn(16x24,f32,seed=2)" --arg ldb=24
//              --arg "d=zeros(40x24,f32)" --arg ldd=24
// Expect:      d is A * B, each element within k * 2^-24 of the sum of the magnitudes of its
//              products

#include "fragments.cuh"

#ifndef DTYPE
#define DTYPE f32
#endif

extern "C" __global__ void __launch_bounds__(1024)
naive(int m, int n, int k, const DTYPE* a, int lda, const DTYPE* b, int ldb, f32* d, int ldd) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    f32 sum = 0;
    for (int p = 0; p < k; p++) {
        sum += to_f32(a[s64(row) * lda + p]) * to_f32(b[s64(p) * ldb + column]);
    }
    d[s64(row) * ldd + column] = sum;
}
