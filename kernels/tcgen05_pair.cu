// GEMM with tcgen05 and pairs: the tensor cores of two CTAs multiply as one.
//
// The two CTAs of a cluster have one tile of D, 256 x 256, each its upper or lower half. Each has
// its rows of A and half of the columns of B copied to its shared memory, and the tensor cores of
// both read both halves of B: a byte of it is in shared memory once for two CTAs, and there is room
// for more stages. A thread of the first CTA issues for both. The copy engine of the second one
// tells the first one's mbarrier, and a commit tells both.
//
// Nobody may leave while its peer still reads its shared memory or arrives there, so that both end
// with a barrier of the cluster.
//
// Instruction: tcgen05.mma.cta_group::2, tcgen05.commit.multicast::cluster,
//              cp.async.bulk.tensor.2d.cta_group::2, mbarrier
// PTX ISA:     TensorCore 5th Generation Instructions
// Target:      sm_100a
// Launch:      grid any multiple of CLUSTER, block 192, clusters of CLUSTER, dynamic shared memory
//              STAGES * BK * (BM + BN / 2) elements and 1024 bytes
// Parameters:  m      rows of A and D
//              n      columns of B and D
//              k      columns of A and rows of B
//              a      tensor map of A as it lies in memory, boxes of 64 x 64, swizzle 128B
//              b      tensor map of B, the same
//              d      pointer to D, m x n ACC
//              ldd    elements from one row of D to the next
//              alpha  factor of A * B
//              beta   factor of what D was
//              bias   pointer to n f32, read only with BIAS
// Macros:      DTYPE   type of A and B: bf16 (default), f16, tf32 (f32 in memory), e4m3, e5m2, s8;
//                      gemm.cuh has the other macros that all kernels share
//              GROUP   tile rows in a group of CTAs, default 8
//              BM, BN  tile of a CTA, default 128 x 256
//              BK      step along k, 64
//              WM, WN  part of a warp, default 32 x 256
//              STAGES  tiles in the ring, default 6
//              CLUSTER  CTAs that multiply together, 2
// Run:         ptxlab run kernels/tcgen05_pair.cu --kernel tcgen05_pair --grid 2 --block 192
//              --shared 197632 --arg m=100 --arg n=136 --arg k=72
//              --arg "A=randn(100x72,bf16,seed=1)" --arg "a=tma(A,box=64x64,swizzle=128B)"
//              --arg "B=randn(72x136,bf16,seed=2)" --arg "b=tma(B,box=64x64,swizzle=128B)"
//              --arg "d=zeros(100x136,f32)" --arg ldd=136
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
#define WM 32
#endif
#ifndef WN
#define WN 256
#endif
#ifndef STAGES
#define STAGES 6
#endif
#ifndef CLUSTER
#define CLUSTER 2
#endif

#define CTAS CLUSTER
#include "tcgen05.cuh"

static_assert(CLUSTER == 2, "two CTAs multiply as one");

extern "C" __global__ void __launch_bounds__(32 * (WARPS + 2)) __cluster_dims__(CLUSTER, 1, 1)
tcgen05_pair(int m, int n, int k, const __grid_constant__ TensorMap a,
             const __grid_constant__ TensorMap b, ACC* d, int ldd, f32 alpha, f32 beta,
             const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const int tiles = tiles_along(k), warp = threadIdx.x / 32, rank = cluster_rank();
    const u32 first = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
    const u32 all = tiles_of<CLUSTER * BM, BN>(m, n);
    Ring ring = {shared_address(shared)};
    Accumulators accumulators = {ring.behind()};
    const u32 slot = accumulators.behind();
    cluster_barrier();  // the other CTA began, and allocates too
    if (warp == 0) allocate_tensor_memory<2 * BN>(slot);
    if (threadIdx.x == 0) {
        accumulators.init();
        ring.init(1);
    }
    cluster_barrier();
    accumulators.memory = load_shared(slot);

    if (warp < WARPS) {
#pragma unroll 1
        for (u32 number = first; number < all; number += clusters) {
            Place tile = tile_at<CLUSTER * BM, BN>(number, m, n);
            tile.row += rank * BM;
            accumulators.store_part({d, ldd, m, n, alpha, beta, bias}, tile);
        }
    } else if (is_elected()) {
#pragma unroll 1
        for (u32 number = first; number < all; number += clusters) {
            if (warp == WARPS) {
                const Place tile = tile_at<CLUSTER * BM, BN>(number, m, n);
                ring.fill(tiles, [&](u32 stage, int p, u32 full) {
                    load_stage_of_pair(stage, a, b, tile, rank, p, full);
                });
            } else if (rank == 0) {
                accumulators.multiply_all(ring, tiles);
            }
        }
    }
    cluster_barrier();
    if (warp == 0) free_tensor_memory<2 * BN>(accumulators.memory);
}
