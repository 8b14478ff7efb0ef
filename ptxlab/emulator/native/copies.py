"""cp.async and its groups as machine code: where copies go is noted, and they are made when they are waited for.

All threads take part, so that all have begun as many groups. What is under way is a ring of words: a head of
``HEAD`` words, and for each of ``CAPACITY`` copies a row: where the array is that says where each thread reads,
the same of where it writes, how many bytes, and the number of its group, -1 before the commit. The functions are
those of jobs of ``ptxlab.native.cores``, of so many threads; nothing may be begun or waited for while the ring is
not open, and it closes itself when it is full.
"""

from __future__ import annotations

import re
from functools import cache

from ptxlab.emulator.native.places import FIND, Places, Span, Window
from ptxlab.native.arrays import load_array, load_word
from ptxlab.native.code import LANES, Code, Value, number
from ptxlab.native.cores import HEADER

OPEN, GROUPS, FIRST, COUNT, BEGUN = range(5)
"""Words of the ring: whether it may be used, groups committed, the oldest copy, how many, how many were begun."""

HEAD, ROW, CAPACITY = 8, 4, 64
"""The words before the rows, those of a row, and how many rows there are, a power of two."""

RING, ALLOWED = (HEADER + at for at in range(2))
"""Words of all jobs: the ring; of a wait how many groups may be under way, -1 to wait for all that has begun."""

TABLE, SHARED, REGISTERS = (HEADER + at for at in (1, 2, 6))
"""Words of the job that begins a copy: allocations, the window of shared memory, registers with addresses."""

_ROW = """
  #A.s = add i64 #I, %first
  #A.m = and i64 #A.s, #LAST
  #A.o = mul i64 #A.m, #ROW
  #A.b = add i64 #A.o, #HEAD
  #A.src.p = getelementptr i64, ptr %ring, i64 #A.b
  #A.dst.p = getelementptr i64, ptr #A.src.p, i64 1
  #A.size.p = getelementptr i64, ptr #A.src.p, i64 2
  #A.group.p = getelementptr i64, ptr #A.src.p, i64 3
"""

_RING = """
  %ring.p = getelementptr i64, ptr %args, i64 #RING
  %ring = load ptr, ptr %ring.p
  %groups.p = getelementptr i64, ptr %ring, i64 #GROUPS
  %groups = load i64, ptr %groups.p
  %first.p = getelementptr i64, ptr %ring, i64 #FIRST
  %first = load i64, ptr %first.p
  %count.p = getelementptr i64, ptr %ring, i64 #COUNT
  %count = load i64, ptr %count.p
"""

_BEGUN = """
define i32 @begun(ptr %args, i64 %from, i64 %to) {
entry:
#RING_IN
#ROW_OF(%r, %count)
  store i64 #BYTES, ptr %r.size.p
  store i64 -1, ptr %r.group.p
  %more = add i64 %count, 1
  store i64 %more, ptr %count.p
  %begun.p = getelementptr i64, ptr %ring, i64 #BEGUN
  %begun = load i64, ptr %begun.p
  %begun1 = add i64 %begun, 1
  store i64 %begun1, ptr %begun.p
  %room = icmp ult i64 %more, #CAPACITY
  %open = zext i1 %room to i64
  store i64 %open, ptr %ring
  ret i32 0
}
"""

_GROUPS = """
define i32 @commit(ptr %args, i64 %from, i64 %to) {
entry:
#RING_IN
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %on]
  %over = icmp uge i64 %i, %count
  br i1 %over, label %done, label %look
look:
#ROW_OF(%r, %i)
  %group = load i64, ptr %r.group.p
  %free = icmp slt i64 %group, 0
  br i1 %free, label %take, label %on
take:
  store i64 %groups, ptr %r.group.p
  br label %on
on:
  %i1 = add i64 %i, 1
  br label %next
done:
  %groups1 = add i64 %groups, 1
  store i64 %groups1, ptr %groups.p
  ret i32 0
}

; Whether a copy of a group is due, all that are older being so.
define internal i1 @due(i64 %group, i64 %groups, i64 %allowed) alwaysinline {
  %newest = sub i64 %groups, %allowed
  %committed = icmp sge i64 %group, 0
  %old = icmp slt i64 %group, %newest
  %due = and i1 %committed, %old
  %all = icmp slt i64 %allowed, 0
  %found = or i1 %due, %all
  ret i1 %found
}

define i32 @land(ptr %args, i64 %from, i64 %to) {
entry:
#RING_IN
  %allowed.p = getelementptr i64, ptr %args, i64 #ALLOWED
  %allowed = load i64, ptr %allowed.p
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %end4], [%i1, %end8], [%i1, %end16]
  %over = icmp uge i64 %i, %count
  br i1 %over, label %done, label %look
look:
#ROW_OF(%r, %i)
  %i1 = add i64 %i, 1
  %group = load i64, ptr %r.group.p
  %due = call i1 @due(i64 %group, i64 %groups, i64 %allowed)
  br i1 %due, label %which, label %done
which:
  %src = load ptr, ptr %r.src.p
  %dst = load ptr, ptr %r.dst.p
  %size = load i64, ptr %r.size.p
  switch i64 %size, label %done [i64 4, label %copy4
                                 i64 8, label %copy8
                                 i64 16, label %copy16]
#COPIES
done:
  ret i32 0
}

define i32 @landed(ptr %args, i64 %from, i64 %to) {
entry:
#RING_IN
  %allowed.p = getelementptr i64, ptr %args, i64 #ALLOWED
  %allowed = load i64, ptr %allowed.p
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %look]
  %over = icmp uge i64 %i, %count
  br i1 %over, label %done, label %look
look:
#ROW_OF(%r, %i)
  %i1 = add i64 %i, 1
  %group = load i64, ptr %r.group.p
  %due = call i1 @due(i64 %group, i64 %groups, i64 %allowed)
  br i1 %due, label %next, label %done
done:
  %gone = phi i64 [%count, %next], [%i, %look]
  %left = sub i64 %count, %gone
  %moved = add i64 %first, %gone
  store i64 %left, ptr %count.p
  store i64 %moved, ptr %first.p
  ret i32 0
}
"""

