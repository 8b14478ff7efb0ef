"""Copies of the project in which deliberate mistakes are made and tests are run, for scripts/mutants."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from scripts.mutants_table import HANG, SEEN, UNSEEN, Mistake

LIMIT = 1800
"""Seconds that the tests of a room may take."""
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "dist", "build")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How pytest ended: its exit status, None when it had to be ended, and the tests that failed."""

    status: int | None
    failed: tuple[str, ...]
    hang: bool

    @property
    def noticed(self) -> bool:
        """Whether something went wrong; that no test is left to run is no fault."""
        return self.status not in (0, 5)


class Copy:
    """A copy of the project in which tests are run; never the project itself.

    Python knows what it compiled by the size of a file and the second it was written in. So a file with
    a mistake in it gets another second, nothing compiled of it is kept, and with its text it gets its
    time back.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "project"
        self.cache = folder / "cache"
        self._state = folder / "state"
        self._running: subprocess.Popen[bytes] | None = None
        shutil.copytree(root, self.root, ignore=_LEFT_OUT)
        self.cache.mkdir()
        self._closed = False

    def compile(self) -> None:
        """Compile all Python files, which saves the time at every run."""
        command = [sys.executable, "-m", "compileall", "-q", str(self.root)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)

    @contextmanager
    def having(self, mistake: Mistake) -> Iterator[None]:
        """Put a mistake in, and take it out again."""
        path = self.root / mistake.file
        before, times = path.read_bytes(), path.stat()
        path.write_text(mistake.put_into(before.decode()), encoding="utf-8")
        os.utime(path, (times.st_atime, times.st_mtime + 2))
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def run(self, tests: Iterable[str], *options: str) -> Outcome:
        """Run tests. Raises RuntimeError when the copy is closed."""
        if self._closed:
            raise RuntimeError("closed")
        shutil.rmtree(self._state, ignore_errors=True)
        self._state.mkdir()
        log = self._state / "log"
        paths = [str(self.root), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": str(self.cache),
        }
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={self._state}", *options]
        with log.open("wb") as output:
            self._running = subprocess.Popen(
                [*command, *tests], cwd=self.root, env=environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
            try:
                status = self._running.wait(LIMIT)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self._end()
        hang = status is None or b"from pytest-timeout" in log.read_bytes()
        failed = self._state / "v" / "cache" / "lastfailed"
        return Outcome(
            status, tuple(json.loads(failed.read_text()) if failed.exists() else ()), hang
        )

    def close(self) -> None:
        """End the tests that run, and run no others."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        """End the tests, and what they may have left running."""
        if self._running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()


class Runner:
    """The project without a mistake, and copies to make mistakes in."""

    def __init__(self, root: Path, folder: Path, workers: int) -> None:
        self._right = Copy(root, folder / "right")
        self._right.compile()
        self._lock = threading.Lock()
        self._passing: dict[tuple[str, ...], bool] = {}
        self._copies = [Copy(self._right.root, folder / str(n)) for n in range(workers)]
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in self._copies:
            self._free.put(copy)

    def close(self) -> None:
        """End all tests."""
        for copy in (self._right, *self._copies):
            copy.close()

    def sound(self, tests: Sequence[str]) -> list[str]:
        """Return those of the tests that exist, and pass without a mistake."""
        if not tests:
            return []
        outcome = self._right.run(tests)
        if outcome.status == 0 or (outcome.status == 1 and outcome.failed):
            failed = [f"{test}::" for test in outcome.failed]
            passing = [t for t in tests if not any(test.startswith(f"{t}::") for test in failed)]
        elif len(tests) == 1:
            passing = []
        else:  # one that does not exist keeps pytest from running the others
            half = len(tests) // 2
            passing = self.sound(tests[:half]) + self.sound(tests[half:])
        self._passing |= {(test,): test in passing for test in tests}
        return passing

    def result(self, mistake: Mistake, order: Iterable[Sequence[str]]) -> tuple[str, list[str]]:
        """Return the outcome of a mistake and the tests that notice it, tried in this ``order``."""
        copy = self._free.get()
        try:
            with self._lock:  # what was compiled without a mistake is right, and saves time
                shutil.rmtree(copy.cache)
                shutil.copytree(self._right.cache, copy.cache, copy_function=os.link)
            with copy.having(mistake):
                for tests in order:
                    noticing = self._noticing(copy, tests)
                    if noticing is not None:
                        return HANG if noticing.hang else SEEN, list(noticing.failed)
            return UNSEEN, []
        finally:
            self._free.put(copy)

    def _noticing(self, copy: Copy, tests: Sequence[str]) -> Outcome | None:
        """Return how the first test failed that fails because of the mistake."""
        skipped = [test for group, passed in self._passing.items() if not passed for test in group]
        while tests:
            outcome = copy.run(tests, "-x", *(f"--deselect={test}" for test in skipped))
            if not outcome.noticed:
                return None
            failed = outcome.failed[:1] or tuple(tests)
            alone = failed == tuple(tests) or copy.run(failed, "-x").noticed
            if alone and self._pass_without(failed):
                return Outcome(outcome.status, failed, outcome.hang)
            print(f"fails without a mistake, or only at times: {' '.join(failed)}", file=sys.stderr)
            if failed == tuple(tests) or set(failed) <= set(skipped):
                return None
            skipped += failed
        return None

    def _pass_without(self, tests: tuple[str, ...]) -> bool:
        with self._lock:
            if tests not in self._passing:
                self._passing[tests] = self._right.run(tests, "-x").status == 0
            return self._passing[tests]
