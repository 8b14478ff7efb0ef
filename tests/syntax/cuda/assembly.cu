// Inline PTX: nested scopes, the same label in several of them, vectors, sinks and half arithmetic.

__device__ __forceinline__ void wait(unsigned address, unsigned phase) {
    asm volatile("{\n .reg .pred done;\n again:\n"
                 " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 " @done bra finished;\n bra again;\n finished:\n }\n" :: "r"(address), "r"(phase));
}
extern "C" __global__ void assembly(unsigned *p, unsigned short *h, float *f) {
    __shared__ alignas(16) unsigned char buffer[1024];
    unsigned address = (unsigned)__cvta_generic_to_shared(buffer);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address), "r"(1));
    wait(address, 0); wait(address, 1);
    unsigned a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4+16];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address));
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" :: "r"(address), "l"(p), "r"(8));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;");
    asm volatile("{ .reg .pred q; setp.ne.b32 q, %2, 0; elect.sync _|q, 0xffffffff;\n"
                 "  wgmma.fence.sync.aligned; @q st.shared.v2.b32 [%0], {%1, %2}; }"
                 :: "r"(address), "r"(a), "r"(b));
    unsigned short sum;
    asm("{ .reg .f16 x, y; mov.b16 x, %1; mov.b16 y, %2; fma.rn.relu.f16 x, x, y, x; mov.b16 %0, x; }"
        : "=h"(sum) : "h"(h[0]), "h"(h[1]));
    h[2] = sum;
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3]) : "r"(a), "r"(b), "r"(c), "r"(d), "r"(a), "r"(b));
    asm("{ .reg .b64 t; mov.b64 t, {%1, %2}; mov.b64 {%0, _}, t; }" : "=r"(p[4]) : "r"(c), "r"(d));
}
