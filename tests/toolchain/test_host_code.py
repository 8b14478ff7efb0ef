"""A .cu file with code of the host becomes the PTX of its kernels alone, written down a second time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxlab.errors import ToolchainError
from ptxlab.toolchain import compile_cuda, host_code
from ptxlab.toolchain.declarations import declarations, parameter_names

HEADER = """\
#pragma once
#include <vector>
#include <map>
inline void die(const std::string& why) { std::cerr << why; std::exit(1); }
#define CHECK(x) if ((x) != cudaSuccess) die(#x)
template <class T> class Buffer { public: Buffer(size_t n) { CHECK(cudaMalloc(&p, n)); } private: T* p; };
__device__ inline int header_device(int a) { return a + 1; }
"""

MIXED = """\
#include <cstdio>
#include <iostream>
#include <cuda_runtime.h>
#include "host.h"
struct Pair { int a; Pair() : a(3) {} int get() { return a; }
  ~Pair() { free(0); }
 private:
  std::string name() { return "}"; }
  friend std::ostream& operator<<(std::ostream& o, const Pair& t) { return o << t.a; }
 public:
  __host__ __device__ int two() const { return 2 * a; } };
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
template <class V> void fill(V& v) { v.push_back('"'); }
#ifdef __CUDACC__
#define HD __host__ __device__
#else
#define HD
#endif
template <typename X> HD X twice(X x) { return x + x; }
static int count = 0;
const char* names[] = {"a", "b"};
auto lambda = [](int a) { return a + 1; };
using Vec = std::vector<float>;
struct Holder { Vec v; std::map<int, int> m; };
int forward(int);
extern "C" { int of_c(void) { return 1; }
__global__ void k(float* a, const Pair t, uint32_t n) {
  a[ceil_div(n, 2)] = 1; a[1] = t.two() + twice(M_PI) + header_device(3); a[2] = INFINITY;
} }
int main() try {
#pragma unroll
  for (int i = 0; i < 3; ++i) k<<<dim3(1), 32, 0, 0>>>(nullptr, Pair(), 3);
#ifdef NOBODY
  {
#else
  if (count) {
#endif
  std::cout << R"(}{)" << Pair(); } return 0; } catch (...) { return 1; }
"""

ALONE = """\
struct Pair { int a; __device__ int two() const { return 2 * a; } };
__device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
extern "C" __global__ void k(float* a, const Pair t, unsigned n) {
  a[ceil_div(n, 2)] = 1;
  a[1] = t.two() + 6.28318530717958647692 + 4;
  a[2] = __int_as_float(0x7f800000);
}
"""


def ptx(source: str, folder: Path) -> str:
    return compile_cuda(source, path=str(folder / "mine.cu"), arch="sm_80")


def instructions(compiled: str) -> list[str]:
    return re.findall(r"^\t[a-z][^;]*;", compiled, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "host.h").write_text(HEADER)
    return tmp_path


def test_what_is_left_of_a_program_is_its_kernels(folder: Path) -> None:
    assert ptx(MIXED, folder) == ptx(ALONE, folder)
    assert ptx(MIXED.replace("2 * a", "3 * a"), folder) != ptx(ALONE, folder)


def test_what_kernels_take_of_the_standard_library_is_there(folder: Path) -> None:
    source = "#include <algorithm>\n__global__ void k(float* a) { a[0] = %s; }\nint main() {}\n"
    compiled = ptx(source % "std::max(a[1], std::numeric_limits<float>::lowest())", folder)
    assert "0fFF7FFFFF" in compiled


TENSOR_MAP = """\
#include <HEADER>
#include <cublas_v2.h>
static void encode(CUtensorMap* map) { CUresult failed = cuTensorMapEncodeTiled(map, 0); (void)failed; }
__global__ void k(const __grid_constant__ CUtensorMap map, CUdeviceptr* to) { *to = (CUdeviceptr)&map; }
__global__ void of_cublas(__half* to, __nv_bfloat16 x) { *to = __float2half(__bfloat162float(x)); }
"""


@pytest.mark.parametrize("header", ["cuda.h", "cudaTypedefs.h"])
def test_a_tensor_map_is_what_the_driver_s_header_says(folder: Path, header: str) -> None:
    """128 bytes at such a place, as cuda.h of CUDA 13 has it; cuBLAS's header brings numbers of 16 bits."""
    compiled = ptx(TENSOR_MAP.replace("HEADER", header), folder)
    assert re.findall(r"\.param \.align (\d+) \.b8 \w+\[(\d+)\]", compiled)[0] == ("128", "128")
    assert compiled.count(".entry") == 2


@pytest.mark.parametrize(
    ("old", "new", "line", "at", "what"),
    [
        ("t.two()", "t.two(1)", 28, "1) +", "too many arguments"),
        ("t.two()", "forward(1)", 28, "forward", '"forward" is undefined'),
        (
            "const Pair t, uint32_t n) {",
            "const Pair t, uint32_t n) { Pair own;",
            27,
            "own",
            "deleted",
        ),
        ("const Pair t,", "const Pair t, Holder h,", 27, "Holder", "Holder"),
        ("nullptr", "nullptr, (", 32, "", ""),
    ],
)
def test_a_mistake_in_a_kernel_keeps_its_place(
    folder: Path, old: str, new: str, line: int, at: str, what: str
) -> None:
    source = MIXED.replace(old, new)
    if not what:  # of the host: nobody minds
        assert ptx(source, folder) == ptx(ALONE, folder)
        return
    with pytest.raises(ToolchainError, match=what) as caught:
        ptx(source, folder)
    location = caught.value.location
    assert location is not None
    assert (Path(location.path).name, location.line) == ("mine.cu", line)
    assert location.text == source.splitlines()[line - 1]
    assert location.text[location.column - 1 :].startswith(at)
    if "forward" in what:
        assert (
            caught.value.hint
            == "forward is of the host here: __device__ makes it one of kernels too"
        )


def test_a_header_of_another_folder_has_its_host_code_left_out(folder: Path) -> None:
    (folder / "src").mkdir()
    source = MIXED.replace('"host.h"', '"../host.h"')
    assert ptx(source, folder / "src") == ptx(ALONE, folder)


def test_a_header_that_another_includes_has_its_host_code_left_out(folder: Path) -> None:
    (folder / "first.h").write_text('#pragma once\n#include "host.h"\n')
    guarded = MIXED.replace('#include "host.h"', '#include "first.h"\n#include "host.h"')
    (folder / "host.h").write_text("#pragma once\n" + HEADER)
    assert ptx(guarded, folder) == ptx(ALONE, folder)


def test_a_mistake_in_a_header_keeps_its_place(folder: Path) -> None:
    (folder / "host.h").write_text(HEADER.replace("a + 1", "b + 1"))
    with pytest.raises(ToolchainError, match='"b" is undefined') as caught:
        ptx(MIXED, folder)
    location = caught.value.location
    assert location is not None
    assert (Path(location.path).name, location.line) == ("host.h", 7)
    assert location.text[location.column - 1 :].startswith("b + 1")


TRAITS = """\
#pragma once
#include <cudaTypedefs.h>
#define MAYBE_CONSTEXPR constexpr
namespace traits {
template <class T> MAYBE_CONSTEXPR auto wider() { return (unsigned long long)sizeof(T); }
template <class T> auto has_size(T*) -> Yes<(T::size > 0)>;
auto has_size(...) -> No;
struct Adapter { virtual int launch(int grid) const = 0; virtual void stop() = 0; int kept; };
}
"""


def test_a_template_library_of_the_host_keeps_what_its_types_are_made_of(folder: Path) -> None:
    (folder / "traits.h").write_text(TRAITS)
    source = """\
template <bool B> struct Yes { static const int value = 1 + B; };
struct No { static const int value = 0; };
#include "traits.h"
struct Sized { static const int size = 4; };
template <class T> struct Has : decltype(traits::has_size((T*)0)) {};
template <class T, class P> __global__ void k(T* out, const traits::Adapter* adapter, P p) {
  out[0] = Has<Sized>::value; out[1] = Has<int>::value; out[2] = p; out[3] = adapter->kept;
  decltype(traits::wider<T>()) n = 7; out[4] = sizeof n;
}
int main() {
  using Element = long long;
  using Scalar = Element;
  k<Element,  // what it works on; not the kind of p
    Scalar /* > */>
      <<<1, 1>>>(nullptr, nullptr, 5);
}
"""
    alone = """\
namespace traits { struct Adapter { void* of_virtual_functions; int kept; }; }
template <class T, class P> __global__ void k(T* out, const traits::Adapter* adapter, P p) {
  out[0] = 2; out[1] = 0; out[2] = p; out[3] = adapter->kept; out[4] = 8;
}
"""
    compiled = ptx(source, folder)
    instance = "template __global__ void k(long long*, const traits::Adapter*, long long);"
    own = ptx(alone + instance, folder)
    assert instructions(compiled) == instructions(own)


def test_an_instance_that_is_refused_twice_is_told(folder: Path) -> None:
    """What is no name of a kernel's instance is left out once, and the other kernels are compiled."""
    source = """\
template <class T> __global__ void k(T* a) { a[0] = 1; }
__global__ void plain(int* a) { a[0] = 2; }
int main() { struct Local {} local; k<Local><<<1, 1>>>(&local); }
"""
    assert re.findall(r"\.entry (\w+)", ptx("#include <cstdio>\n" + source, folder)) == [
        "_Z5plainPi"
    ]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What NVRTC says when it rejects something, of which each may have taken it seconds."""
    said: list[str] = []
    reduce = host_code.DevicePart.reduce

    def counted(part: host_code.DevicePart, log: str) -> bool:
        said.append(log)
        return reduce(part, log)

    monkeypatch.setattr(host_code.DevicePart, "reduce", counted)
    return said


def test_what_is_refused_is_left_out_together(folder: Path, logs: list[str]) -> None:
    """An instance that has no name and a class that asks for what is gone cost one attempt."""
    source = """\
#include <cstdio>
template <class T> __global__ void k(T* a) { a[0] = 1; }
__global__ void plain(int* a) { a[0] = 2; }
int first() { return std::getchar(); }
struct Uses { int a = first(); };
int main() { struct Local {} local; k<Local><<<1, 1>>>(&local); }
"""
    assert "_Z5plainPi" in ptx(source, folder)
    assert len(logs) == 2


def test_all_of_the_host_is_left_out_at_once(folder: Path, logs: list[str]) -> None:
    """More errors than NVRTC tells unasked, functions after one with a ``std::size_t``, and an instance by types of the host's."""
    (folder / "host.h").write_text(
        "int print(std::size_t count, std::ptrdiff_t at) { return printf(count, at); }\n"
        + "".join(f"int host{number}() {{ return getchar(); }}\n" for number in range(150))
    )
    source = """\
#include <cstdio>
#include "host.h"
template <class T> __global__ void k(T a) { *a = 1; }
template <class T> void launch(T a) { auto other = a; k<T><<<1, 1>>>(a); k<decltype(other)><<<1, 1>>>(a); }
int main() { launch(host149()); k<float*><<<1, 1>>>(nullptr); }
"""
    assert re.findall(r"\.entry (\w+)", ptx(source, folder)) == ["_Z1kIPfEvT_"]
    assert len(logs) == 1


def test_enumerators_may_be_called_as_math_h_calls_its_own(folder: Path) -> None:
    """CUTLASS has these where NVRTC compiles, as the C library has them: macros behind the first mention."""
    source = """\
#include <cmath>
namespace mine { enum Kind { FP_NAN =
#define FP_NAN 0
    FP_NAN, FP_ZERO =
#define FP_ZERO 2
    FP_ZERO }; }
__global__ void k(mine::Kind* a) { *a = mine::Kind(FP_NAN + FP_INFINITE); }
"""
    assert "st.global" in ptx(source, folder) or "st.u32" in ptx(source, folder)


def test_lines_of_kernels_stay_what_they_were(folder: Path) -> None:
    options = ["--generate-line-info"]
    compiled = compile_cuda(MIXED, path=str(folder / "mine.cu"), arch="sm_80", options=options)
    lines = {int(row.split()[2]) for row in compiled.splitlines() if row.strip().startswith(".loc")}
    assert {11, 12, 28, 29} <= lines <= {7, 11, 12, 19, 27, 28, 29}


def test_declarations_are_found_by_their_braces() -> None:
    text = """\
namespace n { namespace { template <class T = int> struct S : B { S(int a = f(1)) : a{3}, b(a) {}
  bool operator()(int x) const { return x < 3; } enum { A = ';' }; }; } }
__global__ void __launch_bounds__(128, 2) k(const float* __restrict__ in, int (&m)[3], T::type is = 3)
{ /* } */ }
int table[] = {1, 2}, other; // }
#if 0
don't }
#endif
int f(void);
"""
    declared = [declaration for outer in declarations(text) for declaration in outer.all()]
    names = [
        (declaration.kind, declaration.name, declaration.outer and declaration.outer.name)
        for declaration in declared
    ]
    assert names == [
        ("namespace", "n", None),
        ("namespace", "", None),
        ("class", "S", None),
        ("function", "S", "S"),
        ("function", "operator()", "S"),
        ("other", "enum", "S"),
        ("function", "k", None),
        ("other", "table", None),
        ("function", "f", None),
    ]
    kernel = declared[6]
    assert text[kernel.head : kernel.end] == "{ /* } */ }"
    assert kernel.parameters is not None
    assert parameter_names(text[slice(*kernel.parameters)]) == ["in", "", "is"]


def test_an_assertion_that_fails_is_never_the_host_s(folder: Path) -> None:
    even = 'enum { WIDTH = 4 };\nstatic_assert(WIDTH % 2 == 0, "WIDTH is even");\n'
    assert ptx(MIXED + even, folder) == ptx(ALONE, folder)
    with pytest.raises(ToolchainError, match="WIDTH is even"):
        ptx(MIXED + even.replace("4", "3"), folder)


def test_what_a_mistake_had_left_out_is_told_with_the_mistake(folder: Path) -> None:
    source = "constexpr int WIDTH = HIGHT;\n__global__ void k(int* a) { *a = WIDTH; }\n"
    assert ".entry" in ptx(source.replace("HIGHT", "3"), folder)
    with pytest.raises(ToolchainError, match='"WIDTH" is undefined') as caught:
        ptx(source, folder)
    assert caught.value.hint == (
        'WIDTH was left out as the host\'s, for line 1 is rejected: identifier "HIGHT" is undefined'
    )
