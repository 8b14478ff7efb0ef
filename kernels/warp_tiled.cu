// GEMM, rung 7: WM x WN results a warp, and nothing waits for what it has just asked for.
//
// block_tiled_vectorized.cu waits three times: for global memory, then for the stores of the other
// threads, then at every p for shared memory. Here a ring of STAGES tiles of A and of B in shared
// memory is filled by cp.async, STAGES - 1 steps ahead of the arithmetic, and a thread reads the
// elements for the next p while it multiplies those for this one. And it has less to read: its
// WM/4 x WN/8 results are 128 fma for 6 loads of 128 bits, where 64 fma were 4 loads.
//
// Lanes are 4 down and 8 across their warp's tile. Lanes l and l ^ 1 have the same columns, l and
// l ^ 2 the same rows: half a warp together reads 8 neighbouring vectors of B, which are all banks
// once, and 2 of A. Its results fill whole lines of D, so they go there as they are.
//
// Bank conflicts: an operand whose neighbours in memory run along k is transposed on the way in, by
// copies of 4 bytes. A tile's lines are four elements longer than they need be, so that the copies
// of a warp, to 4 columns of 8 lines, fall in 32 different banks.
// Edges: a row of A or a column of B that does not exist is a copy of the last one: computed, but
// not stored. Beyond the last p there are zeros. So the loop has no branch; where four neighbours
// across k cannot be copied at once, it is another one that copies elements one by one.
//
// Instruction: fma.rn.f32, cp.async, ld.shared.v4.f32, st.global.v4.f32
// PTX ISA:     Data Movement and Conversion Instructions: cp.async
// Launch:      grid ceil(m/BM) * ceil(n/BN), block 32 * (BM/WM) * (BN/WN),
//              dynamic shared memory 4 * STAGES * BK * (BM + 4 + BN + 4) bytes
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
// Macros:      BM, BN  tile of a CTA, default 128 x 256; gemm.cuh has those that all kernels share
//              BK      step along k, default 8; even
//              WM, WN  tile of a warp, default 64 x 64; multiples of 16 and 32
//              STAGES  tiles in the ring, default 3; at least 2
// Run:         ptxlab run kernels/warp_tiled.cu --kernel warp_tiled --grid 1 --block 256
//              --shared 37632 --arg m=100 --arg n=136 --arg k=20
//              --arg "a=randn(100x20,f32,seed=1)" --arg lda=20
//              --arg "b=randn(20x136,f32,seed=2)" --arg ldb=136
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
//              --arg alpha=1 --arg beta=0 --arg bias=0
// Expect:      d is A * B, each element within k * 2^-24 of the sum of the magnitudes of its
//              products

#include "async_copy.cuh"
#include "gemm.cuh"

#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 256
#endif
#ifndef BK
#define BK 8
#endif
#ifndef WM
#define WM 64
#endif
#ifndef WN
#define WN 64
#endif
#ifndef STAGES
#define STAGES 3
#endif

constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
constexpr int DOWN = 4, ACROSS = 8;              // lanes of a warp
constexpr int TM = WM / DOWN, TN = WN / ACROSS;  // results of a thread
constexpr int PADDING = 4;
constexpr int A_LINE = BM + PADDING, B_LINE = BN + PADDING;  // from one p to the next
constexpr u32 A_BYTES = 4 * BK * A_LINE;
constexpr u32 STAGE_BYTES = A_BYTES + 4 * BK * B_LINE;

static_assert(BM % WM == 0 && BN % WN == 0, "a CTA's tile is made of whole warp tiles");
static_assert(WM % 16 == 0 && WN % 32 == 0, "a lane's part is made of four neighbours");
static_assert(BK % 2 == 0, "a thread's elements alternate between even and odd p");
static_assert(STAGES >= 2, "one stage is read while another one is filled");

using Four = Vector<f32, 4>;

__device__ __forceinline__ Four load_four(u32 address) {
    Four four;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.r[0]), "=f"(four.r[1]), "=f"(four.r[2]), "=f"(four.r[3])
                 : "r"(address) : "memory");
    return four;
}

// One thread's part in copying WIDTH rows of an operand, from `row` on, to the columns of a tile. B
// is such an operand, too, as the n x k matrix that is its transpose. Neighbours in memory that run
// across k are copied VECTOR at a time.
template <int WIDTH, bool TRANSPOSED, int VECTOR>
struct Copy {
    static constexpr int SIZE = TRANSPOSED ? VECTOR : 1;  // elements copied at once
    static constexpr int LINE = WIDTH + PADDING;
    static constexpr int SHARERS = TRANSPOSED ? WIDTH / SIZE : BK;  // of one row in memory
    static constexpr int STEP = THREADS / SHARERS;                  // to the thread's next row
    static constexpr int COUNT = WIDTH * BK / SIZE / THREADS;
    static_assert(THREADS % SHARERS == 0 && COUNT * THREADS * SIZE == WIDTH * BK,
                  "all threads copy equally much");

    u32 to;                  // offset in a stage, in bytes
    int line;                // of the tile that `to` is in
    const f32* from[COUNT];  // elements of the tile at hand
    s64 advance;             // to the next tile

