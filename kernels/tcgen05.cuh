// What the rungs with tcgen05 share: a tile's products, and the way of its sums to D.
//
// A CTA's part of D is 128 rows, one in each lane of Tensor Memory, by BN columns. A warp finishes
// and stores the 32 rows that it reaches, 16 x 32 at a time.
//
// Instruction: tcgen05.mma, tcgen05.ld.sync.aligned.16x256b.x4.b32
// PTX ISA:     TensorCore 5th Generation Instructions
// Macros:      BM, BN   tile of a CTA
//              WM, WN   part of a warp: 32 rows, and all BN columns

#pragma once

#include "blackwell.cuh"

static_assert(BM == 128, "a CTA has as many rows as Tensor Memory has lanes, 128");
static_assert(BN == 64 || BN == 128 || BN == 256, "a product is 64, 128 or 256 columns wide");
static_assert(WM == 32 && WN == BN, "a warp has 32 rows and all columns of the tile");

constexpr int WARPS = 4;  // that store D

// Issues the products of what is in a stage: the first tile along k begins the sums at `d`.
__device__ __forceinline__ void multiply(u32 d, u32 stage, bool first) {
    constexpr int DEPTH = 32 / sizeof(DTYPE);  // of a product
    constexpr int STEP_A = (TRANSPOSE_A ? DEPTH * LINE : 32) / 16;
    constexpr int STEP_B = (TRANSPOSE_B ? 32 : DEPTH * LINE) / 16;
    const u64 a = descriptor<!TRANSPOSE_A>(stage);
    const u64 b = descriptor<TRANSPOSE_B>(stage + A_BYTES);
#pragma unroll
    for (int step = 0; step < BK / DEPTH; step++) {
        mma_async(d, a + step * STEP_A, b + step * STEP_B, !first || step > 0);
    }
}

// Stores a warp's part of the tile of D that begins at `first`, out of the sums at `d`.
__device__ __forceinline__ void store(const Output& D, u32 d, Place first) {
    const int warp = threadIdx.x / 32 % WARPS;
    const int row = first.row + 32 * warp + lane_id() / 4;
    const int column = first.column + lane_id() % 4 * 2;
#pragma unroll 1
    for (int part = 0; part < 2 * BN / 32; part++) {
        const int down = part % 2 * 16, across = part / 2 * 32;
        f32 sums[16];
        load_tensor_memory(sums, d + ((32 * warp + down) << 16) + across);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const f32 two[2] = {sums[2 * i], sums[2 * i + 1]};
            D.store(row + down + i % 2 * 8, column + across + i / 2 * 8, two);
        }
    }
}

// Copies a CTA's part of a stage of a pair: its rows of A, and its half of the columns of B. The
// first CTA's mbarrier is told of all bytes.
__device__ __forceinline__ void load_stage_of_pair(u32 stage, const TensorMap& a,
                                                   const TensorMap& b, Place tile, int rank, int p,
                                                   u32 full) {
    if (rank == 0) mbarrier_expect(full, CTAS * STAGE_BYTES);
    load_panels<BM, !TRANSPOSE_A>(stage, a, tile.row + rank * BM, p, full, PAIR);
    load_panels<WIDTH, TRANSPOSE_B>(stage + A_BYTES, b, tile.column + rank * WIDTH, p, full,
                                            PAIR);
}

// ---- tile after tile ----------------------------------------------------------------------------

// Two accumulators in Tensor Memory, for tiles in turns: while the sums of one are stored, the next
// are made. `full` is told when a tile's sums are there, `empty` when they have been loaded.
struct Accumulators {
    u32 barriers, memory;
    u32 turn = 0;

    __device__ __forceinline__ u32 sums() const { return memory + turn % 2 * BN; }
    __device__ __forceinline__ u32 parity() const { return turn / 2 % 2; }
    __device__ __forceinline__ u32 full() const { return barriers + turn % 2 * 16; }
    __device__ __forceinline__ u32 empty() const { return full() + 8; }
    __device__ __forceinline__ u32 behind() const { return barriers + 32; }

    __device__ __forceinline__ void init() {
        for (; turn < 2; turn++) {
            mbarrier_init(full(), 1);
            mbarrier_init(empty(), CTAS * WARPS);
        }
        turn = 0;
    }

    // One thread has a tile multiplied, as its parts along k come.
    __device__ __forceinline__ void multiply_all(Ring& ring, int tiles) {
        mbarrier_wait(empty(), parity() ^ 1);
        tensor_fence_after();
#pragma unroll 1
        for (int i = 0; i < tiles; i++, ring.next()) {
            mbarrier_wait(ring.full(), ring.parity);
            multiply(sums(), ring.tiles(), i == 0);
            commit(ring.empty());
        }
        commit(full());
        turn++;
    }

    // A warp stores its part of a tile of D.
    __device__ __forceinline__ void store_part(const Output& D, Place first) {
        mbarrier_wait(full(), parity());
        tensor_fence_after();
        store(D, sums(), first);
        tensor_fence_before();
        __syncwarp();
        if (lane_id() == 0) arrive_at_first(empty());
        turn++;
    }
};
