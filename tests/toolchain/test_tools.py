import ctypes
import os
import pickle
import re
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxlab.cache import bypassed
from ptxlab.errors import ToolchainError
from ptxlab.toolchain import Cubin, assembler, compile_cuda, disassemble, link_ptx, nvdisasm, nvrtc
from ptxlab.toolchain.host_code import DevicePart
from ptxlab.toolchain.includes import scan
from ptxlab.toolchain.wheels import ToolAbsent, wheel_file

SAXPY = """
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    .shared .align 16 .b8 tile[1024];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    st.shared.u32 [tile], %r1;
    bar.sync 0;
    ld.shared.u32 %r2, [tile+4];
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths NVRTC was really run on."""
    seen: list[str] = []
    real = nvrtc._compile

    def spy(part: DevicePart, arch: str, arguments: list[str]) -> bytes:
        seen.append(part.path)
        return real(part, arch, arguments)

    monkeypatch.setattr(nvrtc, "_compile", spy)
    return seen


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_compiled_ptx_is_for_the_arch_and_assembles(arch: str) -> None:
    ptx = compile_cuda(SAXPY, path="saxpy.cu", arch=arch)
    assert f".target {arch}" in ptx
    assert "\0" not in ptx
    assert ".entry saxpy(" in ptx
    assert list(link_ptx(ptx, arch=arch).kernels) == ["saxpy"]


def test_options_reach_the_compiler() -> None:
    source = 'extern "C" __global__ void k(int* p) { *p = VALUE; }'
    ptx = compile_cuda(source, path="k.cu", arch="sm_80", options=["-DVALUE=4711"])
    assert "4711" in ptx


def test_cuda_headers_are_there() -> None:
    source = """#include <cuda_bf16.h>
    #include <cuda/std/cstdint>
    extern "C" __global__ void k(__nv_bfloat16* p, cuda::std::uint32_t n) { p[n] = 1.0f; }"""
    assert ".entry k(" in compile_cuda(source, path="k.cu", arch="sm_90a")


@pytest.mark.parametrize("fails", [False, True])
def test_headers_are_unpacked_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Another process that looks meanwhile finds no folder, and afterwards no half of one."""
    kept = tmp_path / "cache" / "13.9"

    class Library:
        NVRTC_INSTALL_HEADERS_FORCE_OVERWRITE = 1

        def nvrtcInstallBundledHeaders(self, folder: bytes, how: int) -> tuple[int]:
            assert not kept.exists()
            Path(os.fsdecode(folder), "cuda_fp16.h").write_text("")
            if fails:
                raise RuntimeError("no space")
            return (0,)

    monkeypatch.setattr(nvrtc, "_installed", Library)
    assert nvrtc._unpack(kept) is not fails
    assert [path.name for path in kept.parent.iterdir()] == ([] if fails else ["13.9"])


def test_header_beside_the_source(tmp_path: Path, compilations: list[str]) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "outer.cuh").write_text('#include "inner/value.cuh"\n')
    value = tmp_path / "inner" / "value.cuh"
    source = '#include "outer.cuh"\nextern "C" __global__ void k(int* p) { *p = VALUE; }'
    path = str(tmp_path / "k.cu")
    for number in (111, 222, 222, 111):
        value.write_text(f"#define VALUE {number}\n")
        assert str(number) in compile_cuda(source, path=path, arch="sm_80")
    assert len(compilations) == 2, "a changed header of a header compiles again, an unchanged never"


def test_include_paths_and_option_paths(tmp_path: Path, compilations: list[str]) -> None:
    header = tmp_path / "value.cuh"
    source = '#include <value.cuh>\nextern "C" __global__ void k(int* p) { *p = VALUE; }'
    for number in (111, 222):
        header.write_text(f"#define VALUE {number}\n")
        for options in ({"include_paths": [tmp_path]}, {"options": [f"-I{tmp_path}"]}):
            ptx = compile_cuda(source, path="k.cu", arch="sm_80", **options)
            assert str(number) in ptx
    assert len(compilations) == 4


def test_files_of_a_relative_folder_are_known_by_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewritten include names the file that it means, and the compiler starts at the including file."""
    header = tmp_path / "include" / "value.cuh"
    header.parent.mkdir()
    header.write_text("#define VALUE 111\n")
    monkeypatch.chdir(tmp_path)
    for options, folders in ((["-Iinclude"], []), ([], ["include"])):
        includes = nvrtc._scan("#include <value.cuh>\n", "k.cu", options, folders)
        assert includes.meant[""] == {"value.cuh": str(header)}


