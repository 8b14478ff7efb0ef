// GEMM on tensor cores: mma.sync, fed through swizzled shared memory by asynchronous copies.
//
// A CTA owns a BM x BN tile of D and walks along k in steps of BK. A ring of STAGES tiles of A and
// of B in shared memory is filled by cp.async, some tiles ahead of the arithmetic. Each warp keeps
// WM x WN of D in its accumulators, and fetches fragments while mma.sync is busy with those before:
// of A one by one, of B all for the next step along k.
//
// Tile: what shared memory has to deliver for an mma falls as a warp's tile grows: with 64 x 64 it
// is about as busy as Hopper's tensor cores. A copy of a warp touches 4 lines where rows of a tile
// have 128 bytes, as with BK 64 of 16-bit types, and 8 where they have 64.
// Bank conflicts: none, in any layout; see operand.cuh and swizzle.cuh.
// Barriers: one for each tile, passed before the last step and not after it: what is left to
// multiply then hides the way of the next tile's first fragments.
// L2: CTAs are numbered in groups of GROUP tile rows: those that run together share A and B.
// Edges: any m, n, k and row lengths. The main loop copies whole chunks from inside of the
// matrices, into which a tile at an edge is moved back if it can be. A second loop, for the end of
// k and for what cannot be moved, fills up chunks with zeros; where rows are not aligned to 16
// bytes, it copies element by element.
// D: through shared memory, so that a warp stores whole lines; see result.cuh.
// Scales: numbers of 8 and 4 bits share them along k, along which rows of A and columns of B then
// lie, packed: lda and ldb are bytes, and pointers to scales follow, sa and sb. Those of a tile are
// in the ring, too; see scales.cuh. Only sm_120a has their mma.
//
// Instruction: mma.sync.aligned.m16n8k16, ldmatrix.sync.aligned.m8n8.x4{.trans}, cp.async
// PTX ISA:     Matrix multiply-accumulate operation using mma instruction
// Launch:      grid ceil(m/BM) * ceil(n/BN), block 32 * (BM/WM) * (BN/WN), dynamic shared memory
//              STAGES * BK * (BM + BN) elements, and scales
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
// Macros:      DTYPE   type of A and B: bf16 (default), f16, tf32, which is f32 in memory, mxfp8,
//                      nvfp4; gemm.cuh has the other macros that all kernels share
//              GROUP   tile rows in a group of CTAs, default 8
//              BM, BN  tile of a CTA, default 128 x 128
//              BK      step along k, default 32
//              WM, WN  tile of a warp, default 64 x 64
//              STAGES  tiles in the ring, default 3; at least 2
// Run:         ptxlab run kernels/tensor_core.cu --kernel tensor_core --grid 2 --block 128
//              --shared 49152 --arg m=100 --arg n=136 --arg k=72
//              --arg "a=randn(100x72,bf16,seed=1)" --arg lda=72
//              --arg "b=randn(72x136,bf16,seed=2)" --arg ldb=136
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
//              --arg alpha=1 --arg beta=0 --arg bias=0
// Expect:      d is A * B, each element within 9 * (2^-23 + 9 * 2^-24) of the sum of the
//              magnitudes of its products

#ifndef DTYPE
#define DTYPE bf16
#endif
#ifndef GROUP
#define GROUP 8
#endif

#include "operand.cuh"
#include "result.cuh"
#include "scales.cuh"

#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 32
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

constexpr int WARPS_ACROSS = BN / WN;
constexpr int WARPS = BM / WM * WARPS_ACROSS;
constexpr int THREADS = 32 * WARPS;

constexpr bool SHARING = BLOCKS<DTYPE> != 0;          // numbers share scales, and lie along k
constexpr int DEPTH = BK * BITS<DTYPE> / (8 * int(sizeof(DTYPE)));  // of a tile, as it is stored

using TileA = OperandTile<DTYPE, BM, DEPTH, !TRANSPOSE_A>;
using TileB = OperandTile<DTYPE, BN, DEPTH, TRANSPOSE_B || SHARING>;
using ScalesA = ScaleTile<DTYPE, BM, DEPTH>;
using ScalesB = ScaleTile<DTYPE, BN, DEPTH>;
constexpr int TILES_BYTES = TileA::BYTES + TileB::BYTES;
constexpr int STAGE_BYTES = TILES_BYTES + ScalesA::BYTES + ScalesB::BYTES;
constexpr int STEPS = DEPTH / TileA::STEP;              // of mma, in a tile
constexpr int DOWN = WM / 16, ACROSS = WN / 8;        // fragments of a warp's part of D

