// A or B on its way to the tensor cores: global memory, a tile in shared memory, fragments.
//
// A tile keeps the order of global memory, so that chunks of 16 bytes are copied as they are, by
// cp.async. Where neighbours lie along k (K_MAJOR), ldmatrix finds what a fragment wants; where
// they lie along m or n, ldmatrix.trans turns it. It turns 16-bit elements only: where 32-bit ones
// lie along m or n, a lane reads each word of its fragment by itself, in as many passes.
//
// A tile is cut into panels whose lines have 128 bytes, or a whole row if that is shorter, and the
// lines are swizzled: no copy and no read has a bank conflict. A lane looks at up to four places of
// a line, one for each 32 bytes; whatever else is in an address is a constant of the instruction.
//
// Instruction: ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16, ld.shared.b32, cp.async.cg
// PTX ISA:     Warp-level matrix load instruction: ldmatrix

#pragma once

#include "async_copy.cuh"
#include "gemm.cuh"
#include "swizzle.cuh"

// EXTENT_ rows of A, or columns of B, by DEPTH_ along k.
template <typename Number_, int EXTENT_, int DEPTH_, bool K_MAJOR_>
struct OperandTile {
    using Number = Number_;
    static constexpr int EXTENT = EXTENT_, DEPTH = DEPTH_;
    static constexpr bool K_MAJOR = K_MAJOR_;

    static constexpr int SIZE = sizeof(Number);
    static constexpr int BYTES = EXTENT * DEPTH * SIZE;
    static constexpr int STEP = 32 / SIZE;                    // along k, in one mma
    static constexpr bool BY_MATRIX = K_MAJOR || SIZE == 2;   // ldmatrix can fetch it

    static constexpr int ROWS = K_MAJOR ? EXTENT : DEPTH;     // as it lies in memory
    static constexpr int COLUMNS = K_MAJOR ? DEPTH : EXTENT;
    static constexpr int LINE = COLUMNS * SIZE < 128 ? COLUMNS * SIZE : 128;  // bytes
    static constexpr int PANEL = ROWS * LINE;                                 // bytes
    static_assert(COLUMNS * SIZE % LINE == 0, "a row is made of whole lines of 128 bytes");

    // The offset of an element, in bytes.
    static __device__ __forceinline__ u32 place(u32 row, u32 column) {
        const u32 byte = column * SIZE;
        return byte / LINE * PANEL + swizzled<LINE, BY_MATRIX ? 16 : 32>(row, byte % LINE);
    }
};

// A value that comes out of a shuffle cannot be computed again. Where registers are scarce, ptxas
// would rather repeat the arithmetic of a place in every step than keep the place.
__device__ __forceinline__ u32 kept(u32 value) { return __shfl_sync(~0u, value, lane_id()); }

// ---- global to shared memory --------------------------------------------------------------------

// One thread's part in copying the tiles along k: the same chunk of every LINES_AT_ONCE-th line.
template <typename Tile, int THREADS>
struct OperandCopy {
    using Number = typename Tile::Number;
    static constexpr int CHUNK = 16 / Tile::SIZE;    // elements
    static constexpr int CHUNKS = Tile::LINE / 16;   // of a line
    static constexpr int LINES_AT_ONCE = THREADS / CHUNKS;
    static constexpr int COUNT = Tile::BYTES / 16 / THREADS;
    static_assert(Tile::BYTES % (16 * THREADS) == 0, "all threads copy equally much");
    static_assert(LINES_AT_ONCE % 8 == 0, "the swizzle is alike in all lines of a thread");
    static_assert(Tile::ROWS % LINES_AT_ONCE == 0 || LINES_AT_ONCE % Tile::ROWS == 0,
                  "all threads copy the same part of every panel");

    const Number* from;  // the first chunk in the tile at hand
    u32 to;              // its offset in the tile
    int leading;
    int row, column;     // its place in the tile, as it lies in memory
    int extent;          // rows of A or columns of B from the tile's first on
    bool aligned, inside;

    // The matrix is `total` rows of A, or columns of B, of which `first` is the tile's first.
    __device__ __forceinline__ OperandCopy(const Number* matrix, int leading, int first, int total)
        : leading(leading), extent(total - first), aligned(is_aligned(matrix, leading, 16)) {
        const int line = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        row = line % Tile::ROWS;
        column = line / Tile::ROWS * (Tile::LINE / Tile::SIZE) + chunk * CHUNK;
        from = Tile::K_MAJOR ? matrix + s64(first + row) * leading + column
                             : matrix + s64(row) * leading + first + column;
        to = kept(Tile::place(row, column));
        inside = aligned && extent >= Tile::EXTENT;
    }

