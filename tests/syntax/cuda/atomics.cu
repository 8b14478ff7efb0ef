// Atomics, votes, shuffles, integer intrinsics, and static and dynamic shared memory.

extern __shared__ int dynamic[];
extern "C" __global__ void atomics(int *p, unsigned long long *q, float *f, double *d) {
    __shared__ int counts[32];
    __shared__ double sums[4][5];
    counts[threadIdx.x & 31] = 0; dynamic[threadIdx.x] = 1;
    __syncthreads();
    atomicAdd(counts + (p[0] & 31), 1); atomicCAS(q, 1ull, 2ull); atomicExch(p, 3);
    atomicAdd(f, 1.5f); atomicAdd(d, 0.1); atomicMax(p + 1, 4); atomicInc((unsigned *)p, 7u);
    sums[1][threadIdx.x % 5] = d[0];
    __threadfence(); __threadfence_system();
    int v = __shfl_xor_sync(~0u, p[0], 1) + __ballot_sync(~0u, p[1] > 0) + __any_sync(~0u, p[3]);
    v += __match_any_sync(~0u, v) + __reduce_add_sync(~0u, v) + __syncthreads_count(v) + __syncthreads_or(v);
    v += __popc(v) + __clz(v) + __brev(v) + __byte_perm(v, v, 0x1234) + __ffs(v);
    q[1] = __mul64hi(q[0], q[2]) / q[3] + __umulhi(v, v) + (q[0] % q[4]);
    p[2] = v + counts[p[0] & 31] + dynamic[1] + (int)sums[1][1];
}
