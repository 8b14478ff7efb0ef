// GEMM, rung 4: TM results a thread, in registers.
//
// In tiled.cu every fma needs two loads from shared memory, and those are what it waits for. Here a
// thread owns TM rows of one column of D. For each p it reads one element of B, keeps it in a
// register, and uses it for TM fma with as many elements of A: TM + 1 loads for TM fma. The lanes
// of a warp have neighbouring columns and the same rows: an element of A is read once for all.
//
// Instruction: fma.rn.f32, ld.shared.f32
// PTX ISA:     Data Movement and Conversion Instructions: ld
// Launch:      grid ceil(m/BM) * ceil(n/BN), block BM * BN / TM,
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
// Macros:      BM, BN  tile of a CTA, default 64 x 64; gemm.cuh has those that all kernels share
//              BK      step along k, default 8
//              TM      results of a thread, default 8; divides BM
// Run:         ptxlab run kernels/tiled_register.cu --kernel tiled_register --grid 2 --block 512
//              --shared 4096 --arg m=40 --arg n=70 --arg k=50
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
#ifndef BK
#define BK 8
#endif
#ifndef TM
#define TM 8
#endif

constexpr int THREADS = BM * BN / TM;

static_assert(BM % TM == 0, "a CTA's tile is made of whole parts of threads");

struct Tiles {
    f32 a[BM][BK];
    f32 b[BK][BN];
};

extern "C" __global__ void __launch_bounds__(THREADS)
tiled_register(int m, int n, int k, const DTYPE* a, int lda, const DTYPE* b, int ldb, ACC* d,
               int ldd, f32 alpha, f32 beta, const f32* bias) {
    extern __shared__ Tiles shared[];
    Tiles& tiles = shared[0];
    const MatrixA A = {a, lda, m, k};
    const MatrixB B = {b, ldb, k, n};
    const Output D = {d, ldd, m, n, alpha, beta, bias};
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const int row = TM * (threadIdx.x / BN), column = threadIdx.x % BN;

    f32 sum[TM] = {};
    for (int step = 0; step < k; step += BK) {
        A.copy<THREADS>(tiles.a, tile.row, step, threadIdx.x);
        B.copy<THREADS>(tiles.b, step, tile.column, threadIdx.x);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; p++) {
            const f32 y = tiles.b[p][column];
#pragma unroll
            for (int i = 0; i < TM; i++) sum[i] += tiles.a[row + i][p] * y;
        }
        __syncthreads();  // nobody reads the tiles any more: they may be filled again
    }
#pragma unroll
    for (int i = 0; i < TM; i++) D.store(tile.row + row + i, tile.column + column, sum[i]);
}
