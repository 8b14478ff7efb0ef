// Asynchronous copies from global to shared memory, without a register on the way.
//
// A thread starts copies, closes them into a group with commit, and later waits until at most N of
// its newest groups are still under way. What other threads copied it may read after a barrier.
// The first `bytes` bytes come from memory and the rest of the 16 or 4 are filled with zeros, so an
// edge costs no branch; with 0 bytes the source is not read at all.
//
// A copy of 16 bytes advises L2 to fetch the 128 bytes they are in: neighbours, or the next tile,
// want the rest.
//
// Instruction: cp.async.{cg,ca}.shared.global{.L2::128B}, cp.async.commit_group,
//              cp.async.wait_group
// PTX ISA:     Data Movement and Conversion Instructions: cp.async

#pragma once

#include "fragments.cuh"

// All 16 bytes, past the L1 cache; both addresses are 16-byte aligned.
__device__ __forceinline__ void cp_async_16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}

__device__ __forceinline__ void cp_async_16(u32 to, const void* from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
}

// 4 bytes, both addresses 4-byte aligned; only through the L1 cache.
__device__ __forceinline__ void cp_async_4(u32 to, const void* from, u32 bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}
