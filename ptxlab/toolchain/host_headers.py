"""The headers of the host that a .cu file includes: NVRTC has none of them, and kernels need little."""

from __future__ import annotations

import re

_STANDARD = """
    algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv
    chrono cinttypes climits clocale cmath codecvt compare complex concepts condition_variable
    coroutine csetjmp csignal cstdarg cstdbool cstddef cstdint cstdio cstdlib cstring ctime cwchar
    cwctype deque exception execution expected filesystem format forward_list fstream functional future
    initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex
    scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token
    streambuf string string_view syncstream system_error thread tuple type_traits typeindex typeinfo
    unordered_map unordered_set utility valarray variant vector version
    assert.h complex.h ctype.h errno.h fcntl.h fenv.h float.h getopt.h inttypes.h iso646.h libgen.h
    limits.h locale.h malloc.h math.h memory.h omp.h pthread.h sched.h setjmp.h signal.h stdarg.h
    stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h strings.h tgmath.h time.h uchar.h unistd.h
    wchar.h windows.h
"""
_STANDARD_NAMES = frozenset(_STANDARD.split())

_LIBRARY = re.compile(
    r"""(?:ATen|boost|c10|cub/device|gtest|nvtx3|opencv2?|pybind11|sys|thrust|torch|Eigen)/.*
      | (?:cublas|cudnn|cufft|cufile|curand|cusolver|cusparse|cutensor|nccl|npp|nvml|nvToolsExt)\w*\.h
      | (?:cuda|cudaTypedefs|cuda_runtime|cuda_runtime_api|cuda_device_runtime_api|cuda_profiler_api|cudaGL
          | cuda_gl_interop|cuda_texture_types|curand_kernel|device_functions|device_launch_parameters
          | driver_types|helper_\w+|host_defines|math_functions|nvrtc|nvJitLink|sm_\d+_\w+
          | texture_fetch_functions|texture_types|channel_descriptor|mpi|omp)\.h
    """,
    re.VERBOSE,
)

PRELUDE = """\
#ifndef FP_NAN
enum { FP_NAN, FP_INFINITE, FP_ZERO, FP_SUBNORMAL, FP_NORMAL };
#endif
#include <cuda/std/cfloat>
#include <cuda/std/climits>
#include <cuda/std/cstdint>
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
namespace std { using ::size_t; using ::ptrdiff_t; }
#undef INFINITY
#undef NAN
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fc00000)
#define HUGE_VALF INFINITY
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
"""
"""What nvcc has in every .cu file of the host's own headers, as far as kernels see it."""

DRIVER = """\
#pragma once
typedef unsigned long long CUdeviceptr;
typedef struct CUtensorMap_st { alignas(128) unsigned long long opaque[16]; } CUtensorMap;
"""
"""What kernels take of the CUDA driver's header: a tensor map, which is one of their arguments."""

_HALVES = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"

OF_KERNELS = {"cuda.h": DRIVER, "cudaTypedefs.h": "#include <cuda.h>\n"}
OF_KERNELS |= dict.fromkeys(("cublas_v2.h", "cublas_api.h", "cublasLt.h"), _HALVES)
"""What kernels take of certain headers of the host, or what these include; of the others nothing."""

STANDARD = """\
#include <cuda/std/algorithm>
#include <cuda/std/array>
#include <cuda/std/cmath>
#include <cuda/std/functional>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
namespace std { using namespace cuda::std; }
"""
"""What kernels may take of the C++ standard library, as ``cuda::std`` has it; it takes seconds to read."""


def is_host(name: str) -> bool:
    """Say whether ``#include <name>`` is of the host: of C++, of the system, of a library it calls."""
    return name in _STANDARD_NAMES or _LIBRARY.fullmatch(name) is not None


INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"][^\n]*", re.MULTILINE)
"""A line that includes a header, by its name."""


def without_host_headers(text: str) -> str:
    """Return a source with an empty line in place of each that includes a header of the host."""
    return INCLUDE.sub(lambda match: "" if is_host(match[1]) else match[0], text)
