"""shfl as machine code: each thread of a warp reads a register of another, by numbers that all lanes give.

The function is that of a job of ``ptxlab.native.cores`` of so many warps, in all of which all lanes are there. Its
words are the objects of the registers that it reads and of the results. Where a membermask leaves lanes out it
says that it cannot.
Source: PTX ISA, "shfl.sync".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ptxlab.isa.targets import WARP
from ptxlab.native.arrays import load_array
from ptxlab.native.cores import HEADER

NAME = "shuffle"
REGISTERS = HEADER

_WORDS, _LANE = f"<{WARP} x i32>", f"splat (i32 {WARP - 1})"
_MOVES = {
    "idx": f"or {_WORDS} %low, %by.low",
    "up": f"sub {_WORDS} %lane, %by",
    "down": f"add {_WORDS} %lane, %by",
    "bfly": f"xor {_WORDS} %lane, %by",
}

_TEXT = f"""
define i32 @{NAME}(ptr %args, i64 %from, i64 %to) {{
entry:
#ARRAYS
  %lanes = alloca {_WORDS}
  %lane = or {_WORDS} <{", ".join(f"i32 {lane}" for lane in range(WARP))}>, zeroinitializer
  br label %warp
warp:
  %at = phi i64 [%from, %entry], [%next, %over]
#OPERANDS
  %by = and {_WORDS} %b.all, {_LANE}
  %clamp = and {_WORDS} %c.all, {_LANE}
  %c.high = lshr {_WORDS} %c.all, splat (i32 8)
  %segment = and {_WORDS} %c.high, {_LANE}
  %inner = xor {_WORDS} %segment, splat (i32 -1)
  %low = and {_WORDS} %lane, %segment
  %by.low = and {_WORDS} %by, %inner
  %clamp.low = and {_WORDS} %clamp, %inner
  %limit = or {_WORDS} %low, %clamp.low
  %other = #MOVE
  %inside = icmp #WITHIN {_WORDS} %other, %limit
  %chosen = select <{WARP} x i1> %inside, {_WORDS} %other, {_WORDS} %lane
  store {_WORDS} %chosen, ptr %lanes
#TELL
  %a.p = getelementptr {_WORDS}, ptr %a, i64 %at
  %d.p = getelementptr {_WORDS}, ptr %d, i64 %at
  br label %each
each:
  %k = phi i64 [0, %warp], [%k1, %each]
  %which.p = getelementptr i32, ptr %lanes, i64 %k
  %which = load i32, ptr %which.p, align 4
  %from.p = getelementptr i32, ptr %a.p, i32 %which
  %item = load i32, ptr %from.p, align 4
  %to.p = getelementptr i32, ptr %d.p, i64 %k
  store i32 %item, ptr %to.p, align 4
  %k1 = add i64 %k, 1
  %others = icmp ult i64 %k1, {WARP}
  br i1 %others, label %each, label %over
over:
  %members = call i32 @llvm.vector.reduce.and.v{WARP}i32({_WORDS} %m.all)
  %whole = icmp eq i32 %members, -1
  %next = add i64 %at, 1
  %more = icmp ult i64 %next, %to
  %on = and i1 %whole, %more
  br i1 %on, label %warp, label %done
done:
  %wrong = xor i1 %whole, true
  %result = zext i1 %wrong to i32
  ret i32 %result
}}
declare i32 @llvm.vector.reduce.and.v{WARP}i32({_WORDS})
"""

_TELL = f"""
  %t.p = getelementptr <{WARP} x i8>, ptr %t, i64 %at
  %told = zext <{WARP} x i1> %inside to <{WARP} x i8>
  store <{WARP} x i8> %told, ptr %t.p, align 1
"""


@cache
def text(mode: str, given: Sequence[int | None], *, tells: bool) -> str:
    """Return the function of a mode; ``given`` are b, c and the membermask, None where a register has them.

    It may have a second result, a predicate: whether each thread has read another lane's place.
    """
    read = [name for name, value in zip("bcm", given, strict=True) if value is None]
    arrays = [
        line
        for word, name in enumerate(["a", *read, "d", *("t" * tells)], REGISTERS)
        for line in load_array(name, word)
    ]
    operands = [
        f"%{name}.all = or {_WORDS} splat (i32 {value}), zeroinitializer"
        if value is not None
        else f"%{name}.p = getelementptr {_WORDS}, ptr %{name}, i64 %at\n"
        f"%{name}.all = load {_WORDS}, ptr %{name}.p, align 4"
        for name, value in zip("bcm", given, strict=True)
    ]
    words = {
        "#ARRAYS": "\n".join(arrays),
        "#OPERANDS": "\n".join(operands),
        "#MOVE": _MOVES[mode],
        "#WITHIN": "sge" if mode == "up" else "sle",
        "#TELL": _TELL if tells else "",
    }
    text = _TEXT
    for mark, filled in words.items():
        text = text.replace(mark, filled)
    return text
