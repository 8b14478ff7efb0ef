// GEMM with wgmma and clusters: CTAs one below the other fetch B once for all of them.
//
// The CTAs of a cluster have the same columns of D. Each has an equal part of the tile of B copied
// to all of them at once, so that the L2 cache is read that many times less for B. `full` is told
// in every CTA of all bytes that arrive there. A part may be copied when the stage is empty
// everywhere: who has read a stage says so to each CTA of the cluster.
//
// Nobody may leave while another CTA still copies to its shared memory or arrives there, so that
// all end with a barrier of the cluster.
//
// Instruction: wgmma.mma_async, cp.async.bulk.tensor.2d.multicast::cluster, mapa, mbarrier
// PTX ISA:     Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions
// Launch:      grid CLUSTER * ceil(m/(CLUSTER*BM)) * ceil(n/BN), block 384, clusters of CLUSTER,
//              dynamic shared memory STAGES * BK * (BM + BN) elements and 1024 bytes
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
// Macros:      DTYPE   type of A and B: bf16 (default), f16; gemm.cuh has the other macros that all
//                      kernels share
//              GROUP   tile rows in a group of CTAs, default 8
//              BM, BN  tile of a CTA, default 128 x 256
//              BK      step along k, 64
//              WM, WN  part of a warp, default 16 x 256
//              STAGES  tiles in the ring, default 4
//              CLUSTER  CTAs one below the other that share B, default 2
// Run:         ptxlab run kernels/wgmma_cluster.cu --kernel wgmma_cluster --grid 2 --block 384
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

#include "wgmma.cuh"

extern "C" __global__ void __launch_bounds__(WARPGROUP * (1 + CONSUMERS))
__cluster_dims__(CLUSTER, 1, 1)
wgmma_cluster(int m, int n, int k, const __grid_constant__ TensorMap a,
              const __grid_constant__ TensorMap b, ACC* d, int ldd, f32 alpha, f32 beta,
              const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const int rank = cluster_rank();
    Place tile = tile_at<CLUSTER * BM, BN>(blockIdx.x / CLUSTER, m, n);
    tile.row += rank * BM;
    const int tiles = tiles_along(k);
    Ring ring = {shared_address(shared)};
    if (threadIdx.x == 0) ring.init(CLUSTER * 4 * CONSUMERS);
    cluster_barrier();

    if (threadIdx.x < WARPGROUP) {
        give_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            ring.fill(tiles, [&](u32 stage, int p, u32 full) {
                load_stage_shared<CLUSTER>(stage, a, b, tile, rank, p, full);
            });
        }
    } else {
        take_registers<CONSUMER_REGISTERS>();
        const int row = (threadIdx.x / WARPGROUP - 1) * HEIGHT;
        Part part;
        part.multiply_all(ring, tiles, row, [](u32 empty) {
            if (lane_id() < CLUSTER) mbarrier_arrive(empty, lane_id());
        });
        part.store({d, ldd, m, n, alpha, beta, bias}, {tile.row + row, tile.column});
    }
    cluster_barrier();
}
