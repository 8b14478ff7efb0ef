// A switch, loops, an array in local memory, and tables that hold numbers, strings and addresses.

__constant__ int weights[4][3] = {{1, -2, 3}, {4, 5, 6}, {7, 8, 9}};
__device__ const char *words[] = {"one", "two", "three"};
__device__ int cells[8];
__device__ int *middle = &cells[3];
__device__ struct { char tag; const void *where; short x; } mixed[2] = {{'a', &cells[2], -3}, {'b', words, 4}};
__device__ double halves[3] = {0.5, -1.5, 1e-300};
__device__ float thirds[3] = {1.0f / 3, -2.0f, 3e38f};
extern "C" __global__ void control(int *p, double *q, int k) {
    int local[64];
    for (int i = 0; i < 64; ++i) local[(i * 7 + k) & 63] = p[i];
    switch (p[k]) {
        case 0: p[1] = 10; break; case 1: p[2] = 11; break; case 2: p[5] = 1; break;
        case 3: p[4] = 9; break; case 4: p[6] = 8; break; case 5: p[3] = 7; break;
        case 6: p[9] = 10; break; case 7: p[12] = 11; break; case 8: p[15] = 1; break;
        default: p[0] = words[k & 1][0];
    }
    #pragma unroll 1
    for (int i = 0; i < k; ++i) { if (local[i] < 0) continue; p[i] += local[i] / k; q[i] = sin(q[i]) * halves[i % 3]; }
    p[7] = weights[k & 3][k % 3] + *middle + mixed[k & 1].x + (int)thirds[k % 3];
}
