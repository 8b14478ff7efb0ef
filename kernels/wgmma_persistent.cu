// GEMM with wgmma that stays: a cluster takes tile after tile, and D leaves by the copy engine.
//
// The grid has as many CTAs as run at once. Each cluster takes every so many-th tile of D, and the
// ring goes on from one to the next: while the consumers finish and store a tile, the producer has
// the first tiles of the next one copied.
//
// D leaves through shared memory: a warpgroup writes slabs of 64 x 32, swizzled as a tensor map has
// them, and the copy engine stores them while the warpgroup is at the next slab, or the next tile.
// Half a warp writes 32 bytes of four rows at a time. The swizzle alone would have two of the rows
// meet in the same banks, so those of odd numbers write their four times 32 bytes in another order.
//
// Instruction: wgmma.mma_async, cp.async.bulk.tensor.2d, cp.async.bulk.wait_group.read, mbarrier
// PTX ISA:     Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions
// Launch:      grid any multiple of CLUSTER, block 384, clusters of CLUSTER, dynamic shared memory
//              STAGES * BK * (BM + BN) elements, 256 * BM bytes and 1024 bytes
// Parameters:  m      rows of A and D
//              n      columns of B and D
//              k      columns of A and rows of B
//              a      tensor map of A as it lies in memory, boxes of 64 x 64, swizzle 128B
//              b      tensor map of B, the same
//              d      pointer to D, m x n ACC
//              ldd    elements from one row of D to the next
//              to     tensor map of D, boxes of 64 x 32, swizzle 128B; read only where rows of D
//                     begin at multiples of 16 bytes
//              alpha  factor of A * B
//              beta   factor of what D was
//              bias   pointer to n f32, read only with BIAS
// Macros:      DTYPE   type of A and B: bf16 (default), f16; gemm.cuh has the other macros that all
//                      kernels share
//              GROUP   tile rows in a group of CTAs, default 8
//              BM, BN  tile of a CTA, default 128 x 256
//              BK      step along k, 64
//              WM, WN  part of a warp, default 16 x 256
//              STAGES  tiles in the ring, default 4
//              CLUSTER  CTAs one below the other that share B, default 2
// Run:         ptxlab run kernels/wgmma_persistent.cu --kernel wgmma_persistent
//              --grid 2 --block 384 --shared 230400 --arg m=100 --arg n=136 --arg k=72
//              --arg "A=randn(100x72,bf16,seed=1)" --arg "a=tma(A,box=64x64,swizzle=128B)"
//              --arg "B=randn(72x136,bf16,seed=2)" --arg "b=tma(B,box=64x64,swizzle=128B)"
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
//              --arg "to=tma(d,box=64x32,swizzle=128B)"
//              --arg alpha=1 --arg beta=0 --arg bias=0
// Expect:      d is A * B, each element within 5 * (2^-23 + 17 * 2^-25) of the sum of the
//              magnitudes of its products

#ifndef DTYPE
#define DTYPE bf16
#endif
#ifndef GROUP
#define GROUP 8
#endif
#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 256
#endif
#ifndef BK
#define BK 64
#endif
#ifndef WM
#define WM 16
#endif
#ifndef WN
#define WN 256
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef CLUSTER
#define CLUSTER 2
#endif

#include "swizzle.cuh"
#include "wgmma.cuh"

constexpr int SLAB = 32;                        // columns: a line of 128 bytes
constexpr u32 SLAB_BYTES = HEIGHT * LINE;       // each warpgroup has two, behind the ring
constexpr u32 SLABS = RING_BYTES + 1024;

static_assert(HEIGHT == 64 && sizeof(ACC) == 4, "a slab is a box of the tensor map of D");

// Stores a warpgroup's part of D, which begins at `first`, from two slabs in turns.
__device__ __forceinline__ void store_by_slabs(const Part& part, const Output& D, Place first,
                                               const TensorMap& to, char* slabs) {
    const u32 thread = threadIdx.x % WARPGROUP, group = threadIdx.x / WARPGROUP;
    const int row = thread / 32 * 16 + lane_id() / 4, column = lane_id() % 4 * 2;
    const int odd = row % 2 * 2;
    const f32(&sums)[BN / 2] = part.sums[0];
#pragma unroll
    for (int left = 0; left < BN; left += SLAB) {
        char* slab = slabs + left / SLAB % 2 * SLAB_BYTES;
        if (thread == 0) bulk_wait_read<1>();
        named_barrier(group, WARPGROUP);  // the slab has been read
#pragma unroll
        for (int i = 0; i < SLAB / 4; i++) {
            const int half = i % 2 * 2, even = left / 2 + i / 2 * 4 + half, other = even ^ 8;
            const int down = row + 4 * half, across = 8 * (i / 2 ^ odd) + column;
            const int r = first.row + down, c = first.column + left + across;
            *reinterpret_cast<float2*>(slab + swizzled<LINE, 16>(down, 4 * across)) = {
                D.finished(r, c, odd ? sums[other] : sums[even]),
                D.finished(r, c + 1, odd ? sums[other + 1] : sums[even + 1])};
        }
        async_proxy_fence();
        named_barrier(group, WARPGROUP);  // the slab has been written
        if (thread == 0) {
            store_box(to, first.row, first.column + left, shared_address(slab));
            bulk_commit();
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPGROUP * (1 + CONSUMERS))
__cluster_dims__(CLUSTER, 1, 1)
wgmma_persistent(int m, int n, int k, const __grid_constant__ TensorMap a,
                 const __grid_constant__ TensorMap b, ACC* d, int ldd,
                 const __grid_constant__ TensorMap to, f32 alpha, f32 beta, const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const int rank = cluster_rank(), tiles = tiles_along(k);
    const u32 first = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
    const u32 all = tiles_of<CLUSTER * BM, BN>(m, n);
    Ring ring = {shared_address(shared)};
    if (threadIdx.x == 0) ring.init(CLUSTER * 4 * CONSUMERS);
    cluster_barrier();

    if (threadIdx.x < WARPGROUP) {
        give_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
#pragma unroll 1
            for (u32 number = first; number < all; number += clusters) {
                Place tile = tile_at<CLUSTER * BM, BN>(number, m, n);
                tile.row += rank * BM;
                ring.fill(tiles, [&](u32 stage, int p, u32 full) {
                    load_stage_shared<CLUSTER>(stage, a, b, tile, rank, p, full);
                });
            }
        }
    } else {
        take_registers<CONSUMER_REGISTERS>();
        const int group = threadIdx.x / WARPGROUP - 1;
        char* slabs = shared + SLABS + 2 * group * SLAB_BYTES;
        const Output D = {d, ldd, m, n, alpha, beta, bias};
#pragma unroll 1
        for (u32 number = first; number < all; number += clusters) {
            Place tile = tile_at<CLUSTER * BM, BN>(number, m, n);
            tile.row += rank * BM + group * HEIGHT;
            Part part;
            part.multiply_all(ring, tiles, group * HEIGHT, [](u32 empty) {
                if (lane_id() < CLUSTER) mbarrier_arrive(empty, lane_id());
            });
            if (is_aligned(d, ldd, 16)) store_by_slabs(part, D, tile, to, slabs);
            else part.store(D, tile);
        }
        if (threadIdx.x % WARPGROUP == 0) bulk_wait_read<0>();  // slabs last as long as the CTA
    }
    cluster_barrier();
}
