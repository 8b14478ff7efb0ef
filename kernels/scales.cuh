// Scales of numbers that share them along k, on their way to mma.sync; of other numbers, nothing.
//
// Four scales of each of 128 rows of A, or columns of B, are a block of 512 bytes, as the host laid
// them out: 32 lines of 16 bytes, of which row r has word r / 32 of line r % 32. Blocks are copied
// to shared memory as they are, but for the order of lines, and a lane reads one line: number
// 8 q + g, where it is lane q of group g. The scales of two fragments of A then lie where mma looks
// for them, in the lanes with q / 2 = 0 and 1, and those of four fragments of B too, one in each
// lane of a group. An mma is told whose turn it is.
//
// A word has the scales of 32 bytes of k of nvfp4, all four for one mma, and those of 128 bytes of
// mxfp8, for four.
//
// Instruction: mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X,
//              mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X,
//              ld.shared.v4, cp.async.cg
// PTX ISA:     Block Scaling for mma.sync

#pragma once

#include "async_copy.cuh"
#include "gemm.cuh"

// Whether numbers share scales, for the preprocessor: #if SCALED(DTYPE).
#define SCALED_mxfp8 1
#define SCALED_nvfp4 1
#define SCALED_PASTED(TYPE) SCALED_##TYPE
#define SCALED(TYPE) SCALED_PASTED(TYPE)

constexpr int BLOCK_ROWS = 128, BLOCK_BYTES = 512;

// So many blocks are for 128 bytes of k.
template <typename Number>
constexpr int BLOCKS = 0;
template <>
constexpr int BLOCKS<mxfp8> = 1;
template <>
constexpr int BLOCKS<nvfp4> = 4;

// How many of its own kind a row along k has in memory: bytes where they are packed, in whole 16.
template <typename Number>
__device__ __forceinline__ int stored_along(int k) {
    constexpr int CHUNK = 128 / BITS<Number>;
    return BLOCKS<Number> ? (k + CHUNK - 1) / CHUNK * 16 : k;
}

// The blocks of EXTENT rows of A, or columns of B, by DEPTH bytes along k.
template <typename Number, int EXTENT, int DEPTH>
struct ScaleTile {
    static constexpr int IN_LINE = BLOCKS<Number>;  // of 128 bytes
    static constexpr int ALONG = (DEPTH * IN_LINE + 127) / 128;
    static constexpr int DOWN = (EXTENT + BLOCK_ROWS - 1) / BLOCK_ROWS;
    static constexpr int BYTES = DOWN * ALONG * BLOCK_BYTES;
    static_assert(!IN_LINE || EXTENT % BLOCK_ROWS == 0 || BLOCK_ROWS % EXTENT == 0,
                  "a tile begins where a block of scales does, or is a part of one");
    static_assert(!IN_LINE || 128 % DEPTH == 0, "blocks of scales are there for 128 bytes of k");

    // The offset of a line, such that those of lanes that read together meet in no bank.
    static __device__ __forceinline__ u32 place(u32 line) {
        return 16 * (line ^ line % 32 / 8 * 2);
    }
};

// ---- global to shared memory --------------------------------------------------------------------

// One thread's part in copying the blocks of the tiles along k: every THREADS-th line.
template <typename Tile, int THREADS, bool ANY = Tile::BYTES != 0>
struct ScaleCopy {
    const char* from;  // the first block of all k
    s64 pitch;         // bytes from the blocks of 128 rows to those of the next
    int down;          // rows of blocks that there are from the tile's first on
    int p = 0;         // bytes of k before the tile at hand

    // The matrix is `total` rows of A, or columns of B, of `depth` bytes; `first` is the tile's.
    __device__ __forceinline__ ScaleCopy(const char* scales, int first, int total, int depth)
        : pitch(s64(max((depth + 127) / 128, 1)) * (Tile::IN_LINE * BLOCK_BYTES)),
          down((total - 1) / BLOCK_ROWS - first / BLOCK_ROWS + 1) {
        from = scales + first / BLOCK_ROWS * pitch;
    }

    // Starts to copy those of the next tile along k, which is DEPTH bytes deep.
    template <int DEPTH>
    __device__ __forceinline__ void start(u32 tile) {
        const char* here = from + s64(p / (128 / Tile::IN_LINE)) * BLOCK_BYTES;
#pragma unroll
        for (int first = 0; first < Tile::BYTES / 16; first += THREADS) {
            const int line = first + threadIdx.x, block = line / 32, below = block / Tile::ALONG;
            if (Tile::BYTES / 16 % THREADS && line >= Tile::BYTES / 16) break;
            const char* source = here + below * pitch + block % Tile::ALONG * BLOCK_BYTES;
            cp_async_16(tile + Tile::place(line), source + line % 32 * 16, below < down ? 16 : 0);
        }
        p += DEPTH;
    }
};

