"""What programs do with "cuda" beside computing, and that they find what they would find on the CPU."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

Make = Callable[[Any], Any]


@pytest.fixture
def programs(torch: Any) -> Any:
    return import_module("tests.clients.torch.programs")


def test_a_tensor_is_one_of_cuda(torch: Any) -> None:
    x = torch.ones(2, 3, device="cuda")
    assert (x.device, x.is_cuda, x.is_cpu, x.get_device()) == (
        torch.device("cuda:0"),
        True,
        False,
        0,
    )
    assert (type(x), x.type(), repr(x[0])) == (
        torch.Tensor,
        "torch.cuda.FloatTensor",
        "tensor([1., 1., 1.], device='cuda:0')",
    )
    assert x.to("cuda") is x.cuda() is x.to(0) is x
    assert not x.cpu().is_cuda
    assert torch.empty(2, device=0).is_cuda
    assert torch.nn.Linear(2, 2).cuda().weight.device == x.device
    for same in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), x.new_ones(2, 3)):
        assert torch.equal(same, x)
        assert same.data_ptr() != x.data_ptr()
        assert same.data_ptr() % 512 == 0
    for new in (x + 1, torch.empty(3, device="cuda"), torch.arange(9).cuda()):
        assert new.data_ptr() % 512 == 0


def test_views_share_their_storage(torch: Any) -> None:
    x = torch.zeros(4, 6, device="cuda")
    for view in (x[1:], x.t(), x.view(24), x.reshape(2, 12), x.expand(2, 4, 6), x.detach(), x.data):
        assert view.untyped_storage().data_ptr() == x.data_ptr()
    x[1:, ::2].add_(1)
    assert x.tolist() == [[0] * 6, *[[1, 0] * 3] * 3]
    assert x[1].data_ptr() == x.data_ptr() + 6 * 4
    assert torch.empty(1, 5, device="cuda").as_strided((1, 5), (40, 1)).stride() == (40, 1)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        x.view(24)[1:].add_(x.view(24)[:-1])


def test_results_are_written_where_they_are_to_be(torch: Any) -> None:
    x = torch.arange(3.0, device="cuda")
    out = torch.empty(0, device="cuda")
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [1, 2, 3]
    part = torch.zeros(6, device="cuda")
    torch.mul(x, 2, out=part[3:])
    assert part.tolist() == [0, 0, 0, 0, 2, 4]
    values, places = torch.empty(0, device="cuda"), torch.empty(0, dtype=torch.long, device="cuda")
    assert torch.max(x[None], 1, out=(values, places))[1].tolist() == places.tolist() == [2]
    grown = x.clone().resize_(2, 3)
    assert (grown.shape, grown[0].tolist()) == ((2, 3), [0, 1, 2])
    assert grown.set_(x[1:]).data_ptr() == x[1:].data_ptr()
    x.data = torch.ones(1, device="cuda")
    assert x.tolist() == [1]


def ctc(torch: Any, x: Any) -> Any:
    lengths = torch.tensor([3, 2])
    targets = torch.tensor([[1, 2], [2, 1]], device=x.device)
    return torch.nn.functional.ctc_loss(x.log_softmax(2), targets, lengths, lengths - 1)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "becomes a view of itself": lambda torch, x: x.clone().squeeze_(0).transpose_(0, 1).t_(),
    "keeps its strides": lambda torch, x: torch.rot90(x, dims=(1, 2)),
    "loses a dimension": lambda torch, x: torch.quantile(x, 0.5, dim=1),
    "a number for a tensor": lambda torch, x: torch.take_along_dim(x, torch.tensor([[[-1]]], device=x.device), 1),
    "conjugate": lambda torch, x: torch.fft.ifft(x),
    "negative": lambda torch, x: torch.fft.fft(x).conj().imag,
    "copied without waiting": lambda torch, x: x.to("cpu", non_blocking=True),
    "half": lambda torch, x: torch.softmax(x.half(), 1),
    "sorted": lambda torch, x: torch.sort(x, 2).indices,
    "found": lambda torch, x: (x > 0).nonzero(),
    "put": lambda torch, x: x.clone().index_put_((torch.tensor([0]),), x[0] * 2, accumulate=True),
    "solved": lambda torch, x: torch.linalg.solve(x[:, :2, :2] + 9 * torch.eye(2, device=x.device), x[:, :2]),
    "connectionist loss": ctc,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_operations_compute_what_they_compute_on_the_cpu(torch: Any, name: str) -> None:
    x = torch.randn(3, 2, 4) if "loss" in name else torch.randn(1, 3, 4)
    here, there = (CALLS[name](torch, each) for each in (x, x.cuda()))
    torch.testing.assert_close(there.cpu(), here)
    assert there.stride() == here.stride()
    assert there.device.type == ("cpu" if name == "copied without waiting" else "cuda")


MODULES: dict[str, tuple[Make, tuple[int, ...]]] = {
    "linear": (lambda nn: nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 2)), (3, 6)),
    "convolution": (lambda nn: nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)), (2, 3, 8, 8)),
    "depthwise": (lambda nn: nn.Conv2d(4, 4, 3, groups=4, padding=1), (1, 4, 6, 6)),
    "transposed": (lambda nn: nn.ConvTranspose1d(3, 2, 3, stride=2), (2, 3, 5)),
    "norms": (
        lambda nn: nn.Sequential(nn.BatchNorm1d(4), nn.LayerNorm(6), nn.RMSNorm(6)),
        (3, 4, 6),
    ),
    "groups": (lambda nn: nn.GroupNorm(2, 4), (2, 4, 5)),
    "attention": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
        (2, 3, 8),
    ),
    "lstm": (lambda nn: nn.LSTM(4, 5, num_layers=2, bidirectional=True), (6, 2, 4)),
    "gru": (lambda nn: nn.GRU(4, 5, bias=False), (6, 2, 4)),
    "gru with bias": (lambda nn: nn.GRU(4, 5), (6, 2, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_compute_what_they_compute_on_the_cpu(torch: Any, name: str) -> None:
    make, size = MODULES[name]
    here = make(torch.nn).double()
    there = copy.deepcopy(here).cuda()
    x = torch.randn(*size, dtype=torch.float64)
    results = []
    for module, each in ((here, x), (there, x.cuda())):
        each.requires_grad_()
        out = module(each)
        out = out[0] if isinstance(out, tuple) else out
        out.square().sum().backward()
        assert {p.grad.device for p in module.parameters()} == {each.device}
        results.append([out, each.grad, *(p.grad for p in module.parameters())])
    for cpu, gpu in zip(*results, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu)


def test_the_default_device(torch: Any, programs: Any) -> None:
    torch.set_default_device("cuda")
    try:
        made = [torch.zeros(3), torch.tensor([1.0]), torch.arange(3), torch.randperm(3)]
        assert {x.device.type for x in (*made, torch.nn.Linear(2, 2).weight)} == {"cuda"}
    finally:
        torch.set_default_device(None)
    assert torch.zeros(3).device.type == "cpu"
    with torch.device("cuda"):
        x = torch.ones(8)
        assert x.is_cuda
        assert programs.doubled(x).tolist() == [2] * 8
        assert torch.get_default_device().type == "cuda"


def test_threads_and_backward(torch: Any, programs: Any) -> None:
    """Backward on a GPU runs in a thread of PyTorch's own."""
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(programs.doubled(torch.ones(8, device="cuda")))
    )
    thread.start()
    thread.join()
    assert results[0].tolist() == [2] * 8
    programs.Doubled.threads = []
    x = torch.ones(8, device="cuda", requires_grad=True)
    programs.Doubled.apply(x * 3).sum().backward()
    assert x.grad.tolist() == [6] * 8
    assert programs.Doubled.threads != [threading.current_thread()]
    assert len(programs.Doubled.threads) == 1


