"""Put deliberate mistakes into a copy of the project, one at a time, and see whether its tests notice.

scripts/mutants                      all mistakes of the table, tests/mistakes/*.toml
scripts/mutants isa kernels/ --unseen    those of a room, or of files, that no test is known to notice
scripts/mutants --record             and keep the results: tests/mistakes/seen_by.json, docs/mistakes.md

A mistake is seen when a test of its room fails with it and passes without it; a hang is one that a time
limit ended. The test that noticed a mistake last time is tried first. Exit status 1: a mistake went
unseen, or what it replaces is no longer there.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from scripts import mutants_table
from scripts.mutants_code import StaleError
from scripts.mutants_runner import Runner
from scripts.mutants_table import HANG, OUTCOMES, SEEN, STALE, UNSEEN, Mistake, Record

ROOT = Path(__file__).resolve().parents[1]


def selected(
    everything: Sequence[Mistake], what: Sequence[str], known: Record, unseen: bool
) -> list[Mistake]:
    """Return the mistakes of rooms or files. Raises ValueError for a name that none has."""
    for name in what:
        if not any(mistake.room == name or mistake.file.startswith(name) for mistake in everything):
            rooms = ", ".join(sorted({mistake.room for mistake in everything}))
            raise ValueError(f"no room and no file of a mistake: {name} (rooms: {rooms})")
    noticed = {key for key, result in known.items() if result.outcome in (SEEN, HANG)}
    return [
        mistake
        for mistake in everything
        if (not what or mistake.room in what or mistake.file.startswith(tuple(what)))
        and not (unseen and mistake.key in noticed)
    ]


def likely_tests(mistake: Mistake, everything: Sequence[Mistake], known: Record) -> list[str]:
    """Return the tests that noticed this mistake, then those that noticed others in the same file."""
    alike = [mistake, *(other for other in everything if other.file == mistake.file)]
    results = [known[other.key] for other in alike if other.key in known]
    return list(dict.fromkeys(test for result in results for test in result.tests))


def namesakes(root: Path, mistake: Mistake) -> list[str]:
    """Return the test files of the room that are named like the mistake's file, or like its folder."""
    path = Path(mistake.file)
    names = {f"test_{path.stem}.py", f"test_{path.parent.name}.py"}
    rooms = [root / test for test in mistake.tests]
    files = [
        file for room in rooms for file in (room.rglob("test_*.py") if room.is_dir() else [room])
    ]
    return [str(file.relative_to(root)) for file in files if file.name in names]


def try_all(
    root: Path,
    chosen: Sequence[Mistake],
    everything: Sequence[Mistake],
    known: Record,
    workers: int,
) -> Iterator[tuple[Mistake, str, list[str]]]:
    """Yield each mistake with its outcome and the tests that notice it, in the order they end in."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        runner = Runner(root, Path(folder), workers)
        executor = ThreadPoolExecutor(workers)
        try:
            likely = {mistake: likely_tests(mistake, everything, known) for mistake in chosen}
            sound = set(
                runner.sound(list(dict.fromkeys(t for own in likely.values() for t in own)))
            )
            running: dict[Future[tuple[str, list[str]]], Mistake] = {}
            for mistake, tests in likely.items():
                tried = [test for test in tests if test in sound]
                order = (tried, namesakes(root, mistake), *([test] for test in mistake.tests))
                running[executor.submit(runner.result, mistake, order)] = mistake
            for future in as_completed(running):
                yield running[future], *future.result()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            runner.close()
            executor.shutdown()


def line_of(root: Path, mistake: Mistake) -> int:
    """Return the line a mistake is put into. Raises StaleError."""
    path = root / mistake.file
    if not path.is_file():
        raise StaleError(f"{mistake.entry}: there is no file {mistake.file}")
    return mistake.line(path.read_text(encoding="utf-8"))


def described(mistake: Mistake, line: int) -> str:
    """Return what a reader needs to write the test that is missing."""
    change = [
        *(f"    - {part}" for part in mistake.old.strip().splitlines()),
        *(f"    + {part}" for part in mistake.new.strip().splitlines()),
    ]
    return "\n".join([f"unseen: {mistake.file}:{line}: {mistake.why}", *change])


def counted(results: Sequence[tuple[Mistake, str]]) -> str:
    """Return the table of outcomes by room."""
    rooms = sorted({mistake.room for mistake, _ in results})
    lines = [f"{'room':14}{''.join(f'{outcome:>8}' for outcome in OUTCOMES)}"]
    for room in [*rooms, "all"]:
        own = [outcome for mistake, outcome in results if room in ("all", mistake.room)]
        lines.append(f"{room:14}{''.join(f'{own.count(outcome):8}' for outcome in OUTCOMES)}")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Try the mistakes that were asked for."""
    parser = _parser()
    args = parser.parse_args(words)
    everything, known = mutants_table.table(root), mutants_table.record(root)
    known = {mistake.key: known[mistake.key] for mistake in everything if mistake.key in known}
    try:
        chosen = selected(everything, args.what, known, args.unseen)
        absent = sorted({test for m in chosen for test in m.tests if not (root / test).exists()})
        if absent:
            raise ValueError(f"a room's tests do not exist: {', '.join(absent)}")
    except ValueError as error:
        parser.error(str(error))

    lines: dict[Mistake, int] = {}
    outcomes: list[tuple[Mistake, str]] = []
    for mistake in chosen:
        try:
            lines[mistake] = line_of(root, mistake)
        except StaleError as error:
            outcomes.append((mistake, STALE))
            print(f"stale: {error}")
    for mistake, outcome, tests in try_all(root, list(lines), everything, known, args.workers):
        outcomes.append((mistake, outcome))
        line = f"{mistake.file}:{lines[mistake]}"
        print(f"[{len(outcomes)}/{len(chosen)}] {line}: {outcome}", *tests, file=sys.stderr)
        if outcome == UNSEEN:
            print(described(mistake, lines[mistake]), flush=True)
        today = datetime.date.today().isoformat()
        known[mistake.key] = mutants_table.Result(mistake.room, outcome, tests, today)
        if args.record:
            mutants_table.keep(root, known)
    print(counted(outcomes))
    return int(any(outcome in (UNSEEN, STALE) for _, outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="ROOM|FILE", help="(default: all)")
    add = parser.add_argument
    add("--unseen", action="store_true", help="only what no test is known to notice")
    add("--record", action="store_true", help="keep the results")
    add(
        "--workers", type=_count, default=os.cpu_count() or 1, metavar="N",
        help="how many at a time (default: one a core)",
    )  # fmt: skip
    return parser


def _count(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError
    return value


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # also when started with these ignored
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
