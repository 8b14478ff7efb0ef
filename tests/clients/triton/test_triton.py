"""Kernels in Triton, compiled by Triton and run on the emulator, against NumPy and PyTorch on the CPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxlab.triton
from ptxlab.clients.session import Session
from ptxlab.errors import DeviceUnavailable, LaunchError, PtxlabError
from tests.clients.needs import need

Emulate = Callable[..., Session]


@pytest.fixture
def torch(kernels: Any) -> Any:
    return import_module("torch")


def line_of(kernel: Any, text: str) -> int:
    """Return the number of the only line of a kernel's source with ``text``."""
    lines, first = inspect.getsourcelines(kernel.fn)
    (number,) = [first + index for index, line in enumerate(lines) if text in line]
    return number


def test_vectors_add_up_to_the_bit(emulate: Emulate, kernels: Any, torch: Any) -> None:
    session = emulate("sm_80")
    x, y = (torch.rand(1000, device="cuda") for _ in range(2))
    out = torch.full_like(x, -1)
    compiled = kernels.add[(4,)](x, y, out, 990, BLOCK=256)
    assert torch.equal(out[:990], x[:990] + y[:990])
    assert out[990:].tolist() == [-1] * 10
    kernels.add[(0,)](x, y, out, 0, BLOCK=256)  # launches nothing
    assert session.usage["add"].launches == 1
    assert compiled.n_regs in range(8, 65)
    assert "LDG.E" in compiled.asm["sass"]
    launched = ptxlab.triton.last_launch()
    assert repr(launched) == "<launch of add on sm_80: LaunchConfig.of(grid=4, block=128)>"
    assert launched.ptx == compiled.asm["ptx"]
    assert launched.check().verdict == "clean"
    files = [path for path in launched.profile().sources if path.endswith("kernels.py")]
    assert files
    assert list(launched.sass().functions) == ["add"]


@pytest.mark.parametrize(("arch", "instruction"), [("sm_80", "mma.sync"), ("sm_90a", "wgmma")])
def test_products_are_as_near_as_their_sums(
    emulate: Emulate, kernels: Any, torch: Any, arch: str, instruction: str
) -> None:
    emulate(arch)
    left, right = (torch.randn(128, 128, device="cuda", dtype=torch.float16) for _ in range(2))
    result = kernels.product(left, right, num_stages=3)
    assert instruction in ptxlab.triton.last_launch().ptx
    exact = left.double().cpu().numpy() @ right.double().cpu().numpy()
    magnitude = np.abs(left.double().cpu().numpy()) @ np.abs(right.double().cpu().numpy())
    assert (np.abs(result.double().cpu().numpy() - exact) <= 128 * 2**-23 * magnitude).all()


