// What the kernels of the ladder share: the problem in macros, the order of CTAs, A, B and D.
//
// D = epilogue(alpha * A * B + beta * D), where A is m x k, B is k x n, and the epilogue adds a
// bias to each column, replaces what is negative by zero, both, or neither. With beta == 0 D is
// never read, so it may hold anything (BLAS has the same rule).
//
// A kernel sees its operands by row and column, whichever way they are stored: A(row, p), B(p,
// column). It adds up in its own way, and hands every sum to D, which finishes it and stores it if
// there is such an element. Nothing outside of the matrices is read or written.
//
// Instruction: ld.global{.v2,.v4}, st.global{.v2,.v4}, fma.rn.f32
// PTX ISA:     Data Movement and Conversion Instructions: ld
// Macros:      DTYPE                     type of A and B, default f32
//              ACC                       type of the sums and of D: f32 (default), f16
//              TRANSPOSE_A, TRANSPOSE_B  1: stored transposed, A as k x m, B as n x k; default 0
//              BIAS                      1: bias[column] is added; default 0
//              RELU                      1: what is negative becomes zero, at last; default 0
//              GROUP                     tile rows in a group of CTAs, default 1: row by row

#pragma once

#include "fragments.cuh"

#ifndef DTYPE
#define DTYPE f32
#endif
#ifndef ACC
#define ACC f32
#endif
#ifndef TRANSPOSE_A
#define TRANSPOSE_A 0
#endif
#ifndef TRANSPOSE_B
#define TRANSPOSE_B 0
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef RELU
#define RELU 0
#endif
#ifndef GROUP
#define GROUP 1
#endif

static_assert((TRANSPOSE_A | 1) == 1 && (TRANSPOSE_B | 1) == 1, "a matrix is transposed or not");
static_assert((BIAS | 1) == 1 && (RELU | 1) == 1, "an epilogue has a part or not");
static_assert(GROUP >= 1, "a group of CTAs has at least one row of tiles");

// ---- the order of CTAs --------------------------------------------------------------------------

struct Place {
    int row, column;
};

// How many HEIGHT x WIDTH tiles D has.
template <int HEIGHT, int WIDTH>
__device__ __forceinline__ u32 tiles_of(int m, int n) {
    return ((m - 1) / HEIGHT + 1) * ((n - 1) / WIDTH + 1);
}

// The first row and column of a tile of D. Tiles are numbered in groups, which are GROUP tiles high
// and walked column by column: neighbours run together, and share rows of A and columns of B in the
// L2 cache.
template <int HEIGHT, int WIDTH>
__device__ __forceinline__ Place tile_at(u32 number, int m, int n) {
    const int down = (m - 1) / HEIGHT + 1, across = (n - 1) / WIDTH + 1;
    const int group = number / (GROUP * across), member = number % (GROUP * across);
    const int height = min(GROUP, down - GROUP * group);  // the last group may be lower
    return {(GROUP * group + member % height) * HEIGHT, member / height * WIDTH};
}

// The tile of this CTA, where each has one and the grid has one dimension.
template <int HEIGHT, int WIDTH>
__device__ __forceinline__ Place tile_of_cta(int m, int n) {
    return tile_at<HEIGHT, WIDTH>(blockIdx.x, m, n);
}

// ---- memory -------------------------------------------------------------------------------------

// Neighbours in memory that are moved at once.
template <typename Number, int COUNT>
struct alignas(COUNT * sizeof(Number)) Vector {
    Number r[COUNT];
};

// Whether all rows of a matrix begin at a multiple of so many bytes.
template <typename Number>
__device__ __forceinline__ bool is_aligned(const Number* matrix, int leading, int bytes) {
    return (reinterpret_cast<u64>(matrix) | sizeof(Number) * u64(leading)) % bytes == 0;
}

// COUNT neighbours, of which only the first `left` exist; the others are zero. `aligned` says that
// they may be moved at once.
template <int COUNT, typename Number>
__device__ __forceinline__ Vector<Number, COUNT> load(const Number* from, int left, bool aligned) {
    Vector<Number, COUNT> vector;
    if (aligned && left >= COUNT) {
        vector = *reinterpret_cast<const Vector<Number, COUNT>*>(from);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) vector.r[i] = i < left ? from[i] : Number{0};
    }
    return vector;
}