// Once a tile, in its last step, a warp passes a barrier and turns to the next. Of two stages, the
// one that is read is the next to be filled, so the last fragment of A must have been fetched
// before; of more, there is another one to fill, and the turn comes with the first.
constexpr int TURN = STAGES == 2 ? DOWN - 1 : 0;      // row of fragments
constexpr int AHEAD = STAGES == 2 ? 2 : STAGES - 1;   // tiles whose copies begin before the first

static_assert(BM % WM == 0 && BN % WN == 0, "a CTA's tile is made of whole warp tiles");
static_assert(WM % 16 == 0 && WN % 16 == 0, "a warp's tile is made of whole fragments");
static_assert(DEPTH % (2 * TileA::STEP) == 0, "fragments of even and odd steps alternate");
static_assert(STAGES >= 2, "one stage is read while another one is filled");
static_assert(WARPS * slabs_bytes(ACROSS) <= STAGES * STAGE_BYTES,
              "the ring has room for the slabs");

// ---- copies -------------------------------------------------------------------------------------

// The ring of stages in shared memory, and this thread's part in filling it.
struct Ring {
    OperandCopy<TileA, THREADS> a;
    OperandCopy<TileB, THREADS> b;
    ScaleCopy<ScalesA, THREADS> scales_a;
    ScaleCopy<ScalesB, THREADS> scales_b;
    u32 first, filling;
    int uncopied;  // of k

    __device__ __forceinline__ u32 next(u32 stage) const {
        return stage == first + (STAGES - 1) * STAGE_BYTES ? first : stage + STAGE_BYTES;
    }

    // Whether the next tiles lie inside of their matrices.
    __device__ __forceinline__ bool whole() const {
        return a.inside && b.inside && uncopied >= DEPTH;
    }

    // Starts to copy the next tiles along k, if there are any, as a group of their own.
    template <bool WHOLE>
    __device__ __forceinline__ void fill() {
        if (WHOLE || uncopied > 0) {
            a.start<WHOLE>(filling, uncopied);
            b.start<WHOLE>(filling + TileA::BYTES, uncopied);
            scales_a.template start<DEPTH>(filling + TILES_BYTES);
            scales_b.template start<DEPTH>(filling + TILES_BYTES + ScalesA::BYTES);
        }
        cp_async_commit();
        filling = next(filling);
        uncopied -= DEPTH;
    }
};

// ---- arithmetic ---------------------------------------------------------------------------------

// A warp's part of D, and the fragments on their way to it.
struct Warp {
    Accumulator<ACC> d[DOWN][ACROSS];
    u32 a[2][4];
    u32 b[2][ACROSS][2];
    OperandFragments<TileA, true> rows;
    OperandFragments<TileB, false> columns;
    ScaleWords<ScalesA, WM> scales_a;
    ScaleWords<ScalesB, WN> scales_b;

    // The part begins at `row` and `column` of a CTA's tile.
    __device__ __forceinline__ Warp(Place tile, int row, int column)
        : rows(row), columns(column), scales_a(tile.row % BLOCK_ROWS + row),
          scales_b(tile.column % BLOCK_ROWS + column) {}

    __device__ __forceinline__ void load_a(u32 stage, int step, int i) {
        u32(&r)[4] = a[(step * DOWN + i) % 2];
        rows.load(r[0], r[1], r[2], r[3], stage, i, step);
    }

    // Two fragments side by side.
    __device__ __forceinline__ void load_b(u32 stage, int step, int pair) {
        u32(&left)[2] = b[step % 2][2 * pair], (&right)[2] = b[step % 2][2 * pair + 1];
        columns.load(left[0], left[1], right[0], right[1], stage + TileA::BYTES, pair, step);
    }

    __device__ __forceinline__ void load_scales(u32 stage, int step) {
        scales_a.load(stage + TILES_BYTES, step);
        scales_b.load(stage + TILES_BYTES + ScalesA::BYTES, step);
    }

    // Row i of fragments. Rows are walked to and fro, so that each mma shares an operand with the
    // one before it.
    __device__ __forceinline__ void multiply(int step, int i) {
        u32(&left)[4] = a[(step * DOWN + i) % 2];
#pragma unroll
        for (u32& bits : left) bits = rounded<DTYPE>(bits);
#pragma unroll
        for (int jj = 0; jj < ACROSS; jj++) {
            const int j = (step * DOWN + i) % 2 ? ACROSS - 1 - jj : jj;
            u32(&right)[2] = b[step % 2][j];
            if (i == 0) {
#pragma unroll
                for (u32& bits : right) bits = rounded<DTYPE>(bits);
            }
            mma<DTYPE>(d[i][j], left, right, scales_a.of(step, i, 2), i % 2,
                       scales_b.of(step, j, 4), j % 4);
        }
    }
};

