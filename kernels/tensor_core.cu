// GEMM on tensor cores: mma.sync, fed through swizzled shared memory by asynchronous copies.
//
// A CTA owns a BM x BN tile of D and walks along k in steps of BK. A ring of STAGES tiles of A and
// of B in shared memory is filled by cp.async, STAGES - 1 steps ahead of the arithmetic. Each warp
// owns WM x WN of the tile in its accumulators and reads fragments with ldmatrix, one step of k16
// ahead of mma.sync.
//
// Bank conflicts: a row of a tile is a sequence of 16-byte chunks, and 8 chunks fill the 32 banks.
// The chunk's place is XORed with the row (see `place`), so the 8 rows that ldmatrix reads at one
// column, and the 8 chunks that 8 threads copy, always lie in different banks, without padding.
// L2: CTAs are numbered in groups of 8 tile rows: those that run together share tiles of A and B.
// Edges: any m, n, k and row lengths. Inside the matrix whole chunks are copied, at an edge chunks
// filled up with zeros; where rows are not aligned to 16 bytes, pairs or single elements.
//
// Instruction: mma.sync.aligned.m16n8k16, ldmatrix.sync.aligned.m8n8.x4{.trans}, cp.async
// PTX ISA:     Matrix multiply-accumulate operation using mma instruction
// Launch:      grid ceil(m/BM) * ceil(n/BN), block 32 * (BM/WM) * (BN/WN),
//              dynamic shared memory 2 * STAGES * BK * (BM + BN) bytes
// Parameters:  m    rows of A and D
//              n    columns of B and D
//              k    columns of A and rows of B; 0 gives D = 0
//              a    pointer to A, m x k DTYPE, row-major
//              lda  elements from one row of A to the next
//              b    pointer to B, k x n DTYPE, row-major
//              ldb  elements from one row of B to the next
//              d    pointer to D, m x n ACC, row-major
//              ldd  elements from one row of D to the next
// Macros:      DTYPE   type of A and B: bf16 (default), f16
//              ACC     type of the accumulators and D: f32 (default), f16 (with DTYPE f16)
//              BM, BN  tile of a CTA, default 128 x 128; BN >= 64
//              BK      step along k, default 32; a power of two, at least 32
//              WM, WN  tile of a warp, default 64 x 64; WN a power of two
//              STAGES  tiles in the ring, default 3; at least 2
// Run:         ptxlab run kernels/tensor_core.cu --kernel tensor_core --grid 2 --block 128
//              --shared 49152 --arg m=100 --arg n=136 --arg k=72
//              --arg "a=randn(100x72,bf16,seed=1)" --arg lda=72
//              --arg "b=randn(72x136,bf16,seed=2)" --arg ldb=136
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
// Expect:      d is A * B, each element within 9 * (2^-23 + 9 * 2^-24) of the sum of the
//              magnitudes of its products

#include "async_copy.cuh"
#include "fragments.cuh"

#ifndef DTYPE
#define DTYPE bf16
#endif
#ifndef ACC
#define ACC f32
#endif
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

constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
constexpr int STEPS = BK / 16;  // k16 steps in a tile
constexpr int A_BYTES = BM * BK * 2;
constexpr int STAGE_BYTES = A_BYTES + BK * BN * 2;
constexpr int GROUP = 8;

static_assert(BM % WM == 0 && BN % WN == 0, "a CTA's tile is made of whole warp tiles");
static_assert(WM % 16 == 0 && WN % 16 == 0, "a warp's tile is made of whole fragments");
static_assert((WN & (WN - 1)) == 0 && (BK & (BK - 1)) == 0, "the swizzle needs powers of two");
static_assert(BK % 32 == 0, "fragment registers alternate between even and odd k16 steps");
static_assert(BN % 64 == 0, "a row of B fills all banks");
static_assert(STAGES >= 2, "one stage is read while another one is filled");

// Where a tile's chunk of 8 elements lies, counted in chunks from the start of the tile.
template <int CHUNKS>
__device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    constexpr u32 rows_across_banks = CHUNKS < 8 ? 8 / CHUNKS : 1;
    constexpr u32 mask = CHUNKS < 8 ? CHUNKS - 1 : 7;
    return row * CHUNKS + (chunk ^ (row / rows_across_banks & mask));
}

