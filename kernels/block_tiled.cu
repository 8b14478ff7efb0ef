// GEMM, rung 5: TM x TN results a thread, out of a large tile.
//
// A number in a register feeds one fma for each result of the thread in its row or column of D. In
// tiled_register.cu a number of A feeds only one. Here a thread owns results in two directions: for
// each p it reads TM elements of A and TN of B, and they feed TM * TN fma: 16 loads for 64. And the
// larger the tile, the less often a matrix is read: an element that was copied to shared memory
// feeds 128 fma there.
//
// A thread's rows are DOWN apart, and its columns ACROSS, so that the lanes of a warp read
// neighbouring elements of B and write neighbouring elements of D.
//
// Instruction: fma.rn.f32, ld.shared.f32
// PTX ISA:     Data Movement and Conversion Instructions: ld
// Launch:      grid ceil(m/BM) * ceil(n/BN), block (BM/TM) * (BN/TN),
//              dynamic shared memory 4 * BK * (BM + BN) bytes
// Parameters:  m      rows of A and D
//              n      columns of B and D
//              k      columns of A and rows of B
//              a      pointer to A, m x k f32
//              lda    elements from one row of A in memory to the next
//              b      pointer to B, k x n f32
//              ldb    elements from one row of B in memory to the next
//              d      pointer to D, m x n f32
//              ldd    elements from one row of D to the next
//              alpha  factor of A * B
//              beta   factor of what D was
//              bias   pointer to n f32, read only with BIAS
// Macros:      BM, BN  tile of a CTA, default 128 x 128; gemm.cuh has those that all kernels share
//              BK      step along k, default 8
//              TM, TN  results of a thread, default 8 x 8
// Run:         ptxlab run kernels/block_tiled.cu --kernel block_tiled --grid 2 --block 256
//              --shared 8192 --arg m=100 --arg n=136 --arg k=20
//              --arg "a=randn(100x20,f32,seed=1)" --arg lda=20
//              --arg "b=randn(20x136,f32,seed=2)" --arg ldb=136
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
//              --arg alpha=1 --arg beta=0 --arg bias=0
// Expect:      d is A * B, each element within k * 2^-24 of the sum of the magnitudes of its
//              products

#include "gemm.cuh"

#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 8
#endif
#ifndef TM
#define TM 8
#endif
#ifndef TN
#define TN 8
#endif

constexpr int DOWN = BM / TM, ACROSS = BN / TN, THREADS = DOWN * ACROSS;
constexpr int CTAS = (511 + THREADS) / THREADS;  // 16 warps on an SM: one waits, another computes

static_assert(BM % TM == 0 && BN % TN == 0, "a CTA's tile is made of whole parts of threads");

struct Tiles {
    f32 a[BM][BK];
    f32 b[BK][BN];
};

extern "C" __global__ void __launch_bounds__(THREADS, CTAS)
block_tiled(int m, int n, int k, const f32* a, int lda, const f32* b, int ldb, f32* d, int ldd,
            f32 alpha, f32 beta, const f32* bias) {
    extern __shared__ Tiles shared[];
    Tiles& tiles = shared[0];
    const MatrixA A = {a, lda, m, k};
    const MatrixB B = {b, ldb, k, n};
    const Output D = {d, ldd, m, n, alpha, beta, bias};
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const int row = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS;

    f32 sum[TM][TN] = {};
    for (int step = 0; step < k; step += BK) {
        A.copy<THREADS>(tiles.a, tile.row, step, threadIdx.x);
        B.copy<THREADS>(tiles.b, step, tile.column, threadIdx.x);
        __syncthreads();
#pragma unroll 1  // with more p at once, the registers are too many for CTAS on an SM
        for (int p = 0; p < BK; p++) {
            f32 x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; i++) x[i] = tiles.a[row + DOWN * i][p];
#pragma unroll
            for (int j = 0; j < TN; j++) y[j] = tiles.b[p][column + ACROSS * j];
#pragma unroll
            for (int i = 0; i < TM; i++) {
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += x[i] * y[j];
            }
        }
        __syncthreads();  // nobody reads the tiles any more: they may be filled again
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
        __syncwarp();  // row after row: all addresses at once would not fit in registers
#pragma unroll
        for (int j = 0; j < TN; j++) {
            D.store(tile.row + row + DOWN * i, tile.column + column + ACROSS * j, sum[i][j]);
        }
    }
}
