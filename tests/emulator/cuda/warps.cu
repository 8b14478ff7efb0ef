// Warp primitives as CUDA programs use them: reductions, scans, votes, matches, tiles of a warp.
// Launch: 1-dimensional blocks of any size; parameters: input, output, number of elements.

extern "C" __global__ void warp_sum(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;  // the last warp goes on without these threads
    int value = in[i];
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(__activemask(), value, distance);
    out[i] = value;
}

extern "C" __global__ void block_sum(const float *in, float *out, int n) {
    __shared__ float partial[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float value = i < n ? in[i] : 0.0f;
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_down_sync(0xffffffff, value, distance);
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    if (warp == 0) {
        int warps = (blockDim.x + 31) / 32;
        value = lane < warps ? partial[lane] : 0.0f;
        for (int distance = 16; distance > 0; distance /= 2)
            value += __shfl_down_sync(0xffffffff, value, distance);
        if (lane == 0)
            out[blockIdx.x] = value;
    }
}

extern "C" __global__ void warp_scan(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32;
    int value = i < n ? in[i] : 0;
    for (int distance = 1; distance < 32; distance *= 2) {
        int left = __shfl_up_sync(0xffffffff, value, distance);
        if (lane >= distance)
            value += left;
    }
    if (i < n)
        out[i] = value;
}

// Each tile of eight lanes votes with its own membermask, all tiles at the same instruction.
extern "C" __global__ void tile_votes(const int *in, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32;
    unsigned tile = 0xffu << (lane & 24);
    bool negative = in[i] < 0;
    unsigned bits = __ballot_sync(tile, negative);
    int all = __all_sync(tile, negative), any = __any_sync(tile, negative);
    int same;
    unsigned equal = __match_all_sync(tile, in[i] & 1, &same);
    out[4 * i] = bits;
    out[4 * i + 1] = all + 2 * any + 4 * (same != 0);
    out[4 * i + 2] = equal;
    out[4 * i + 3] = __match_any_sync(tile, in[i] & 3);
}

// Lanes that take different sides of a branch reduce among themselves.
extern "C" __global__ void sides(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = in[i];
    unsigned odd = __ballot_sync(0xffffffff, value & 1);
    if (value & 1)
        out[i] = __reduce_add_sync(odd, value);
    else
        out[i] = __reduce_max_sync(~odd, value);
}
