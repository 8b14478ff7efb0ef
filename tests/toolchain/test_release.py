"""Which release compiles and assembles: the installed one by its number, one in a folder or the cache, or an error with the way there."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest
from cuda.pathfinder import load_nvidia_dynamic_lib

from ptxlab.cache import bypassed
from ptxlab.device.loading import load_assembled
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.isa.targets import TARGETS
from ptxlab.main import main
from ptxlab.toolchain import assembler, link_ptx, nvjitlink, nvrtc
from ptxlab.toolchain.inventory import lowered, newest_ptx, tools
from ptxlab.toolchain.release import VARIABLE, chosen, kept_in, using
from ptxlab.toolchain.wheels import ToolAbsent

EMPTY = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n"
INSTALLED = metadata.version("nvidia-nvjitlink")


@pytest.fixture(scope="module")
def library() -> Path:
    """The library of the installed nvJitLink."""
    loaded = load_nvidia_dynamic_lib("nvJitLink").abs_path
    assert loaded is not None
    return Path(loaded)


def laid_out(folder: Path, library: Path, version: str) -> Path:
    """Lay a library out as pip puts the wheel of a release into a folder."""
    old = version.startswith("12.")
    home = folder / "nvidia" / ("nvjitlink" if old else "cu13") / "lib"
    home.mkdir(parents=True)
    (home / "libnvJitLink.so.12").symlink_to(library)
    (folder / f"nvidia_nvjitlink{'_cu12' * old}-{version}.dist-info").mkdir()
    return folder


@pytest.mark.parametrize("digits", [1, 2])
def test_the_installed_one_is_of_its_release(digits: int) -> None:
    name = ".".join(INSTALLED.split(".")[: digits + 1])
    with using(name):
        assert chosen() is None
        assert nvjitlink.version() == INSTALLED
        assert nvjitlink.file() == load_nvidia_dynamic_lib("nvJitLink").abs_path
    with using(INSTALLED[:-1]), pytest.raises(ToolAbsent):  # 13.5.3 is not 13.5.37
        chosen()


@pytest.mark.parametrize("version", ["12.8.93", "13.1.80"])
def test_a_release_in_the_cache_is_found_and_assembles(
    version: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that assembles has that file open, and the installed one again afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    name = version.rpartition(".")[0]
    folder = laid_out(kept_in(name), library, version)
    with bypassed():
        with using(name):
            release = chosen()
            assert release is not None
            assert release.assembler.startswith(os.fspath(folder))
            assert release.version == version == nvjitlink.version()
            assert link_ptx(EMPTY, arch="sm_80").kernels.keys() == {"empty"}
            process = assembler._process
            assert process is not None
            assert process.library == release.assembler
        assert link_ptx(EMPTY, arch="sm_80").image
        process = assembler._process
        assert process is not None
        assert process.library == ""


def test_what_one_release_made_is_not_taken_for_what_another_makes(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    asked: list[str] = []
    real = assembler.assemble

    def spy(texts: list[str], options: list[str], path: str, library: str) -> object:
        asked.append(library)
        return real(texts, options, path, library)

    monkeypatch.setattr(nvjitlink, "assemble", spy)
    folder = laid_out(tmp_path / "mine", library, "12.6.85")
    for _ in range(2):
        link_ptx(EMPTY, arch="sm_80")
        with using(os.fspath(folder)):
            link_ptx(EMPTY, arch="sm_80")
    assert len(asked) == 2
    assert asked[0] == ""
    assert asked[1].startswith(os.fspath(folder))


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("12.8", ["nvidia-nvjitlink-cu12==12.8.*", "nvidia-cuda-nvrtc-cu12==12.8.*"]),
        ("13.1", ["nvidia-nvjitlink==13.1.*", "nvidia-cuda-nvrtc==13.1.*"]),
    ],
)
def test_one_that_is_not_there_says_how_to_install_it(
    name: str,
    requirements: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    monkeypatch.setattr("ptxlab.toolchain.release._TOOLKITS", f"{tmp_path}/{{}}")
    assert main(["sass", "ptx/mma_m16n8k16_bf16_f32.ptx", "--toolchain", name]) == 3
    error = capsys.readouterr().err
    folder, wanted = (
        tmp_path / "ptxlab" / "toolchains" / name,
        " ".join(map('"{}"'.format, requirements)),
    )
    assert f'install --no-deps --target "{folder}" {wanted}' in error
    assert VARIABLE not in os.environ


def test_neither_release_nor_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sass", "ptx/mma_m16n8k16_bf16_f32.ptx", "--toolchain", "new"]) == 2
    assert "neither a release of CUDA such as 12.8 nor a folder" in capsys.readouterr().err
    with (
        using(os.fspath(tmp_path)),
        pytest.raises(PtxlabError, match="has no nvJitLink and no NVRTC in it"),
    ):
        link_ptx(EMPTY, arch="sm_80")


def test_cuda_c_goes_through_ptx_that_the_release_takes(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = laid_out(tmp_path / "older", library, "12.8.93")
    monkeypatch.setattr("ptxlab.toolchain.inventory.newest_ptx", lambda: "8.7")
    source = tmp_path / "k.cu"
    source.write_text('extern "C" __global__ void k(int* x) { x[threadIdx.x] = 1; }')
    with using(os.fspath(folder)):
        module, cubin = load_assembled(source, TARGETS["sm_80"])
    assert ".version 8.7\n" in module.source.text
    assert cubin.kernels.keys() == {"k"}


def test_only_what_is_newer_than_the_release_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = newest_ptx()
    assert lowered(EMPTY) == EMPTY
    assert lowered(EMPTY.replace("8.0", "99.10")) == EMPTY.replace("8.0", newest)
    assert lowered(f"// 99.9\n{EMPTY}") == f"// 99.9\n{EMPTY}"
    monkeypatch.setattr("ptxlab.toolchain.inventory.newest_ptx", lambda: "9.2")
    assert lowered(EMPTY.replace("8.0", "9.10")) == EMPTY.replace("8.0", "9.2")


KERNEL = """
#include <cuda_bf16.h>
__device__ float twice(float x) { return x + x; }
template <int N> __global__ void k(float* x, __nv_bfloat16* y) { x[N] = twice(__bfloat162float(y[threadIdx.x])); }
"""


def with_compiler(folder: Path) -> Path:
    """Lay the installed NVRTC out as pip puts that of a release into a folder."""
    loaded = load_nvidia_dynamic_lib("nvrtc").abs_path
    assert loaded is not None
    home = folder / "nvidia" / "cuda_nvrtc" / "lib"
    home.mkdir(parents=True)
    for file in Path(loaded).parent.glob("libnvrtc*"):
        (home / file.name).symlink_to(file)
    (folder / "nvidia_cuda_nvrtc_cu12-12.7.1.dist-info").mkdir()
    return folder


def test_a_release_with_nvrtc_compiles_cuda_c_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the bindings' calls of the installed one make, its calls make too, and nothing is linked."""
    source = tmp_path / "k.cu"
    source.write_text(KERNEL)
    options = ["--instance=k<3>"]
    with bypassed():
        module, cubin = load_assembled(source, TARGETS["sm_80"], options)
        monkeypatch.setattr(nvrtc, "_installed", None)
        monkeypatch.setattr("ptxlab.toolchain.link_ptx", None)
        with using(os.fspath(with_compiler(tmp_path / "own"))):
            assert nvrtc.version() == "12.7.1"
            other, made = load_assembled(source, TARGETS["sm_80"], options)
    assert other.source.text == module.source.text
    assert made.kernels == cubin.kernels
    assert made.image == cubin.image


