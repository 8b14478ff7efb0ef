"""A task is done chunk by chunk, each once, whoever takes it; what follows begins when all of it is done."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from time import sleep

import numpy as np
import pytest

from ptxlab import workers
from ptxlab.arrays import Array
from ptxlab.native import compiler, cores
from ptxlab.native.cores_code import PLACES
from ptxlab.native.dispatch_code import STAND, TASK, TASKS, WORDS

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

COUNT = """
define i32 @count(ptr %task, i64 %from, i64 %to) {
entry:
  %data.p = getelementptr i64, ptr %task, i64 5
  %data = load ptr, ptr %data.p
  br label %loop
loop:
  %i = phi i64 [%from, %entry], [%next, %loop]
  %p = getelementptr i64, ptr %data, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, 1
  store i64 %new, ptr %p
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %to
  br i1 %more, label %loop, label %done
done:
  %bad.p = getelementptr i64, ptr %task, i64 6
  %bad = load i64, ptr %bad.p
  %low = icmp ule i64 %from, %bad
  %high = icmp ult i64 %bad, %to
  %both = and i1 %low, %high
  %found = zext i1 %both to i32
  ret i32 %found
}

; Copies what the first has counted to the other end of what lies behind it.
define i32 @turn(ptr %task, i64 %from, i64 %to) {
entry:
  %data.p = getelementptr i64, ptr %task, i64 5
  %data = load ptr, ptr %data.p
  %total.p = getelementptr i64, ptr %task, i64 4
  %total = load i64, ptr %total.p
  %twice = shl i64 %total, 1
  br label %loop
loop:
  %i = phi i64 [%from, %entry], [%next, %loop]
  %p = getelementptr i64, ptr %data, i64 %i
  %value = load i64, ptr %p
  %behind = sub i64 %twice, %i
  %last = sub i64 %behind, 1
  %q = getelementptr i64, ptr %data, i64 %last
  store i64 %value, ptr %q
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %to
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
"""
MEET = """
define i32 @meet(ptr %task, i64 %from, i64 %to) {
entry:
  %data.p = getelementptr i64, ptr %task, i64 5
  %data = load ptr, ptr %data.p
  %patience.p = getelementptr i64, ptr %task, i64 6
  %patience = load i64, ptr %patience.p
  %old = atomicrmw add ptr %data, i64 1 seq_cst
  br label %wait
wait:
  %turn = phi i64 [0, %entry], [%next, %wait]
  %next = add i64 %turn, 1
  %here = load atomic i64, ptr %data seq_cst, align 8
  %met = icmp uge i64 %here, 2
  %tired = icmp ugt i64 %next, %patience
  %stop = or i1 %met, %tired
  br i1 %stop, label %done, label %wait
done:
  %alone = icmp ult i64 %here, 2
  %found = zext i1 %alone to i32
  ret i32 %found
}
"""
NOBODY = -1


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> cores.Pool:
    """Three cores, however busy this machine is."""
    monkeypatch.setattr(cores, "idle", lambda asking: 2)
    return cores.pool(3)


def count(pool: cores.Pool, total: int, chunks: tuple[int, int], bad: int, turns: int = 1) -> bool:
    """Count in every item and copy it; check all of it, and return whether it was done."""
    data = np.zeros(2 * total, np.int64)
    first, second = (compiler.compile(COUNT, name, cores.Function) for name in ("count", "turn"))
    addresses = cores.address(first), cores.address(second)
    task = struct.pack(
        "7q", addresses[0], chunks[0], addresses[1], chunks[1], total, data.ctypes.data, bad
    )
    done = [pool.run(task) for _ in range(turns)]
    assert len(set(done)) == 1
    assert data[:total].tolist() == [turns] * total
    assert data[total:].tolist() == [turns if done[0] else 0] * total
    return done[0]


def test_every_item_is_done_once_and_before_what_follows(pool: cores.Pool) -> None:
    chance = random.Random(3)
    for _ in range(300):
        total = chance.randint(1, 2000)
        chunks = chance.randint(1, 400), chance.randint(1, 400)
        assert count(pool, total, chunks, NOBODY, turns=5)


def test_nothing_follows_what_cannot_be_done(pool: cores.Pool) -> None:
    for bad in (0, 77, 999):
        for chunk in (100, 1000):
            assert not count(pool, 1000, (chunk, 10), bad)
    assert count(pool, 1000, (100, 10), NOBODY)


def test_two_callers_do_not_mix_their_jobs(pool: cores.Pool) -> None:
    counted: list[bool] = []

    def call(total: int) -> None:
        counted.extend(count(pool, total, (50, 70), NOBODY, turns=3) for _ in range(100))

    callers = [threading.Thread(target=call, args=[total]) for total in (1500, 2500)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert counted == [True] * 200


def meeting(data: Array, chunks: int, patience: int) -> bytes:
    """Return a task of chunks that count themselves in a word, and wait until it is two."""
    function = cores.address(compiler.compile(MEET, "meet", cores.Function))
    return struct.pack("7q", function, 1, 0, 0, chunks, data.ctypes.data, patience)


def meet(pool: cores.Pool, patience: int) -> bool:
    """Do two chunks that wait for each other: on one core the first waits in vain. Say if they met."""
    data = np.zeros(1, np.int64)
    return pool.run(meeting(data, 2, patience))


def let_sleep(pool: cores.Pool) -> None:
    """Wait until only the caller is awake."""
    while pool._words[PLACES["asleep"]] < 2:
        sleep(0.001)


def test_other_cores_take_pieces(pool: cores.Pool) -> None:
    assert meet(pool, 10**9)


def counting(data: Array, chunk: int) -> bytes:
    function = cores.address(compiler.compile(COUNT, "count", cores.Function))
    return struct.pack("7q", function, chunk, 0, 0, data.size, data.ctypes.data, NOBODY)


def test_others_do_what_has_begun_while_the_caller_goes_on(pool: cores.Pool) -> None:
    data = np.zeros(2, np.int64)
    begun = pool.begin(meeting(data, 2, 10**9))
    while not pool.is_done(begun):
        assert count(pool, 100, (10, 10), NOBODY)
    assert data[0] == 2
    pool.finish(begun)
    assert meet(pool, 10**9)  # others are free again


@pytest.mark.parametrize("chunk", [1000, 7, 1])
def test_a_caller_whom_nobody_helps_does_all_in_the_end(
    pool: cores.Pool, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(cores, "idle", lambda asking: 0)
    monkeypatch.setattr(cores, "INTERVAL", 0)
    let_sleep(pool)
    data, other = np.zeros(1000, np.int64), np.zeros(10, np.int64)
    begun = pool.begin(counting(data, chunk))
    assert not pool.is_done(begun)
    assert not data.any()
    second = pool.begin(counting(other, 1))  # which is done at once: others have one already
    assert pool.is_done(second)
    pool.finish(second)
    assert other.tolist() == [1] * 10
    pool.finish(begun)
    assert data.tolist() == [1] * 1000


def test_one_core_does_all_at_once() -> None:
    data, pool = np.zeros(100, np.int64), cores.Pool(1)
    begun = pool.begin(counting(data, 7))
    assert pool.is_done(begun)
    pool.finish(begun)
    assert data.tolist() == [1] * 100


def test_cores_that_others_use_are_left_to_them(
    pool: cores.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "idle", lambda asking: 0)
    monkeypatch.setattr(cores, "INTERVAL", 0)
    let_sleep(pool)
    assert not meet(pool, 10**8)


def test_a_core_that_becomes_idle_during_a_dispatch_loop_takes_chunks_of_it(
    pool: cores.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, met = np.zeros(1, np.int64), np.zeros(1, np.int64)
    asked: list[int] = []

    def idle(asking: int) -> int:
        """Open the gate of the dispatch loop's first task once the first answer during it has had its effect."""
        asked.append(asking)
        gate[0] = 2 if asked.count(1) > 1 else 0
        return 2 if asking else 0

    monkeypatch.setattr(cores, "idle", idle)
    let_sleep(pool)
    sleep(2 * cores.INTERVAL)
    tasks = [meeting(gate, 1, 10**9), meeting(met, 2, 10**9)]
    rows = [(TASK, np.frombuffer(task, np.int64).ctypes.data) for task in tasks] + [(STAND, 0)]
    operations = np.array([(*row, *[0] * (WORDS - 2)) for row in rows], np.int64)
    state = np.zeros(TASKS + 1, np.int64)
    assert pool.dispatch(state.ctypes.data, operations.ctypes.data, 0)
    assert state[TASKS] == 2


def test_the_system_says_how_many_processors_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_processors", lambda: 4)
    shares = []
    for running in (1, 3, 9):
        text = f"0.20 0.18 0.12 {running}/80 11206"
        monkeypatch.setattr(Path, "read_text", lambda *_, text=text, **__: text)
        shares.append([workers.idle(asking) for asking in (0, 1)])
    assert shares == [[3, 4], [1, 2], [0, 0]]


def test_pieces_are_no_smaller_than_is_worth_it_and_whole() -> None:
    single, two = cores.pool(1), cores.pool(2)
    assert single.chunk(10_000, 1) == 10_000
    assert two.chunk(16_000, 1, 32) == 2016
    assert two.chunk(16_000, 3000, 1024) == 4096
    assert two.chunk(16_000, 16_000) == 16_000


def test_a_process_with_cores_at_work_ends() -> None:
    program = "from ptxlab.native import cores; cores.pool(3)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_forked_process_waits_for_no_thread_that_it_has_not() -> None:
    """Whatever a thread of the pool held at the fork: here its mutex, and a chunk that it began."""
    pool = cores.pool(2)
    lock, unlock = (getattr(ctypes.CDLL(None), f"pthread_mutex_{do}") for do in ("lock", "unlock"))
    mutex = ctypes.c_void_p(pool._at + 8 * PLACES["mutex"])
    total = np.zeros(1, np.int64)
    function = cores.Function(lambda task, first, end: total.__iadd__(end - first) is None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        lock(mutex)
        child = os.fork()
    if child == 0:
        signal.alarm(30)
        done = False
        try:
            pool.end()
            other = cores.pool(2)
            task = other.task(64, (function, 1, 1), words=())
            done = other is not pool and other.run(task) and total[0] == 64
        finally:
            os._exit(0 if done else 1)
    unlock(mutex)
    assert os.waitpid(child, 0)[1] == 0
    assert cores.pool(2) is pool