def test_header_that_appears_later_is_found(tmp_path: Path) -> None:
    source = (
        '#if __has_include("extra.cuh")\n#include "extra.cuh"\n#else\n#define VALUE 111\n#endif\n'
        'extern "C" __global__ void k(int* p) { *p = VALUE; }'
    )
    path = str(tmp_path / "k.cu")
    assert "111" in compile_cuda(source, path=path, arch="sm_80")
    (tmp_path / "extra.cuh").write_text("#define VALUE 222\n")
    assert "222" in compile_cuda(source, path=path, arch="sm_80")


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ('#define HEADER "value.cuh"\n#include HEADER\n', []),
        ("#define IN(folder, name) <folder/name>\n#include IN(folder, value.cuh)\n", []),
        ("#define IN(name) <folder/name.cuh>\n#include IN(value)\n", []),
        ("#include HEADER\n", ['-DHEADER="value.cuh"']),
        ("#define NAME value\n#define IN(name) <folder/name.cuh>\n#include IN(NAME)\n", []),
        ('#include "macros.cuh"\n#include HEADER\n', []),
    ],
)
def test_an_include_named_by_a_macro_is_followed_or_not_cached(
    lines: str, options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "macros.cuh").write_text('#define HEADER "value.cuh"\n')
    source = lines + 'extern "C" __global__ void k(int* p) { *p = VALUE; }'
    given = [f"-I{tmp_path}", *options]
    for number in (111, 222):
        for folder in (tmp_path, tmp_path / "folder"):
            (folder / "value.cuh").write_text(f"#define VALUE {number}\n")
        ptx = compile_cuda(source, path=str(tmp_path / "k.cu"), arch="sm_80", options=given)
        assert str(number) in ptx


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ('#define X "a.cuh"\n#include X\n', ["a.cuh"]),
        ("#define X(n) <folder/n>\n#include X(b.cuh)\n#if __has_include(X(c.cuh))\n", ["b.cuh"]),
        ('#define X(a) "a.cuh"\n#include X(b)\n', ["a.cuh"]),
        ('#include X\n#include "m.cuh"\n', ["a.cuh", "m.cuh"]),
        ('#ifdef Y\n#define X "a.cuh"\n#else\n#define X <folder/b.cuh>\n#endif\n#include X\n', ["a.cuh", "b.cuh"]),
        ("#include NOBODYS\n", None),
        ("#define X(a, b) <a/b>\n#include X(folder, b.cuh)\n", None),
        ("#define b.cuh\n#define folder other\n#define X <folder/b.cuh>\n#include X\n", None),
        ('#define X "a.cuh"\n#define X Y(1)\n#include X\n', None),
    ],
)  # fmt: skip
def test_which_files_a_macro_may_mean(lines: str, files: list[str] | None, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.cuh").touch()
    (tmp_path / "folder/b.cuh").touch()
    (tmp_path / "m.cuh").write_text('#define X "a.cuh"\n')
    scanned = scan(lines, tmp_path, [tmp_path])
    assert scanned.complete == (files is not None)
    if files is not None:
        assert [Path(name).name for name, _ in scanned.files] == files


def test_what_a_macro_means_is_cached(tmp_path: Path, compilations: list[str]) -> None:
    (tmp_path / "value.cuh").write_text("#define VALUE 111\n")
    source = '#include HEADER\nextern "C" __global__ void k(int* p) { *p = VALUE; }'
    for _ in range(2):
        for header in ('"value.cuh"', "<value.cuh>"):
            given = [f"-I{tmp_path}", f"-DHEADER={header}"]
            ptx = compile_cuda(source, path=str(tmp_path / "k.cu"), arch="sm_80", options=given)
            assert "111" in ptx
    assert len(compilations) == 2


def test_pre_included_header_is_never_cached(tmp_path: Path, compilations: list[str]) -> None:
    header = tmp_path / "value.cuh"
    source = 'extern "C" __global__ void k(int* p) { *p = VALUE; }'
    for number in (111, 222):
        header.write_text(f"#define VALUE {number}\n")
        options = [f"--pre-include={header}"]
        assert str(number) in compile_cuda(source, path="k.cu", arch="sm_80", options=options)
    assert len(compilations) == 2


def test_scan_follows_circles_once(tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text('#include "b.cuh"\n')
    (tmp_path / "b.cuh").write_text('  #  include "a.cuh"\n#include <gone.h>\n')
    scanned = scan('#include \\\n"a.cuh"\n', tmp_path, [])
    assert [Path(name).name for name, _ in scanned.files] == ["a.cuh", "b.cuh"]
    assert scanned.missing == ("gone.h",)
    assert scanned.complete


def test_cuda_error_has_its_place() -> None:
    source = "__global__ void k(int* p) {\n    int x = 1;\n\t*p = x + nothing;\n}\n"
    with pytest.raises(ToolchainError, match='identifier "nothing" is undefined') as caught:
        compile_cuda(source, path="dir/bad.cu", arch="sm_90a")
    location = caught.value.location
    assert location is not None
    assert (location.path, location.line, location.text) == ("dir/bad.cu", 3, "\t*p = x + nothing;")
    assert location.text[location.column - 1 :].startswith("nothing")
    assert caught.value.exit_status == 4


def test_error_inside_a_header_names_the_header(tmp_path: Path) -> None:
    (tmp_path / "bad.cuh").write_text("\n__device__ int f() { return nothing; }\n")
    with pytest.raises(ToolchainError) as caught:
        compile_cuda('#include "bad.cuh"\n', path=str(tmp_path / "k.cu"), arch="sm_90a")
    location = caught.value.location
    assert location is not None
    assert (Path(location.path).name, location.line) == ("bad.cuh", 2)
    assert location.text[location.column - 1 :].startswith("nothing")


def test_missing_header_has_a_hint() -> None:
    with pytest.raises(ToolchainError) as caught:
        compile_cuda('#include <stdint.h>\n#include "gone.cuh"\n', path="k.cu", arch="sm_90a")
    location = caught.value.location
    assert location is not None
    assert (location.path, location.line) == ("k.cu", 2)
    assert caught.value.hint == "-I FOLDER says where gone.cuh is"


@pytest.mark.parametrize("arch", ["sm_99", "sm_20", "nonsense"])
def test_unknown_arch_is_refused_by_both_tools(arch: str) -> None:
    with pytest.raises(ToolchainError, match=arch):
        compile_cuda(SAXPY, path="k.cu", arch=arch)
    with pytest.raises(ToolchainError, match=arch):
        link_ptx(PTX, arch=arch)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ToolchainError, match="-nonsense"):
        compile_cuda(SAXPY, path="k.cu", arch="sm_90a", options=["-nonsense"])
    with pytest.raises(ToolchainError, match="-nonsense"):
        link_ptx(PTX, arch="sm_90a", options=["-nonsense"])


def test_resources_of_a_kernel() -> None:
    cubin = link_ptx(PTX, arch="sm_90a")
    assert cubin.image[:4] == b"\x7fELF"
    used = cubin.kernels["k"]
    assert (used.kernel, used.shared, used.barriers) == ("k", 1024, 1)
    assert 4 <= used.registers <= 32
    assert (used.stack, used.spill_stores, used.spill_loads) == (0, 0, 0)


def test_spills_of_one_kernel_are_not_anothers() -> None:
    source = """
    __device__ __noinline__ float pick(const float* p, int i) {
        float local[40];
        for (int j = 0; j < 40; j++) local[j] = p[j] * p[i];
        return local[i];
    }
    extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* p) {
        float v[80];
        #pragma unroll
        for (int i = 0; i < 80; i++) v[i] = p[i * 17 + threadIdx.x];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 80; i++) p[i * 3 + threadIdx.x] = v[i] + v[i * 7 % 80];
    }
    extern "C" __global__ void calling(float* p) { p[0] = pick(p, threadIdx.x); }
    """
    kernels = link_ptx(compile_cuda(source, path="k.cu", arch="sm_90a"), arch="sm_90a").kernels
    assert sorted(kernels) == ["calling", "spilling"]
    assert kernels["spilling"].registers == 32
    assert kernels["spilling"].spill_stores > 0
    assert kernels["spilling"].spill_loads > 0
    assert kernels["calling"].spill_stores == 0


def test_ptx_error_has_its_place() -> None:
    with pytest.raises(ToolchainError, match=r"Unknown modifier '\.sink'") as caught:
        link_ptx(PTX.replace("bar.sync", "bar.sink"), arch="sm_90a", path="bad.ptx")
    location = caught.value.location
    assert location is not None
    assert (location.path, location.line, location.text.strip()) == ("bad.ptx", 12, "bar.sink 0;")
    assert location.text[location.column - 1 :].startswith(".sink")


@pytest.mark.parametrize(
    ("arch", "accepted"), [("sm_80", False), ("sm_90", False), ("sm_90a", True), ("sm_100a", False)]
)
def test_linking_certifies_a_target(arch: str, accepted: bool) -> None:
    wgmma = PTX.replace("bar.sync 0;", "wgmma.fence.sync.aligned;")
    if accepted:
        assert link_ptx(wgmma, arch=arch).arch == arch
    else:
        with pytest.raises(ToolchainError):
            link_ptx(wgmma, arch=arch)


def test_too_new_ptx_is_refused() -> None:
    with pytest.raises(ToolchainError, match=r"Unsupported \.version 99\.0"):
        link_ptx(PTX.replace("8.0", "99.0"), arch="sm_90a")


def test_two_texts_link_and_a_kernel_defined_twice_does_not() -> None:
    both = link_ptx([PTX, PTX.replace("k(", "k2(")], arch="sm_90a")
    assert sorted(both.kernels) == ["k", "k2"]
    with pytest.raises(ToolchainError, match="kernel k is defined in more than one"):
        link_ptx([PTX, PTX], arch="sm_90a", path="twice.ptx")


def test_stored_cubin_equals_the_linked_one() -> None:
    first = link_ptx(PTX, arch="sm_90a")
    assert link_ptx(PTX, arch="sm_90a") == first
    # e_flags of the ELF header tell architectures apart, so no arch gets another's entry.
    plain = PTX.replace("sm_90a", "sm_80")
    flags = [
        struct.unpack_from("<I", link_ptx(plain, arch=arch).image, 48)[0]
        for arch in ("sm_80", "sm_89", "sm_80")
    ]
    assert flags[0] == flags[2] != flags[1]


def test_sass_names_the_lines_of_the_ptx() -> None:
    sass = disassemble(link_ptx(PTX, arch="sm_90a"))
    store = PTX.splitlines().index("    st.global.u32 [%rd1], %r2;") + 1
    after = re.split(r'//## File "[^"]*", line (\d+)', sass)
    by_line = dict(zip(map(int, after[1::2]), after[2::2], strict=True))
    assert "STG" in by_line[store]
    assert all("STG" not in text for line, text in by_line.items() if line != store)


def test_disassembling_takes_bytes_and_refuses_rubbish() -> None:
    cubin = link_ptx(PTX, arch="sm_90a")
    assert disassemble(cubin.image) == disassemble(cubin)
    with pytest.raises(ToolchainError, match="nvdisasm"):
        disassemble(b"no cubin at all")
    with pytest.raises(ToolchainError, match="nvdisasm"):
        disassemble(Cubin("sm_90a", cubin.image[:200], ""))


INDIRECT = (
    PTX.partition("    ld.param")[0]
    + """
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    setp.gt.u32 %p1, %r1, 3;
    @%p1 bra none;
ways: .branchtargets even, odd, none;
    brx.idx %r1, ways;
even: st.global.u32 [%rd1], 2;
    bra none;
odd: st.global.u32 [%rd1], 3;
none: ret;
}
"""
)


@pytest.mark.parametrize("branches", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_what_is_spared_of_disassembling_does_not_show(branches: bool) -> None:
    """The text is that with the analysis of data flow, which finds where an indirect branch can go."""
    cubin = link_ptx(INDIRECT if branches else PTX, arch="sm_90a")
    listing = disassemble(cubin)
    assert listing == nvdisasm._run(cubin.image, ("-c", "-gp")).decode()
    assert ("BRANCH_TARGETS" in listing) == branches


def test_unwritable_cache_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    source = '#include <cuda_bf16.h>\nextern "C" __global__ void k(__nv_bfloat16* p) { *p = 1.f; }'
    cubin = link_ptx(compile_cuda(source, path="k.cu", arch="sm_90a"), arch="sm_90a")
    assert "STG" in disassemble(cubin)


def test_an_absent_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    home: Any = sys.modules["ptxlab.toolchain.nvrtc"]
    home._installed.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    monkeypatch.delattr("cuda.bindings.nvrtc")
    try:
        with pytest.raises(ToolAbsent, match="NVRTC") as caught:
            compile_cuda(SAXPY, path="k.cu", arch="sm_90a")
    finally:
        home._installed.cache_clear()
    assert caught.value.exit_status == 3
    assert "pip install" in str(caught.value)


@pytest.fixture
def fresh_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "_process", None)


@pytest.mark.usefixtures("fresh_assembler")
def test_an_absent_nvjitlink_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cuda" / "bindings"
    package.mkdir(parents=True)
    (tmp_path / "cuda" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "nvjitlink.py").write_text("raise ImportError('no such library')")
    monkeypatch.syspath_prepend(tmp_path)
    with bypassed(), pytest.raises(ToolAbsent, match=r"nvJitLink .*no such library") as caught:
        link_ptx(PTX, arch="sm_90a")
    assert caught.value.exit_status == 3
    assert 'pip install "nvidia-nvjitlink<14,>=13.0"' in str(caught.value)


def test_options_that_nvjitlink_lacks_are_named() -> None:
    with bypassed(), pytest.raises(ToolchainError, match=r"does not take .*-frobnicate") as caught:
        link_ptx(PTX, arch="sm_90a", options=("-frobnicate",))
    assert caught.value.location is None


CRASHES = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k() {
    .reg .b32 r<2>;
    st.param.b32 [r0], r1;
    ret;
}
"""


def test_what_ends_nvjitlink_ends_nothing_else() -> None:
    """And the next text is assembled as if nothing had happened."""
    for _ in range(2):
        with pytest.raises(ToolchainError, match="itself ended while it assembled"):
            link_ptx(CRASHES, arch="sm_90a")
        with bypassed():
            assert link_ptx(PTX, arch="sm_90a").image


def test_a_used_process_that_ends_over_a_text_is_not_the_last_word() -> None:
    """Another one assembles it, as it is and not without its lines: see ``assemble``."""
    ptx = PTX.replace("ret;", ".loc 1 1 0\n ret;").replace(
        ".visible", '.file 1 "k.cu"\n.visible', 1
    )
    with bypassed():
        image = link_ptx(ptx, arch="sm_90a").image
        used = assembler._process
        assert used is not None
        used._running.kill()
        used._running.wait()
        assert link_ptx(ptx, arch="sm_90a").image == image
        assert assembler._process is not used


def test_an_interrupted_answer_is_no_answer_to_the_next_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = pickle.load

    def interrupted(stream: Any) -> object:
        monkeypatch.setattr(pickle, "load", real)
        raise KeyboardInterrupt

    with bypassed():
        monkeypatch.setattr(pickle, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            link_ptx(PTX, arch="sm_90a")
        with pytest.raises(ToolchainError, match="rejected"):
            link_ptx("rubbish", arch="sm_90a")


def test_no_driver_is_loaded() -> None:
    code = (
        "from ptxlab.toolchain import *\n"
        f"cubin = link_ptx(compile_cuda({SAXPY!r}, path='k.cu', arch='sm_90a'), arch='sm_90a')\n"
        "disassemble(cubin)\n"
        "maps = open('/proc/self/maps').read() if __import__('os').path.exists('/proc/self/maps') else ''\n"
        "assert 'libnvrtc' in maps or not maps\n"
        "assert 'libcuda.so' not in maps\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ
    )
    assert ran.returncode == 0, ran.stderr


def test_wheels_that_pythonpath_adds_are_found_with_their_libraries() -> None:
    """Without site.py this Python has no packages of its own, which are all that pathfinder looks among."""
    code = """
from ptxlab.toolchain import nvdisasm, nvrtc, wheels
print(nvrtc._library().nvrtcVersion()[0].name, nvdisasm.program())
try:
    print(wheels.load_library("nvJitLink", "no-such-wheel"))
except RuntimeError:
    print("absent")
"""
    hidden = {"CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"}
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    env |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=env
    )
    loaded, absent = ran.stdout.splitlines()
    assert loaded == f"NVRTC_SUCCESS {wheel_file(nvdisasm.PACKAGE, 'nvidia/*/bin/nvdisasm')}"
    assert absent == "absent"


def test_memory_that_is_free_is_given_back() -> None:
    """Of 64 MB in small pieces below one that is still held glibc returns nothing by itself."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        pytest.skip("another C library")
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

    def held() -> int:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()

    *pieces, last = [library.malloc(1 << 16) for _ in range(1 << 10)]
    for piece in pieces:
        ctypes.memset(piece, 1, 1 << 16)
    for piece in pieces:
        library.free(piece)
    before = held()
    nvrtc._give_memory_back()
    after = held()
    library.free(last)
    assert before - after > 1 << 25
