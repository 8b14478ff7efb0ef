#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// out[i] is what the CTA at the other end of the grid wrote before the barrier; twice, there and back.
extern "C" __global__ void reverse(int *between, int *out, int n) {
  cg::grid_group grid = cg::this_grid();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  between[i] = 3 * i;
  grid.sync();
  out[i] = between[n - 1 - i];
  grid.sync();
  between[i] = out[n - 1 - i] + static_cast<int>(grid.size());
}

// The same without a barrier.
extern "C" __global__ void unordered(int *between, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  between[i] = 3 * i;
  out[i] = between[n - 1 - i];
}
