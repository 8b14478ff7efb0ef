// Blackwell's tensor cores behind names: Tensor Memory, products that one thread issues, fences.
//
// A CTA has Tensor Memory, 128 lanes of 512 columns of 32 bits, of which a warp allocates some
// columns. An address has the lane from bit 16 on, and the column below. One thread has the tensor
// cores multiply two matrices in shared memory and add to one in Tensor Memory; products begin in
// the order of their issue, and a commit behind some has an mbarrier told when they are done. Each
// warp of a warpgroup reaches the 32 lanes of its place in it.
//
// Who meets others with anything but a commit orders what it did to Tensor Memory with a fence
// before, and they what they will do with one after.
//
// Instruction: tcgen05.{alloc,dealloc,relinquish_alloc_permit}, tcgen05.mma, tcgen05.commit,
//              tcgen05.ld.sync.aligned.16x256b.x4.b32, tcgen05.wait::ld, tcgen05.fence
// PTX ISA:     TensorCore 5th Generation Instructions
// Macros:      CTAS  CTAs that multiply together: 1, 2

#pragma once

// Integers of 8 bits, whose sums are of 32, exact; D has the nearest f32 of them.
struct s8 {
    signed char value;
};

template <typename Number>
constexpr bool IS_INTEGER = false;
template <>
constexpr bool IS_INTEGER<s8> = true;

#include "panels.cuh"

#define TCGEN05(VERB) "tcgen05." VERB ".cta_group::" SPELLED(CTAS)

// Whether this is the one lane of a warp, which executes this together, that issues for it: always
// the same, since a commit is of what its own thread has issued. ptxas knows that it is alone.
__device__ __forceinline__ bool is_elected() {
    u32 elected;
    asm volatile("{\n\t.reg .pred chosen;\n\t"
                 "elect.sync _|chosen, -1;\n\t"
                 "selp.b32 %0, 1, 0, chosen;\n\t}" : "=r"(elected));
    return elected;
}

// ---- Tensor Memory ------------------------------------------------------------------------------

// A warp allocates columns, 32 to 512 in powers of two, for good; shared memory is told where.
template <int COLUMNS>
__device__ __forceinline__ void allocate_tensor_memory(u32 slot) {
    asm volatile(TCGEN05("alloc") ".sync.aligned.shared::cta.b32 [%0], %1;\n\t"
                 TCGEN05("relinquish_alloc_permit") ".sync.aligned;"
                 :: "r"(slot), "n"(COLUMNS) : "memory");
}

// Gives all of them back, which has to happen before the kernel ends.
template <int COLUMNS>
__device__ __forceinline__ void free_tensor_memory(u32 memory) {
    asm volatile(TCGEN05("dealloc") ".sync.aligned.b32 %0, %1;" :: "r"(memory), "n"(COLUMNS));
}

// Loads 16 lanes of 32 columns, as fragments of 16 x 8 one beside the other: d[4 * i] to
// d[4 * i + 3] are those of columns 8 * i on.
__device__ __forceinline__ void load_tensor_memory(f32 (&d)[16], u32 from) {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
                 "\n\ttcgen05.wait::ld.sync.aligned;"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]),
                   "=f"(d[6]), "=f"(d[7]), "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]),
                   "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15])
                 : "r"(from) : "memory");
    if (IS_INTEGER<DTYPE>) {
#pragma unroll
        for (int i = 0; i < 16; i++) d[i] = __int2float_rn(__float_as_int(d[i]));
    }
}

__device__ __forceinline__ void tensor_fence_before() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

__device__ __forceinline__ void tensor_fence_after() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// ---- copies of a pair ---------------------------------------------------------------------------

struct OfPair {};
constexpr OfPair PAIR = {};

// Copies a box to this CTA, and tells the mbarrier of the first of the pair: a shared address has
// the CTA from bit 24 on.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, int row, int column,
                                         u32 barrier, OfPair) {
    asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(&map), "r"(column), "r"(row), "r"(barrier & 0xFEFFFFFF)
                 : "memory");
}

// ---- the work of others -------------------------------------------------------------------------

