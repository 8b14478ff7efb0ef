// What the rungs with wgmma share: panels of A and B in shared memory, a warpgroup's part of D.
//
// wgmma has four warps multiply 64 rows of A by up to 256 columns of B, both straight from shared
// memory, while they do something else. A step takes 16 of k.
//
// A tile is 64 deep and made of panels: 64 rows of A or columns of B each, 64 lines of 128 bytes. A
// panel is one box of a tensor map, in the order of global memory. Where neighbours lie along k, a
// line is one row of A; else it is one step along k, and wgmma turns it. The copy engine swizzles
// the lines as wgmma expects, so nothing has a bank conflict. What lies outside of A and B is zero.
//
// Instruction: wgmma.mma_async.sync.aligned.m64n{128,256}k16.f32.{bf16,f16}.{bf16,f16},
//              wgmma.{fence,commit_group,wait_group}.sync.aligned
// PTX ISA:     Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions
// Macros:      BM, BN   tile of a CTA
//              BK       step along k, 64
//              WM, WN   part of a warp: 16 of each 64 rows of its warpgroup, and all BN columns
//              STAGES   tiles in the ring

#pragma once

#include "gemm.cuh"
#include "hopper.cuh"

constexpr int WARPGROUP = 128;             // threads
constexpr int PANEL = 64, LINE = 128;      // lines, and bytes of a line
constexpr u32 PANEL_BYTES = PANEL * LINE;
constexpr int HEIGHT = 4 * WM;             // of a warpgroup's part of D
constexpr int CONSUMERS = BM / HEIGHT;     // warpgroups
constexpr u32 A_BYTES = BM / PANEL * PANEL_BYTES, B_BYTES = BN / PANEL * PANEL_BYTES;
constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES;
constexpr u32 RING_BYTES = STAGES * STAGE_BYTES;

// Of 65,536 of an SM, 168 a thread at first.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

static_assert(sizeof(DTYPE) == 2, "A and B have 16 bits an element");
static_assert(BK == PANEL, "a tile is as deep as a panel, 64");
static_assert(BN == 128 || BN == 256, "a product is 128 or 256 columns wide");
static_assert(WN == BN, "a warp has all columns of the tile");
static_assert(WM % 16 == 0 && BM % HEIGHT == 0, "a warp has 16 of each 64 rows");
static_assert(WM * WN <= 4096, "a thread has at most 128 results");

// ---- panels -------------------------------------------------------------------------------------

// How many tiles there are along k. Without any k there is one, of zeros.
__device__ __forceinline__ int tiles_along(int k) { return k > 0 ? (k - 1) / BK + 1 : 1; }

// Copies COUNT panels of a tile that begins with `first` of the rows of A, or columns of B, and
// with `p` of k; to several CTAs of the cluster if there is a mask of them.
template <int COUNT, bool K_MAJOR, typename... Mask>
__device__ __forceinline__ void load_panels(u32 to, const TensorMap& map, int first, int p,
                                            u32 barrier, Mask... ctas) {
#pragma unroll
    for (int i = 0; i < COUNT; i++, first += PANEL, to += PANEL_BYTES) {
        load_box(to, map, K_MAJOR ? first : p, K_MAJOR ? p : first, barrier, ctas...);
    }
}

// Copies a stage, which needs to be free. One thread does, and says so to the mbarrier `full`.
__device__ __forceinline__ void load_stage(u32 stage, const TensorMap& a, const TensorMap& b,
                                           Place tile, int p, u32 full) {
    mbarrier_expect(full, STAGE_BYTES);
    load_panels<BM / PANEL, !TRANSPOSE_A>(stage, a, tile.row, p, full);
    load_panels<BN / PANEL, TRANSPOSE_B>(stage + A_BYTES, b, tile.column, p, full);
}

// The same in a cluster, whose CTAs have the same columns: each copies a part of B to all of them.
template <int CTAS>
__device__ __forceinline__ void load_stage_shared(u32 stage, const TensorMap& a, const TensorMap& b,
                                                  Place tile, int rank, int p, u32 full) {
    constexpr int PART = BN / CTAS;
    static_assert(PART % PANEL == 0, "the CTAs of a cluster copy whole panels of B each");
    mbarrier_expect(full, STAGE_BYTES);
    load_panels<BM / PANEL, !TRANSPOSE_A>(stage, a, tile.row, p, full);
    const u32 part = stage + A_BYTES + rank * (PART / PANEL) * PANEL_BYTES;
    const u16 everyone = (1 << CTAS) - 1;
    load_panels<PART / PANEL, TRANSPOSE_B>(part, b, tile.column + rank * PART, p, full, everyone);
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

// ---- wgmma --------------------------------------------------------------------------------------

// Where a product begins in panels: swizzled by 128 bytes (1), 1024 bytes from 8 lines to the next
// 8, PANEL_BYTES from one panel to the next where neighbours lie along m or n. Addresses have 18
// bits.
__device__ __forceinline__ u64 descriptor(u32 address) {
    return u64(1) << 62 | u64(1024 / 16) << 32 | u64(PANEL_BYTES / 16) << 16 |
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

#define TEXT(...) #__VA_ARGS__
#define SPELLED(...) TEXT(__VA_ARGS__)
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
        const u64 a = descriptor(stage + row / PANEL * PANEL_BYTES);
        const u64 b = descriptor(stage + A_BYTES);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < BK / 16; step++) {
#pragma unroll
            for (int i = 0; i < HEIGHT / 64; i++) {
                mma_async(sums[i], a + i * (PANEL_BYTES / 16) + step * STEP_A, b + step * STEP_B,
                          !first || step > 0);
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