    __device__ __forceinline__ Copy(u32 offset, const Matrix<f32, TRANSPOSED>& operand, int row) {
        const int thread = threadIdx.x;
        const int column = TRANSPOSED ? SIZE * (thread % SHARERS) : thread / SHARERS;
        line = TRANSPOSED ? thread / SHARERS : thread % SHARERS;
        to = offset + 4 * (line * LINE + column);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int wanted = row + column + (TRANSPOSED ? 0 : STEP * i);
            const int existing = min(wanted, operand.rows - SIZE);
            from[i] = operand.at(existing, line + (TRANSPOSED ? STEP * i : 0));
        }
        advance = TRANSPOSED ? s64(BK) * operand.leading : BK;
    }

    // Starts to copy the next tile, of which the first `left` lines exist.
    __device__ __forceinline__ void start(u32 stage, int left) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const u32 target = stage + to + 4 * STEP * i * (TRANSPOSED ? LINE : 1);
            const u32 bytes = line + (TRANSPOSED ? STEP * i : 0) < left ? 4 * SIZE : 0;
            if (SIZE == 4) {
                cp_async_16(target, from[i], bytes);
            } else {
                cp_async_4(target, from[i], bytes);
            }
            from[i] += advance;
        }
    }
};

// A thread's results, and the elements of A and B for two p.
struct Thread {
    Four sum[TM][TN / 4] = {};
    Four x[2][TM / 4], y[2][TN / 4];
    int row, column;  // the first four of each; the others follow 4 * DOWN and 4 * ACROSS apart

    __device__ __forceinline__ Thread() {
        const int warp = threadIdx.x / 32, lane = lane_id();
        row = warp / (BN / WN) * WM + 4 * (lane % 2 + lane / 16 * 2);
        column = warp % (BN / WN) * WN + 4 * (lane / 2 % ACROSS);
    }

    __device__ __forceinline__ void load(u32 stage, int p) {
        const u32 a = stage + 4 * row, b = stage + A_BYTES + 4 * column;
#pragma unroll
        for (int i = 0; i < TM / 4; i++) {
            x[p % 2][i] = load_four(a + 4 * (A_LINE * p + 4 * DOWN * i));
        }
#pragma unroll
        for (int j = 0; j < TN / 4; j++) {
            y[p % 2][j] = load_four(b + 4 * (B_LINE * p + 4 * ACROSS * j));
        }
    }

    // Columns are walked to and fro, so that each fma shares an operand with the one before it.
    __device__ __forceinline__ void multiply(int p) {
#pragma unroll
        for (int i = 0; i < TM; i++) {
#pragma unroll
            for (int jj = 0; jj < TN; jj++) {
                const int j = i % 2 ? TN - 1 - jj : jj;
                sum[i][j / 4].r[j % 4] += x[p % 2][i / 4].r[i % 4] * y[p % 2][j / 4].r[j % 4];
            }
        }
    }
};

// Adds up a CTA's tile of A * B.
template <int VECTOR>
__device__ __forceinline__ void multiply(Thread& thread, u32 first_stage, const Place& tile,
                                         const Matrix<f32, TRANSPOSE_A>& A,
                                         const Matrix<f32, !TRANSPOSE_B>& B_transposed) {
    Copy<BM, TRANSPOSE_A, VECTOR> copy_a(0, A, tile.row);
    Copy<BN, !TRANSPOSE_B, VECTOR> copy_b(A_BYTES, B_transposed, tile.column);
    const int k = A.columns;
    int uncopied = k;

    // Starts the copy of the next tile along k, or of zeros behind the last, as a group of its own.
    auto copy = [&](u32 stage) {
        copy_a.start(stage, uncopied);
        copy_b.start(stage, uncopied);
        cp_async_commit();
        uncopied -= BK;
    };
    const u32 end_stage = first_stage + STAGES * STAGE_BYTES;
    auto next = [&](u32 stage) {
        return stage + STAGE_BYTES == end_stage ? first_stage : stage + STAGE_BYTES;
    };

    u32 filled = first_stage;  // the stage to fill next
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        copy(filled);
        filled += STAGE_BYTES;
    }
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    u32 stage = first_stage;  // the stage to read
    thread.load(stage, 0);
#pragma unroll 1
    for (int left = k; left > 0; left -= BK) {
#pragma unroll
        for (int p = 0; p < BK; p++) {
            if (p == BK - 1) {
                // After this barrier the next tile is there for everyone, and nobody reads the old
                // one any more: its stage is the next one to be filled.
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                stage = next(stage);
            }
            thread.load(stage, (p + 1) % BK);
            if (p == 0) {
                copy(filled);
                filled = next(filled);
            }
            thread.multiply(p);
        }
    }
    cp_async_wait<0>();  // for the zeros behind the last tile: no copy outlives its CTA
}

// Whether neighbours in memory that run across k can always be copied four at a time.
template <bool TRANSPOSED>
__device__ __forceinline__ bool in_fours(const Matrix<f32, TRANSPOSED>& operand) {
    return !TRANSPOSED || (operand.rows % 4 == 0 && is_aligned(operand.data, operand.leading, 16));
}

extern "C" __global__ void __launch_bounds__(THREADS)
warp_tiled(int m, int n, int k, const f32* a, int lda, const f32* b, int ldb, f32* d, int ldd,
           f32 alpha, f32 beta, const f32* bias) {
    extern __shared__ __align__(16) char ring[];
    const Matrix<f32, TRANSPOSE_A> A = {a, lda, m, k};
    const Matrix<f32, !TRANSPOSE_B> B_transposed = {b, ldb, n, k};
    const Output D = {d, ldd, m, n, alpha, beta, bias};
    const Place tile = tile_of_cta<BM, BN>(m, n);

    Thread thread;
    if (in_fours(A) && in_fours(B_transposed)) {
        multiply<4>(thread, shared_address(ring), tile, A, B_transposed);
    } else {
        multiply<1>(thread, shared_address(ring), tile, A, B_transposed);
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const int down = tile.row + thread.row + 4 * DOWN * (i / 4) + i % 4;
#pragma unroll
        for (int j = 0; j < TN / 4; j++) {
            D.store(down, tile.column + thread.column + 4 * ACROSS * j, thread.sum[i][j].r);
        }
    }
}
