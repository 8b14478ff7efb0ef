// What the rungs with wgmma share: products of panels, and a warpgroup's part of D.
//
// wgmma has four warps multiply 64 rows of A by up to 256 columns of B, both straight from shared
// memory, while they do something else. A step takes 16 of k.
//
// Instruction: wgmma.mma_async.sync.aligned.m64n{128,256}k16.f32.{bf16,f16}.{bf16,f16},
//              wgmma.{fence,commit_group,wait_group}.sync.aligned
// PTX ISA:     Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions
// Macros:      BM, BN   tile of a CTA
//              WM, WN   part of a warp: 16 of each 64 rows of its warpgroup, and all BN columns

#pragma once

#include "panels.cuh"

constexpr int WARPGROUP = 128;          // threads
constexpr int HEIGHT = 4 * WM;          // of a warpgroup's part of D
constexpr int CONSUMERS = BM / HEIGHT;  // warpgroups

// Of 65,536 of an SM, 168 a thread at first.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

static_assert(BN == 128 || BN == 256, "a product is 128 or 256 columns wide");
static_assert(WN == BN, "a warp has all columns of the tile");
static_assert(WM % 16 == 0 && BM % HEIGHT == 0, "a warp has 16 of each 64 rows");
static_assert(WM * WN <= 4096, "a thread has at most 128 results");

// ---- wgmma --------------------------------------------------------------------------------------

// Where a product begins in panels: swizzled by 128 bytes (1), 1024 bytes from 8 lines to the next
// 8, PANEL_BYTES from one panel to the next where neighbours lie along m or n. Addresses have 18
// bits.
__device__ __forceinline__ u64 descriptor(u32 address) {
    return u64(1) << 62 | u64(1024 / 16) << 32 | u64(PANEL_BYTES<true> / 16) << 16 |
           (address & 0x3FFFF) / 16;
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most so many of the newest groups are not finished.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

#define WGMMA(N) "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." SPELLED(DTYPE) "." SPELLED(DTYPE)
#define TEN(t)                                                                                     \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, "                                           \
    "%" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define SIXTY TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
#define SIXTY_FOUR(i) SIXTEEN(i), SIXTEEN(i + 16), SIXTEEN(i + 32), SIXTEEN(i + 48)
#define FACTORS "l"(a), "l"(b), "r"(int(adds)), "n"(TRANSPOSE_A), "n"(!TRANSPOSE_B)

// D = A * B, plus what D was if it `adds`; 16 of k. A thread has two neighbours of a row, the two 8
// rows below, and so on every 8 columns.
__device__ __forceinline__ void mma_async(f32 (&d)[64], u64 a, u64 b, bool adds) {
    asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.s32 adds, %66, 0;\n\t"
                 WGMMA(128) " {" SIXTY "%60, %61, %62, %63}, %64, %65, adds, 1, 1, %67, %68;\n\t}"
                 : SIXTY_FOUR(0) : FACTORS);
}

__device__ __forceinline__ void mma_async(f32 (&d)[128], u64 a, u64 b, bool adds) {
    asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.s32 adds, %130, 0;\n\t"
                 WGMMA(256) " {" SIXTY TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11)
                 "%120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, adds, 1, 1, "
                 "%131, %132;\n\t}"
                 : SIXTY_FOUR(0), SIXTY_FOUR(64) : FACTORS);
}

// A warpgroup's part of D: HEIGHT rows of the tile, 64 by 64. Its sums begin with the first
// product, and not with zeros: nothing but wgmma may touch them where products can be under way.
struct Part {
    f32 sums[HEIGHT / 64][BN / 2];

    // Begins to multiply what is in a stage, as a group of its own. `row` is the first of the part,
    // and the first tile along k begins the sums.
    __device__ __forceinline__ void multiply(u32 stage, int row, bool first) {
        constexpr int STEP_A = (TRANSPOSE_A ? 16 * LINE : 32) / 16;
        constexpr int STEP_B = (TRANSPOSE_B ? 32 : 16 * LINE) / 16;
        const u64 a = descriptor(stage + row * LINE);
        const u64 b = descriptor(stage + A_BYTES);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < BK / 16; step++) {
#pragma unroll
            for (int i = 0; i < HEIGHT / 64; i++) {
                mma_async(sums[i], a + i * (PANEL_BYTES<true> / 16) + step * STEP_A,
                          b + step * STEP_B, !first || step > 0);
            }
        }
        wgmma_commit();
    }

    // Multiplies all tiles along k, as they come, and says one tile later that one has been read:
    // then its products are finished, and the next ones under way.
    template <typename Release>
    __device__ __forceinline__ void multiply_all(Ring& ring, int tiles, int row, Release release) {
        u32 before = 0;
#pragma unroll 1
        for (int tile = 0; tile < tiles; tile++, ring.next()) {
            mbarrier_wait(ring.full(), ring.parity);
            multiply(ring.tiles(), row, tile == 0);
            wgmma_wait<1>();
            if (tile > 0) release(before);
            before = ring.empty();
        }
        wgmma_wait<0>();
        release(before);
    }

    // Hands all sums to `take`, with the row and the column in the part of the first of two.
    template <typename Take>
    __device__ __forceinline__ void each(Take take) const {
        const int row = threadIdx.x % WARPGROUP / 32 * 16 + lane_id() / 4;
        const int column = lane_id() % 4 * 2;
#pragma unroll
        for (int i = 0; i < HEIGHT / 64 * BN / 4; i++) {
            const f32(&part)[BN / 2] = sums[i / (BN / 4)];
            const int pair = i % (BN / 4);
            const f32 two[2] = {part[2 * pair], part[2 * pair + 1]};
            take(i / (BN / 4) * 64 + row + pair % 2 * 8, pair / 2 * 8 + column, two);
        }
    }

    __device__ __forceinline__ void store(const Output& D, Place first) const {
        each([&](int row, int column, const f32(&two)[2]) {
            D.store(first.row + row, first.column + column, two);
        });
    }
};