// ---- all of it ----------------------------------------------------------------------------------

// Multiplies the tile in stage `reading`, the first `left` of k, and fills another stage; returns
// the stage of the next tile. STEADY says that there is a next one, and the one to fill is whole.
template <bool STEADY>
__device__ __forceinline__ u32 multiply(Warp& part, Ring& ring, u32 reading, int left) {
    u32 coming = reading;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const bool last = step == STEPS - 1;
        const int after = last ? 0 : step + 1, turn = last ? TURN : 0;
#pragma unroll
        for (int i = 0; i < DOWN; i++) {
            if (last && i == TURN && (STEADY || left > DEPTH)) {
                // The next tile has arrived, for everyone, and nobody reads the stage that is
                // filled now. After the last tile, what is fetched below is not used.
                cp_async_wait<AHEAD - 2>();
                __syncthreads();
                coming = ring.next(reading);
                ring.fill<STEADY>();
                part.scales_a.template turn<DEPTH>();
                part.scales_b.template turn<DEPTH>();
            }
            const u32 stage = last ? coming : reading;
            if (i + 1 < DOWN) part.load_a(reading, step, i + 1);
            else part.load_a(stage, after, 0);
            if (i == turn) part.load_scales(stage, after);
            // The pairs of fragments of B are spread over the rows from the turn on.
#pragma unroll
            for (int pair = 0; pair < ACROSS / 2; pair++) {
                if (pair * (DOWN - turn) / (ACROSS / 2) == i - turn) {
                    part.load_b(stage, after, pair);
                }
            }
            part.multiply(step, i);
        }
    }
    return coming;
}

// Where the tile of a CTA begins. One that reaches over the edge is moved back, where that keeps
// vectors whole: so it needs no zeros. What it has in common with its neighbour is not stored.
__device__ __forceinline__ int moved_back(int first, int size, int total) {
    return !SHARING && total >= size && total % 8 == 0 ? min(first, total - size) : first;
}

extern "C" __global__ void __launch_bounds__(THREADS)
tensor_core(int m, int n, int k, const DTYPE* a, int lda, const DTYPE* b, int ldb, ACC* d, int ldd,
            f32 alpha, f32 beta, const f32* bias
#if SCALED(DTYPE)
            , const char* sa, const char* sb
#endif
            ) {
#if !SCALED(DTYPE)
    const char *const sa = nullptr, *const sb = nullptr;
#endif
    extern __shared__ __align__(128) char shared[];
    const Place own = tile_of_cta<BM, BN>(m, n);
    const Place tile = {moved_back(own.row, BM, m), moved_back(own.column, BN, n)};
    const Output D = {d, ldd, m, n, alpha, beta, bias};

    const int depth = stored_along<DTYPE>(k);
    u32 reading = shared_address(shared);
    Ring ring = {{a, lda, tile.row, m}, {b, ldb, tile.column, n}, {sa, tile.row, m, depth},
                 {sb, tile.column, n, depth}, reading, reading, depth};
#pragma unroll 1
    for (int i = 0; i < AHEAD; i++) ring.whole() ? ring.fill<true>() : ring.fill<false>();

    const int warp = threadIdx.x / 32;
    const int row = warp / WARPS_ACROSS * WM, column = warp % WARPS_ACROSS * WN;
    Warp part(tile, row, column);
    if (k > 0) {
        cp_async_wait<AHEAD - 1>();
        __syncthreads();
#pragma unroll
        for (int pair = 0; pair < ACROSS / 2; pair++) part.load_b(reading, 0, pair);
        part.load_a(reading, 0, 0);
        part.load_scales(reading, 0);
    }
    int left = depth;
#pragma unroll 1
    for (; ring.whole(); left -= DEPTH) reading = multiply<true>(part, ring, reading, left);
#pragma unroll 1
    for (; left > 0; left -= DEPTH) reading = multiply<false>(part, ring, reading, left);

    __syncthreads();  // the ring has been read, and becomes slabs
    char* slabs = shared + warp * slabs_bytes(ACROSS);
    const Place corner = {tile.row + row, tile.column + column};
    const bool inside = tile.row == own.row && own.row + BM <= m && tile.column == own.column &&
                        own.column + BN <= n && is_aligned(d, ldd, 16);
    if (inside) store_result<true>(D, own, corner, part.d, slabs);
    else store_result<false>(D, own, corner, part.d, slabs);
}
