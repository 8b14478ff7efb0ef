"""Kernels by the names of their source, against what the C++ rules of a few programs say by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.main import main
from ptxlab.syntax.names import brief, called, matching
from ptxlab.toolchain.source_kernels import Template, launched
from tests.together import in_one_test

NAMES = {
    "_Z5scaleI13__nv_bfloat16Li64EEvPKT_PS1_fi": "scale<__nv_bfloat16, 64>",
    "_ZN2ns4gemmILj128ELb1EfEEvPT1_": "ns::gemm<128u, true, float>",
    "_ZN2ns4gemmILj64ELb1EfEEvPT1_": "ns::gemm<64u, true, float>",
    "_ZL6factor": "factor",
    "_ZN35_GLOBAL__N__00000000_4_b_cu__Z2k4Pi2k3EPi": "k3",
    "_Z1kPFvvE": "k",
    "plain": "plain",
    "_Znonsense": "_Znonsense",
}

SOURCE = """\
#include <cstdio>
#include <cuda_bf16.h>
template <typename T, int N> __global__ void scale(const T* __restrict__ in, T* out, float is = 1) {
    for (int i = threadIdx.x; i < N; i += blockDim.x) out[i] = T(float(in[i]) * is);
}
namespace ns {
static __constant__ float factor = 2;
__global__ void __launch_bounds__(64) plain(float* class_, int) { class_[threadIdx.x] *= factor; }
}
template <class T> void launch(T* p) { scale<T, 32><<<1, 32>>>(p, p); }
int main() {
    constexpr int half = 8;
    const int n = 2 * half;
    using Float = double;
    scale<Float, n + 1><<<1, 32>>>(nullptr, nullptr, 1);
    cudaFuncSetAttribute(scale<float, 4>, cudaFuncAttributeMaxDynamicSharedMemorySize, 1);
    ns::plain<<<1, 64>>>(nullptr, 0);
}
"""


@in_one_test("name", NAMES)
def test_names_are_those_of_the_source(name: str) -> None:
    assert called(name) == brief(name) == NAMES[name]


def test_of_many_arguments_the_first_are_shown() -> None:
    """64 characters of them: a name that is as long is whole."""
    arguments = "int, " * 12 + "int"
    assert brief(f"k<{arguments}>") == f"k<{arguments}>"
    assert brief(f"k<{arguments}, int>") == "k<" + ("int, " * 12).rstrip() + "...>"
    assert brief("a_name" * 20) == "a_name" * 20


@in_one_test(
    ("wanted", "kernels"),
    [
        ("plain", ["plain"]),
        ("scale", ["scale<__nv_bfloat16, 64>"]),
        ("scale<bf16,64>", ["scale<__nv_bfloat16, 64>"]),
        ("scale< __nv_bfloat16 , 64 >", ["scale<__nv_bfloat16, 64>"]),
        ("scale<bf16,6>", []),
        ("gemm", ["ns::gemm<128u, true, float>", "ns::gemm<64u, true, float>"]),
        ("ns::gemm<64,true,f32>", ["ns::gemm<64u, true, float>"]),
        ("gemm<64,true,f32>", ["ns::gemm<64u, true, float>"]),
        ("gemm<64", []),
        ("gemm<128>", ["ns::gemm<128u, true, float>"]),
        ("_ZL6factor", ["factor"]),
        ("fact", ["factor"]),
        ("k", ["k"]),
        ("nothing", []),
    ],
)
def test_a_kernel_is_found_by_its_name_or_a_part(wanted: str, kernels: list[str]) -> None:
    assert [NAMES[name] for name in matching(NAMES, wanted)] == kernels


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names") / "mine.cu"
    path.write_text(SOURCE)
    return path


def test_what_the_host_launches_is_there(file: Path) -> None:
    with open_device("emulator", arch="sm_80") as device:
        module = device.load(file)
        kernels = {called(name): name for name in module.kernels}
        assert set(kernels) == {"scale<double, 17>", "scale<float, 4>", "ns::plain"}
        taken = {
            name: [parameter.name for parameter in module.kernel(name).parameters]
            for name in kernels
        }
        assert taken["scale<float, 4>"] == ["in", "out", "is"]
        assert taken["ns::plain"] == ["class_", "param_1"]  # the second has no name there
        factor = module.variable("factor")
        factor.upload(5.0)
        a = device.upload(np.ones(64, np.float32))
        module.kernel("plain").launch(1, 64, [a, 0])
        assert np.array_equal(a.numpy(), np.full(64, 5, np.float32))
        with pytest.raises(PtxlabError, match="several kernels that scale may mean") as caught:
            module.kernel("scale")
        assert caught.value.hint == "name one of scale<double, 17>, scale<float, 4>"


HOST = """\
template <class TA, int Count = 4> void launch(TA* a, float beta) {
  auto &shape = make_shape(1);
  Layout<int> tiles{2};
  Tiler tiler(3);
  using Own = decltype(global);
  constexpr int wide = 2;
  %s
}
"""


@in_one_test(
    ("launch", "instances"),
    [
        ("scale<TA, 3>", []),
        ("scale<float, Count>", []),
        ("scale<decltype(beta), 3>", []),
        ("scale<Pair<decltype(shape), int>, 3>", []),
        ("scale<decltype(tiles), 3>", []),
        ("scale<decltype(tiler), 3>", []),
        ("scale<decltype(later), 3>; auto later = 1", ["scale<decltype(later), 3>"]),
        ("scale<Own, wide>", ["scale<decltype(global), 2>"]),
        ("scale<Tiler, 3>", ["scale<Tiler, 3>"]),
        ("} template <class T> void other() { scale<Count, 3>", ["scale<Count, 3>"]),
    ],
)
def test_what_only_a_function_of_the_host_can_name_is_no_instance(
    launch: str, instances: list[str]
) -> None:
    known = [Template("scale", "")]
    assert list(launched(HOST % f"{launch}<<<1, 1>>>(a);", known)) == instances


def test_an_instance_is_made_that_nobody_launches(file: Path) -> None:
    with open_device("emulator", arch="sm_80") as device:
        kernel = device.load(file, options=["--instance=scale<bf16,3>"]).kernel("scale<bf16,3>")
        assert called(kernel.name) == "scale<__nv_bfloat16, 3>"
        with pytest.raises(ToolchainError, match=r"no kernel scale<bf61,3>.*bf61") as caught:
            device.load(file, options=["--instance=scale<bf61,3>"])
        assert caught.value.hint == "it has template <typename T, int N> __global__ void scale"


def test_an_instance_that_cannot_be_made_says_which_line_is_why(tmp_path: Path) -> None:
    """Functions that are not said to be the device's are left out, and with them the class that divides by zero."""
    file = tmp_path / "shares.cu"
    file.write_text(
        "constexpr int least() { return 1; }\nnamespace shares {\n"
        "template <int N> struct Share { static constexpr int of_four = 4 / N; };\n"
        "template <class T> __global__ void keep(int *x) { *x = T::of_four; }\n}\n"
    )
    options = ["--instance=shares::keep<shares::Share<0>>"]
    with (
        open_device("emulator", arch="sm_80") as device,
        pytest.raises(ToolchainError, match='no member "Share"') as caught,
    ):
        device.load(file, options=options)
    assert "line 3 is rejected: expression must have a constant value" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("_ZZ5scaleILi2EEvPfiE1t", "scale<2>::t"),
        ("_ZZN2ns1kEPFviEE4tile", "ns::k::tile"),
        ("_ZN2ns1kEPFviE", "ns::k"),
        ("_ZL5table", "table"),
    ],
)
def test_variables_of_functions_keep_their_own_name(name: str, shown: str) -> None:
    assert called(name) == shown


