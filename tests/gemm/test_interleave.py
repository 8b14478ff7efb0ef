"""GPU and CPU taking turns, on a GPU that multiplies in numpy, by a clock that counts what is done."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ptxlab.device.cuda import CudaDevice
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.gemm import LADDER
from ptxlab.gemm.interleave import (
    ACTIVITIES,
    KINDS,
    PAGE,
    Interleaving,
    TurnTimes,
    interleave,
    relu,
    touch,
)
from ptxlab.verbs.interleave import text as view
from tests.gemm.fake_gpu import FakeGpu, installed

SIZE, TURNS = 40, 4
TILED = LADDER["tiled"]
TURN, COPY, ACTIVITY = 16e-3, 3e-3, 2e-3


class Clocked(FakeGpu):
    """Copies take time, as kernels do."""

    def _cuMemcpyHtoDAsync(self, to: int, source: int, nbytes: int, stream: Any) -> tuple[()]:
        self.now += COPY
        return super()._cuMemcpyHtoDAsync(to, source, nbytes, stream)

    def _cuMemcpyDtoHAsync(self, to: int, source: int, nbytes: int, stream: Any) -> tuple[()]:
        self.now += COPY
        return super()._cuMemcpyDtoHAsync(to, source, nbytes, stream)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr("tests.gemm.fake_gpu.FakeGpu", Clocked)
    gpu = installed(monkeypatch)
    gpu.seconds = {"tiled": TURN}
    return gpu


@pytest.fixture
def gpu(driver: FakeGpu) -> Iterator[CudaDevice]:
    with CudaDevice() as device:
        yield device
        assert driver.memory == {}, "all memory is given back"


def play(gpu: CudaDevice, activity: str = "relu") -> Interleaving:
    return interleave(
        gpu, TILED, SIZE, ACTIVITIES[activity], TURNS, clock=lambda: float(gpu.driver.api.now)
    )


@pytest.mark.parametrize("activity", ["relu", "touch"])
def test_every_kind_is_right_and_all_end_alike(gpu: CudaDevice, activity: str) -> None:
    result = play(gpu, activity)
    assert result.passed
    assert [turns.kind for turns in result.kinds] == list(KINDS)
    api = gpu.driver.api
    assert len(api.named("cuMemHostAlloc")) == 6
    assert len(api.named("cuMemAllocManaged")) == 3


def test_parts_alone_and_in_turns(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    api = gpu.driver.api
    plain = np.maximum

    def slow(*args: object, **options: object) -> object:
        api.now += ACTIVITY
        return plain(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "maximum", slow)
    copied, mapped, managed = play(gpu).kinds
    assert copied.gpu == pytest.approx(TURN)
    assert copied.cpu == pytest.approx(ACTIVITY)
    assert copied.copies == pytest.approx(2 * COPY)
    assert copied.interleaved == pytest.approx(copied.sum) == pytest.approx(24e-3)
    for turns in (mapped, managed):
        assert turns.copies == 0
        assert turns.interleaved == pytest.approx(TURN + ACTIVITY)
    assert TurnTimes("mapped", 3.0, 2.0, 0.0, 6.0).extra == 1.0


def test_numbers_neither_grow_nor_vanish(gpu: CudaDevice) -> None:
    """He's variance: a chain of many turns stays of the size it began with."""
    sizes = []
    gpu.driver.api.spoil["tiled"] = lambda d, before: sizes.append(float(np.abs(d).max()))
    interleave(gpu, TILED, 64, ACTIVITIES["relu"], 30)
    assert 0.01 < min(sizes) <= max(sizes) < 100


def test_what_is_wrong_has_no_times(gpu: CudaDevice, driver: FakeGpu) -> None:
    driver.spoil["tiled"] = lambda d, before: d.__setitem__((3, 3), 9.0)
    wrong = play(gpu)
    assert not wrong.verdict.passed
    assert "WRONG: error" in view.text([wrong])
    assert view.as_json([wrong])["results"][0]["kinds"] == []
    # Right at first, and then other bits in one kind of memory than in the others.
    driver.ran.clear()
    driver.spoil["tiled"] = lambda d, before: d.__setitem__((3, 3), 0.5) if before == 28 else None
    wrong = play(gpu)
    assert wrong.verdict.passed
    assert not wrong.agree
    assert "end with different bits" in view.text([wrong])


def test_managed_memory_stays_far_below_what_is_free(gpu: CudaDevice) -> None:
    size = 16384  # three of them are 3 GiB of 8
    with pytest.raises(PtxlabError, match="more than a quarter of the 8589934592 that are free"):
        interleave(gpu, TILED, size, ACTIVITIES["relu"], 1)
    assert gpu.driver.api.named("cuMemAllocManaged") == []


def test_other_kernels_are_refused(gpu: CudaDevice) -> None:
    for name, words in (("numpy", "no kernel"), ("tensor_core_ptx", "does not compute f32")):
        with pytest.raises(PtxlabError, match=words):
            interleave(gpu, LADDER[name], 8, ACTIVITIES["relu"], 1)


def test_memory_is_given_back_after_a_fault(gpu: CudaDevice, driver: FakeGpu) -> None:
    driver.fail["cuMemHostGetDevicePointer"] = 2
    with pytest.raises(LaunchError):
        play(gpu)
    driver.fail.clear()


def test_what_the_cpu_does() -> None:
    y = np.arange(-3, 2 * PAGE // 4 - 3, dtype=np.float32).reshape(2, -1)
    before = y.copy()
    touch(y)
    assert np.flatnonzero(y != before).tolist() == [0, PAGE // 4], "one number of every page"
    relu(y)
    assert (y >= 0).all()
    assert (y[before > 0][1:] == before[before > 0][1:]).sum() >= y.size - 6


def test_views_agree(gpu: CudaDevice) -> None:
    results = [play(gpu)]
    data = view.as_json(results)
    assert json.loads(json.dumps(data)) == data
    kinds = {kind["kind"]: kind for kind in data["results"][0]["kinds"]}
    assert kinds["copied"]["interleaved"] == pytest.approx(TURN + 2 * COPY)
    lines = view.text(results).splitlines()
    assert ["copied", "16.000", "0.000", "6.000", "22.000", "22.000", "0.000"] in map(
        str.split, lines
    )
    picture = xml.fromstring(view.svg(results))
    words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"copied", "mapped", "managed", "GPU", "CPU", "copies", "changing over"} <= set(words)
    assert "22.000 ms in turns" in words
