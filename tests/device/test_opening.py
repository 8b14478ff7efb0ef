"""Opening the emulator, and the package's own front door."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ptxlab
from ptxlab import resources
from ptxlab.device.opening import open_device
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS
from tests.together import in_one_test

FILL = """.version 8.0
.target sm_75
.address_size 64
.visible .entry fill(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


@in_one_test("arch", TARGETS)
def test_the_emulator_is_what_arch_says(arch: str) -> None:
    with open_device("emulator", arch=arch) as device:
        assert (device.kind, device.target.name, device.note) == ("emulator", arch, "")
        assert arch in device.name


def test_the_emulator_by_default() -> None:
    assert open_device("emulator").target.name == DEFAULT_TARGET


@pytest.mark.parametrize("spec", ["gpu", "", "cuda:", "cuda:x", "cuda:-1", "emulator:1", "auto:0"])
def test_unknown_device(spec: str) -> None:
    with pytest.raises(PtxlabError, match="there is no device") as caught:
        open_device(spec)
    assert caught.value.exit_status == 2
    assert "auto, cuda, cuda:N and emulator" in str(caught.value)


@pytest.mark.parametrize("spec", ["auto", "cuda", "emulator"])
def test_unknown_arch_lists_and_suggests(spec: str) -> None:
    with pytest.raises(PtxlabError, match="there is no target 'sm_90b'") as caught:
        open_device(spec, arch="sm_90b")
    assert caught.value.exit_status == 2
    assert "did you mean sm_90" in str(caught.value)
    assert "sm_120a" in str(caught.value)


def test_a_gpu_is_no_target_but_is_one() -> None:
    with pytest.raises(PtxlabError, match="there is no target 'h100'") as caught:
        open_device("emulator", arch="h100")
    assert str(caught.value.hint).startswith("H100 SXM is sm_90a; targets are sm_75")


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    device = open_device("emulator", progress=lambda done, total: told.append((done, total)))
    out = device.zeros(100, "u32")
    device.load(FILL).kernel().launch(100, 1, [out])
    assert out.numpy().tolist() == list(range(100))
    assert told[-1] == (100, 100)


def test_counters_come_with_the_result() -> None:
    device = open_device("emulator")
    result = device.load(FILL).kernel().launch(4, 1, [device.zeros(4, "u32")])
    assert result.counters
    assert all(isinstance(value, int) for value in result.counters.values())


def test_fault_names_the_buffer_and_the_line() -> None:
    device = open_device("emulator")
    kernel = device.load(FILL).kernel()
    with pytest.raises(LaunchError, match=r"uint32\[2\]") as caught:
        kernel.launch(3, 1, [device.zeros(2, "u32")])
    assert caught.value.location is not None
    assert caught.value.location.line == 12


def test_a_freed_buffer_is_gone() -> None:
    device = open_device("emulator")
    out = device.zeros(1, "u32")
    address = out.address
    out.close()
    with pytest.raises(LaunchError):
        device.load(FILL).kernel().launch(1, 1, [address])


def test_buffers_of_another_device_are_refused() -> None:
    device, other = open_device("emulator"), open_device("emulator")
    with pytest.raises(PtxlabError, match="argument 0 lies on another device"):
        device.load(FILL).kernel().launch(1, 1, [other.zeros(1, "u32")])


def test_closed_emulator_says_so() -> None:
    device = open_device("emulator")
    out = device.zeros(1, "u32")
    kernel = device.load(FILL).kernel()
    device.close()
    device.close()
    for use in (
        lambda: device.upload(np.zeros(1)),
        lambda: device.load(FILL),
        out.numpy,
        lambda: kernel.launch(1, 1, [0]),
    ):
        with pytest.raises(PtxlabError, match="is closed"):
            use()
    out.close()


def test_the_emulator_takes_no_machine_code(tmp_path: Path) -> None:
    (tmp_path / "k.cubin").write_bytes(b"\x7fELF")
    with pytest.raises(Unsupported, match="is machine code") as caught:
        open_device("emulator").load(tmp_path / "k.cubin")
    assert "--device cuda" in str(caught.value)


# ---- the package ----------------------------------------------------------------------------


def test_every_public_name_is_there() -> None:
    for name in ptxlab.__all__:
        assert getattr(ptxlab, name) is not None
        assert name in dir(ptxlab)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ptxlab.nothing  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import ptxlab\n"
        "new = sorted(set(sys.modules) - before - {'__future__', 'typing'})\n"
        "assert not {'numpy', 'cuda', 'rich', 'ml_dtypes', 'inspect'} & set(new), new\n"
        "own = [name for name in new if name.startswith('ptxlab')]\n"
        "assert own == ['ptxlab', 'ptxlab.judging', 'ptxlab.pictured'], new\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_opening_the_emulator_does_not_import_cuda() -> None:
    code = (
        "import sys, ptxlab; ptxlab.open_device('emulator')\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'cuda']\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_resources_are_listed_and_missing_ones_named() -> None:
    names = resources.names()
    assert "ptx/mma_m16n8k16_bf16_f32.ptx" in names
    assert all(resources.path(name).is_file() for name in names)
    with pytest.raises(PtxlabError, match="ships no ptx/mma_m16n8k16_bf16_f33") as caught:
        resources.path("ptx/mma_m16n8k16_bf16_f33.ptx")
    assert "did you mean ptx/mma_m16n8k16_bf16_f32.ptx" in str(caught.value)