MANGLED = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry _Z5scaleILi2EEvPfi(.param .u64 x, .param .u32 n)
.reqntid 64
{
    .shared .b32 _ZZ5scaleILi2EEvPfiE1t[8];
    .reg .b32 a;
    mov.u32 a, _ZZ5scaleILi2EEvPfiE1t;
    st.shared.b32 [a+64], a;
    ret;
}
"""


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--block", "32", "--arg", "x=zeros(4,f32)", "--arg", "n=1"],
        ["run", "--arg", "x=zeros(4,f32)"],
        ["dump", "--at", "mma.sync", "--arg", "x=zeros(4,f32)", "--arg", "n=1"],
        ["check", "--arg", "x=zeros(4,f32)", "--arg", "n=1"],
        ["trace", "--arg", "x=zeros(4,f32)", "--arg", "n=1"],
    ],
)
def test_no_verb_shows_a_mangled_name(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(MANGLED)
    main([words[0], str(file), *words[1:]])
    shown = "".join(capsys.readouterr())
    quoted = tuple(
        line.strip() for line in MANGLED.splitlines()
    )  # alone, or behind what is said of it
    told = [line for line in shown.splitlines() if not line.strip().endswith(quoted)]
    assert any("scale<2>" in line for line in told)
    assert not any("_Z" in line for line in told), told
