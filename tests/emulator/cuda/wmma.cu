// A matrix multiplication through mma.h: a warp a tile of 16 x 16, sizes that are multiples of 16.
#include <mma.h>

extern "C" __global__ void multiply(const __half *a, const __half *b, float *d, int n, int k) {
    using namespace nvcuda::wmma;
    int row = 16 * blockIdx.y, column = 16 * blockIdx.x;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    for (int at = 0; at < k; at += 16) {
        fragment<matrix_a, 16, 16, 16, __half, row_major> left;
        fragment<matrix_b, 16, 16, 16, __half, col_major> right;
        load_matrix_sync(left, a + row * k + at, k);
        load_matrix_sync(right, b + column * k + at, k);
        mma_sync(sum, left, right, sum);
    }
    for (int i = 0; i < sum.num_elements; ++i)
        sum.x[i] *= 2;
    store_matrix_sync(d + row * n + column, sum, n, mem_row_major);
}
