// What device code asks of the host: printf, assert; and what a fault looks like.

#define assert(condition) \
    ((condition) ? (void)0 : __assertfail(#condition, __FILE__, __LINE__, __func__, sizeof(char)))
extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);

extern "C" __global__ void greet(int n) {
    if (threadIdx.x < n)
        printf("thread %d of block %u: %5.2f|%-6s|%c|%lld|%x|%%|%e\n", threadIdx.x, blockIdx.x,
               threadIdx.x / 4.0, threadIdx.x % 2 ? "odd" : "even", 'a' + threadIdx.x,
               -(1LL << 40) * (long long)threadIdx.x, 255 + threadIdx.x, 12345.678);
}

extern "C" __global__ void check(const int *in) {
    assert(in[threadIdx.x] < 10);
}