def test_what_a_release_rejects_is_told_with_its_place(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text('extern "C" __global__ void k(float* x) {\n  x[0] = nothing;\n}\n')
    with using(os.fspath(with_compiler(tmp_path / "own"))):
        with pytest.raises(ToolchainError, match='"nothing" is undefined') as caught:
            load_assembled(source, TARGETS["sm_80"])
        assert caught.value.location is not None
        assert caught.value.location.line == 2
        source.write_text('extern "C" __global__ void k() {}')
        with pytest.raises(ToolchainError) as caught:
            load_assembled(source, TARGETS["sm_80"], ["-nothing"])
        assert "unrecognized option -nothing" in caught.value.message


def test_ptx_is_not_assembled_without_nvjitlink_of_the_release(tmp_path: Path) -> None:
    folder = with_compiler(tmp_path / "own")
    with using(os.fspath(folder)), pytest.raises(PtxlabError, match="has no nvJitLink in it"):
        link_ptx(EMPTY, arch="sm_80")


def test_the_tools_are_those_of_the_release(tmp_path: Path) -> None:
    folder = with_compiler(tmp_path / "own")
    with using(os.fspath(folder)):
        assert nvrtc.file().startswith(os.fspath(folder))
        compiler, assembler, *_ = tools()
    assert (compiler.version, compiler.problem) == ("12.7.1", "")
    assert "has no nvJitLink in it" in assembler.problem
    compiler, assembler, *_ = tools()
    assert not compiler.problem
    assert (assembler.version, assembler.problem) == (INSTALLED, "")


def test_a_library_that_does_not_load_is_told(tmp_path: Path) -> None:
    home = tmp_path / "nvidia" / "cuda_nvrtc" / "lib"
    home.mkdir(parents=True)
    (home / "libnvrtc.so.12").write_text("no library")
    source = tmp_path / "k.cu"
    source.write_text('extern "C" __global__ void k() {}')
    with using(os.fspath(tmp_path)), pytest.raises(ToolchainError, match="cannot be loaded"):
        load_assembled(source, TARGETS["sm_80"])


def test_what_lies_beside_an_older_wheel_is_not_of_its_release(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one environment with the installed wheels and nvJitLink of CUDA 12 the latter alone is of 12.8."""
    folder = laid_out(tmp_path, library, "12.8.93")
    newer = folder / "nvidia" / "cu13" / "lib"
    newer.mkdir(parents=True)
    for name in ("libnvJitLink.so.13", "libnvrtc.so.13"):
        (newer / name).touch()
    versions = {"nvidia-nvjitlink-cu12": "12.8.93", "nvidia-nvjitlink": INSTALLED}
    monkeypatch.setattr(
        "ptxlab.toolchain.release.wheel_version", lambda name: versions.get(name, "")
    )
    monkeypatch.setattr("ptxlab.toolchain.release.wheel_folder", lambda _: folder)
    with using("12.8"):
        release = chosen()
    assert release is not None
    assert release.compiler == ""
    assert release.assembler.endswith("nvjitlink/lib/libnvJitLink.so.12")


def test_releases_before_cuda_12_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sass", "ptx/mma_m16n8k16_bf16_f32.ptx", "--toolchain", "11.8"]) == 3
    assert "releases from CUDA 12.0 on can be taken" in capsys.readouterr().err
