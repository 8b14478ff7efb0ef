"""Stores in LLVM's assembly, behind all loads and arithmetic of a stretch: nothing can go wrong any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.native.code import LANES, Value


@dataclass(frozen=True, slots=True)
class Later:
    """A store, done behind the loop of the stretch: where it finds the places and the elements.

    ``active`` is where it finds which threads take part, "" if all do; ``elements`` are names of arrays,
    or values that all threads share.
    """

    places: str
    active: str
    elements: tuple[tuple[str, Value], ...]


def store_loop(number_: int, later: Later, following: str) -> list[str]:
    """Return the loop of a store: threads in their order, so that of several at one address the last wins."""
    s, kind = f"s{number_}", later.elements[0][1].type
    count, size = len(later.elements), int(kind[1:]) // 8
    nbytes, many = size * count, LANES * count
    lines = [
        f"store{number_}:",
        f"br label %{s}",
        f"{s}:",
        f"%{s}.i = phi i64 [%from, %store{number_}], [%{s}.next, %{s}.end]",
        f"%{s}.pp = getelementptr i64, ptr {later.places}, i64 %{s}.i",
        f"%{s}.p = load <8 x i64>, ptr %{s}.pp, align 8",
        f"%{s}.0 = extractelement <8 x i64> %{s}.p, i32 0",
    ]
    whole = "true"
    if later.active:
        lines += [
            f"%{s}.ap = getelementptr i8, ptr {later.active}, i64 %{s}.i",
            f"%{s}.a8 = load <8 x i8>, ptr %{s}.ap, align 1",
            f"%{s}.a = trunc <8 x i8> %{s}.a8 to <8 x i1>",
            f"%{s}.w = call i1 @llvm.vector.reduce.and.v8i1(<8 x i1> %{s}.a)",
        ]
        whole = f"%{s}.w"
    names = []
    for part, (array, value) in enumerate(later.elements):
        if array:
            lines += [
                f"%{s}.ep{part} = getelementptr {kind}, ptr {array}, i64 %{s}.i",
                f"%{s}.e{part} = load <8 x {kind}>, ptr %{s}.ep{part}, align 1",
            ]
        else:
            lines += [
                f"%{s}.es{part} = insertelement <8 x {kind}> poison, {value}, i32 0",
                f"%{s}.e{part} = shufflevector <8 x {kind}> %{s}.es{part}, <8 x {kind}> poison, "
                "<8 x i32> zeroinitializer",
            ]
        names.append(f"%{s}.e{part}")
    steps = ", ".join(f"i64 {nbytes * lane}" for lane in range(LANES))
    lines += [
        f"%{s}.s1 = insertelement <8 x i64> poison, i64 %{s}.0, i32 0",
        f"%{s}.s = shufflevector <8 x i64> %{s}.s1, <8 x i64> poison, <8 x i32> zeroinitializer",
        f"%{s}.x = add <8 x i64> %{s}.s, <{steps}>",
        f"%{s}.c = icmp eq <8 x i64> %{s}.p, %{s}.x",
        f"%{s}.r = call i1 @llvm.vector.reduce.and.v8i1(<8 x i1> %{s}.c)",
        f"%{s}.f = and i1 %{s}.r, {whole}",
        f"br i1 %{s}.f, label %{s}.row, label %{s}.each0",
        f"{s}.row:",
        f"%{s}.rp = inttoptr i64 %{s}.0 to ptr",
    ]
    row = names[0]
    if count > 1:
        row = f"%{s}.joined"
        lines += _interleaved(s, names, kind, row)
    lines += [f"store <{many} x {kind}> {row}, ptr %{s}.rp, align 1", f"br label %{s}.end"]
    for lane in range(LANES):
        behind = f"{s}.each{lane + 1}" if lane < LANES - 1 else f"{s}.end"
        lines.append(f"{s}.each{lane}:")
        if later.active:
            lines += [
                f"%{s}.t{lane} = extractelement <8 x i1> %{s}.a, i32 {lane}",
                f"br i1 %{s}.t{lane}, label %{s}.do{lane}, label %{behind}",
                f"{s}.do{lane}:",
            ]
        lines += [
            f"%{s}.q{lane} = extractelement <8 x i64> %{s}.p, i32 {lane}",
            f"%{s}.qp{lane} = inttoptr i64 %{s}.q{lane} to ptr",
        ]
        for part, name in enumerate(names):
            lines += [
                f"%{s}.v{lane}.{part} = extractelement <8 x {kind}> {name}, i32 {lane}",
                f"%{s}.vp{lane}.{part} = getelementptr i8, ptr %{s}.qp{lane}, i64 {part * size}",
                f"store {kind} %{s}.v{lane}.{part}, ptr %{s}.vp{lane}.{part}, align 1",
            ]
        lines.append(f"br label %{behind}")
    lines += [
        f"{s}.end:",
        f"%{s}.next = add i64 %{s}.i, {LANES}",
        f"%{s}.more = icmp ult i64 %{s}.next, %to",
        f"br i1 %{s}.more, label %{s}, label %{following}",
    ]
    return lines


def _interleaved(s: str, names: Sequence[str], kind: str, result: str) -> list[str]:
    """Return the lines that put the elements of each of eight items beside each other."""
    lines, joined, width = [], list(names), LANES
    while len(joined) > 1:
        pairs: list[str] = []
        for a, b in zip(joined[::2], joined[1::2], strict=True):
            name = f"%{s}.j{width}.{len(pairs)}"
            order = ", ".join(f"i32 {at}" for at in range(2 * width))
            lines.append(
                f"{name} = shufflevector <{width} x {kind}> {a}, <{width} x {kind}> {b}, "
                f"<{2 * width} x i32> <{order}>"
            )
            pairs.append(name)
        joined, width = pairs, 2 * width
    count = len(names)
    order = ", ".join(
        f"i32 {part * LANES + lane}" for lane in range(LANES) for part in range(count)
    )
    lines.append(
        f"{result} = shufflevector <{width} x {kind}> {joined[0]}, <{width} x {kind}> poison, "
        f"<{width} x i32> <{order}>"
    )
    return lines
