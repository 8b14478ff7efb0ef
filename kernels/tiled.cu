// GEMM, rung 3: tiles of A and B in shared memory, each element read from there many times.
//
// A CTA owns BM x BN of D and walks along k in steps of BK. Its threads copy one tile of A and one
// of B from global to shared memory, wait for each other, and add up BK products each. An element
// of A now serves BN threads with one global load, one of B serves BM. What lies outside of a
// matrix is zero in the tiles and adds nothing: threads beyond the edge take part like all others.
//
// Instruction: fma.rn.f32, bar.sync
// PTX ISA:     Parallel Synchronization and Communication Instructions: bar
// Launch:      grid ceil(m/BM) * ceil(n/BN), block BN x BM,
//              dynamic shared memory 4 * BK * (BM + BN) bytes
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
//              BK      step along k, default 32
// Run:         ptxlab run kernels/tiled.cu --kernel tiled --grid 2 --block 32,32 --shared 8192
//              --arg m=40 --arg n=24 --arg k=50
//              --arg "a=randn(40x50,f32,seed=1)" --arg lda=50
//              --arg "b=randn(50x24,f32,seed=2)" --arg ldb=24
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
#ifndef BK
#define BK 32
#endif

struct Tiles {
    f32 a[BM][BK];
    f32 b[BK][BN];
};

extern "C" __global__ void __launch_bounds__(BM * BN)
tiled(int m, int n, int k, const DTYPE* a, int lda, const DTYPE* b, int ldb, ACC* d, int ldd,
      f32 alpha, f32 beta, const f32* bias) {
    extern __shared__ Tiles shared[];
    Tiles& tiles = shared[0];
    const MatrixA A = {a, lda, m, k};
    const MatrixB B = {b, ldb, k, n};
    const Output D = {d, ldd, m, n, alpha, beta, bias};
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const int row = threadIdx.y, column = threadIdx.x;

    f32 sum = 0;
    for (int step = 0; step < k; step += BK) {
        A.copy<BM * BN>(tiles.a, tile.row, step, BN * row + column);
        B.copy<BM * BN>(tiles.b, step, tile.column, BN * row + column);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; p++) sum += tiles.a[row][p] * tiles.b[p][column];
        __syncthreads();  // nobody reads the tiles any more: they may be filled again
    }
    D.store(tile.row + row, tile.column + column, sum);
}
