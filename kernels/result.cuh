// D on its way from the tensor cores: accumulators, slabs in shared memory, global memory.
//
// An mma leaves two neighbours of a row in a lane. They are written to a slab in shared memory, 16
// rows of a warp's part of D at a time, and read back as 16 bytes a lane, so that a warp stores
// lines of 128 bytes. The slab is swizzled: neither way has a bank conflict.
//
// Two slabs take turns, so that one barrier is enough for each: a slab that is written was read
// before the last one. It is a barrier of the CTA: one of the warp alone, after code in which lanes
// part, is a call on sm_80, and accumulators are spilled for it.
//
// Instruction: st.shared.v2, ld.shared.v4, st.global.v4
// PTX ISA:     Matrix Fragments for mma.m16n8k16 with floating point type

#pragma once

#include "gemm.cuh"
#include "swizzle.cuh"

// What a warp needs of shared memory, for rows of `across` fragments.
__host__ __device__ constexpr int slabs_bytes(int across) {
    return 2 * 16 * 8 * across * int(sizeof(ACC));
}

// Stores a warp's part of D, which begins at `first`, but nothing above or left of the CTA's `own`
// tile. INSIDE says that the CTA's tile is all its own, inside of D, and rows of D are aligned.
template <bool INSIDE, int DOWN, int ACROSS>
__device__ __forceinline__ void store_result(const Output& D, Place own, Place first,
                                             const Accumulator<ACC> (&part)[DOWN][ACROSS],
                                             char* slabs) {
    constexpr int UNIT = 8 * sizeof(ACC);            // a row of a fragment, in bytes
    constexpr int PITCH = ACROSS * UNIT;             // of a slab
    constexpr int LINE = PITCH < 128 ? PITCH : 128;  // what is moved at once of a row,
    constexpr int ROWS = 32 * 16 / LINE;             // of so many rows
    constexpr int VECTOR = 16 / sizeof(ACC);
    const int lane = lane_id(), g = lane / 4, q = lane % 4;
    const int top = lane / (LINE / 16), left = lane % (LINE / 16) * VECTOR;
    ACC* to = D.d + s64(first.row + top) * D.ldd + (first.column + left);
#pragma unroll
    for (int i = 0; i < DOWN; i++) {
        char* slab = slabs + i % 2 * (16 * PITCH);
#pragma unroll
        for (int j = 0; j < ACROSS; j++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 byte = (8 * j + 2 * q) * sizeof(ACC);
                const u32 place = swizzled<PITCH, UNIT>(g + 8 * half, byte);
                store_pairs(reinterpret_cast<ACC*>(slab + place), part[i][j], half);
            }
        }
        __syncthreads();
#pragma unroll (INSIDE ? 16 : 1)
        for (int down = 0; down < 16; down += ROWS) {
#pragma unroll (INSIDE ? 16 : 1)
            for (int across = 0; across < PITCH; across += LINE) {
                const u32 place = swizzled<PITCH, UNIT>(top + down, left * sizeof(ACC)) + across;
                const auto values = *reinterpret_cast<const Vector<ACC, VECTOR>*>(slab + place);
                f32 sums[VECTOR];
#pragma unroll
                for (int e = 0; e < VECTOR; e++) sums[e] = to_f32(values.r[e]);
                const int right = across / int(sizeof(ACC));
                const int row = first.row + 16 * i + top + down;
                const int column = first.column + left + right;
                if (INSIDE) D.store_vector(to + right, column, sums);
                else if (row >= own.row && column >= own.column) D.store(row, column, sums);
            }
            to += s64(ROWS) * D.ldd;
        }
    }
}
