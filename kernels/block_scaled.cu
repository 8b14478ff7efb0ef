// GEMM with block scaling: numbers of 8 or 4 bits, of which those along k share scales.
//
// Of mxfp8 32 numbers of e4m3 share a power of two, of nvfp4 16 of e2m1 share an e4m3. A tile of A
// or B is as many bytes as of others, and comes with its scales: four of each of 128 rows are a
// block of 512 bytes, as the host laid them out. The thread that issues the products has a block
// copied to Tensor Memory first, where the tensor cores look for scales: row m in lane m mod 32 of
// column m / 32, the same in each quarter of the lanes. The products behind it in its queue find it
// there, and nobody waits.
//
// A product takes 32 bytes of k: of nvfp4 all four scales of a row in a block, of mxfp8 one, and
// the instruction descriptor says which.
//
// Instruction: tcgen05.mma.kind::mxf8f6f4.block_scale, tcgen05.mma.kind::mxf4nvf4.block_scale,
//              tcgen05.cp.32x128b.warpx4, cp.async.bulk, cp.async.bulk.tensor.2d, mbarrier
// PTX ISA:     TensorCore 5th Generation Instructions
// Target:      sm_100a
// Launch:      grid ceil(m/BM) * ceil(n/BN), block 128, dynamic shared memory
//              STAGES * 128 * (BM + BN) bytes, STAGES * 1024 of mxfp8 or 4096 of nvfp4, and 1024
// Parameters:  m      rows of A and D
//              n      columns of B and D
//              k      columns of A and rows of B
//              a      tensor map of the bytes of A, rows along k, boxes of 64 x 128, swizzle 128B
//              b      tensor map of those of B, columns along k, the same
//              sa     pointer to the blocks of scales of A
//              sb     pointer to those of B
//              d      pointer to D, m x n ACC
//              ldd    elements from one row of D to the next
//              alpha  factor of A * B
//              beta   factor of what D was
//              bias   pointer to n f32, read only with BIAS
// Macros:      DTYPE   type of A and B: nvfp4 (default), mxfp8; gemm.cuh has the other macros that
//                      all kernels share
//              GROUP   tile rows in a group of CTAs, default 8
//              BM, BN  tile of a CTA, default 128 x 128
//              BK      step along k, 256 of nvfp4, 128 of mxfp8
//              WM, WN  part of a warp, default 32 x 128
//              STAGES  tiles in the ring, default 4
// Run:         ptxlab run kernels/block_scaled.cu --kernel block_scaled --grid 2 --block 128
//              --shared 148480 --arg m=100 --arg n=136 --arg k=320
//              --arg "A=arange(100x160,u8)" --arg "a=tma(A,box=64x128,swizzle=128B)"
//              --arg "B=arange(136x160,u8)" --arg "b=tma(B,box=64x128,swizzle=128B)"
//              --arg "sa=randn(4096,e4m3,seed=1)" --arg "sb=randn(8192,e4m3,seed=2)"
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
//              --arg alpha=1 --arg beta=0 --arg bias=0
// Expect:      d is A * B, each of them scaled; signs of scales are nothing

#ifndef DTYPE
#define DTYPE nvfp4
#endif
#ifndef GROUP
#define GROUP 8
#endif
#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 256
#endif
#ifndef WM
#define WM 32
#endif
#ifndef WN
#define WN 128
#endif
#ifndef STAGES
#define STAGES 4
#endif

#include "tcgen05.cuh"

static_assert(BN == 128, "the scales of B are those of 128 columns");

constexpr int PRODUCTS = 4;  // of a stage
constexpr int BLOCK_BYTES = 512, BLOCK_COLUMNS = 4;
constexpr bool FOUR_BITS = BITS<DTYPE> == 4;
constexpr int BLOCKS = FOUR_BITS ? PRODUCTS : 1;  // of scales, of A or of B in a stage
constexpr u32 SCALE_BYTES = BLOCKS * BLOCK_BYTES;
constexpr u32 SCALES = RING_BYTES + 1024;         // behind the ring: of A and of B, stage by stage
constexpr u32 COLUMNS = 256;                      // sums, then the scales of A and of B

static_assert(!TRANSPOSE_A && !TRANSPOSE_B, "rows of A and columns of B lie along k");

// What is multiplied: e2m1 (1) with scales of e4m3 (0 at bit 23), or e4m3 (0) with powers of two.
constexpr u32 SCALED_PRODUCT = (FOUR_BITS ? 1 << 7 | 1 << 10 : 1 << 23) | BN / 8 << 17 | 1 << 27;

