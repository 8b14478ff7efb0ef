// Programs that work together in shared and global memory.

extern "C" __global__ void bitonic_sort(int *data) {
    extern __shared__ int cell[];
    int i = threadIdx.x;
    cell[i] = data[blockIdx.x * blockDim.x + i];
    __syncthreads();
    for (int size = 2; size <= blockDim.x; size *= 2)
        for (int distance = size / 2; distance > 0; distance /= 2) {
            int other = i ^ distance;
            if (other > i) {
                int a = cell[i], b = cell[other];
                if ((a > b) == ((i & size) == 0)) {
                    cell[i] = b;
                    cell[other] = a;
                }
            }
            __syncthreads();
        }
    data[blockIdx.x * blockDim.x + i] = cell[i];
}

extern "C" __global__ void histogram(const unsigned char *in, int *out, int n) {
    __shared__ int bins[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        bins[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        if (bins[b])
            atomicAdd(&out[b], bins[b]);
}

__device__ unsigned finished = 0;

// The last block to finish adds up what the others left.
extern "C" __global__ void last_block_sum(const float *in, double *partial, double *out, int n) {
    __shared__ double cell[256];
    __shared__ bool last;
    double sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    cell[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half && threadIdx.x + half < blockDim.x)
            cell[threadIdx.x] += cell[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = cell[0];
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        double total = 0;
        for (int b = 0; b < gridDim.x; ++b)
            total += ((volatile double *)partial)[b];
        *out = total;
    }
}

// A lock that every thread of the grid takes once.
extern "C" __global__ void locked_count(int *lock, int *count, int *log) {
    bool done = false;
    while (!done)
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            int before = *(volatile int *)count;
            log[before] = blockIdx.x * blockDim.x + threadIdx.x;
            *(volatile int *)count = before + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
}

extern "C" __global__ void transpose(const float *in, float *out, int rows, int columns) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += blockDim.y)
        if (x < columns && y + k < rows)
            tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * columns + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += blockDim.y)
        if (x < rows && y + k < columns)
            out[(y + k) * rows + x] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void stencil(const float *in, float *out, int n) {
    extern __shared__ float window[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int at = threadIdx.x + 2;
    window[at] = i < n ? in[i] : 0.0f;
    if (threadIdx.x < 2) {
        window[threadIdx.x] = i >= 2 ? in[i - 2] : 0.0f;
        int right = i + blockDim.x;
        window[at + blockDim.x] = right < n ? in[right] : 0.0f;
    }
    __syncthreads();
    if (i < n)
        out[i] = window[at - 2] + 2 * window[at - 1] + 3 * window[at] + 2 * window[at + 1] + window[at + 2];
}

extern "C" __global__ void softmax(const float *in, float *out, int columns) {
    __shared__ float cell[128];
    const float *row = in + blockIdx.x * columns;
    float most = __int_as_float(0xff800000);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        most = fmaxf(most, row[c]);
    cell[threadIdx.x] = most;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k)
            cell[threadIdx.x] = fmaxf(cell[threadIdx.x], cell[threadIdx.x + k]);
        __syncthreads();
    }
    most = cell[0];
    __syncthreads();
    float sum = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        sum += expf(row[c] - most);
    cell[threadIdx.x] = sum;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k)
            cell[threadIdx.x] += cell[threadIdx.x + k];
        __syncthreads();
    }
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out[blockIdx.x * columns + c] = expf(row[c] - most) / cell[0];
}

// A warp a row; mean and variance by shuffles.
extern "C" __global__ void layer_norm(const float *in, const float *scale, float *out, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float sum = 0, squares = 0;
    for (int c = lane; c < columns; c += 32) {
        float x = in[row * columns + c];
        sum += x;
        squares += x * x;
    }
    for (int k = 16; k > 0; k /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, k);
        squares += __shfl_xor_sync(0xffffffff, squares, k);
    }
    float mean = sum / columns;
    float factor = rsqrtf(squares / columns - mean * mean + 1e-5f);
    for (int c = lane; c < columns; c += 32)
        out[row * columns + c] = (in[row * columns + c] - mean) * factor * scale[c];
}

// Counting barriers: every thread learns how many, whether all and whether any hold.
extern "C" __global__ void counting(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int count = __syncthreads_count(in[i] > 0);
    int all = __syncthreads_and(in[i] > -100);
    int any = __syncthreads_or(in[i] > 98);
    out[i] = count + 1000 * (all != 0) + 2000 * (any != 0);
}
