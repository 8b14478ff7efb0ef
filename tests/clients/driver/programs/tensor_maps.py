"""Tensor maps by cuda.core and by cuda.bindings, and a kernel that copies a box by one."""

import numpy as np
from cuda.bindings import driver as cuda
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)
from cuda.core.utils import StridedMemoryView

CODE = r"""
struct alignas(64) Map { char data[128]; };
extern "C" __global__ void box(const __grid_constant__ Map map, float* out) {
    __shared__ alignas(128) float tile[16 * 8];
    __shared__ alignas(8) unsigned long long full;
    unsigned to = __cvta_generic_to_shared(tile), bar = __cvta_generic_to_shared(&full);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" :: "r"(bar) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" :: "r"(bar) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {8, 4}], [%2];" :: "r"(to), "l"(&map), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{.reg .pred p; l: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra l;}"
        :: "r"(bar) : "memory");
    out[threadIdx.x] = tile[threadIdx.x];
}
"""


class Array:
    """Memory in place, as libraries give it to each other."""

    def __init__(self, array: np.ndarray) -> None:
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False),
            "version": 3, "stream": None,
        }  # fmt: skip


device = Device()
device.set_current()
assert device.properties.tensor_map_access_supported
stream = device.create_stream()
options = ProgramOptions(arch="sm_90a")
kernel = Program(CODE, code_type="c++", options=options).compile("ptx").get_kernel("box")
pinned = LegacyPinnedMemoryResource()
held = [pinned.allocate(4 * 32 * 32) for _ in range(3)]
x, y, out = (np.from_dlpack(capsule).view(np.float32).reshape(32, 32) for capsule in held)
x[:] = np.arange(1024).reshape(32, 32)
y[:] = -x
made = StridedMemoryView.from_any_interface(Array(x), stream_ptr=-1).as_tensor_map(box_dim=(16, 8))
for source in (x, y):
    made.replace_address(Array(source))
    launch(stream, LaunchConfig(grid=1, block=128), kernel, made, held[2])
    stream.sync()
    assert np.array_equal(out.reshape(-1)[:128].reshape(16, 8), source[4:20, 8:16])

# ---- im2col, and what the driver refuses ------------------------------------------------------
type_ = cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
interleave = cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
swizzle = cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B
promotion = cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
fill = cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
modes = (interleave, swizzle, promotion, fill)
numbers, words = cuda.cuuint64_t, cuda.cuuint32_t
sizes = [*map(numbers, (32, 28, 14, 7))]
steps = [*map(words, (1, 2, 1, 1))]


def pixels(strides: tuple[int, ...]) -> tuple[cuda.CUresult, cuda.CUtensorMap]:
    given = (sizes, [*map(numbers, strides)], [-1, -2], [1, 2], 32, 64, steps, *modes)
    result: tuple[cuda.CUresult, cuda.CUtensorMap] = cuda.cuTensorMapEncodeIm2col(
        type_, 4, int(x.ctypes.data), *given
    )
    return result


status, window = pixels((64, 64 * 28, 64 * 28 * 14))
assert status == cuda.CUresult.CUDA_SUCCESS
status, _ = pixels((40, 64 * 28, 64 * 28 * 14))  # 40 is no multiple of 16
assert status == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
packed = cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B
status, _ = cuda.cuTensorMapEncodeTiled(
    packed, 1, int(x.ctypes.data), [numbers(64)], [], [words(64)], [words(1)], *modes
)
assert status == cuda.CUresult.CUDA_ERROR_NOT_SUPPORTED
data = b"".join(int(word).to_bytes(8, "little") for word in window.opaque)