// Asks for a cluster that has not begun, which then never does. The answer is 16 bytes at the same
// place of each CTA of the cluster, whose mbarriers are told of them.
__device__ __forceinline__ void try_cancel(u32 answer, u32 barrier) {
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
                 ".multicast::cluster::all.b128 [%0], [%1];"
                 :: "r"(answer), "r"(barrier) : "memory");
}

// The x of the first CTA of the cluster that was cancelled, -1 where none was.
__device__ __forceinline__ int cancelled(u32 answer) {
    int cta;
    asm volatile("{\n\t.reg .pred was;\n\t.reg .b128 told;\n\t"
                 "ld.shared.b128 told, [%1];\n\t"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 was, told;\n\t"
                 "mov.s32 %0, -1;\n\t"
                 "@was clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, told;\n\t}"
                 : "=r"(cta) : "r"(answer) : "memory");
    return cta;
}

// ---- products -----------------------------------------------------------------------------------

// Where a matrix begins in panels: swizzled by 128 bytes (2), version 1, 1024 bytes from 8 lines to
// the next 8, PANEL_BYTES from one panel to the next where neighbours lie along m or n. There a
// swizzle of numbers of 32 bits keeps 32 bytes together (1), and repeats after 4 lines. Addresses
// have 18 bits.
template <bool K_MAJOR>
__device__ __forceinline__ u64 descriptor(u32 address) {
    constexpr bool WIDE = !K_MAJOR && sizeof(DTYPE) == 4;
    return u64(WIDE ? 1 : 2) << 61 | u64(1) << 46 | u64(WIDE ? 512 / 16 : 1024 / 16) << 32 |
           u64(PANEL_BYTES<K_MAJOR> / 16) << 16 | (address & 0x3FFFF) / 16;
}

template <typename Number>
constexpr u32 TYPE = 0;  // f16, e4m3
template <>
constexpr u32 TYPE<bf16> = 1;
template <>
constexpr u32 TYPE<e5m2> = 1;
template <>
constexpr u32 TYPE<s8> = 1;
template <>
constexpr u32 TYPE<tf32> = 2;

// What is multiplied: sums of f32 or s32, the types of A and B, which of them have neighbours along
// m or n, and the size of D.
constexpr u32 PRODUCT = (IS_INTEGER<DTYPE> ? 2 : 1) << 4 | TYPE<DTYPE> << 7 | TYPE<DTYPE> << 10 |
                        TRANSPOSE_A << 15 | !TRANSPOSE_B << 16 | BN / 8 << 17 |
                        CTAS * BM / 16 << 24;

#define MMA(KIND)                                                                                  \
    asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.s32 adds, %4, 0;\n\t"                           \
                 TCGEN05("mma") ".kind::" KIND " [%0], %1, %2, %3, adds;\n\t}"                     \
                 :: "r"(d), "l"(a), "l"(b), "n"(PRODUCT), "r"(int(adds)) : "memory")

// D = A * B, plus what D was if it `adds`; 32 bytes of k.
__device__ __forceinline__ void mma_async(u32 d, u64 a, u64 b, bool adds) {
    if (sizeof(DTYPE) == 4) {
        MMA("tf32");
    } else if (sizeof(DTYPE) == 2) {
        MMA("f16");
    } else if (IS_INTEGER<DTYPE>) {
        MMA("i8");
    } else {
        MMA("f8f6f4");
    }
}

// Has the mbarrier told when all is done that this thread has issued; of a pair, that of each CTA.
__device__ __forceinline__ void commit(u32 barrier) {
#if CTAS == 1
    asm volatile(TCGEN05("commit") ".mbarrier::arrive::one.shared::cluster.b64 [%0];"
                 :: "r"(barrier) : "memory");
#else
    asm volatile(TCGEN05("commit") ".mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
                 "[%0], %1;" :: "r"(barrier), "h"(u16(3)) : "memory");
#endif
}

// Arrives at the mbarrier of the CTA whose thread issues: of a pair the first one.
__device__ __forceinline__ void arrive_at_first(u32 barrier) {
#if CTAS == 1
    mbarrier_arrive(barrier);
#else
    mbarrier_arrive(barrier, 0);
#endif
}
