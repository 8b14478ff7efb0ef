// Rows in shared memory that never meet in a bank: no padding, one XOR.
//
// Shared memory has 32 banks of 4 bytes, and a pass serves 128 bytes if no two words of them lie in
// the same bank. The passes of matrix code read 128 bytes of one row, or UNIT bytes at the same
// place of 128 / UNIT rows: 16 bytes of 8 rows for ldmatrix, 32 bytes of 4 rows where the lanes of
// a quad stand for rows. Rows of 128 bytes all begin in bank 0, so the second kind would meet
// there. XORing the place of a unit with its row's number makes both kinds free of conflicts.
// Shorter rows lie side by side in the banks, and only those of different passes have to differ.
//
// In CuTe's words, with units of 16 bytes rows of 128 have Swizzle<3,4,3>, those of 64
// Swizzle<2,4,3>.
//
// Instruction: ldmatrix.sync.aligned.m8n8.x4.shared.b16, ld.shared, st.shared, cp.async
// PTX ISA:     Warp-level matrix load instruction: ldmatrix

#pragma once

#include "fragments.cuh"

// Where a byte of a row lies, counted from the first row. PITCH is the bytes of a row.
template <int PITCH, int UNIT>
__device__ __forceinline__ u32 swizzled(u32 row, u32 byte) {
    static_assert(PITCH == 32 || PITCH == 64 || PITCH % 128 == 0, "rows fill the banks evenly");
    constexpr u32 rows_in_a_pass = PITCH < 128 ? 128 / PITCH : 1;
    constexpr u32 units = (PITCH < 128 ? PITCH : 128) / UNIT;
    return row * PITCH + (byte ^ row / rows_in_a_pass % units * UNIT);
}
