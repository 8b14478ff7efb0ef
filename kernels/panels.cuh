// Panels of A and B in shared memory, where tensor cores read them, and the ring of their stages.
//
// A tile is 128 bytes deep and made of panels: lines of 128 bytes. A panel is one box of a tensor
// map, in the order of global memory. Where neighbours lie along k, a line is one row of A, and a
// panel has 64; else it is one step along k, as many rows of A long as the tile has steps, and the
// tensor cores turn it. The copy engine swizzles the lines as they expect, so nothing has a bank
// conflict. What lies outside of the matrices is zero.
//
// Instruction: cp.async.bulk.tensor.2d, mbarrier
// PTX ISA:     Data Movement and Conversion Instructions: Tensor copy
// Macros:      BM, BN   tile of a CTA
//              BK       step along k, 128 bytes: 64 elements of 16 bits, 32 of 32, 128 of 8
//              STAGES   tiles in the ring
//              CTAS     CTAs that multiply together, and have a part of B each: 1 (default), 2

#pragma once

#include "gemm.cuh"
#include "hopper.cuh"

#ifndef CTAS
#define CTAS 1
#endif

#define TEXT(...) #__VA_ARGS__
#define SPELLED(...) TEXT(__VA_ARGS__)

constexpr int LINE = 128;          // bytes
constexpr int WIDTH = BN / CTAS;   // columns of B that a CTA has
constexpr u32 A_BYTES = BM * LINE, B_BYTES = WIDTH * LINE;
constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES;
constexpr u32 RING_BYTES = STAGES * STAGE_BYTES;

static_assert(BK * BITS<DTYPE> == 8 * LINE, "a tile is as deep as a panel, 128 bytes");

// Rows of A or columns of B in a panel, which has as many lines.
template <bool K_MAJOR>
constexpr int PANEL = K_MAJOR ? 64 : LINE / sizeof(DTYPE);
template <bool K_MAJOR>
constexpr u32 PANEL_BYTES = PANEL<K_MAJOR> * LINE;


// ---- panels -------------------------------------------------------------------------------------

// How many tiles there are along k. Without any k there is one, of zeros.
__device__ __forceinline__ int tiles_along(int k) { return k > 0 ? (k - 1) / BK + 1 : 1; }

// Copies the panels of a tile, EXTENT rows of A or columns of B from `first` on, that begins with
// `p` of k; to several CTAs of the cluster if there is a mask of them.
template <int EXTENT, bool K_MAJOR, typename... Mask>
__device__ __forceinline__ void load_panels(u32 to, const TensorMap& map, int first, int p,
                                            u32 barrier, Mask... ctas) {
    static_assert(EXTENT % PANEL<K_MAJOR> == 0, "a tile is made of whole panels");
#pragma unroll
    for (int i = 0; i < EXTENT / PANEL<K_MAJOR>; i++) {
        load_box(to, map, K_MAJOR ? first : p, K_MAJOR ? p : first, barrier, ctas...);
        first += PANEL<K_MAJOR>;
        to += PANEL_BYTES<K_MAJOR>;
    }
}

// Copies a stage, which needs to be free. One thread does, and says so to the mbarrier `full`.
__device__ __forceinline__ void load_stage(u32 stage, const TensorMap& a, const TensorMap& b,
                                           Place tile, int p, u32 full) {
    mbarrier_expect(full, STAGE_BYTES);
    load_panels<BM, !TRANSPOSE_A>(stage, a, tile.row, p, full);
    load_panels<WIDTH, TRANSPOSE_B>(stage + A_BYTES, b, tile.column, p, full);
}

// The same in a cluster, whose CTAs have the same columns: each copies a part of B to all of them.
template <int SHARING>
__device__ __forceinline__ void load_stage_shared(u32 stage, const TensorMap& a, const TensorMap& b,
                                                  Place tile, int rank, int p, u32 full) {
    constexpr int PART = BN / SHARING;
    static_assert(PART % PANEL<TRANSPOSE_B> == 0,
                  "the CTAs of a cluster copy whole panels of B each");
    mbarrier_expect(full, STAGE_BYTES);
    load_panels<BM, !TRANSPOSE_A>(stage, a, tile.row, p, full);
    const u32 part = stage + A_BYTES + rank * PART * LINE;
    const u16 everyone = (1 << SHARING) - 1;
    load_panels<PART, TRANSPOSE_B>(part, b, tile.column + rank * PART, p, full, everyone);
}

// ---- the ring of stages -------------------------------------------------------------------------

// Where somebody who fills or reads the ring is. Each stage has two mbarriers behind the ring:
// `full`, when its tiles are there, and `empty`, when they have been read.
struct Ring {
    u32 first;  // address of the ring
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ u32 tiles() const { return first + stage * STAGE_BYTES; }
    __device__ __forceinline__ u32 full() const { return barriers() + 16 * stage; }
    __device__ __forceinline__ u32 empty() const { return barriers() + 16 * stage + 8; }
    __device__ __forceinline__ u32 barriers() const { return first + RING_BYTES; }
    __device__ __forceinline__ u32 behind() const { return barriers() + 16 * STAGES; }

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    // One thread copies, and `readers` say that a stage has been read.
    __device__ __forceinline__ void init(u32 readers) {
        for (; parity == 0; next()) {
            mbarrier_init(full(), 1);
            mbarrier_init(empty(), readers);
        }
        mbarrier_init_fence();
        parity = 0;
    }

    // Fills stages with all tiles along k, each when it is empty: `load` is given the address of
    // the stage, where the tile begins in k, and the mbarrier to be told.
    template <typename Load>
    __device__ __forceinline__ void fill(int tiles_along_k, Load load) {
#pragma unroll 1
        for (int i = 0; i < tiles_along_k; i++, next()) {
            mbarrier_wait(empty(), parity ^ 1);
            load(tiles(), BK * i, full());
        }
    }
};