// Has 32 rows of 16 bytes copied to 32 lanes, and to those of the other quarters.
__device__ __forceinline__ void copy_block(u32 to, u32 from) {
    const u64 rows = u64(1) << 46 | u64(128 / 16) << 32 | (from & 0x3FFFF) / 16;
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"
                 :: "r"(to), "l"(rows) : "memory");
}

#define SCALED_MMA(KIND)                                                                           \
    asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.s32 adds, %6, 0;\n\t"                         \
                 "tcgen05.mma.cta_group::1.kind::" KIND                                            \
                 " [%0], %1, %2, %3, [%4], [%5], adds;\n\t}"                                       \
                 :: "r"(d), "l"(a), "l"(b), "r"(what), "r"(sa), "r"(sb), "r"(int(adds))            \
                 : "memory")

// D = A * B of numbers with scales, plus what D was if it `adds`; 32 bytes of k.
__device__ __forceinline__ void mma_scaled(u32 d, u64 a, u64 b, u32 what, u32 sa, u32 sb,
                                           bool adds) {
    if (FOUR_BITS) SCALED_MMA("mxf4nvf4.block_scale.block16");
    else SCALED_MMA("mxf8f6f4.block_scale.block32");
}

// Issues the copies and products of a stage.
__device__ __forceinline__ void multiply_scaled(u32 memory, u32 stage, u32 scales, bool first) {
    const u32 sa = memory + BN, sb = sa + BLOCKS * BLOCK_COLUMNS;
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        copy_block(sa + i * BLOCK_COLUMNS, scales + i * BLOCK_BYTES);
        copy_block(sb + i * BLOCK_COLUMNS, scales + SCALE_BYTES + i * BLOCK_BYTES);
    }
    const u64 a = descriptor<true>(stage), b = descriptor<true>(stage + A_BYTES);
#pragma unroll
    for (int step = 0; step < PRODUCTS; step++) {
        const u32 which = FOUR_BITS ? 0 : step, there = FOUR_BITS ? step * BLOCK_COLUMNS : 0;
        mma_scaled(memory, a + step * 2, b + step * 2, SCALED_PRODUCT | which << 29 | which << 4,
                   sa + there, sb + there, !first || step > 0);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
block_scaled(int m, int n, int k, const __grid_constant__ TensorMap a,
             const __grid_constant__ TensorMap b, const char* sa, const char* sb, ACC* d, int ldd,
             f32 alpha, f32 beta, const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const Place tile = tile_of_cta<BM, BN>(m, n);
    const int tiles = tiles_along(k), warp = threadIdx.x / 32;
    Ring ring = {shared_address(shared)};
    const u32 done = ring.behind(), slot = done + 8, scales = ring.first + SCALES;
    if (warp == 0) allocate_tensor_memory<COLUMNS>(slot);
    if (threadIdx.x == 0) {
        mbarrier_init(done, 1);
        ring.init(1);
    }
    __syncthreads();
    const u32 memory = load_shared(slot);

    if (warp == 0 && is_elected()) {
        sa += s64(tile.row / BM) * tiles * SCALE_BYTES;
        sb += s64(tile.column / BN) * tiles * SCALE_BYTES;
        ring.fill(tiles, [&](u32 stage, int p, u32 full) {
            const int number = p / BK;
            const u32 to = scales + ring.stage * 2 * SCALE_BYTES;
            mbarrier_expect(full, STAGE_BYTES + 2 * SCALE_BYTES);
            load_panels<BM, true>(stage, a, tile.row, number * LINE, full);
            load_panels<BN, true>(stage + A_BYTES, b, tile.column, number * LINE, full);
            load_bytes(to, sa + s64(number) * SCALE_BYTES, SCALE_BYTES, full);
            load_bytes(to + SCALE_BYTES, sb + s64(number) * SCALE_BYTES, SCALE_BYTES, full);
        });
    } else if (warp == 1 && is_elected()) {
#pragma unroll 1
        for (int i = 0; i < tiles; i++, ring.next()) {
            mbarrier_wait(ring.full(), ring.parity);
            multiply_scaled(memory, ring.tiles(), scales + ring.stage * 2 * SCALE_BYTES, i == 0);
            commit(ring.empty());
        }
        commit(done);
        mbarrier_wait(done, 0);
    }
    __syncthreads();  // the last product is done
    tensor_fence_after();
    store({d, ldd, m, n, alpha, beta, bias}, memory, tile);
    __syncthreads();
    if (warp == 0) free_tensor_memory<COLUMNS>(memory);
}