def test_autocast(torch: Any) -> None:
    module, x = torch.nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype=dtype):
            out = module(x)
            assert (out.dtype, (out @ out.t()).dtype) == (dtype, dtype)
            assert torch.nn.functional.softmax(out, -1).dtype == torch.float32
            out = torch.nn.functional.log_softmax(out, -1)
        module.zero_grad()
        out.sum().backward()
        assert module.weight.grad.dtype == torch.float32
    assert torch.get_autocast_dtype("cuda") == torch.float16
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    before = module.bias.clone()
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        loss = module(x).sum()
    scaler.scale(loss).backward()
    assert module.bias.grad.tolist() == [16] * 4
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(module.bias, before - 1)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_optimizers(torch: Any, name: str, options: dict[str, bool]) -> None:
    here = torch.nn.Linear(3, 2)
    there = copy.deepcopy(here).cuda()
    for module in (here, there):
        optimizer = getattr(torch.optim, name)(module.parameters(), lr=0.1, **options)
        for _ in range(2):
            optimizer.zero_grad()
            module(torch.ones(2, 3, device=module.weight.device)).square().sum().backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
    torch.testing.assert_close(there.weight.cpu(), here.weight)


def test_operations_of_a_library(torch: Any, programs: Any) -> None:
    x = torch.ones(8, device="cuda", requires_grad=True)
    programs.doubled_op(x).sum().backward()
    assert x.grad.tolist() == [2] * 8
    torch.library.opcheck(programs.doubled_op, (x,))
    assert programs.doubled_triton(x.detach()).tolist() == [2] * 8
    with pytest.raises(NotImplementedError, match=r"^Could not run 'ptxlab_test::doubled' with arguments from the 'CPU' backend\."):  # fmt: skip
        programs.doubled_op(torch.ones(8))