// ---- A and B ------------------------------------------------------------------------------------

// A matrix of rows x columns; stored TRANSPOSED, its columns are the rows in memory. `leading` is
// the number of elements from one row in memory to the next.
template <typename Number, bool TRANSPOSED>
struct Matrix {
    const Number* data;
    int leading;
    int rows, columns;

    __device__ __forceinline__ const Number* at(int row, int column) const {
        return TRANSPOSED ? data + s64(column) * leading + row : data + s64(row) * leading + column;
    }

    __device__ __forceinline__ f32 operator()(int row, int column) const {
        return to_f32(*at(row, column));
    }

    // Zero outside, where nothing is read.
    __device__ __forceinline__ f32 or_zero(int row, int column) const {
        return row < rows && column < columns ? (*this)(row, column) : 0;
    }

    // Copies the part that begins at (row, column) to shared memory. THREADS threads take part;
    // neighbours among them take neighbours in memory.
    template <int THREADS, int HEIGHT, int WIDTH>
    __device__ __forceinline__ void copy(f32 (&tile)[HEIGHT][WIDTH], int row, int column,
                                         int thread) const {
        constexpr int SIZE = HEIGHT * WIDTH, ROUNDS = (SIZE - 1) / THREADS + 1;
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            const int i = THREADS * round + thread;
            if (SIZE % THREADS && i >= SIZE) break;
            const int down = TRANSPOSED ? i % HEIGHT : i / WIDTH;
            const int across = TRANSPOSED ? i / HEIGHT : i % WIDTH;
            tile[down][across] = or_zero(row + down, column + across);
        }
    }
};

using MatrixA = Matrix<DTYPE, TRANSPOSE_A>;
using MatrixB = Matrix<DTYPE, TRANSPOSE_B>;

// ---- D ------------------------------------------------------------------------------------------

// D, m x n and row-major, and what becomes of a sum on its way there.
struct Output {
    ACC* d;
    int ldd;
    int m, n;
    f32 alpha, beta;
    const f32* bias;

    // What is stored for a sum in place of `old`, which is read only if it counts. The roundings
    // are spelled out, so that all kernels have the same and equal sums end up equal.
    __device__ __forceinline__ ACC finish(f32 sum, const ACC& old, int column) const {
        f32 value = __fmul_rn(alpha, sum);
        if (beta != 0) value = __fmaf_rn(beta, to_f32(old), value);
        if (BIAS) value = __fadd_rn(value, bias[column]);
        if (RELU) value = value < 0 ? 0 : value;  // not max: a NaN shall be seen
        return from_f32<ACC>(value);
    }

    // The same of the element at (row, column), zero outside, where nothing is read.
    __device__ __forceinline__ ACC finished(int row, int column, f32 sum) const {
        if (row >= m || column >= n) return {};
        return finish(sum, d[s64(row) * ldd + column], column);
    }

    // COUNT neighbours of a row from `to` and `column` on, aligned together, which all exist.
    template <int COUNT>
    __device__ __forceinline__ void store_vector(ACC* to, int column,
                                                 const f32 (&sums)[COUNT]) const {
        using Neighbours = Vector<ACC, COUNT>;
        Neighbours values = {};
        if (beta != 0) values = *reinterpret_cast<const Neighbours*>(to);
#pragma unroll
        for (int i = 0; i < COUNT; i++) values.r[i] = finish(sums[i], values.r[i], column + i);
        *reinterpret_cast<Neighbours*>(to) = values;
    }

    // COUNT neighbours of a row; `column` is a multiple of COUNT.
    template <int COUNT>
    __device__ __forceinline__ void store(int row, int column, const f32 (&sums)[COUNT]) const {
        if (row >= m) return;
        ACC* to = d + s64(row) * ldd + column;
        if (column + COUNT <= n && is_aligned(d, ldd, sizeof(Vector<ACC, COUNT>))) {
            store_vector(to, column, sums);
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                if (column + i < n) to[i] = finish(sums[i], to[i], column + i);
            }
        }
    }

    __device__ __forceinline__ void store(int row, int column, f32 sum) const {
        ACC* to = d + s64(row) * ldd + column;
        if (row < m && column < n) *to = finish(sum, *to, column);
    }
};
