// What nvcc makes of a program with a kernel and a variable, by hand: it needs no CUDA toolkit.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
typedef void *stream;
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **), __cudaUnregisterFatBinary(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
extern void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
extern unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, stream);
extern int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, stream *);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, stream);
extern int cudaMalloc(void **, size_t), cudaFree(void *), cudaDeviceSynchronize(void), cudaGetLastError(void);
extern int cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t);
extern int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int), cudaGetDeviceProperties_v2(void *, int);
extern int cudaArrayGetInfo(void *, void *, void *, void *), cudaGetSymbolSize(size_t *, const void *);
extern const char *cudaGetErrorString(int), *cudaGetErrorName(int);

extern const char fatbin[];  // the bytes of a fatbin, from another file
static struct { int magic, version; const void *data; void *more; } wrapper = {0x466243b1, 1, fatbin, 0};
static void **handle;
static int factor;  // stands for a __device__ variable

static void scale(int *values, int n) {  // what <<<...>>> calls
    void *arguments[] = {&values, &n};
    dim3 grid, block;
    size_t shared;
    stream on;
    if (__cudaPopCallConfiguration(&grid, &block, &shared, &on) == 0)
        cudaLaunchKernel(scale, grid, block, arguments, shared, on);
}

static void unregister(void) { __cudaUnregisterFatBinary(handle); }

__attribute__((constructor)) static void begin(void) {
    handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, (const char *)scale, "scale", "scale", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(handle, (char *)&factor, "factor", "factor", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
    atexit(unregister);
}

static void told(const char *what, int result) { printf("%s: %s\n", what, cudaGetErrorName(result)); }

int main(int count, char **given) {
    int n = 1000, three = 3, on_host[1000], *values;
    size_t size = 0;
    char properties[1032];
    for (int i = 0; i < n; i++) on_host[i] = i;
    told("malloc", cudaMalloc((void **)&values, sizeof on_host));
    told("copy", cudaMemcpy(values, on_host, sizeof on_host, 1));
    told("symbol", cudaMemcpyToSymbol(&factor, &three, 4, 0, 1));
    told("symbol beyond its end", cudaMemcpyToSymbol(&factor, &three, 4, 1, 1));
    told("symbol of another", cudaMemcpyToSymbol(&n, &three, 4, 0, 1));
    told("last", cudaGetLastError());
    if (!__cudaPushCallConfiguration((dim3){8, 1, 1}, (dim3){128, 1, 1}, 0, 0)) scale(values, n);
    told("launch", cudaGetLastError());
    if (!__cudaPushCallConfiguration((dim3){1, 1, 1}, (dim3){2048, 1, 1}, 0, 0)) scale(values, n);
    told("too many threads", cudaGetLastError());
    told("back", cudaMemcpy(on_host, values, sizeof on_host, 2));
    int right = 1;
    for (int i = 0; i < n; i++) right &= on_host[i] == 3 * i;
    told("size", cudaGetSymbolSize(&size, &factor));
    told("properties", cudaGetDeviceProperties_v2(properties, 0));
    printf("%s, %zu bytes, capability %d.%d\n", right ? "right" : "wrong", size, ((int *)(properties + 360))[0],
           ((int *)(properties + 360))[1]);
    if (!__cudaPushCallConfiguration((dim3){8, 1, 1}, (dim3){128, 1, 1}, 0, 0)) scale(values, 1 << 20);
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    told("array", cudaArrayGetInfo(0, 0, 0, 0));
    told("free", cudaFree(values));
    return count == 2 ? atoi(given[1]) : 0;
}
