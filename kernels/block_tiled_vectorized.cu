// GEMM, rung 6: 128 bits at a time, and A transposed on the way in.
//
// In block_tiled.cu 16 loads from shared memory feed 64 fma, which keeps it as busy as the
// arithmetic. Here a thread's rows and columns of D are groups of four neighbours, and 4 loads of
// 128 bits feed its 64 fma. For that both tiles lie in shared memory with p going down: an operand
// whose neighbours in memory run along k, as A's do, is transposed on the way in, and one whose
// neighbours run across is copied as it is. Global memory, too, is read and written 128 bits at a
// time.
//
// Bank conflicts: 8 lanes, which are served together, read at most 8 neighbouring vectors of B and
// 2 of A. A tile's lines are four elements longer than they need be, so that the transposing stores
// of a warp, to 16 columns of lines p and p + 4, fall in 32 different banks.
// Edges: what lies outside of a matrix is zero; where rows are not aligned to 16 bytes, elements
// are moved one by one.
//
// Instruction: fma.rn.f32, ld.global.v4.f32, ld.shared.v4.f32, st.global.v4.f32
// PTX ISA:     Data Movement and Conversion Instructions: ld
// Launch:      grid ceil(m/BM) * ceil(n/BN), block (BM/TM) * (BN/TN),
//              dynamic shared memory 4 * BK * (BM + 4 + BN + 4) bytes
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
//              BK      step along k, default 8; a multiple of 4
//              TM, TN  results of a thread, default 8 x 8; multiples of 4
// Run:         ptxlab run kernels/block_tiled_vectorized.cu --kernel block_tiled_vectorized
//              --grid 2 --block 256 --shared 8448 --arg m=100 --arg n=136 --arg k=20
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
constexpr int PADDING = 4;

static_assert(BM % TM == 0 && BN % TN == 0, "a CTA's tile is made of whole parts of threads");
static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread's part is made of four neighbours");
static_assert(BK % 4 == 0, "four neighbours along k are copied at once");

using Four = Vector<f32, 4>;

__device__ __forceinline__ Four& four(f32& first) { return reinterpret_cast<Four&>(first); }

struct alignas(16) Tiles {
    f32 a[BK][BM + PADDING];
    f32 b[BK][BN + PADDING];
};

// One thread's part in copying WIDTH rows of an operand, from `row` on, to the columns of a tile. B
// is such an operand, too, as the n x k matrix that is its transpose.
template <int WIDTH, bool TRANSPOSED>
struct Copy {
    static constexpr int COUNT = WIDTH * BK / 4 / THREADS;
    static_assert(COUNT * THREADS * 4 == WIDTH * BK, "all threads copy equally much");

    Matrix<f32, TRANSPOSED> operand;
    int row;
    bool aligned;
    Four fours[COUNT];

    // Where in the tile the first element of a four belongs.
    static __device__ __forceinline__ Place place(int i) {
        const int number = THREADS * i + threadIdx.x;
        if (TRANSPOSED) return {number / (WIDTH / 4), 4 * (number % (WIDTH / 4))};
        return {4 * (number % (BK / 4)), number / (BK / 4)};
    }

    __device__ __forceinline__ void load(int step) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const Place at = place(i);
            const int rows = operand.rows - row - at.column;
            const int columns = operand.columns - step - at.row;
            const int left = TRANSPOSED ? (columns > 0 ? rows : 0) : (rows > 0 ? columns : 0);
            const f32* from = operand.at(row + at.column, step + at.row);
            fours[i] = ::load<4>(from, left, aligned);
        }
    }

    __device__ __forceinline__ void store(f32 (&tile)[BK][WIDTH + PADDING]) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const Place at = place(i);
            if (TRANSPOSED) {
                four(tile[at.row][at.column]) = fours[i];
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) tile[at.row + j][at.column] = fours[i].r[j];
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, CTAS)
block_tiled_vectorized(int m, int n, int k, const f32* a, int lda, const f32* b, int ldb, f32* d,
                       int ldd, f32 alpha, f32 beta, const f32* bias) {
    extern __shared__ Tiles shared[];
    Tiles& tiles = shared[0];
    const Matrix<f32, TRANSPOSE_A> A = {a, lda, m, k};
    const Matrix<f32, !TRANSPOSE_B> B_transposed = {b, ldb, n, k};
    const Output D = {d, ldd, m, n, alpha, beta, bias};
    const Place tile = tile_of_cta<BM, BN>(m, n);
    Copy<BM, TRANSPOSE_A> copy_a = {A, tile.row, is_aligned(a, lda, 16)};
    Copy<BN, !TRANSPOSE_B> copy_b = {B_transposed, tile.column, is_aligned(b, ldb, 16)};
    const int row = 4 * (threadIdx.x / ACROSS), column = 4 * (threadIdx.x % ACROSS);

    Four sum[TM][TN / 4] = {};
    for (int step = 0; step < k; step += BK) {
        copy_a.load(step);
        copy_b.load(step);
        copy_a.store(tiles.a);
        copy_b.store(tiles.b);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; p++) {
            Four x[TM / 4], y[TN / 4];
#pragma unroll
            for (int i = 0; i < TM / 4; i++) x[i] = four(tiles.a[p][row + 4 * DOWN * i]);
#pragma unroll
            for (int j = 0; j < TN / 4; j++) y[j] = four(tiles.b[p][column + 4 * ACROSS * j]);
#pragma unroll
            for (int i = 0; i < TM; i++) {
#pragma unroll
                for (int j = 0; j < TN; j++) {
                    sum[i][j / 4].r[j % 4] += x[i / 4].r[i % 4] * y[j / 4].r[j % 4];
                }
            }
        }
        __syncthreads();  // nobody reads the tiles any more: they may be filled again
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const int down = tile.row + row + 4 * DOWN * (i / 4) + i % 4;
#pragma unroll
        for (int j = 0; j < TN / 4; j++) {
            D.store(down, tile.column + column + 4 * ACROSS * j, sum[i][j].r);
        }
    }
}
