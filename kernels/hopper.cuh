// Hopper's asynchronous machinery behind names: mbarriers, copies with tensor maps, clusters.
//
// A tensor map tells the copy engine where a matrix lies. One thread has a box of it copied, and
// what lies outside of the matrix is filled with zeros. The copy signals its bytes to an mbarrier
// in shared memory; a phase of that is over when everyone has arrived and all expected bytes are
// there. A wait names the parity of the phase that has to be over: of a fresh mbarrier, 1 is.
//
// The copy engine sees shared memory through a proxy of its own: what threads wrote there it reads
// after a fence. With `.shared::cluster` an address says in which CTA of the cluster it is.
//
// Instruction: mbarrier.{init,arrive,arrive.expect_tx,try_wait.parity}, mapa, fence.proxy.async,
//              cp.async.bulk.tensor.2d, cp.async.bulk.{commit_group,wait_group.read},
//              barrier.cluster.{arrive,wait}, setmaxnreg
// PTX ISA:     Parallel Synchronization and Communication Instructions: mbarrier,
//              Data Movement and Conversion Instructions: Tensor copy

#pragma once

#include "fragments.cuh"

// A parameter of the kernel, made by the host.
struct alignas(64) TensorMap {
    char bytes[128];
};

// ---- mbarriers ----------------------------------------------------------------------------------

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

// Makes mbarriers visible to all CTAs of the cluster, which a barrier has to follow.
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// Arrives at the same mbarrier of another CTA of the cluster. To release to the whole cluster what
// this one has written would wait for all memory; that wgmma has read needs no such release.
__device__ __forceinline__ void mbarrier_arrive(u32 barrier, u32 cta) {
    asm volatile("{\n\t.reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}"
                 :: "r"(barrier), "r"(cta) : "memory");
}

// Arrives, and has the phase last until so many bytes more have been copied.
__device__ __forceinline__ void mbarrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                 :: "r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
    asm volatile("{\n\t.reg .pred over;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared.b64 over, [%0], %1;\n\t"
                 "@!over bra again;\n\t}"
                 :: "r"(barrier), "r"(parity) : "memory");
}

// ---- copies with tensor maps --------------------------------------------------------------------

// The box whose first element is at (row, column) of the matrix.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, int row, int column,
                                         u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(&map), "r"(column), "r"(row), "r"(barrier) : "memory");
}

// The same to the same place of every CTA in the mask, each of whose mbarriers is told.
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, int row, int column,
                                         u32 barrier, u16 ctas) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(to), "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(ctas) : "memory");
}

// Bytes one after the other, a multiple of 16.
__device__ __forceinline__ void load_bytes(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// Nothing is stored outside of the matrix.
__device__ __forceinline__ void store_box(const TensorMap& map, int row, int column, u32 from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(&map), "r"(column), "r"(row), "r"(from) : "memory");
}

__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all groups of this thread but the newest have been read from shared memory.
template <int PENDING>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory");
}

__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- threads ------------------------------------------------------------------------------------

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}

// Some of the CTA's threads meet at the barrier of this number, of which 0 is __syncthreads'.
__device__ __forceinline__ void named_barrier(u32 number, u32 threads) {
    asm volatile("barrier.cta.sync %0, %1;" :: "r"(number), "r"(threads) : "memory");
}

// A warpgroup hands registers back, or waits for some, until each of its threads has as many.
template <int REGISTERS>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(REGISTERS));
}
