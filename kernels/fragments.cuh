// Fragments in CUDA C: number types, the fragment mappers, ldmatrix and mma.sync.
//
// A fragment is the part of a matrix that one lane of a warp holds. Lane l belongs to group
// g = l / 4 and is number q = l % 4 of it. A 32-bit register holds two 16-bit elements, the first
// in the low half. What CUDA C has no word for without its headers is inline PTX behind a name.
//
// Instruction: mma.sync.aligned.m16n8k16.row.col.{f32,f16}.{bf16,f16}.{bf16,f16}.{f32,f16},
//              mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, cvt.rna.tf32.f32,
//              ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}.shared.b16
// PTX ISA:     Matrix Fragments for mma.m16n8k16 with floating point type,
//              Matrix Fragments for mma.m16n8k8, Warp-level matrix load instruction: ldmatrix

#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

// The number types of matrices: f16 and bf16 are only their bits, and tf32 those of an f32 that has
// not been rounded yet.
typedef float f32;
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
struct tf32 {
    u32 bits;
};

// Numbers of 8 bits, of which one lies in a byte.
struct e4m3 {
    unsigned char bits;
};
struct e5m2 {
    unsigned char bits;
};

// Matrices of small numbers that share scales along k: of e4m3 a byte, and of e2m1 two in a byte.
struct mxfp8 {
    unsigned char bits;
};
struct nvfp4 {
    unsigned char bits;
};

template <typename Number>
constexpr int BITS = 8 * sizeof(Number);
template <>
constexpr int BITS<nvfp4> = 4;

__device__ __forceinline__ f32 to_f32(f32 value) { return value; }

__device__ __forceinline__ f32 to_f32(f16 value) {
    f32 result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}

// bf16 is the upper half of an f32.
__device__ __forceinline__ f32 to_f32(bf16 value) { return __uint_as_float(u32(value.bits) << 16); }

__device__ __forceinline__ f32 to_f32(tf32 value) { return __uint_as_float(value.bits); }

template <typename Number>
__device__ __forceinline__ Number from_f32(f32 value);

template <>
__device__ __forceinline__ f32 from_f32<f32>(f32 value) { return value; }

template <>
__device__ __forceinline__ f16 from_f32<f16>(f32 value) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

__device__ __forceinline__ u32 lane_id() { return threadIdx.x % 32; }

// ---- accumulators ------------------------------------------------------------------------------

// The C and D fragment of 16 x 8: f32 in four registers, f16 in two.
//
//               columns 2q, 2q+1
//     row g        0, 1
//     row g+8      2, 3
template <typename Number>
struct Accumulator;

template <>
struct Accumulator<f32> {
    f32 r[4] = {0, 0, 0, 0};
};

template <>
struct Accumulator<f16> {
    u32 r[2] = {0, 0};
};

// One element of an accumulator, by its number in the picture above.
__device__ __forceinline__ f32 element(const Accumulator<f32>& d, int i) { return d.r[i]; }

__device__ __forceinline__ f16 element(const Accumulator<f16>& d, int i) {
    return {u16(d.r[i / 2] >> (16 * (i % 2)))};
}

// ---- mappers: a tile of a row-major matrix in global memory, `leading` elements a row -----------

// A, 16 x 16: a[0] is row g, columns 2q and 2q+1; a[1] row g+8; a[2] and a[3] eight columns on.
// `leading` is even, so that a pair is one aligned word.
template <typename Number>
__device__ __forceinline__ void load_matrix_a(u32 (&a)[4], const Number* matrix, int tile_row,
                                              int tile_column, int leading) {
    const u32 g = lane_id() / 4, q = lane_id() % 4;
    const Number* upper = matrix + s64(16 * tile_row + g) * leading + 16 * tile_column + 2 * q;
    const Number* lower = upper + 8 * s64(leading);
    a[0] = *reinterpret_cast<const u32*>(upper);
    a[1] = *reinterpret_cast<const u32*>(lower);
    a[2] = *reinterpret_cast<const u32*>(upper + 8);
    a[3] = *reinterpret_cast<const u32*>(lower + 8);
}

// B, 16 x 8: b[0] is rows 2q and 2q+1 of column g; b[1] eight rows on.
template <typename Number>
__device__ __forceinline__ void load_matrix_b(u32 (&b)[2], const Number* matrix, int tile_row,
                                              int tile_column, int leading) {
    const u32 g = lane_id() / 4, q = lane_id() % 4;
    const Number* top = matrix + s64(16 * tile_row + 2 * q) * leading + 8 * tile_column + g;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const Number* low = top + 8 * i * s64(leading);
        b[i] = low[0].bits | u32(low[leading].bits) << 16;
    }
}

