"""CUDA graphs of PyTorch: a capture runs nothing, and each replay everything."""

from __future__ import annotations

from typing import Any

import pytest

from ptxlab.clients import captures


def test_operations_and_kernels_run_at_each_replay(torch: Any, kernels: Any, session: Any) -> None:
    x, out = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
    kernels.add[(1,)](x, x, torch.empty_like(x), 8, BLOCK=8)  # compiled before the capture
    launches = session.usage["add"].launches
    graph = torch.cuda.CUDAGraph()
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        twice = x * 2
        kernels.add[(1,)](twice, x, out, 8, BLOCK=8)
        x += 1
        total = torch.sum(out, 0)
        untouched = torch.empty_strided((8,), (1,), device="cuda")
        largest = torch.max(out, 0, out=(torch.empty(0, device="cuda"), torch.empty(0, dtype=torch.long, device="cuda")))  # fmt: skip
    assert session.usage["add"].launches == launches
    assert (x[0].item(), out[0].item()) == (1, 0)
    for turn in (1, 2, 3):
        graph.replay()
        numbers = [each.item() for each in (twice[0], out[0], x[0], total, largest[0])]
        assert numbers == [2 * turn, 3 * turn, turn + 1, 24 * turn, 3 * turn]
    x.fill_(10)
    untouched.fill_(7)
    graph.replay()
    assert (total.item(), untouched.tolist()) == (8 * 30, [7] * 8)
    assert session.usage["add"].launches == launches + 4


def test_a_training_step_as_a_graph(torch: Any) -> None:
    module = torch.nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    static = torch.zeros(3, 4, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        module(static).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = module(static).square().sum()
        loss.backward()
        optimizer.step()
    x = torch.randn(3, 4, device="cuda")
    expected = [(p - 0.1 * g).detach() for p, g in zip(module.parameters(), torch.autograd.grad(
        module(x).square().sum(), list(module.parameters())), strict=True)]  # fmt: skip
    static.copy_(x)
    graph.replay()
    for parameter, value in zip(module.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value)


def test_what_is_counted_on_the_way_is_not_counted_by_the_capture(torch: Any) -> None:
    norm = torch.nn.BatchNorm1d(2).cuda()
    x = torch.tensor([[1.0, 2], [3, 6]], device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        normed = norm(x)
    assert norm.running_mean.tolist() == [0, 0]
    for _ in range(2):
        graph.replay()
    torch.testing.assert_close(norm.running_mean, torch.tensor([0.38, 0.76], device="cuda"))
    assert normed.sign().tolist() == [[-1, -1], [1, 1]]


def test_a_capture_in_which_an_event_is_waited_for_ends_with_an_error(torch: Any) -> None:
    event, x = torch.Event(), torch.zeros(3, device="cuda")
    event.record()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        x += 1
        event.synchronize()
        with pytest.raises(torch.AcceleratorError, match="capture"):
            graph.capture_end()
    event.synchronize()


def test_the_mode_of_a_capture_is_the_program_s(torch: Any) -> None:
    for mode in captures.CaptureMode:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode=mode.name.lower()):
            torch.zeros(1, device="cuda").add_(1)
            active = captures.active()
            assert active is not None
            assert active.mode is mode
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="lax").__enter__()
    assert captures.active() is None


def test_a_capture_ends_in_two_steps(torch: Any) -> None:
    """It does so in PyTorch 2.15, whose own class asks for these of the one below it."""
    graph, x = torch._C._CUDAGraph(), torch.zeros(3, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        x += 1
        assert not graph._has_graph_exec
        graph.capture_end_pre()
        graph.capture_end_post()
    assert graph._has_graph_exec
    assert graph.pools() == [graph.pool()]
    graph.replay()
    assert x.tolist() == [1, 1, 1]


def test_each_replay_draws_anew(torch: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = torch.rand(4, device="cuda")
    draws = []
    for _ in range(2):
        graph.replay()
        draws.append(drawn.tolist())
    assert draws[0] != draws[1]


def test_graphed_callables(torch: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).cuda()
    x = torch.randn(2, 4, device="cuda")
    expected = module(x)
    graphed = torch.cuda.make_graphed_callables(module, (torch.randn(2, 4, device="cuda"),))
    result = graphed(x)
    assert torch.equal(result, expected)
    result.sum().backward()
    assert module[0].weight.grad.is_cuda


def test_an_empty_graph_and_a_second_capture(torch: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match=r"^The CUDA Graph is empty\."), torch.cuda.graph(graph):
        pass
    try:
        with pytest.raises(RuntimeError) as caught, torch.cuda.stream(torch.cuda.Stream()):
            graph.capture_begin()
    finally:
        torch.cuda.set_stream(torch.cuda.default_stream())
    assert str(caught.value) == (
        "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new "
        "instance."
    )
    graph.reset()
    assert len(torch.cuda.graph_pool_handle()) == 2