    // Starts to copy the next tile along k, of which `left` exist there. WHOLE says that all of the
    // tile is `inside`, along k too; otherwise what does not exist becomes zero.
    template <bool WHOLE>
    __device__ __forceinline__ void start(u32 tile, int left) {
        if (WHOLE) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) cp_async_16(target(tile, i), source(i));
        } else {
            const int rows = Tile::K_MAJOR ? extent : left, columns = Tile::K_MAJOR ? left : extent;
#pragma unroll 1
            for (int i = 0; i < COUNT; i++) {
                const int existing = row + down(i) < rows ? columns - column - right(i) : 0;
                if (aligned) {
                    const u32 bytes = Tile::SIZE * min(max(existing, 0), CHUNK);
                    cp_async_16(target(tile, i), source(i), bytes);
                } else {
                    store_shared(target(tile, i), load<CHUNK>(source(i), existing, false));
                }
            }
        }
        from += Tile::K_MAJOR ? s64(Tile::DEPTH) : s64(Tile::DEPTH) * leading;
    }

  private:
    static __device__ __forceinline__ int down(int i) { return i * LINES_AT_ONCE % Tile::ROWS; }
    static __device__ __forceinline__ int right(int i) {
        return i * LINES_AT_ONCE / Tile::ROWS * (Tile::LINE / Tile::SIZE);
    }
    __device__ __forceinline__ const Number* source(int i) const {
        return from + s64(down(i)) * leading + right(i);
    }
    __device__ __forceinline__ u32 target(u32 tile, int i) const {
        return tile + to + i * LINES_AT_ONCE * Tile::LINE;  // panels follow one another
    }
};

// ---- shared memory to fragments -----------------------------------------------------------------

// What a lane reads for the fragments of its warp, whose rows of A or columns of B begin at
// `first`.
//
// One load is 16 rows of A or columns of B by one step along k, in four matrices of 8 by half a
// step. Their order is that of the registers of mma: of A, the second is 8 rows on and the third
// half a step along k; of B, where a load is two fragments, it is the other way round.
template <typename Tile, bool IS_A>
struct OperandFragments {
    static constexpr int PLACES = Tile::LINE / 32;
    u32 places[PLACES];

    __device__ __forceinline__ OperandFragments(int first) {
        const u32 lane = lane_id(), second = lane / 8 % 2, third = lane / 16;
        const u32 beside = IS_A ? second : third, deeper = IS_A ? third : second;
#pragma unroll
        for (int i = 0; i < PLACES; i++) {
            if (Tile::K_MAJOR) {  // a chunk of one row each
                const u32 depth = (2 * i + deeper) * (16 / Tile::SIZE);
                places[i] = Tile::place(first + 8 * beside + lane % 8, depth);
            } else if (Tile::BY_MATRIX) {  // a chunk for one k each
                places[i] = Tile::place(8 * deeper + lane % 8, first + 16 * i + 8 * beside);
            } else {  // one element each
                places[i] = Tile::place(lane % 4, first + 8 * i + lane / 4);
            }
            places[i] = kept(places[i]);
        }
    }

    // Loads number `block` of the 16 rows or columns, for number `step` of the steps.
    __device__ __forceinline__ void load(u32& r0, u32& r1, u32& r2, u32& r3, u32 tile, int block,
                                         int step) const {
        constexpr int LINE = Tile::LINE;
        if (Tile::K_MAJOR) {
            ldmatrix_x4(r0, r1, r2, r3, tile + place(step) + 16 * LINE * block);
        } else if (Tile::BY_MATRIX) {
            ldmatrix_x4_trans(r0, r1, r2, r3, tile + place(block) + 16 * LINE * step);
        } else {
            const u32 here = tile + place(2 * block) + 8 * LINE * step;
            const u32 beside = tile + place(2 * block + 1) + 8 * LINE * step;
            r0 = load_shared(here);
            (IS_A ? r1 : r2) = load_shared(beside);
            (IS_A ? r2 : r1) = load_shared(here + 4 * LINE);
            r3 = load_shared(beside + 4 * LINE);
        }
    }

  private:
    __device__ __forceinline__ u32 place(int i) const {
        return places[i % PLACES] + i / PLACES * Tile::PANEL;
    }
};
