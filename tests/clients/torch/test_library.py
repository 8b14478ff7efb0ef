"""What of PyTorch's own library, headers and table of operations is relied on."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import DeviceUnavailable, Unsupported
from tests.clients.needs import need


def test_virtual_functions_are_counted_as_the_compiler_does(torch: Any) -> None:
    library = import_module("ptxlab.clients.torch.library")
    header = """
    /** A has virtual functions such as f(x). */
    struct A {
      virtual ~A() = default; // virtual int no() const
      virtual bool isBuilt() const { return false; }
      virtual const Generator& getDefaultGenerator(
          [[maybe_unused]] DeviceIndex device_index = -1) const = 0;
      void init() const override {}
    #ifdef USE_ROCM
      virtual bool isGPUArch() const;
    #endif
    };
    """
    assert library.virtual_functions(header) == ["~", "~", "isBuilt", "getDefaultGenerator"]
    folder = Path(torch.__file__).parent / "include" / "ATen" / "detail"
    counts = [
        len(library.virtual_functions((folder / f"{name}HooksInterface.h").read_text()))
        for name in ("Accelerator", "CUDA")
    ]
    assert counts == [16, 32]  # 400 bytes of the symbol vtable for at::CUDAHooksInterface, less 16


def test_another_library_is_refused(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = import_module("ptxlab.clients.torch.library")
    monkeypatch.setattr(library, "_REGISTRY", "_ZN3c104impl7anotherE")
    with pytest.raises(DeviceUnavailable, match=r"^PyTorch 2\.\S+ cannot be given a device that is") as caught:  # fmt: skip
        library.enable.__wrapped__()
    assert "cuda_tensors=False" in str(caught.value.hint)


@pytest.fixture(scope="module")
def table() -> Any:
    """PyTorch's generator of code has read the same table: its functions by name, and who has kernels."""
    need("torch", "yaml")
    torchgen = import_module("torchgen.gen")
    folder = Path(str(torchgen.__file__)).parent / "packaged" / "ATen" / "native"
    return torchgen.parse_native_yaml(
        str(folder / "native_functions.yaml"), str(folder / "tags.yaml")
    )


def has_kernel(table: Any, key: str, function: Any) -> bool:
    keys = import_module("torchgen.model").DispatchKey
    return bool(table.backend_indices[keys.parse(key)].has_kernel(function))


def composite(table: Any, function: Any) -> bool:
    return any(
        has_kernel(table, f"Composite{kind}", function)
        for kind in ("ImplicitAutograd", "ExplicitAutograd", "ExplicitAutogradNonFunctional")
    )


# It changes with PyTorch.
@pytest.mark.thorough
def test_what_is_read_of_the_table_is_what_it_says(torch: Any, table: Any) -> None:
    operations = import_module("ptxlab.clients.torch.operations")
    kernels = import_module("ptxlab.clients.torch.kernels")
    groups = import_module("torchgen.gen").get_grouped_native_functions(table.native_functions)
    structured = {
        str(function.func.name): group
        for group in groups
        if getattr(group, "structured", False)
        for function in group.functions()
    }
    native = import_module("torchgen.api.native").name
    missing, together, alone, checked = set(), set(), set(), 0
    for function in table.native_functions:
        name = str(function.func.name)
        if not operations.declaration(name):
            assert "generated" in function.tags  # which the table does not name
            continue
        group = structured.get(name)
        on_cuda, on_cpu = (has_kernel(table, key, group or function) for key in ("CUDA", "CPU"))
        if on_cpu and not on_cuda and not composite(table, function):
            missing.add(name)
        assert operations.is_missing(name) == (name in missing), name
        if on_cuda and has_kernel(table, "CompositeExplicitAutograd", function):
            together.add(name)
        if on_cuda and not on_cpu and not composite(table, function):
            alone.add(name)
        if not on_cuda:
            continue
        method = (
            f"wrapper_CUDA_{native(function.func)}"
            if group
            else f"wrapper_CUDA_{function.func.name.overload_name}_{function.func.name.name}"
            + "_out" * function.func.is_out_fn()
        )
        expected = method if function.device_check.name == "ExactSame" else None
        assert operations.checked_as(name) == expected, name
        checked += expected is not None
    assert "histogram.bin_ct" in missing
    assert "mm" not in missing
    assert checked > 600
    assert set(operations.of_gpus_alone()) == alone
    assert {name for name in together if not name.startswith("_foreach_")} == set(kernels.COMPOSITE)


def test_what_gpus_alone_have(torch: Any) -> None:
    x = torch.full((2, 2), 300.0, device="cuda", dtype=torch.float16)
    assert torch.mm(x, x).isinf().all()
    assert torch.mm(x, x, out_dtype=torch.float32).tolist() == [[180_000.0] * 2] * 2
    with pytest.raises(Unsupported, match=r"^aten\.batch_norm_stats\.default is of GPUs alone: "):
        torch.batch_norm_stats(x, 1e-5)
    for make in (x.to_sparse, lambda: torch.quantize_per_tensor(x.float(), 1.0, 0, torch.quint8)):
        with pytest.raises(Unsupported, match=r"^sparse and quantized tensors"):
            make()


def test_pytorch_s_copy_for_all_devices_copies_between_them(torch: Any) -> None:
    """It is what FlagGems leaves copies to that its own kernel is not for."""
    copy = torch.ops.aten.copy_.default
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    numbers = torch.arange(6.0).reshape(2, 3)
    for source, into in (("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")):
        for dtype in (torch.float32, torch.bfloat16, torch.complex64):
            there = torch.zeros(3, 2, device=into, dtype=dtype)
            result = copy.redispatch(keys, there, numbers.to(source).t(), False)
            assert result is there
            assert torch.equal(there.cpu(), numbers.t().to(dtype))
    imaginary = torch.tensor([1 + 2j], device="cuda").conj()
    assert copy.redispatch(keys, torch.zeros(1, dtype=torch.complex64), imaginary, False) == 1 - 2j


def test_what_the_library_copies_by_itself_is_no_part_of_a_graph(torch: Any) -> None:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    into, source = torch.zeros(2, device="cuda"), torch.ones(2, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = source + 1
        with pytest.raises(RuntimeError, match="missing kernel for cuda"):
            torch.ops.aten.copy_.default.redispatch(keys, into, kept, False)
    graph.replay()
    torch.ops.aten.copy_.default.redispatch(keys, into, kept, False)
    assert into.tolist() == [2, 2]
