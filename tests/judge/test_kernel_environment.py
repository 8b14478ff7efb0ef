"""The environment of docs/kernel_environment.py: an episode with answers that are better from turn to turn."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "docs" / "kernel_environment.py"
KERNEL = """extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("kernel_environment", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


def test_an_episode_goes_from_what_does_not_compile_to_what_is_right(example: Any) -> None:
    environment = example.KernelEnvironment([example.SCALE])
    seen = environment.reset(seed=1)
    assert "y[i] = 2 x[i]" in seen["prompt"]
    assert (seen["reward"], seen["done"]) == (None, False)
    answers = (
        (KERNEL.replace("2 *", "two *"), "undefined"),
        (KERNEL.replace("if (i < n) ", ""), "past the end"),
        (KERNEL.replace("2 *", "3 *"), "elements of y are wrong"),
        (KERNEL, ""),
    )
    rewards = []
    for number, (answer, told) in enumerate(answers):
        seen = environment.step(answer)
        assert told in seen["feedback"]
        assert seen["done"] is (number == 3)
        rewards.append(seen["reward"])
    assert rewards == sorted(rewards)
    assert rewards[0] == 0
    assert rewards[-1] == 1
    with pytest.raises(RuntimeError, match="reset the environment"):
        environment.step(KERNEL)


def test_an_episode_ends_after_some_answers(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "TURNS", 2)
    environment = example.KernelEnvironment([example.SCALE])
    environment.reset()
    done = [environment.step("nothing")["done"] for _ in range(2)]
    assert done == [False, True]
    assert environment.reset()["done"] is False
