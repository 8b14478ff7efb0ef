"""cuda.bindings.driver, as a program for a GPU calls it; asserts are what a GPU does too."""

import ctypes
import struct
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

PTX = b""".version 8.0
.target sm_80
.address_size 64
.global .u32 calls = 5;
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .u32 i, n;
    .reg .f32 x, y;
    .reg .u64 p, q, r;
    .reg .pred out;
    mov.u32 i, %ctaid.x;
    mov.u32 n, %ntid.x;
    mul.lo.u32 i, i, n;
    mov.u32 n, %tid.x;
    add.u32 i, i, n;
    ld.param.u32 n, [n_];
    setp.ge.u32 out, i, n;
    @out ret;
    ld.param.u64 p, [a];
    ld.param.u64 q, [b];
    ld.param.u64 r, [c];
    mad.wide.u32 p, i, 4, p;
    mad.wide.u32 q, i, 4, q;
    mad.wide.u32 r, i, 4, r;
    ld.global.f32 x, [p];
    ld.global.f32 y, [q];
    add.f32 x, x, y;
    st.global.f32 [r], x;
    atom.global.add.u32 n, [calls], 1;
    ret;
}
.visible .entry stuck()
{
    bar.sync 0;
    trap;
}
""".replace(b".param .u32 n)", b".param .u32 n_)")


def call(function: str, *args: Any) -> Any:
    status, *values = getattr(cuda, function)(*args)
    assert status == cuda.CUresult.CUDA_SUCCESS, (function, status)
    return values[0] if len(values) == 1 else values


def fails(function: str, *args: Any) -> str:
    return str(getattr(cuda, function)(*args)[0].name.removeprefix("CUDA_ERROR_"))


# ---- before a context -----------------------------------------------------------------------
assert fails("cuDeviceGetCount") == "NOT_INITIALIZED"
call("cuInit", 0)
device = call("cuDeviceGet", 0)
assert fails("cuDeviceGet", 1) == "INVALID_DEVICE"
assert fails("cuMemAlloc", 4) == "INVALID_CONTEXT"
context = call("cuDevicePrimaryCtxRetain", device)
call("cuCtxSetCurrent", context)
assert int(call("cuCtxGetCurrent")) == int(context)
major = call(
    "cuDeviceGetAttribute",
    cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    device,
)
assert major == 8
assert (
    call("cuGetErrorName", cuda.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    == b"CUDA_ERROR_ILLEGAL_ADDRESS"
)
assert b"illegal memory" in call("cuGetErrorString", cuda.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)

# ---- a launch: pointers to the arguments, and one block of them ------------------------------
N = 1000
rng = np.random.default_rng(0)
a, b = rng.random((2, N), np.float32)
A, B, C = (call("cuMemAlloc", 4 * N) for _ in range(3))
stream = call("cuStreamCreate", 0)
call("cuMemcpyHtoD", A, a.ctypes.data, 4 * N)
call("cuMemcpyHtoDAsync", B, b.ctypes.data, 4 * N, stream)
module = call("cuModuleLoadData", PTX)
add = call("cuModuleGetFunction", module, b"add")
assert fails("cuModuleGetFunction", module, b"subtract") == "NOT_FOUND"
values = (int(A), int(B), int(C), N)
types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
begin, end = (call("cuEventCreate", 0) for _ in range(2))
call("cuEventRecord", begin, stream)
call("cuLaunchKernel", add, 8, 1, 1, 128, 1, 1, 0, stream, (values, types), 0)
call("cuEventRecord", end, stream)
call("cuStreamSynchronize", stream)
assert call("cuEventElapsedTime", begin, end) > 0
c = np.empty(N, np.float32)
call("cuMemcpyDtoH", c.ctypes.data, C, 4 * N)
assert np.array_equal(c, a + b)

call("cuMemsetD32", C, 0x7FC00000, N)
block = struct.pack("<QQQI", int(A), int(A), int(C), 4)
size = ctypes.c_size_t(len(block))
held = ctypes.create_string_buffer(block)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(held), 2, ctypes.addressof(size), 0)
call("cuLaunchKernel", add, 1, 1, 1, 32, 1, 1, 0, 0, 0, ctypes.addressof(extra))
call("cuMemcpyDtoH", c.ctypes.data, C, 4 * N)
assert np.array_equal(c[:4], 2 * a[:4])
assert np.isnan(c[4:]).all()

config = cuda.CUlaunchConfig()
config.gridDimX, config.gridDimY, config.gridDimZ = 8, 1, 1
config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
call("cuLaunchKernelEx", config, add, (values, types), 0)
call("cuMemcpyDtoHAsync", c.ctypes.data, C, 4 * N, stream)
assert np.array_equal(c, a + b)

