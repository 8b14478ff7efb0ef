// Softmax of the rows of a matrix in three ways, each three loops over the columns, or two.

// A thread a row.
extern "C" __global__ void thread_a_row(const float *x, float *y, int columns) {
    long long row = blockIdx.x * blockDim.x + threadIdx.x;
    const float *in = x + row * columns;
    float *out = y + row * columns;
    float most = in[0], sum = 0;
    for (int i = 1; i < columns; i++) most = fmaxf(most, in[i]);
    for (int i = 0; i < columns; i++) sum += __expf(in[i] - most);
    for (int i = 0; i < columns; i++) out[i] = __expf(in[i] - most) / sum;
}

// A warp a row, which it reduces by shuffles.
extern "C" __global__ void warp_a_row(const float *x, float *y, int columns) {
    long long row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    const float *in = x + row * columns;
    float *out = y + row * columns;
    float most = in[lane], sum = 0;
    for (int i = lane; i < columns; i += 32) most = fmaxf(most, in[i]);
    for (int n = 16; n; n /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, n));
    for (int i = lane; i < columns; i += 32) sum += __expf(in[i] - most);
    for (int n = 16; n; n /= 2) sum += __shfl_xor_sync(~0u, sum, n);
    for (int i = lane; i < columns; i += 32) out[i] = __expf(in[i] - most) / sum;
}

// A CTA a row, which it reduces in shared memory.
extern "C" __global__ void cta_a_row(const float *x, float *y, int columns) {
    __shared__ float part[256];
    long long row = blockIdx.x;
    int t = threadIdx.x;
    const float *in = x + row * columns;
    float *out = y + row * columns;
    float most = in[t], sum = 0;
    for (int i = t; i < columns; i += 256) most = fmaxf(most, in[i]);
    part[t] = most;
    __syncthreads();
    for (int n = 128; n; n /= 2) {
        if (t < n) part[t] = fmaxf(part[t], part[t + n]);
        __syncthreads();
    }
    most = part[0];
    __syncthreads();
    for (int i = t; i < columns; i += 256) {
        float e = __expf(in[i] - most);
        out[i] = e;
        sum += e;
    }
    part[t] = sum;
    __syncthreads();
    for (int n = 128; n; n /= 2) {
        if (t < n) part[t] += part[t + n];
        __syncthreads();
    }
    sum = part[0];
    for (int i = t; i < columns; i += 256) out[i] /= sum;
}
