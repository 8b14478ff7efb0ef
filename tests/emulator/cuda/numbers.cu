// Arithmetic that compilers make of many instructions: 64-bit division, double-precision functions, half types.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void divide(const long long *a, const long long *b, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long ua = a[i], ub = b[i];
    out[6 * i] = a[i] / b[i];
    out[6 * i + 1] = a[i] % b[i];
    out[6 * i + 2] = ua / ub;
    out[6 * i + 3] = ua % ub;
    out[6 * i + 4] = __mul64hi(a[i], b[i]);
    out[6 * i + 5] = a[i] / 10 + a[i] % 1000007;
}

extern "C" __global__ void doubles(const double *a, const double *b, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    out[8 * i] = sin(a[i]);
    out[8 * i + 1] = exp(b[i]);
    out[8 * i + 2] = pow(fabs(a[i]), b[i]);
    out[8 * i + 3] = fmod(a[i], b[i]);
    out[8 * i + 4] = log(fabs(a[i]));
    out[8 * i + 5] = tan(b[i]);
    out[8 * i + 6] = a[i] / b[i];
    out[8 * i + 7] = sqrt(fabs(a[i]));
}

extern "C" __global__ void floats(const float *a, const float *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    out[8 * i] = sinf(a[i]);
    out[8 * i + 1] = expf(b[i]);
    out[8 * i + 2] = powf(fabsf(a[i]), b[i]);
    out[8 * i + 3] = fmodf(a[i], b[i]);
    out[8 * i + 4] = logf(fabsf(a[i]));
    out[8 * i + 5] = cosf(1e5f * a[i]);
    out[8 * i + 6] = a[i] / b[i];
    out[8 * i + 7] = tanhf(b[i]) + erff(a[i]) + roundf(b[i]) + floorf(a[i]);
}

extern "C" __global__ void halves(const __half *a, const __nv_bfloat16 *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __half2 pair = __halves2half2(a[i], a[(i + 1) % n]);
    pair = __hfma2(pair, pair, __float2half2_rn(0.5f));
    __nv_bfloat162 other = __halves2bfloat162(b[i], b[(i + 1) % n]);
    other = __hadd2(__hmul2(other, other), other);
    out[6 * i] = __low2float(pair);
    out[6 * i + 1] = __half2float(__hadd(a[i], __hmul(a[i], __float2half(3.0f))));
    out[6 * i + 2] = __low2float(other);
    out[6 * i + 3] = __bfloat162float(__hmax(b[i], __float2bfloat16(0.25f)));
    out[6 * i + 4] = (float)__half2int_rn(a[i]) + (__hgt(a[i], __float2half(0.0f)) ? 0.5f : 0.0f);
    out[6 * i + 5] = __half2float(hsqrt(__habs(a[i])));
}

extern "C" __global__ void widen(signed char a, short b, int c, long long d, long long *out) {
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}