// One thread's part in copying ROWS x COLUMNS tiles: the same chunk of every ROW_STEP-th row.
template <int ROWS, int COLUMNS>
struct Copy {
    static constexpr int CHUNKS = COLUMNS / 8;
    static constexpr int ROW_STEP = THREADS / CHUNKS;
    static_assert(THREADS % CHUNKS == 0 && ROW_STEP % 8 == 0, "the swizzle is alike in all rows");
    static_assert(ROWS % ROW_STEP == 0, "all threads copy equally much");

    u32 to;              // offset in a stage, in bytes
    const DTYPE* from;   // element of the tile at hand
    int rows, columns;   // how much matrix there is from that element on
    int leading;

    __device__ __forceinline__ Copy(u32 offset, const DTYPE* matrix, int row, int column,
                                    int height, int width, int leading)
        : leading(leading) {
        const int r = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        to = offset + 16 * place<CHUNKS>(r, chunk);
        from = matrix + s64(row + r) * leading + (column + 8 * chunk);
        rows = height - row - r;
        columns = width - column - 8 * chunk;
    }

    // A tile that lies inside the matrix.
    __device__ __forceinline__ void whole(u32 stage) const {
#pragma unroll
        for (int row = 0; row < ROWS; row += ROW_STEP) {
            cp_async_16(stage + to + 16 * CHUNKS * row, from + s64(row) * leading);
        }
    }

    // A tile that may reach over the edge; VECTOR elements are aligned to their size.
    template <int VECTOR>
    __device__ __forceinline__ void masked(u32 stage) const {
#pragma unroll 1
        for (int row = 0; row < ROWS; row += ROW_STEP) {
            const DTYPE* source = from + s64(row) * leading;
            const int present = row < rows ? min(max(columns, 0), 8) : 0;
            const u32 target = stage + to + 16 * CHUNKS * row;
            if (VECTOR == 8) {
                cp_async_16(target, source, 2 * present);
            } else if (VECTOR == 2) {
#pragma unroll
                for (int i = 0; i < 8; i += 2) {
                    cp_async_4(target + 2 * i, source + i, 2 * min(max(present - i, 0), 2));
                }
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const u16 bits = i < present ? source[i].bits : u16(0);
                    asm volatile("st.shared.b16 [%0], %1;" :: "r"(target + 2 * i), "h"(bits)
                                 : "memory");
                }
            }
        }
    }
};

using CopyA = Copy<BM, BK>;
using CopyB = Copy<BK, BN>;

// The largest power of two, up to 8, of elements to which all rows of a matrix are aligned.
__device__ __forceinline__ int row_alignment(const DTYPE* matrix, int leading) {
    const u32 bits = u32(reinterpret_cast<u64>(matrix) / sizeof(DTYPE)) | u32(leading);
    return bits % 8 == 0 ? 8 : bits % 2 == 0 ? 2 : 1;
}

// The fragments of one k16 step of a warp, and what they add up to.
struct Warp {
    Accumulator<ACC> d[WM / 16][WN / 8];
    u32 a[2][WM / 16][4];
    u32 b[2][WN / 8][2];
    u32 a_row[STEPS];    // offsets in a stage of the row this lane names in ldmatrix
    u32 b_row[WN / 16];