def test_descriptors_from_the_host_and_from_the_device(
    emulate: Emulate, kernels: Any, torch: Any
) -> None:
    emulate("sm_90a")
    descriptor = import_module("triton.tools.tensor_descriptor").TensorDescriptor.from_tensor
    left, right = (torch.randn(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.zeros(64, 64, device="cuda")
    kernels.matmul_tma[1, 1](
        descriptor(left, [64, 32]), descriptor(right, [32, 64]), descriptor(out, [64, 64]), 64, 64, 64, 32
    )  # fmt: skip
    assert "cp.async.bulk.tensor" in ptxlab.triton.last_launch().ptx
    exact = left.double() @ right.double()
    assert torch.allclose(out.double(), exact, rtol=0, atol=1e-4)

    triton = import_module("triton")
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
    copied = torch.zeros(64, 64, device="cuda")
    kernels.copy_tma[2, 2](out, copied, 64, BLOCK=32)
    assert torch.equal(copied, out)


def test_clusters(emulate: Emulate, kernels: Any, torch: Any) -> None:
    emulate("sm_90a")
    x = torch.arange(512, device="cuda", dtype=torch.float32)
    out = torch.zeros_like(x)
    kernels.add[(2,)](x, x, out, 512, BLOCK=256, num_ctas=2)
    assert ptxlab.triton.last_launch().config.cluster == (2, 1, 1)
    assert torch.equal(out, 2 * x)


def test_pointers_out_of_memory(emulate: Emulate, kernels: Any, torch: Any) -> None:
    emulate("sm_80")
    vectors = [torch.arange(n, n + 90, device="cuda").float() for n in range(5)]
    pointers = torch.tensor([vector.data_ptr() for vector in vectors], device="cuda")
    out = torch.zeros(5, device="cuda")
    kernels.grouped[(5,)](pointers, out, 90, BLOCK=128)
    assert out.tolist() == [sum(range(n, n + 90)) for n in range(5)]
    with pytest.raises(LaunchError, match="out of bounds") as caught:
        kernels.grouped[(5,)](pointers, out, 100, BLOCK=128)
    assert "a tensor that is pointed to, float32[90] (360 bytes" in str(caught.value.hint)


def test_what_triton_takes_for_a_tensor_is_looked_for_by_its_pointer(
    emulate: Emulate, kernels: Any, torch: Any
) -> None:
    """FlagGems gives objects with a pointer and a type for tensors whose strides PyTorch does not allow."""

    class Buffer:
        def __init__(self, base: Any, offset: int) -> None:
            self.dtype, self.device, self._at = base.dtype, base.device, base[offset:].data_ptr()

        def data_ptr(self) -> int:
            return int(self._at)

    emulate("sm_80")
    x = torch.arange(100, device="cuda").float()
    out = torch.zeros(100, device="cuda")
    kernels.add[(1,)](Buffer(x, 10), Buffer(x, 10), Buffer(out, 0), 90, BLOCK=128)
    assert out.tolist() == [2.0 * n for n in range(10, 100)] + [0.0] * 10


def test_a_compiled_kernel_is_launched_without_its_last_constants(
    emulate: Emulate, kernels: Any, torch: Any
) -> None:
    emulate("sm_80")
    x = torch.arange(8, device="cuda").float()
    out = torch.zeros(8, device="cuda")
    compiled = kernels.add[(1,)](x, x, out, 0, BLOCK=8)
    compiled[(1, 1, 1)](x, x, out, 8)
    assert torch.equal(out, 2 * x)


def test_a_compiled_kernel_wants_a_constant_in_its_place(
    emulate: Emulate, kernels: Any, torch: Any
) -> None:
    """Triton's C module takes the argument behind for the constant, and reads beyond the arguments."""
    emulate("sm_80")
    x, out = torch.full((1,), 7.0, device="cuda"), torch.zeros(1, device="cuda")
    compiled = kernels.repeated[(1,)](x, 3, out)
    with pytest.raises(PtxlabError, match="repeated takes 3 arguments and is given 2") as caught:
        compiled[(1, 1, 1)](x, out)
    assert "in their places" in str(caught.value.hint)
    out.zero_()
    compiled[(1, 1, 1)](x, 3, out)
    assert out.tolist() == [21.0]


def test_pointers_are_where_the_heap_is(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = import_module("ptxlab.clients.triton.memory")
    maps = tmp_path / "maps"
    monkeypatch.setattr(memory, "_MAPS", maps)
    for text, least in (
        ("00400000-00a1e000 r-xp 00000000 fe:00 7  /usr/bin/python3.11\n29660000-296ec000 rw-p 0 [heap]\n", 0x29660000),
        ("55d3f0b46000-55d3f0cac000 rw-p 00000000 00:00 0   [heap]\n", 1 << 32),
        ("7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n", 1 << 32),
    ):  # fmt: skip
        maps.write_text(text)
        assert memory._lowest.__wrapped__() == least


def test_a_wrong_address_names_the_line_and_the_tensor(
    emulate: Emulate, kernels: Any, torch: Any
) -> None:
    emulate("sm_80")
    x, out = torch.zeros(128, device="cuda"), torch.zeros(128, device="cuda")
    with pytest.raises(LaunchError, match=r"out of bounds") as caught:
        kernels.shifted[(1,)](x, out, BLOCK=128)
    location = caught.value.location
    assert location is not None
    assert location.path.endswith("kernels.py")
    assert location.line == line_of(kernels.shifted, "tl.load")
    assert location.text.strip() == "value = tl.load(x + at + 1)"
    assert "past the end of the nearest allocation, argument x, float32[128]" in str(caught.value)
    raw = torch.zeros(600, device="cuda", dtype=torch.uint8)
    triton = import_module("triton")
    odd = triton.reinterpret(raw[2:514], triton.language.float32)
    with pytest.raises(LaunchError, match="misaligned") as caught:
        kernels.shifted[(1,)](odd, out, BLOCK=64)
    assert "it lies in argument x, uint8[512]" in str(caught.value.hint)


def test_numbers_of_16_bits_are_swapped_in_words(
    emulate: Emulate, kernels: Any, torch: Any
) -> None:
    """A word may reach out of a tensor, as a GPU's memory does; that of another kernel may not."""
    emulate("sm_80")
    out = torch.ones(1, device="cuda", dtype=torch.bfloat16)
    kernels.counted[(40,)](out, 2.0)
    assert "cas.b32" in ptxlab.triton.last_launch().ptx
    assert out.item() == 81
    with pytest.raises(LaunchError, match="out of bounds"):
        kernels.shifted[(1,)](out, torch.zeros(1, device="cuda"), BLOCK=1)


def test_tensors_on_the_cpu_are_refused(emulate: Emulate, kernels: Any, torch: Any) -> None:
    """As Triton does on a GPU, and pinned ones are not."""
    emulate("sm_80")
    here, out = torch.ones(8), torch.zeros(8, device="cuda")
    out.copy_(here)
    for bad in (here, here[2:], out.cpu(), here.copy_(out)):
        with pytest.raises(ValueError, match=r"cannot be accessed from Triton \(cpu tensor\?\)"):
            kernels.add[(1,)](out, bad, out, 4, BLOCK=8)
    pinned = torch.ones(8, pin_memory=True)
    assert (pinned.is_pinned(), here.is_pinned(), pinned.is_cuda) == (True, False, False)
    for good in (pinned[1:], here.pin_memory(), here.cuda()):
        kernels.add[(1,)](good, out, out, 4, BLOCK=8)
    assert out.tolist() == [4, 4, 4, 4, 1, 1, 1, 1]
    emulate("sm_80", cuda_tensors=False)
    kernels.add[(1,)](here, here, here, 8, BLOCK=8)
    assert here.tolist() == [2] * 8


def test_a_race_names_its_line(emulate: Emulate, kernels: Any, torch: Any) -> None:
    session = emulate("sm_80", session=Session("sm_80", check=True))
    out = torch.zeros(1, device="cuda", dtype=torch.int32)
    kernels.last_wins[(3,)](out)
    (report,) = session.reports
    (finding,) = report.findings
    assert finding.kind == "race"
    assert finding.source is not None
    assert finding.source.path.endswith("kernels.py")
    assert finding.source.line == line_of(kernels.last_wins, "tl.store")


def test_what_the_device_prints_and_asserts(
    emulate: Emulate, kernels: Any, torch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    emulate("sm_80")
    x = torch.arange(32, device="cuda", dtype=torch.int32)
    kernels.telling[(1,)](x, BLOCK=32, num_warps=1, debug=True)
    shown = capsys.readouterr().out
    assert all(f"idx ({n:2}) value: {n}\n" in shown for n in range(32))
    x[5] = -1
    with pytest.raises(LaunchError, match=r"assertion failed: negative"):
        kernels.telling[(1,)](x, BLOCK=32, num_warps=1, debug=True)


def test_the_first_configuration_that_fits(
    emulate: Emulate, kernels: Any, torch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    emulate("sm_80")
    left, right = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.zeros(64, 64, device="cuda")
    kernels.tuned[lambda meta: (64 // meta["BM"], 64 // meta["BN"])](left, right, out, 64, 64)
    assert kernels.tuned.best_config is kernels.CONFIGS[1]
    assert torch.allclose(out.double(), left.double() @ right.double(), rtol=0, atol=1e-4)
    assert capsys.readouterr().err.count("first configuration that fits") == 1


def test_tensors_are_where_the_program_put_them(emulate: Emulate, torch: Any) -> None:
    emulate("sm_90a")
    there, here = torch.zeros(3, device="cuda"), torch.zeros(3)
    assert (there.is_cuda, here.is_cuda, here.is_cpu) == (True, False, True)
    assert there.device == torch.device("cuda:0") == (there + 1)[1:].device
    assert there.to("cuda") is there
    assert here.cpu() is here
    for copied, where in ((here.cuda(), "cuda"), (here.to("cuda"), "cuda"), (there.cpu(), "cpu")):
        assert copied.device.type == where
        copied += 1
    assert there.tolist() == here.tolist() == [0, 0, 0]
    assert here.to(there).is_cuda
    assert torch.empty(2, device=0).is_cuda
    assert not torch.zeros_like(there, device="cpu").is_cuda
    assert torch.cuda.is_available()
    assert torch.cuda.get_device_capability() == (9, 0)
    leaf = torch.ones(3, device="cuda", requires_grad=True)
    (leaf * 2).sum().backward()
    assert leaf.grad.is_cuda
    seeded = [torch.Generator("cuda").manual_seed(7) for _ in range(2)]
    drawn, other = (torch.rand(3, device="cuda", generator=source) for source in seeded)
    assert (
        drawn.tolist()
        == other.tolist()
        != torch.rand(3, device="cuda", generator=seeded[0]).tolist()
    )
    assert (seeded[0].device.type, drawn.is_cuda) == ("cuda", True)
    assert isinstance(torch.default_generator, torch.Generator)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) >= 0


def test_without_tensors_on_cuda(kernels: Any) -> None:
    triton = import_module("triton")
    ptxlab.triton.use_emulator("sm_80", cuda_tensors=False)
    assert str(triton.runtime.driver.active.get_active_torch_device()) == "cpu"


@pytest.mark.parametrize("absent", ["triton", "torch"])
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, absent: str) -> None:
    monkeypatch.setattr(ptxlab.triton, "find_spec", lambda name: None if name == absent else name)
    with pytest.raises(DeviceUnavailable, match=f"^{absent} is not installed") as caught:
        ptxlab.triton.use_emulator("sm_80")
    assert caught.value.hint == f"pip install {'triton>=3.7' if absent == 'triton' else absent!r}"


def test_an_old_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxlab.triton, "find_spec", lambda name: name)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.6.1")
    with pytest.raises(DeviceUnavailable, match=r"Triton 3\.6\.1 is older"):
        ptxlab.triton.use_emulator("sm_80")


def test_no_launch_and_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxlab.triton, "_session", None)
    with pytest.raises(PtxlabError, match="no kernel was launched"):
        ptxlab.triton.last_launch()
    need("triton", "torch")
    with pytest.raises(PtxlabError, match="there is no target 'sm_81'"):
        ptxlab.triton.use_emulator("sm_81")
