// GEMM with tcgen05 that stays: a pair takes over the work of pairs that have not begun.
//
// The grid has a pair of CTAs for every tile of D, and each begins with its own. While that is
// multiplied, it asks the hardware to cancel a pair that has not begun, and is told which: that is
// its next tile. So those go on that are done first, as many as run at once, until there is none
// left; no kernel has to know how many SMs there are, or are free.
//
// One thread of a pair asks, and the answer comes to the shared memory of both CTAs. There are two
// answers in turns, each with two mbarriers: `told` when it is there, `heard` when all read it.
//
// Instruction: clusterlaunchcontrol.{try_cancel,query_cancel}, tcgen05.mma.cta_group::2, mbarrier
// PTX ISA:     TensorCore 5th Generation Instructions
// Target:      sm_100a
// Launch:      grid CLUSTER * ceil(m/(CLUSTER*BM)) * ceil(n/BN), block 192, clusters of
//              CLUSTER, dynamic shared memory STAGES * BK * (BM + BN / 2) elements and 1024 bytes
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
// Run:         ptxlab run kernels/tcgen05_persistent.cu --kernel tcgen05_persistent
//              --grid 2 --block 192 --shared 197632 --arg m=100 --arg n=136 --arg k=72
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

// Those who hear of the next tile: of both CTAs who copies and who stores, and who multiplies.
constexpr u32 LISTENERS = CTAS * (1 + WARPS) + 1;

// The tiles of a pair, as one who listens goes through them.
struct Tiles {
    u32 answers;  // 16 bytes each
    u32 turn = 0;

    __device__ __forceinline__ u32 answer() const { return answers + turn % 2 * 16; }
    __device__ __forceinline__ u32 told() const { return answers + 32 + turn % 2 * 16; }
    __device__ __forceinline__ u32 heard() const { return told() + 8; }
    __device__ __forceinline__ u32 parity() const { return turn / 2 % 2; }
    __device__ __forceinline__ u32 behind() const { return answers + 64; }

    __device__ __forceinline__ void init() {
        for (; turn < 2; turn++) {
            mbarrier_init(told(), 1);
            mbarrier_init(heard(), LISTENERS);
        }
        turn = 0;
    }

    // Has the next tile told to both CTAs. A thread of each calls it, and that of the first asks.
    __device__ __forceinline__ void ask(int rank) {
        mbarrier_expect(told(), 16);
        if (rank != 0) return;
        mbarrier_wait(heard(), parity() ^ 1);
        try_cancel(answer(), told());
    }

    // The next tile's number, negative where there is none; for one thread or a warp, of both CTAs
    // or only OF_FIRST.
    template <int THREADS, bool OF_FIRST = false>
    __device__ __forceinline__ int next() {
        mbarrier_wait(told(), parity());
        const int cta = cancelled(answer());
        async_proxy_fence();
        if (THREADS > 1) __syncwarp();
        if (OF_FIRST) {
            mbarrier_arrive(heard());
        } else if (THREADS == 1 || lane_id() == 0) {
            arrive_at_first(heard());
        }
        turn++;
        return cta < 0 ? cta : cta / CLUSTER;
    }
};

extern "C" __global__ void __launch_bounds__(32 * (WARPS + 2)) __cluster_dims__(CLUSTER, 1, 1)
tcgen05_persistent(int m, int n, int k, const __grid_constant__ TensorMap a,
                   const __grid_constant__ TensorMap b, ACC* d, int ldd, f32 alpha, f32 beta,
                   const f32* bias) {
    extern __shared__ __align__(1024) char shared[];
    const int along = tiles_along(k), warp = threadIdx.x / 32, rank = cluster_rank();
    Ring ring = {shared_address(shared)};
    Accumulators accumulators = {ring.behind()};
    Tiles tiles = {accumulators.behind()};
    const u32 slot = tiles.behind();
    cluster_barrier();  // the other CTA began, and allocates too
    if (warp == 0) allocate_tensor_memory<2 * BN>(slot);
    if (threadIdx.x == 0) {
        accumulators.init();
        tiles.init();
        ring.init(1);
    }
    cluster_barrier();
    accumulators.memory = load_shared(slot);

    int number = blockIdx.x / CLUSTER;
    if (warp < WARPS) {
#pragma unroll 1
        for (; number >= 0; number = tiles.next<32>()) {
            Place tile = tile_at<CLUSTER * BM, BN>(number, m, n);
            tile.row += rank * BM;
            accumulators.store_part({d, ldd, m, n, alpha, beta, bias}, tile);
        }
    } else if (warp == WARPS && is_elected()) {
#pragma unroll 1
        for (; number >= 0; number = tiles.next<1>()) {
            tiles.ask(rank);
            const Place tile = tile_at<CLUSTER * BM, BN>(number, m, n);
            ring.fill(along, [&](u32 stage, int p, u32 full) {
                load_stage_of_pair(stage, a, b, tile, rank, p, full);
            });
        }
    } else if (warp == WARPS + 1 && rank == 0 && is_elected()) {
#pragma unroll 1
        for (; number >= 0; number = tiles.next<1, true>()) {
            accumulators.multiply_all(ring, along);
        }
    }
    cluster_barrier();
    if (warp == 0) free_tensor_memory<2 * BN>(accumulators.memory);
}
