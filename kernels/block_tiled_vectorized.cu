// GEMM, 8 x 8 results a thread: 128-bit loads everywhere, and A transposed on the way in.
//
// A CTA owns a 128 x 128 tile of D and walks along k in steps of 8. Each thread copies four
// elements of A and four of B from global to shared memory, then adds up 8 x 8 results in
// registers: for each k, 16 numbers from shared memory feed 64 fma. A lies transposed in shared
// memory, so that a thread's 8 rows are neighbours: two 128-bit loads, like its 8 columns of B.
//
// Bank conflicts: a thread's rows and columns are four neighbours in each half of the tile, so that
// 8 threads read 128 contiguous bytes of B; A's lines are 4 elements longer than the tile, so that
// its transposed stores, 16 rows of 2 lines in a warp, fall in different banks.
// Edges: any m, n, k and row lengths. What lies outside of a matrix is zero; where rows are not
// aligned to 16 bytes, elements are moved one by one.
//
// Instruction: fma.rn.f32, ld.global.v4.f32, ld.shared.v4.f32, st.global.v4.f32
// PTX ISA:     Data Movement and Conversion Instructions: ld
// Launch:      grid ceil(m/128) by ceil(n/128), block 256, dynamic shared memory 8320 bytes
// Parameters:  m    rows of A and D
//              n    columns of B and D
//              k    columns of A and rows of B; 0 gives D = 0
//              a    pointer to A, m x k f32, row-major
//              lda  elements from one row of A to the next
//              b    pointer to B, k x n f32, row-major
//              ldb  elements from one row of B to the next
//              d    pointer to D, m x n f32, row-major
//              ldd  elements from one row of D to the next
// Run:         ptxlab run kernels/block_tiled_vectorized.cu --kernel block_tiled_vectorized
//              --grid 1,2 --block 256 --shared 8320 --arg m=100 --arg n=136 --arg k=20
//              --arg "a=randn(100x20,f32,seed=1)" --arg lda=20
//              --arg "b=randn(20x136,f32,seed=2)" --arg ldb=136
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
// Expect:      d is A * B, each element within k * 2^-24 of the sum of the magnitudes of its
//              products

#include "fragments.cuh"

constexpr int BM = 128, BN = 128, BK = 8;  // tile of a CTA, and step along k
constexpr int HALF = 64;                   // a thread's second four rows and columns
constexpr int A_LINE = BM + 4;             // from one k to the next in shared memory
constexpr int THREADS = 256;

union Four {
    float4 vector;
    f32 r[4];
};

// Whether a matrix can be moved four elements at a time.
__device__ __forceinline__ bool is_aligned(const f32* matrix, int leading) {
    return (reinterpret_cast<u64>(matrix) | 4 * u64(leading)) % 16 == 0;
}

// Up to four elements of a row, of which `left` exist; the others are zero.
__device__ __forceinline__ Four load_four(const f32* from, int left, bool aligned) {
    Four four;
    if (aligned && left >= 4) {
        four.vector = *reinterpret_cast<const float4*>(from);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) four.r[i] = i < left ? from[i] : 0;
    }
    return four;
}

__device__ __forceinline__ void store_four(f32* to, const Four& four, int left, bool aligned) {
    if (aligned && left >= 4) {
        *reinterpret_cast<float4*>(to) = four.vector;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i < left) to[i] = four.r[i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
block_tiled_vectorized(int m, int n, int k, const f32* a, int lda, const f32* b, int ldb, f32* d,
                       int ldd) {
    extern __shared__ float4 shared[];
    f32* a_tile = reinterpret_cast<f32*>(shared);  // [k][row]
    f32* b_tile = a_tile + BK * A_LINE;            // [k][column]
    const int thread = threadIdx.x;
    const int row0 = BM * blockIdx.x, column0 = BN * blockIdx.y;

    // What this thread copies: four elements of one row of A, and of one row of B.
    const int a_row = thread / (BK / 4), a_k = 4 * (thread % (BK / 4));
    const int b_k = thread / (BN / 4), b_column = 4 * (thread % (BN / 4));
    const f32* a_from = a + s64(row0 + a_row) * lda + a_k;
    const f32* b_from = b + s64(b_k) * ldb + (column0 + b_column);
    const int b_left = n - column0 - b_column;
    const bool a_exists = row0 + a_row < m;
    const bool a_aligned = is_aligned(a, lda), b_aligned = is_aligned(b, ldb);

    // What it computes: rows `row` to `row + 3` of each half of the tile, and columns alike.
    const int row = 4 * (thread / 16), column = 4 * (thread % 16);
    Four sum[8][2] = {};

    for (int left = k; left > 0; left -= BK) {
        const Four a_four = load_four(a_from, a_exists ? left - a_k : 0, a_aligned);
        const Four b_four = load_four(b_from, b_k < left ? b_left : 0, b_aligned);
#pragma unroll
        for (int i = 0; i < 4; i++) a_tile[(a_k + i) * A_LINE + a_row] = a_four.r[i];
        *reinterpret_cast<float4*>(b_tile + b_k * BN + b_column) = b_four.vector;
        __syncthreads();

#pragma unroll
        for (int p = 0; p < BK; p++) {
            Four x[2], y[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int at = HALF * half;
                x[half].vector = *reinterpret_cast<float4*>(a_tile + p * A_LINE + row + at);
                y[half].vector = *reinterpret_cast<float4*>(b_tile + p * BN + column + at);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    sum[i][j / 4].r[j % 4] += x[i / 4].r[i % 4] * y[j / 4].r[j % 4];
                }
            }
        }
        __syncthreads();  // nobody reads the tile any more: it may be filled again
        a_from += BK;
        b_from += s64(BK) * ldb;
    }

    const bool d_aligned = is_aligned(d, ldd);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int down = row0 + row + HALF * (i / 4) + i % 4;
        if (down >= m) continue;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int across = column0 + column + HALF * half;
            store_four(d + s64(down) * ldd + across, sum[i][half], n - across, d_aligned);
        }
    }
}
