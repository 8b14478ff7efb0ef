"""The machine code of ``ptxlab.native.cores``: who takes a piece of a job, who waits, who sleeps."""

from __future__ import annotations

import platform

from ptxlab.native import walk_code

PATIENCE = 20_000
"""How often a core looks for work before it goes to sleep, some twenty nanoseconds each time: for as long as
Python takes from one wave to the next."""

LINE = 8
"""Words of a line of the cache: what one core writes often and others read often is apart."""

PLACES = {
    "state": 0,
    **{name: LINE + at for at, name in enumerate(("function", "job", "total", "piece", "taken"))},
    **{name: 2 * LINE + at for at, name in enumerate(("done", "wrong"))},
    **{name: 3 * LINE + at for at, name in enumerate(("asleep", "staying", "ended"))},
    "mutex": 4 * LINE,
    "condition": 6 * LINE,
    **{name: 8 * LINE + at for at, name in enumerate(("lock", "unlock", "doze", "signal"))},
}
"""The words of a pool's memory; the last are functions of the system's threads."""

SYSTEM = {
    "lock": "pthread_mutex_lock",
    "unlock": "pthread_mutex_unlock",
    "doze": "pthread_cond_wait",
    "signal": "pthread_cond_signal",
}

# The state counts the jobs above bit 32. Below are the first piece that is left, from bit 16 on, and the one
# behind the last. Who takes a piece of a job changes it from what it was before the job was read: so nobody
# takes a piece of one job for another's. The caller takes the last ones and others the first: so what a core
# wrote in one job it mostly finds in its own cache in the next.
_TEXT = """
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)

define internal i64 @left(i64 %state) {
  %first = lshr i64 %state, 16
  %count = sub i64 %state, %first
  %left = and i64 %count, 65535
  ret i64 %left
}

define internal void @work(ptr %pool, i1 %calls) {
entry:
  %function.p = getelementptr i64, ptr %pool, i64 #function
  %job.p = getelementptr i64, ptr %pool, i64 #job
  %total.p = getelementptr i64, ptr %pool, i64 #total
  %piece.p = getelementptr i64, ptr %pool, i64 #piece
  %done.p = getelementptr i64, ptr %pool, i64 #done
  %wrong.p = getelementptr i64, ptr %pool, i64 #wrong
  br label %look
look:
  %state = load atomic i64, ptr %pool acquire, align 8
  %left = call i64 @left(i64 %state)
  %none = icmp eq i64 %left, 0
  br i1 %none, label %out, label %read
read:
  %function = load atomic ptr, ptr %function.p monotonic, align 8
  %job = load atomic ptr, ptr %job.p monotonic, align 8
  %total = load atomic i64, ptr %total.p monotonic, align 8
  %piece = load atomic i64, ptr %piece.p monotonic, align 8
  %first = lshr i64 %state, 16
  %change = select i1 %calls, i64 -1, i64 65536
  %less = add i64 %state, %change
  %pair = cmpxchg ptr %pool, i64 %state, i64 %less acq_rel acquire
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %take, label %look
take:
  %at = select i1 %calls, i64 %less, i64 %first
  %number = and i64 %at, 65535
  %from = mul i64 %number, %piece
  %end = add i64 %from, %piece
  %to = call i64 @llvm.umin.i64(i64 %end, i64 %total)
  %found = call i32 %function(ptr %job, i64 %from, i64 %to)
  %good = icmp eq i32 %found, 0
  br i1 %good, label %finish, label %note
note:
  store atomic i64 1, ptr %wrong.p monotonic, align 8
  br label %finish
finish:
  %before = atomicrmw add ptr %done.p, i64 1 release
  br label %look
out:
  ret void
}

define internal i32 @shared(ptr %pool, ptr %job, ptr %function, i64 %total, i64 %piece) {
entry:
  %whole = icmp uge i64 %piece, %total
  br i1 %whole, label %alone, label %ask
ask:
  %taken.p = getelementptr i64, ptr %pool, i64 #taken
  %pair = cmpxchg ptr %taken.p, i64 0, i64 1 acquire monotonic
  %ours = extractvalue { i64, i1 } %pair, 1
  br i1 %ours, label %begin, label %alone
alone:
  %found = call i32 %function(ptr %job, i64 0, i64 %total)
  ret i32 %found
begin:
  %function.p = getelementptr i64, ptr %pool, i64 #function
  %job.p = getelementptr i64, ptr %pool, i64 #job
  %total.p = getelementptr i64, ptr %pool, i64 #total
  %piece.p = getelementptr i64, ptr %pool, i64 #piece
  %done.p = getelementptr i64, ptr %pool, i64 #done
  %wrong.p = getelementptr i64, ptr %pool, i64 #wrong
  store atomic ptr %function, ptr %function.p monotonic, align 8
  store atomic ptr %job, ptr %job.p monotonic, align 8
  store atomic i64 %total, ptr %total.p monotonic, align 8
  store atomic i64 %piece, ptr %piece.p monotonic, align 8
  store atomic i64 0, ptr %done.p monotonic, align 8
  store atomic i64 0, ptr %wrong.p monotonic, align 8
  %more = sub i64 %piece, 1
  %up = add i64 %total, %more
  %pieces = udiv i64 %up, %piece
  %old = load atomic i64, ptr %pool monotonic, align 8
  %jobs = lshr i64 %old, 32
  %jobs1 = add i64 %jobs, 1
  %high = shl i64 %jobs1, 32
  %new = or i64 %high, %pieces
  store atomic i64 %new, ptr %pool seq_cst, align 8
  %asleep.p = getelementptr i64, ptr %pool, i64 #asleep
  %asleep = load atomic i64, ptr %asleep.p seq_cst, align 8
  %staying.p = getelementptr i64, ptr %pool, i64 #staying
  %staying = load atomic i64, ptr %staying.p monotonic, align 8
  %free = call i64 @llvm.usub.sat.i64(i64 %asleep, i64 %staying)
  %others = sub i64 %pieces, 1
  %many = call i64 @llvm.umin.i64(i64 %others, i64 %free)
  %some = icmp ne i64 %many, 0
  br i1 %some, label %ring, label %begun
ring:
  call void @wake(ptr %pool, i64 %many)
  br label %begun
begun:
  call void @work(ptr %pool, i1 true)
  br label %wait
wait:
  %done = load atomic i64, ptr %done.p acquire, align 8
  %all = icmp eq i64 %done, %pieces
  br i1 %all, label %end, label %rest
rest:
  PAUSE
  br label %wait
end:
  %wrong = load atomic i64, ptr %wrong.p monotonic, align 8
  store atomic i64 0, ptr %taken.p release, align 8
  %result = trunc i64 %wrong to i32
  ret i32 %result
}

define i32 @run(ptr %pool, ptr %job) {
entry:
  %first = load ptr, ptr %job
  %piece.p = getelementptr i64, ptr %job, i64 1
  %piece = load i64, ptr %piece.p
  %second.p = getelementptr i64, ptr %job, i64 2
  %second = load ptr, ptr %second.p
  %piece2.p = getelementptr i64, ptr %job, i64 3
  %piece2 = load i64, ptr %piece2.p
  %total.p = getelementptr i64, ptr %job, i64 4
  %total = load i64, ptr %total.p
  %found = call i32 @shared(ptr %pool, ptr %job, ptr %first, i64 %total, i64 %piece)
  %good = icmp eq i32 %found, 0
  %more = icmp ne ptr %second, null
  %on = and i1 %good, %more
  br i1 %on, label %follow, label %out
follow:
  %then = call i32 @shared(ptr %pool, ptr %job, ptr %second, i64 %total, i64 %piece2)
  ret i32 %then
out:
  ret i32 %found
}

define void @wake(ptr %pool, i64 %many) {
entry:
  %mutex = getelementptr i64, ptr %pool, i64 #mutex
  %condition = getelementptr i64, ptr %pool, i64 #condition
  %lock.p = getelementptr i64, ptr %pool, i64 #lock
  %unlock.p = getelementptr i64, ptr %pool, i64 #unlock
  %signal.p = getelementptr i64, ptr %pool, i64 #signal
  %lock = load ptr, ptr %lock.p
  %unlock = load ptr, ptr %unlock.p
  %signal = load ptr, ptr %signal.p
  %a = call i32 %lock(ptr %mutex)
  br label %each
each:
  %i = phi i64 [0, %entry], [%next, %each]
  %b = call i32 %signal(ptr %condition)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %many
  br i1 %more, label %each, label %out
out:
  %c = call i32 %unlock(ptr %mutex)
  ret void
}

define void @serve(ptr %pool) {
entry:
  %ended.p = getelementptr i64, ptr %pool, i64 #ended
  %staying.p = getelementptr i64, ptr %pool, i64 #staying
  %asleep.p = getelementptr i64, ptr %pool, i64 #asleep
  %mutex = getelementptr i64, ptr %pool, i64 #mutex
  %condition = getelementptr i64, ptr %pool, i64 #condition
  %lock.p = getelementptr i64, ptr %pool, i64 #lock
  %unlock.p = getelementptr i64, ptr %pool, i64 #unlock
  %doze.p = getelementptr i64, ptr %pool, i64 #doze
  %lock = load ptr, ptr %lock.p
  %unlock = load ptr, ptr %unlock.p
  %doze = load ptr, ptr %doze.p
  br label %look
look:
  %turn = phi i64 [0, %entry], [0, %busy], [%next, %idle], [0, %awake]
  %staying = load atomic i64, ptr %staying.p monotonic, align 8
  %asleep = load atomic i64, ptr %asleep.p monotonic, align 8
  %welcome = icmp uge i64 %asleep, %staying
  br i1 %welcome, label %ask, label %tired
ask:
  %state = load atomic i64, ptr %pool acquire, align 8
  %left = call i64 @left(i64 %state)
  %some = icmp ne i64 %left, 0
  br i1 %some, label %busy, label %idle
busy:
  call void @work(ptr %pool, i1 false)
  br label %look
idle:
  PAUSE
  %next = add i64 %turn, 1
  %patient = icmp ult i64 %next, PATIENCE
  br i1 %patient, label %look, label %tired
tired:
  %a = call i32 %lock(ptr %mutex)
  %before = atomicrmw add ptr %asleep.p, i64 1 seq_cst
  %staying.now = load atomic i64, ptr %staying.p monotonic, align 8
  %welcome.now = icmp uge i64 %before, %staying.now
  %state.now = load atomic i64, ptr %pool seq_cst, align 8
  %left.now = call i64 @left(i64 %state.now)
  %some.now = icmp ne i64 %left.now, 0
  %up = and i1 %welcome.now, %some.now
  %ended = load i64, ptr %ended.p
  %last = icmp ne i64 %ended, 0
  %on = or i1 %up, %last
  br i1 %on, label %awake, label %sleep
sleep:
  %b = call i32 %doze(ptr %condition, ptr %mutex)
  br label %awake
awake:
  %after = atomicrmw sub ptr %asleep.p, i64 1 seq_cst
  %ended.now = load i64, ptr %ended.p
  %c = call i32 %unlock(ptr %mutex)
  %end = icmp ne i64 %ended.now, 0
  br i1 %end, label %out, label %look
out:
  ret void
}
"""


def text() -> str:
    """Return the module, with the functions ``run``, ``walk``, ``wake`` and ``serve`` of a pool."""
    text = _TEXT.replace("PATIENCE", str(PATIENCE)) + walk_code.text()
    for name, place in PLACES.items():
        text = text.replace(f"#{name}\n", f"{place}\n")
    if platform.machine() not in ("x86_64", "AMD64"):
        return text.replace("PAUSE", "")
    pause = "void @llvm.x86.sse2.pause()"
    return text.replace("PAUSE", f"call {pause}") + f"\ndeclare {pause}\n"