template <typename Tile, int THREADS>
struct ScaleCopy<Tile, THREADS, false> {
    __device__ __forceinline__ ScaleCopy(const char*, int, int, int) {}
    template <int DEPTH>
    __device__ __forceinline__ void start(u32) {}
};

// ---- shared memory to registers -----------------------------------------------------------------

// What a lane reads for a warp, which has SIZE rows of A or columns of B from `first` on, counted
// from the first of the block in which the tile begins.
template <typename Tile, int SIZE, bool ANY = Tile::BYTES != 0>
struct ScaleWords {
    static constexpr int TURNS = 4 / Tile::IN_LINE;  // mma that share a word
    static constexpr int WORDS = SIZE / 32;
    static_assert(SIZE % 32 == 0 && BLOCK_ROWS % SIZE == 0, "a word of scales is for 32 rows");
    u32 place;
    int word;  // the first in the line
    int p = 0;  // bytes of k before the tile at hand
    u32 r[2][WORDS];

    __device__ __forceinline__ ScaleWords(int first)
        : place(first / BLOCK_ROWS * (Tile::ALONG * BLOCK_BYTES) +
                Tile::place(8 * (lane_id() % 4) + lane_id() / 4)),
          word(first % BLOCK_ROWS / 32) {}

    // Loads those for number `step` of the steps of the tile at hand.
    __device__ __forceinline__ void load(u32 tile, int step) {
        u32 x, y, z, w;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                     : "r"(tile + place + step / TURNS * BLOCK_BYTES) : "memory");
        if (WORDS < 4 && word >= 2) x = z, y = w;
        if (WORDS < 2 && word % 2) x = y;
        const u32 shift = 8 * ((p / 32 + step) % TURNS), line[] = {x, y, z, w};
#pragma unroll
        for (int i = 0; i < WORDS; i++) r[step % 2][i] = line[i] >> shift;
    }

    // Turns to the next tile along k, which is DEPTH bytes deep.
    template <int DEPTH>
    __device__ __forceinline__ void turn() { p += DEPTH; }

    // Those of a fragment, of which a word has so many.
    __device__ __forceinline__ u32 of(int step, int fragment, int in_word) const {
        return r[step % 2][fragment / in_word];
    }
};

template <typename Tile, int SIZE>
struct ScaleWords<Tile, SIZE, false> {
    __device__ __forceinline__ ScaleWords(int) {}
    __device__ __forceinline__ void load(u32, int) {}
    template <int DEPTH>
    __device__ __forceinline__ void turn() {}
    __device__ __forceinline__ u32 of(int, int, int) const { return 0; }
};

// ---- mma.sync: D = A * B + D --------------------------------------------------------------------

// `sa` has the scales of two fragments of A, and `turn_a` says which this is; `sb` those of four of
// B. Numbers without scales have neither.
template <typename Input, typename Sum>
__device__ __forceinline__ void mma(Accumulator<Sum>& d, const u32 (&a)[4], const u32 (&b)[2], u32,
                                    int, u32, int) {
    mma<Input>(d, a, b);
}

#define SCALED_MMA(NUMBERS)                                                                        \
    asm volatile("mma.sync.aligned." NUMBERS " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "   \
                 "{%0, %1, %2, %3}, {%10}, {%11, %12}, {%13}, {%14, %15};"                         \
                 : "+f"(d.r[0]), "+f"(d.r[1]), "+f"(d.r[2]), "+f"(d.r[3])                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),               \
                   "r"(sa), "h"(u16(0)), "h"(u16(turn_a)), "r"(sb), "h"(u16(0)), "h"(u16(turn_b)))

template <>
__device__ __forceinline__ void mma<mxfp8>(Accumulator<f32>& d, const u32 (&a)[4],
                                           const u32 (&b)[2], u32 sa, int turn_a, u32 sb,
                                           int turn_b) {
    SCALED_MMA("m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
               ".f32.e4m3.e4m3.f32.ue8m0");
}

template <>
__device__ __forceinline__ void mma<nvfp4>(Accumulator<f32>& d, const u32 (&a)[4],
                                           const u32 (&b)[2], u32 sa, int turn_a, u32 sb,
                                           int turn_b) {
    SCALED_MMA("m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
               ".f32.e2m1.e2m1.f32.ue4m3");
}
