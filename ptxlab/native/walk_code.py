"""The machine code that walks through a program of operations, of which some are jobs and some choose what is next.

An operation is a row of ``WORDS`` words, the first its kind. A register is a row of ``ARRAYS`` objects: the
array that it is now, and two that its next values go to in turn. So what a job that cannot be done has
written is nowhere, and it can be done in another way.
"""

from __future__ import annotations

import re

from ptxlab.native.arrays import DATA

WORDS = 8
"""The words of an operation."""

ARRAYS = 3
"""The words of a register."""

JOB, END, STAND = range(3)
"""Kinds. A job: where it is, where in it arrays are named, a list of registers, how many of these it reads, how
many it writes, where a word is that is 0 as long as others are to do it, or 0. The end of a block: its instructions, the register that decides or -1, its elements, where it says
which of them count, the operation if all hold, that if none does; -1 is nowhere. To stand: nothing."""

AT, INSTRUCTIONS, BUDGET, JOBS = range(4)
"""The words of a walk: its operation, and what has been done: the instructions of a thread, how many it may do,
and the jobs."""

_TEXT = """
; Walk until an operation says to stand, or the budget is used up, which is 0, or there is no way, which is 1.
define i64 @walk(ptr %pool, ptr %walk, ptr %operations, ptr %registers) {
entry:
  %instructions.p = getelementptr i64, ptr %walk, i64 #INSTRUCTIONS
  %budget.p = getelementptr i64, ptr %walk, i64 #BUDGET
  %jobs.p = getelementptr i64, ptr %walk, i64 #JOBS
  %begin = load i64, ptr %walk
  br label %next
next:
  %at = phi i64 [%begin, %entry], [%behind, %done], [%to, %counted]
  %offset = mul i64 %at, #BYTES
  %p0 = getelementptr i8, ptr %operations, i64 %offset
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %p4 = getelementptr i64, ptr %p0, i64 4
  %p5 = getelementptr i64, ptr %p0, i64 5
  %p6 = getelementptr i64, ptr %p0, i64 6
  %kind = load i64, ptr %p0
  %a = load i64, ptr %p1
  %b = load i64, ptr %p2
  %c = load i64, ptr %p3
  %d = load i64, ptr %p4
  %e = load i64, ptr %p5
  %f = load i64, ptr %p6
  switch i64 %kind, label %stand [i64 #JOB, label %job
                                  i64 #END, label %end]
job:
  %gated = icmp ne i64 %f, 0
  br i1 %gated, label %gate, label %pass
gate:
  %gate.p = inttoptr i64 %f to ptr
  %open = load i64, ptr %gate.p
  %closed = icmp eq i64 %open, 0
  br i1 %closed, label %stand, label %pass
pass:
  %job.p = inttoptr i64 %a to ptr
  %named.p = inttoptr i64 %b to ptr
  %list.p = inttoptr i64 %c to ptr
  %all = add i64 %d, %e
  br label %name
name:
  %i = phi i64 [0, %pass], [%i1, %named]
  %over = icmp uge i64 %i, %all
  br i1 %over, label %run, label %one
one:
  %slot.p = getelementptr i64, ptr %list.p, i64 %i
  %slot = load i64, ptr %slot.p
  %row = mul i64 %slot, #ARRAYS
  %writes = icmp uge i64 %i, %d
  %which = zext i1 %writes to i64
  %place = add i64 %row, %which
  %object.p = getelementptr i64, ptr %registers, i64 %place
  %object = load i64, ptr %object.p
  %word.p = getelementptr i64, ptr %named.p, i64 %i
  store i64 %object, ptr %word.p
  br label %named
named:
  %i1 = add i64 %i, 1
  br label %name
run:
  %found = call i32 @run(ptr %pool, ptr %job.p)
  %good = icmp eq i32 %found, 0
  br i1 %good, label %keep, label %stuck
keep:
  %k = phi i64 [%d, %run], [%k1, %turn]
  %kept = icmp uge i64 %k, %all
  br i1 %kept, label %done, label %turn
turn:
  %out.p = getelementptr i64, ptr %list.p, i64 %k
  %out = load i64, ptr %out.p
  %out.row = mul i64 %out, #ARRAYS
  %now.p = getelementptr i64, ptr %registers, i64 %out.row
  %first.p = getelementptr i64, ptr %now.p, i64 1
  %second.p = getelementptr i64, ptr %now.p, i64 2
  %first = load i64, ptr %first.p
  %second = load i64, ptr %second.p
  store i64 %first, ptr %now.p
  store i64 %second, ptr %first.p
  store i64 %first, ptr %second.p
  %k1 = add i64 %k, 1
  br label %keep
done:
  %jobs = load i64, ptr %jobs.p
  %jobs1 = add i64 %jobs, 1
  store i64 %jobs1, ptr %jobs.p
  %behind = add i64 %at, 1
  br label %next
end:
  %always = icmp eq i64 %b, -1
  br i1 %always, label %leave, label %test
test:
  %test.row = mul i64 %b, #ARRAYS
  %test.p = getelementptr i64, ptr %registers, i64 %test.row
  %test.object = load ptr, ptr %test.p
  %data.p = getelementptr i8, ptr %test.object, i64 #DATA
  %data = load ptr, ptr %data.p
  %mask = inttoptr i64 %d to ptr
  br label %each
each:
  %j = phi i64 [0, %test], [%j1, %each]
  %yes = phi i8 [0, %test], [%yes1, %each]
  %no = phi i8 [0, %test], [%no1, %each]
  %value.p = getelementptr i8, ptr %data, i64 %j
  %mask.p = getelementptr i8, ptr %mask, i64 %j
  %value = load i8, ptr %value.p
  %counts = load i8, ptr %mask.p
  %inverse = xor i8 %value, 1
  %holds = and i8 %value, %counts
  %fails = and i8 %inverse, %counts
  %yes1 = or i8 %yes, %holds
  %no1 = or i8 %no, %fails
  %j1 = add i64 %j, 1
  %more = icmp ult i64 %j1, %c
  br i1 %more, label %each, label %judge
judge:
  %some = icmp ne i8 %yes1, 0
  %others = icmp ne i8 %no1, 0
  %apart = and i1 %some, %others
  br i1 %apart, label %stuck, label %leave
leave:
  %taken = phi i1 [true, %end], [%some, %judge]
  %to = select i1 %taken, i64 %e, i64 %f
  %nowhere = icmp eq i64 %to, -1
  br i1 %nowhere, label %stuck, label %count
count:
  %before = load i64, ptr %instructions.p
  %after = add i64 %before, %a
  store i64 %after, ptr %instructions.p
  %budget = load i64, ptr %budget.p
  %spent = icmp uge i64 %after, %budget
  br i1 %spent, label %rest, label %counted
counted:
  br label %next
rest:
  store i64 %to, ptr %walk
  ret i64 0
stand:
  store i64 %at, ptr %walk
  ret i64 0
stuck:
  store i64 %at, ptr %walk
  ret i64 1
}
"""


def text() -> str:
    """Return the function ``walk``, for a module that has ``run``."""
    words = {
        "INSTRUCTIONS": INSTRUCTIONS, "BUDGET": BUDGET, "JOBS": JOBS, "BYTES": 8 * WORDS, "JOB": JOB,
        "END": END, "ARRAYS": ARRAYS, "DATA": DATA,
    }  # fmt: skip
    return re.sub("#([A-Z]+)", lambda found: str(words[found[1]]), _TEXT)
