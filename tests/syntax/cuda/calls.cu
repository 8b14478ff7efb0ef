// Function pointers in variables and parameters, virtual calls, recursion and printf.

extern "C" __device__ int printf(const char *, ...);
typedef float (*Function)(float, int);
__device__ __noinline__ float twice(float x, int n) { return x * 2 + n; }
__device__ __noinline__ float third(float x, int n) { return x / 3 - n; }
__device__ Function table[2] = {twice, third};
__constant__ Function constant_table[2] = {third, twice};
__device__ __noinline__ int ackermann(int m, int n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
struct Base { __device__ virtual int value(int) = 0; };
struct Left : Base { __device__ int value(int x) override { return x + 1; } };
struct Right : Base { __device__ int value(int x) override { return x * 3; } };
extern "C" __global__ void calls(float *p, int *q, int k, Function passed) {
    p[0] = table[k](p[1], k) + constant_table[k & 1](p[2], k) + passed(p[3], 7);
    q[0] = ackermann(k, 2);
    Left l; Right r; Base *b = k ? (Base *)&l : (Base *)&r;
    q[1] = b->value(k);
    printf("%d %f %s\n", k, p[0], "text");
}