def test_checkpoints_are_kept_and_read(torch: Any) -> None:
    module = torch.nn.Linear(3, 3).cuda()
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    for where, device in ((None, "cuda"), ("cpu", "cpu"), ("cuda:0", "cuda")):
        file.seek(0)
        read = torch.load(file, map_location=where)
        assert read["weight"].device.type == device
        assert torch.equal(read["weight"].cpu(), module.weight.cpu())
    assert x_of(module.weight.untyped_storage().cpu()) == x_of(module.weight.untyped_storage())


def x_of(storage: Any) -> list[int]:
    return [*storage.tolist()]


def test_pinned_memory(torch: Any) -> None:
    pinned = torch.ones(4).pin_memory()
    made = [torch.empty(3, pin_memory=True), torch.tensor([1.0], pin_memory=True), pinned[1:]]
    assert [x.is_pinned() for x in (*made, torch.zeros(4), pinned.clone())] == [True] * 3 + [
        False
    ] * 2
    assert pinned.pin_memory() is pinned
    assert pinned.to("cuda", non_blocking=True).tolist() == [1] * 4
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, 4, pin_memory=True)
    assert [(x.is_pinned(), x.cuda(non_blocking=True).sum().item()) for (x,) in loader] == [
        (True, 6),
        (True, 22),
    ]


def test_random_numbers(torch: Any) -> None:
    def drawn(**options: Any) -> Any:
        return torch.rand(4, device="cuda", **options).tolist()

    generator = torch.Generator("cuda").manual_seed(7)
    first = drawn(generator=generator)
    assert drawn(generator=torch.Generator(device="cuda").manual_seed(7)) == first
    assert drawn(generator=generator) != first
    assert (generator.device.type, generator.initial_seed()) == ("cuda", 7)
    assert isinstance(generator, torch.Generator)
    state = torch.cuda.get_rng_state()
    first = drawn()
    torch.rand(4)  # draws from another generator
    torch.cuda.set_rng_state(state)
    assert drawn() == first
    torch.manual_seed(3)
    first, dropped = drawn(), torch.nn.functional.dropout(torch.ones(64, device="cuda"))
    torch.cuda.manual_seed(3)
    assert drawn() == first
    assert torch.equal(torch.nn.functional.dropout(torch.ones(64, device="cuda")), dropped)
    assert torch.cuda.initial_seed() == 3
    with torch.random.fork_rng():
        inside = drawn()
    assert drawn() == inside