_COPY = """
copy#N:
  %k#N = phi i64 [%from, %which], [%k1#N, %copy#N]
  %sp#N = getelementptr i64, ptr %src, i64 %k#N
  %dp#N = getelementptr i64, ptr %dst, i64 %k#N
  %s#N = load ptr, ptr %sp#N
  %d#N = load ptr, ptr %dp#N
  %v#N = load <#N x i8>, ptr %s#N, align 1
  store <#N x i8> %v#N, ptr %d#N, align 1
  %k1#N = add i64 %k#N, 1
  %more#N = icmp ult i64 %k1#N, %to
  br i1 %more#N, label %copy#N, label %end#N
end#N:
  br label %next
"""


def _filled(text: str, **words: int) -> str:
    copies = "".join(_COPY.replace("#N", str(size)) for size in (4, 8, 16))
    text = text.replace("#RING_IN", _RING).replace("#COPIES", copies)
    text = re.sub(
        r"#ROW_OF\((%\w+), (%\w+)\)",
        lambda found: _ROW.replace("#A", found[1]).replace("#I", found[2]),
        text,
    )
    words |= {
        "RING": RING, "ALLOWED": ALLOWED, "GROUPS": GROUPS, "FIRST": FIRST, "COUNT": COUNT, "BEGUN": BEGUN,
        "HEAD": HEAD, "ROW": ROW, "CAPACITY": CAPACITY, "LAST": CAPACITY - 1,
    }  # fmt: skip
    return re.sub("#([A-Z]+)", lambda found: str(words[found[1]]), text)


@cache
def groups() -> str:
    """Return the functions ``commit``, and ``land`` and ``landed``, which follow each other in a wait."""
    return _filled(_GROUPS)


@cache
def begin(nbytes: int, target_bytes: int, target: int, origin: int) -> str:
    """Return the functions ``begin`` and ``begun``, which follow each other, of copies of so many bytes.

    Addresses in shared memory have ``target_bytes`` bytes. ``target`` and ``origin`` are added to the
    addresses.
    """
    code = Code()
    places = Places(code, "%table")
    into = _address(code, "to", f"i{8 * target_bytes}")
    window = Window(
        Value("%bytes.a", "i64"), "%start", Value("%size", "i64"), Value("%lowest", "i64")
    )
    written = places.in_window(into, window, _span(target, nbytes), None)
    read = places.in_global(
        _address(code, "from", "i64"), _span(origin, nbytes), None, writes=False
    )
    for name, found, offset in (("src", read, origin), ("dst", written, target)):
        place = code.op("add", found.place, number(offset, "i64"))
        code.body += [
            f"%{name}.k = getelementptr i64, ptr %{name}, i64 %i",
            f"store {place}, ptr %{name}.k, align 8",
        ]
    lines = [
        "define i32 @begin(ptr %args, i64 %from, i64 %to) {",
        "entry:",
        *code.allocas,
        _filled("#RING_IN #ROW_OF(%r, %count)"),
        "%src = load ptr, ptr %r.src.p",
        "%dst = load ptr, ptr %r.dst.p",
        *load_array("table", TABLE),
        *load_array("bytes", SHARED),
        *load_array("start", SHARED + 1),
        *load_array("to.a", REGISTERS),
        *load_array("from.a", REGISTERS + 1),
        "%bytes.a = ptrtoint ptr %bytes to i64",
        *load_word("size", SHARED + 2),
        *load_word("lowest", SHARED + 3),
        "br label %begin",
        *code.over_threads(),
        *sorted(code.declared),
        FIND,
        _filled(_BEGUN, BYTES=nbytes),
    ]
    return "\n".join(lines)


def _span(offset: int, nbytes: int) -> Span:
    span = Span(offset, offset)
    span.add(offset, nbytes)
    return span


def _address(code: Code, name: str, kind: str) -> Value:
    """Return the addresses in a register, as 64 bits."""
    code.body += [
        f"%{name}.k = getelementptr {kind}, ptr %{name}.a, i64 %i",
        f"%{name}.v = load <{LANES} x {kind}>, ptr %{name}.k, align 1",
    ]
    return code.extended(Value(f"%{name}.v", kind, True), 64, signed=False)
