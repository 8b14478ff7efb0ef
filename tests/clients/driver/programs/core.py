"""cuda.core, as a program for a GPU uses it: NVRTC, a launch of a C++ template, buffers, events."""

import numpy as np
from cuda.core import (
    Device,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

CODE = """
template<typename T>
__global__ void saxpy(const T a, const T* x, const T* y, T* out, size_t n) {
    for (size_t i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = a * x[i] + y[i];
}
"""

device = Device()
device.set_current()
assert (device.compute_capability.major, device.compute_capability.minor) == (8, 0)
stream = device.create_stream()
program = Program(CODE, code_type="c++", options=ProgramOptions(std="c++17", arch="sm_80"))
module = program.compile("ptx", name_expressions=("saxpy<float>",))
kernel = module.get_kernel("saxpy<float>")
n = 5000
rng = np.random.default_rng(1)
x, y = rng.random((2, n), np.float32)
buffers = [device.allocate(4 * n, stream=stream) for _ in range(3)]
pinned = LegacyPinnedMemoryResource().allocate(4 * n)
staged = np.from_dlpack(pinned).view(np.float32)
for array, buffer in zip((x, y), buffers[:2], strict=True):
    staged[:] = array
    buffer.copy_from(pinned, stream=stream)
begin, end = (device.create_event(EventOptions(timing_enabled=True)) for _ in range(2))
stream.record(begin)
launch(stream, LaunchConfig(grid=16, block=64), kernel, np.float32(3), *buffers, np.uint64(n))
stream.record(end)
end.sync()
assert end - begin > 0
buffers[2].copy_to(pinned, stream=stream)
stream.sync()
# One rounding: NVRTC makes an fma of it.
assert np.array_equal(staged, (3 * x.astype(np.float64) + y).astype(np.float32))
