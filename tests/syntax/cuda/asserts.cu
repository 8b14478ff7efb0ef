// A failing assertion, its strings, and a trap.

#define assert(e) ((e) ? (void)0 : __assertfail(#e, __FILE__, __LINE__, __func__, sizeof(char)))
extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);
extern "C" __global__ void asserts(int *p, int k) {
    assert(k > 3 && "a message");
    if (k == 7) __trap();
    p[k] = k;
}