__device__ __forceinline__ void load_pairs(Accumulator<f32>& d, int half, const f32* from) {
    const float2 pair = *reinterpret_cast<const float2*>(from);
    d.r[2 * half] = pair.x;
    d.r[2 * half + 1] = pair.y;
}

__device__ __forceinline__ void load_pairs(Accumulator<f16>& d, int half, const f16* from) {
    d.r[half] = *reinterpret_cast<const u32*>(from);
}

__device__ __forceinline__ void store_pairs(f32* to, const Accumulator<f32>& d, int half) {
    *reinterpret_cast<float2*>(to) = make_float2(d.r[2 * half], d.r[2 * half + 1]);
}

__device__ __forceinline__ void store_pairs(f16* to, const Accumulator<f16>& d, int half) {
    *reinterpret_cast<u32*>(to) = d.r[half];
}

// C or D, 16 x 8, both ways. `leading` is even: the two columns of a lane are one aligned access.
template <typename Number>
__device__ __forceinline__ void load_matrix_d(Accumulator<Number>& d, const Number* matrix,
                                              int tile_row, int tile_column, int leading) {
    const u32 g = lane_id() / 4, q = lane_id() % 4;
    const Number* upper = matrix + s64(16 * tile_row + g) * leading + 8 * tile_column + 2 * q;
    load_pairs(d, 0, upper);
    load_pairs(d, 1, upper + 8 * s64(leading));
}

template <typename Number>
__device__ __forceinline__ void store_matrix_d(Number* matrix, int tile_row, int tile_column,
                                               int leading, const Accumulator<Number>& d) {
    const u32 g = lane_id() / 4, q = lane_id() % 4;
    Number* upper = matrix + s64(16 * tile_row + g) * leading + 8 * tile_column + 2 * q;
    store_pairs(upper, d, 0);
    store_pairs(upper + 8 * s64(leading), d, 1);
}

// ---- shared memory, and fragments out of it -----------------------------------------------------

// The 32-bit address of a place in shared memory, as the instructions below want it.
__device__ __forceinline__ u32 shared_address(const void* place) {
    return u32(__cvta_generic_to_shared(place));
}

__device__ __forceinline__ u32 load_shared(u32 from) {
    u32 word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
}

// 16 bytes, aligned to as much.
template <typename Chunk>
__device__ __forceinline__ void store_shared(u32 to, const Chunk& chunk) {
    const uint4 words = *reinterpret_cast<const uint4*>(&chunk);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :: "r"(to), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w) : "memory");
}

// `row` is the address of the 16-byte row this lane names: row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x1(u32& r0, u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r0) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(u32& r0, u32& r1, u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r0), "=r"(r1) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(u32& r0, u32& r1, u32& r2, u32& r3, u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x1_trans(u32& r0, u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r0) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(u32& r0, u32& r1, u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r0), "=r"(r1) : "r"(row) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(u32& r0, u32& r1, u32& r2, u32& r3, u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(row) : "memory");
}

// ---- mma.sync: D = A * B + D --------------------------------------------------------------------

// A register of an operand as mma wants it. The tensor cores would cut off the bits that tf32 has
// not, so they are rounded away before: to nearest, ties away from zero.
template <typename Input>
__device__ __forceinline__ u32 rounded(u32 bits) { return bits; }

template <>
__device__ __forceinline__ u32 rounded<tf32>(u32 bits) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
    return bits;
}

// m16n8k16 for 16-bit numbers, m16n8k8 for tf32.

template <typename Input>
__device__ __forceinline__ void mma(Accumulator<f32>& d, const u32 (&a)[4], const u32 (&b)[2]);

template <>
__device__ __forceinline__ void mma<bf16>(Accumulator<f32>& d, const u32 (&a)[4],
                                          const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d.r[0]), "+f"(d.r[1]), "+f"(d.r[2]), "+f"(d.r[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void mma<f16>(Accumulator<f32>& d, const u32 (&a)[4],
                                         const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d.r[0]), "+f"(d.r[1]), "+f"(d.r[2]), "+f"(d.r[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void mma<tf32>(Accumulator<f32>& d, const u32 (&a)[4],
                                          const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d.r[0]), "+f"(d.r[1]), "+f"(d.r[2]), "+f"(d.r[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <typename Input>
__device__ __forceinline__ void mma(Accumulator<f16>& d, const u32 (&a)[4], const u32 (&b)[2]);

template <>
__device__ __forceinline__ void mma<f16>(Accumulator<f16>& d, const u32 (&a)[4],
                                         const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
                 "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d.r[0]), "+r"(d.r[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