    __device__ __forceinline__ Warp(int row, int column) {
        const u32 lane = lane_id();
        // Matrices 0 and 1 of an ldmatrix.x4 are 8 rows apart, 2 and 3 one chunk further right.
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            a_row[step] = 16 * place<BK / 8>(row + lane % 16, 2 * step + lane / 16);
        }
#pragma unroll
        for (int j = 0; j < WN / 16; j++) {
            b_row[j] = A_BYTES + 16 * place<BN / 8>(lane % 16, column / 8 + 2 * j + lane / 16);
        }
    }

    __device__ __forceinline__ void load(u32 stage, int step) {
        const int half = step % 2;
#pragma unroll
        for (int i = 0; i < WM / 16; i++) {
            u32(&r)[4] = a[half][i];
            ldmatrix_x4(r[0], r[1], r[2], r[3], stage + a_row[step] + 16 * i * (BK * 2));
        }
#pragma unroll
        for (int j = 0; j < WN / 16; j++) {
            u32(&r)[2] = b[half][2 * j];
            u32(&s)[2] = b[half][2 * j + 1];
            ldmatrix_x4_trans(r[0], r[1], s[0], s[1], stage + b_row[j] + 16 * step * (BN * 2));
        }
    }

    // Rows are walked to and fro, so that each mma shares an operand with the one before it.
    __device__ __forceinline__ void multiply(int step) {
#pragma unroll
        for (int i = 0; i < WM / 16; i++) {
#pragma unroll
            for (int jj = 0; jj < WN / 8; jj++) {
                const int j = i % 2 ? WN / 8 - 1 - jj : jj;
                mma<DTYPE>(d[i][j], a[step % 2][i], b[step % 2][j]);
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
tensor_core(int m, int n, int k, const DTYPE* a, int lda, const DTYPE* b, int ldb, ACC* d,
            int ldd) {
    extern __shared__ __align__(128) char ring[];
    const u32 first_stage = shared_address(ring);
    const u32 end_stage = first_stage + STAGES * STAGE_BYTES;

    const int tiles_m = (m - 1) / BM + 1, tiles_n = (n - 1) / BN + 1;
    const int group = blockIdx.x / (GROUP * tiles_n), member = blockIdx.x % (GROUP * tiles_n);
    const int height = min(GROUP, tiles_m - GROUP * group);
    const int row0 = (GROUP * group + member % height) * BM;
    const int column0 = member / height * BN;
    const bool inside = m - row0 >= BM && n - column0 >= BN;

    CopyA copy_a(0, a, row0, 0, m, k, lda);
    CopyB copy_b(A_BYTES, b, 0, column0, k, n, ldb);
    const int vector = min(row_alignment(a, lda), row_alignment(b, ldb));
    int uncopied = k;  // columns of A and rows of B

    // Starts the copy of the next tile along k, if there is one, as a group of its own.
    auto copy = [&](u32 stage) {
        if (vector == 8 && inside && uncopied >= BK) {
            copy_a.whole(stage);
            copy_b.whole(stage);
        } else if (uncopied > 0) {
            if (vector == 8) {
                copy_a.masked<8>(stage);
                copy_b.masked<8>(stage);
            } else if (vector == 2) {
                copy_a.masked<2>(stage);
                copy_b.masked<2>(stage);
            } else {
                copy_a.masked<1>(stage);
                copy_b.masked<1>(stage);
            }
        }
        cp_async_commit();
        copy_a.from += BK;
        copy_a.columns -= BK;
        copy_b.from += s64(BK) * ldb;
        copy_b.rows -= BK;
        uncopied -= BK;
    };
    auto next = [&](u32 stage) {
        return stage + STAGE_BYTES == end_stage ? first_stage : stage + STAGE_BYTES;
    };

    u32 filled = first_stage;  // the stage to fill next
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        copy(filled);
        filled += STAGE_BYTES;
    }

    const int warp = threadIdx.x / 32;
    const int warp_row = warp / (BN / WN) * WM, warp_column = warp % (BN / WN) * WN;
    Warp tile(warp_row, warp_column);
    u32 stage = first_stage;  // the stage to read
    if (k > 0) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        tile.load(stage, 0);
    }
#pragma unroll 1
    for (int left = k; left > 0; left -= BK) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            if (step + 1 < STEPS) {
                tile.load(stage, step + 1);
            } else if (left > BK) {
                // After this barrier the next tile is there for everyone, and nobody reads the
                // old one any more: its stage is the next one to be filled.
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                stage = next(stage);
                tile.load(stage, 0);
            }
            if (step == 0) {
                copy(filled);
                filled = next(filled);
            }
            tile.multiply(step);
        }
    }

    const u32 g = lane_id() / 4, q = lane_id() % 4;
    const int row = row0 + warp_row + g, column = column0 + warp_column + 2 * q;
    ACC* corner = d + s64(row) * ldd + column;
    const bool pairs = (reinterpret_cast<u64>(d) / sizeof(ACC) | u32(ldd)) % 2 == 0;
#pragma unroll
    for (int i = 0; i < WM / 16; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int down = 16 * i + 8 * half;
            ACC* line = corner + s64(down) * ldd;
            if (inside && pairs) {
#pragma unroll
                for (int j = 0; j < WN / 8; j++) store_pairs(line + 8 * j, tile.d[i][j], half);
            } else if (row + down < m) {
#pragma unroll
                for (int j = 0; j < WN / 8; j++) {
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        if (column + 8 * j + e < n) {
                            line[8 * j + e] = element(tile.d[i][j], 2 * half + e);
                        }
                    }
                }
            }
        }
    }
}