def test_the_state_of_a_generator_is_that_of_philox(torch: Any) -> None:
    """As FlagGems reads and writes it: a seed, and an offset that grows by a multiple of 4."""
    generator = torch.Generator("cuda")
    assert generator.initial_seed() == 67280421310721
    generator.manual_seed(-2)
    seed, offset = generator.get_state().view(torch.int64).tolist()
    assert (seed, offset, generator.initial_seed()) == (-2, 0, (1 << 64) - 2)
    first = torch.rand(4, device="cuda", generator=generator)
    assert generator.get_state().view(torch.int64).tolist()[1] == generator.get_offset() > 0
    assert generator.get_offset() % 4 == 0
    later = generator.clone_state()
    second = torch.randn(4, device="cuda", generator=generator)
    assert torch.equal(torch.randn(4, device="cuda", generator=later), second)
    generator.set_state(torch.tensor([-2, 0]).view(torch.uint8))
    assert torch.equal(torch.rand(4, device="cuda", generator=generator), first)
    generator.set_state(torch.tensor([5]).view(torch.uint8)).set_offset(8)
    assert (generator.initial_seed(), generator.get_offset()) == (5, 8)
    assert generator.seed() == generator.initial_seed() != 5
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        generator.set_offset(3)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        generator.set_state(torch.zeros(12, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"must be a torch\.ByteTensor"):
        generator.set_state(torch.zeros(4))
    cpu = torch.Generator().manual_seed(7)
    assert (cpu.initial_seed(), cpu.set_state(cpu.get_state()) is cpu) == (7, True)
    assert cpu.seed() == cpu.initial_seed() != 7


def test_events_of_whatever_device_there_is(torch: Any) -> None:
    stream = torch.cuda.current_stream()
    begin, end, never = (torch.Event(enable_timing=True) for _ in range(3))
    assert begin.device.type == "cuda"
    before = time.perf_counter()
    begin.record()
    time.sleep(0.01)
    stream.record_event(end)
    least, most = 10, (time.perf_counter() - before) * 1e3
    stream.wait_event(end)
    end.wait()
    end.synchronize()
    assert end.query()
    assert never.query()
    assert least <= begin.elapsed_time(end) <= most
    assert begin.elapsed_time(end) == -end.elapsed_time(begin)
    with pytest.raises(ValueError, match="must be recorded before"):
        begin.elapsed_time(never)
    with pytest.raises(ValueError, match="enable_timing=True"):
        begin.elapsed_time(torch.Event())


def test_streams_and_events(torch: Any) -> None:
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    assert main == torch.cuda.default_stream() != side
    side.wait_stream(main)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        begin.record()
        x = torch.ones(3, device="cuda")
        x.record_stream(side)
        end.record()
    main.wait_event(end)
    end.synchronize()
    torch.cuda.synchronize()
    assert side.query()
    assert end.query()
    assert begin.elapsed_time(end) > 0
    assert torch.cuda.current_stream() == main
    assert (main.cuda_stream, side.device) == (0, torch.device("cuda:0"))
    assert torch.cuda.Stream(priority=-1).priority == -1
    assert isinstance(side, torch.Stream)
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0


def test_a_stream_of_any_device(torch: Any) -> None:
    streams = [torch.Stream(), torch.Stream("cuda:0"), torch.Stream(device="cuda", priority=-1)]
    assert all(isinstance(stream, torch.cuda.Stream) for stream in streams)
    assert len({stream.cuda_stream for stream in streams}) == 3
    with streams[0]:
        assert torch.accelerator.current_stream() == streams[0] == torch.cuda.current_stream()
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(streams[1])
    assert torch.cuda.current_stream() == streams[1]
    torch.accelerator.set_stream(before)
    before.wait_event(streams[1].record_event())
    assert torch.Stream("cpu").device.type == "cpu"
    raw = torch.Stream(stream_id=0, device_index=0, device_type=1)
    assert (raw.device, isinstance(raw, torch.Stream)) == (torch.device("cuda:0"), True)
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        torch.Stream("cuda:1")


def test_memory_is_counted(torch: Any) -> None:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1000, device="cuda")
    view = x[10:]
    assert torch.cuda.memory_allocated() - before == 4096  # in units of 512 bytes
    del x
    assert torch.cuda.memory_allocated() - before == 4096
    del view
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before == 4096
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated()
    assert stats["allocation.all.freed"] > 0
    assert torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved() >= before
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties().total_memory
    assert "Allocated memory" in torch.cuda.memory_summary()


