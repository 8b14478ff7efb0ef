"""The mbarriers of the CTAs that a trace follows: what they hold, from moment to moment."""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES, PHASES
from ptxlab.observe.timeline import MbarrierMoment, SharedSpan, TracedMbarrier
from ptxlab.observe.trace_scene import TraceScene


class MbarrierTrace:
    """Objects by their words in the wave's shared memory, numbered in the order in which they are made."""

    def __init__(self, scene: TraceScene) -> None:
        self._scene = scene
        self._words = scene.wave.shared_pitch // OBJECT_BYTES
        self._range = range(scene.first * self._words, (scene.first + scene.count) * self._words)
        self._numbers: dict[int, int] = {}
        self._completed: dict[int, int] = {}
        self._changed: set[int] = set()
        self.found: list[TracedMbarrier] = []

    def touch(self, words: Array) -> bool:
        """Have objects looked at again when what changes them is over. Say whether any is followed."""
        here = [word for word in np.unique(words).tolist() if word in self._range]
        self._changed.update(here)
        return bool(here)

    def complete(self, words: Array) -> None:
        """See phases complete."""
        if self.touch(words):
            self._completed.update(dict.fromkeys(words.tolist(), self._scene.now))
            self.look()

    def look(self) -> None:
        """Note what the objects hold that have changed."""
        for word in sorted(self._changed):
            self._look(word)
        self._changed.clear()

    def known(self, words: Array) -> list[tuple[int, int]]:
        """Return the numbers of objects, each with its phase."""
        self.look()
        numbers = (self._numbers.get(word) for word in np.unique(words).tolist())
        return [(n, self.found[n].states[-1].phase) for n in numbers if n is not None]

    def passed(self, word: int) -> tuple[int, int]:
        """Return the number of an object, and the moment at which a phase last was complete, 0 for never."""
        return self._numbers[word], self._completed.get(word, 0)

    def _look(self, word: int) -> None:
        scene, number = self._scene, self._numbers.get(word)
        if not scene.wave.mbarriers.valid[word]:
            if number is not None:
                self.found[number].unmade = scene.now
                del self._numbers[word]
            return
        state = scene.wave.mbarriers.state(np.array([word]))
        if number is None:
            number = self._numbers[word] = len(self.found)
            self.found.append(self._made(word, int(state.expected[0])))
        states = self.found[number].states
        phase = int(state.phase[0])
        if states:
            phase = states[-1].phase + (phase - states[-1].phase) % PHASES
        now = MbarrierMoment(scene.now, phase, int(state.pending[0]), int(state.tx[0]))
        if states and (states[-1].at, states[-1].phase) == (now.at, now.phase):
            states.pop()
        states.append(now)

    def _made(self, word: int, expected: int) -> TracedMbarrier:
        cta, place = divmod(word - self._range.start, self._words)
        address = place * OBJECT_BYTES
        name = self._scene.name(SharedSpan(cta, address, address + OBJECT_BYTES))
        return TracedMbarrier(cta, address, name, expected, [])