# A block of 1024 has 32 of an SM's 64 warps: two of them, and 108 SMs.
assert call("cuOccupancyMaxActiveBlocksPerMultiprocessor", add, 1024, 0) == 2
assert call("cuOccupancyMaxPotentialBlockSize", add, None, 0, 0) == [216, 1024]
assert call("cuOccupancyMaxActiveBlocksPerMultiprocessor", add, 128, 40 * 1024) == 4

# ---- variables: each module has its own -----------------------------------------------------
again = call("cuModuleLoadData", PTX)
counts = []
for handle in (module, again):
    address, nbytes = call("cuModuleGetGlobal", handle, b"calls")
    assert nbytes == 4
    word = np.zeros(1, np.uint32)
    call("cuMemcpyDtoH", word.ctypes.data, address, 4)
    counts.append(int(word[0]))
assert counts == [5 + N + 4 + N, 5]

# ---- memory ---------------------------------------------------------------------------------
call("cuMemcpyDtoD", int(C) + 8, C, 16)
call("cuMemcpyDtoH", c.ctypes.data, C, 4 * N)
assert np.array_equal(c[2:6], (a + b)[:4])
pinned = call("cuMemHostAlloc", 64, 0)
words = np.ctypeslib.as_array((ctypes.c_float * 16).from_address(pinned))
words[:] = 3
call("cuLaunchKernel", add, 1, 1, 1, 16, 1, 1, 0, 0, ((pinned, pinned, pinned, 16), types), 0)
assert (words == 6).all()  # in place, without a copy
managed = call("cuMemAllocManaged", 64, 1)
call("cuMemcpy", managed, cuda.CUdeviceptr(pinned), 64)
assert ctypes.c_float.from_address(int(managed)).value == 6
box = cuda.CUDA_MEMCPY2D()
box.srcMemoryType, box.dstMemoryType = (
    cuda.CUmemorytype.CU_MEMORYTYPE_HOST,
    cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE,
)
box.srcHost, box.srcPitch, box.dstDevice, box.dstPitch = a.ctypes.data, 40, C, 80
box.srcXInBytes, box.srcY, box.WidthInBytes, box.Height = 8, 1, 16, 3
call("cuMemcpy2D", box)
call("cuMemcpyDtoH", c.ctypes.data, C, 4 * N)
for row in range(3):
    assert np.array_equal(c[20 * row : 20 * row + 4], a[10 * (row + 1) + 2 :][:4])
A_type = call(
    "cuPointerGetAttribute", cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, int(A) + 100
)
assert A_type == cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
assert [int(part) for part in call("cuMemGetAddressRange", int(A) + 100)] == [int(A), 4 * N]
call("cuMemFreeHost", pinned)
call("cuMemFree", managed)

# ---- faults: the driver's codes -------------------------------------------------------------
assert fails("cuMemcpyDtoH", c.ctypes.data, A, 4 * N + 1) == "INVALID_VALUE"
assert (
    fails("cuLaunchKernel", add, 1, 1, 1, 1025, 1, 1, 0, 0, (values, types), 0) == "INVALID_VALUE"
)
past = (int(A), int(B), int(C), N + 1)
assert fails("cuLaunchKernel", add, 8, 1, 1, 128, 1, 1, 0, 0, (past, types), 0) == "ILLEGAL_ADDRESS"
odd = (int(A) + 2, int(B), int(C), 1)
assert fails("cuLaunchKernel", add, 1, 1, 1, 1, 1, 1, 0, 0, (odd, types), 0) == "MISALIGNED_ADDRESS"
stuck = call("cuModuleGetFunction", module, b"stuck")
assert fails("cuLaunchKernel", stuck, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0) == "LAUNCH_FAILED"
assert fails("cuLaunchKernel", stuck, 1, 1, 1, 32, 1, 1, 65536, 0, 0, 0) == "INVALID_VALUE"
assert fails("cuModuleLoadData", b"\x7fELF\2\1\1" + bytes(64)) == "NO_BINARY_FOR_GPU"
assert fails("cuModuleLoadData", PTX.replace(b"sm_80", b"sm_90")) == "NOT_SUPPORTED"
assert fails("cuModuleLoadData", PTX.replace(b"_size 64", b"_size many")) == "INVALID_PTX"
assert fails("cuArrayDestroy", 0) == "NOT_SUPPORTED"
for address in (A, B, C):
    call("cuMemFree", address)
assert fails("cuMemFree", A) == "INVALID_VALUE"
call("cuModuleUnload", module)
assert fails("cuModuleGetFunction", module, b"add") == "INVALID_HANDLE"
call("cuDevicePrimaryCtxRelease", device)