def test_what_is_told_of_the_gpu(torch: Any) -> None:
    """Of an A100, which sm_80 stands for."""
    told = torch.cuda.get_device_properties()
    assert (told.major, told.minor, told.multi_processor_count) == (8, 0, 108)
    assert (told.L2_cache_size, told.warp_size) == (40 << 20, 32)
    assert told.shared_memory_per_block_optin == 163 << 10
    assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.cuda.get_device_name() == told.name
    assert torch.cuda.is_available()
    assert torch.cuda.is_bf16_supported()
    assert torch.backends.cuda.is_built()
    assert int(torch.version.cuda.split(".")[0]) >= 12
    assert torch.cuda.get_arch_list() == ["sm_80"]
    assert torch.accelerator.current_accelerator().type == "cuda"
    assert torch.accelerator.device_count() == torch.cuda.device_count() == 1


def test_the_accelerator_is_cuda(torch: Any) -> None:
    """As vLLM asks for memory and devices; PyTorch's own library has no allocator for "cuda"."""
    kept = torch.zeros(1000, device="cuda")
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() > kept.nbytes
    torch.accelerator.empty_cache()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(0):
        assert torch.accelerator.current_device_index() == 0
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        torch.accelerator.set_device_index(1)

    def alike(x: Any) -> Any:
        with torch.accelerator.device_index(0):
            return (x + torch.accelerator.current_device_index()).relu_()

    assert torch.equal(torch.compile(alike)(kept), kept)


def test_functions_of_functions(torch: Any) -> None:
    x = torch.randn(3, 4, device="cuda")
    square = torch.func.grad(lambda v: v.square().sum())
    assert torch.equal(torch.vmap(square)(x), 2 * x)
    module = torch.nn.Linear(4, 4).cuda()
    again = torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)
    again.sum().backward()
    with torch.inference_mode():
        assert module(x).is_inference()
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert (torch.empty(3, device="cuda") + 1).device.type == "cuda"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.cuda.nvtx.range_push("product")
        module(x)
        torch.cuda.nvtx.range_pop()
    assert any(each.key == "aten::addmm" for each in profile.key_averages())


def test_a_profiler_hears_of_the_cpu_alone(torch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    of = torch.profiler.ProfilerActivity
    x = torch.ones(4, 4, device="cuda")
    assert of.CUDA in torch.profiler.supported_activities()
    for activities in ([of.CUDA], [of.CPU, of.CUDA], None):
        with torch.profiler.profile(activities=activities) as profile:
            x @ x
        names = {event.name for event in profile.events()}
        assert ("aten::mm" in names) == (activities != [of.CUDA])
        assert "cuda" not in profile.key_averages().table(sort_by="cuda_time_total").lower()
    assert "CUDA" not in capfd.readouterr().err
