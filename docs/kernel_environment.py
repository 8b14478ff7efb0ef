"""An environment in which a program learns to write kernels: tasks, answers in CUDA C, rewards of ``ptxlab.evaluate``.

    environment = KernelEnvironment([SCALE])
    seen = environment.reset(seed=0)          # {"prompt": ..., "feedback": "", "reward": None, "done": False}
    seen = environment.step(source)           # the same with what was wrong, and a reward

No GPU is needed, and what was learnt to cheat with is no reward: see docs/judge.md. ``reset``, ``step`` and ``state`` are those of
OpenEnv (``openenv-core``) and of what follows Gymnasium: for a server of it, derive from its ``Environment`` and put what
is returned here into an ``Observation``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ptxlab
from ptxlab.judge.arguments import Array
from ptxlab.judge.judgement import STAGES, Judgement

TURNS = 4
"""Answers to a task that an episode has."""


@dataclass(frozen=True)
class Task:
    """What is to be written, in words, and all that ``ptxlab.evaluate`` is given beside an answer.

    Rewards above 1 are for being faster than the ``baseline`` that ``launch`` names.
    """

    prompt: str
    reference: Callable[..., Mapping[str, Any]]
    launch: Mapping[str, Any]


@dataclass
class KernelEnvironment:
    """One task an episode, drawn by its seed; it is done when an answer passes, or after ``TURNS`` answers."""

    tasks: Sequence[Task]
    state: dict[str, Any] = field(default_factory=dict)

    def reset(self, seed: int | None = None) -> dict[str, Any]:
        """Begin with a task; return its prompt."""
        self._task = random.Random(seed).choice(self.tasks)
        self.state = {"seed": seed, "turns": 0, "done": False}
        return self._seen("", None)

    def step(self, source: str) -> dict[str, Any]:
        """Judge an answer; return what was wrong with it, and its reward."""
        if self.state["done"]:
            raise RuntimeError("this episode is done: reset the environment")
        with TemporaryDirectory() as folder:
            file = Path(folder) / "answer.cu"
            file.write_text(source, encoding="utf-8")
            judgement = ptxlab.evaluate(file, self._task.reference, **self._task.launch)
        self.state["turns"] += 1
        self.state["done"] = judgement.passed or self.state["turns"] == TURNS
        return self._seen(feedback(judgement), reward(judgement))

    def _seen(self, told: str, earned: float | None) -> dict[str, Any]:
        return {
            "prompt": self._task.prompt,
            "feedback": told,
            "reward": earned,
            "done": self.state["done"],
        }


def reward(judgement: Judgement) -> float:
    """Return up to 1 for what a kernel has to be, and beyond for how much faster than the baseline one that passes is."""
    score = judgement.score
    if not judgement.passed:
        return sum(score[stage] or 0.0 for stage in STAGES) / (2 * len(STAGES))
    return score["speedup"] or 1.0


def feedback(judgement: Judgement) -> str:
    """Say in a line or some what to mend first."""
    if judgement.error is not None:
        return str(judgement.error)
    for trial in judgement.trials:
        for array in trial.compared:
            if not trial.hard and array.wrong:
                return f"{trial.name}: {array.wrong} elements of {array.name} are wrong"
    if judgement.report is not None and judgement.report.findings:
        return judgement.report.findings[0].message
    return "; ".join(f"{trick.name}: {trick.message}" for trick in judgement.tricks)


SCALE = Task(
    'Write extern "C" __global__ void scale(const float* x, float* y, int n) with y[i] = 2 x[i], for CTAs of 128 threads.',
    lambda x: {"y": 2 * x},
    {
        "sizes": {"n": 500},
        "arguments": lambda n: {"x": Array(n), "y": Array(n), "n": n},
        "grid": lambda n: -(-n // 128),
        "block": 128,
        "gpus": (),
    },
)
"""A task to begin with."""
