"""Observers ask a row what its operation does beside computing (``prepare.effects``), and never for its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ptxlab.observe
from ptxlab.emulator.prepare.effects import NO_EFFECTS, Effects
from ptxlab.emulator.prepare.forms import REFUSED, find
from ptxlab.emulator.prepare.row import ROWS
from tests.together import in_one_test

FOLDER = Path(ptxlab.observe.__file__).parent
OPCODES = ROWS.keys() | {name.partition(".")[0] for name in REFUSED}


def words(node: ast.expr) -> Iterator[str]:
    """Yield the strings of a constant, or of a tuple or set of them."""
    for part in ast.walk(node) if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def asked(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the strings, each with its line, that something is compared with or looked up by."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Call):
            parts = node.args if getattr(node.func, "id", "") in ("frozenset", "set") else []
            if getattr(node.func, "attr", "") in (
                "get",
                "startswith",
                "isdisjoint",
                "intersection",
            ):
                parts = node.args
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        for part in parts:
            yield from ((part.lineno, word) for word in words(part))


MOST = 3
"""Words that are an opcode too: a mode of bar, and rules of findings."""


def test_no_observer_asks_for_an_opcode() -> None:
    questions = [
        f"{path.name}:{line}: {word}"
        for path in sorted(FOLDER.glob("*.py"))
        for line, word in asked(ast.parse(path.read_text()))
        if word.partition(".")[0] in OPCODES
    ]
    assert len(questions) <= MOST, questions


def test_what_is_asked_is_seen() -> None:
    """The test above sees each way to ask."""
    text = """
one = opcode == "wgmma" or opcode in ("atom", "red")
match opcode:
    case "selp" | "slct":
        two = {"mbarrier": 1}[opcode]
three = name.startswith("cp.async.c") or table["bar"] or frozenset({"st"})
"""
    known = [word for _, word in asked(ast.parse(text)) if word.partition(".")[0] in OPCODES]
    assert sorted(known) == sorted(
        ["wgmma", "atom", "red", "selp", "slct", "mbarrier", "cp.async.c", "bar", "st"]
    )


EFFECTS = {
    # what stands in the PTX ISA of each of these
    "add.u32": Effects(),
    "ld.acquire.gpu.global.u32": Effects(semantics="acquire", scope="gpu"),
    "atom.global.add.u32": Effects(atomic=True),
    "cp.async.ca.shared.global": Effects(begins="copies", work="copy"),
    "cp.async.wait_all": Effects(waits="copies"),
    "cp.async.mbarrier.arrive.noinc.b64": Effects(mbarrier="arrive", behind="copies"),
    "cp.async.bulk.wait_group.read": Effects(waits="bulk_copies", until="read"),
    "cp.async.bulk.wait_group": Effects(waits="bulk_copies"),
    "cp.async.bulk.prefetch.L2.global": Effects(),
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group": Effects(
        begins="bulk_copies", work="copy"
    ),
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32": Effects(
        begins="bulk_copies", work="copy", atomic=True
    ),
    "st.async.mbarrier::complete_tx::bytes.b32": Effects(begins="signals", work="store"),
    "mbarrier.arrive.expect_tx.relaxed.cluster.b64": Effects(
        mbarrier="arrive", tx="expect_tx", semantics="relaxed", scope="cluster"
    ),
    "mbarrier.try_wait.parity.b64": Effects(mbarrier="wait"),
    "bar.red.popc.u32": Effects(barrier="cta", meets="red", aligned="aligned"),
    "barrier.arrive": Effects(barrier="cta", meets="arrive"),
    "barrier.cluster.wait.acquire.aligned": Effects(
        barrier="cluster", meets="wait", aligned="aligned", semantics="acquire", scope="cluster"
    ),
    "griddepcontrol.wait": Effects(barrier="grid", meets="wait"),
    "membar.gl": Effects(fence="memory", scope="gl"),
    "fence.acq_rel.cta": Effects(fence="memory", semantics="acq_rel", scope="cta"),
    "fence.proxy.async.global": Effects(fence="async", space="global"),
    "fence.proxy.tensormap::generic.release.gpu": Effects(
        fence="tensormap::generic", semantics="release", scope="gpu"
    ),
    "wgmma.fence.sync.aligned": Effects(fence="registers"),
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16": Effects(
        begins="products", work="product"
    ),
    "tcgen05.mma.cta_group::1.kind::f16": Effects(begins="tensor_work", work="product"),
    "tcgen05.cp.cta_group::1.128x256b": Effects(begins="tensor_work", work="copy"),
    "tcgen05.shift.cta_group::1.down": Effects(begins="tensor_work", work="shift"),
    "tcgen05.ld.sync.aligned.32x32b.x1.b32": Effects(begins="tensor_loads", work="load"),
    "tcgen05.st.sync.aligned.32x32b.x1.b32": Effects(begins="tensor_stores", work="store"),
    "tcgen05.wait::ld.sync.aligned": Effects(waits="tensor_loads"),
    "tcgen05.wait::st.sync.aligned": Effects(waits="tensor_stores"),
    "selp.b32": Effects(passes="chosen"),
    "add.f32": Effects(contracts="sum"),
    "sub.f64": Effects(contracts="difference"),
    "mul.f16": Effects(contracts="product"),
    "shfl.sync.idx.b32": Effects(passes="lane"),
    "or.pred": Effects(passes="bits"),
    "lop3.b32": Effects(passes="bits"),
    "shr.s32": Effects(passes="shifted"),
    "bra": Effects(leads="label"),
}


@in_one_test("name", EFFECTS)
def test_effects(name: str) -> None:
    opcode, *modifiers = name.split(".")
    assert find(opcode, tuple(modifiers)).effects == EFFECTS[name]


def test_what_waits_for_a_queue_has_one_that_fills_it() -> None:
    rows = [row.effects for several in ROWS.values() for row in several]
    begun = {effects.begins for effects in rows}
    assert {effects.waits for effects in rows} <= begun
    assert {effects.commits for effects in rows} <= begun
    assert NO_EFFECTS in rows


@pytest.mark.parametrize(
    ("named", "holds"),
    [
        ("engine", {Effects(begins="products"): True, Effects(begins="copies"): False}),
        (
            "asynchronous",
            {
                Effects(mbarrier="init"): True,
                Effects(waits="products"): True,
                Effects(commits="bulk_copies"): True,
                Effects(barrier="cluster"): True,
                Effects(waits="copies"): False,
                Effects(barrier="cta"): False,
            },
        ),
        (
            "strong",
            {
                Effects(atomic=True): True,
                Effects(semantics="relaxed"): True,
                Effects(semantics="weak"): False,
                NO_EFFECTS: False,
            },
        ),
        ("acquires", {Effects(semantics="sc"): True, Effects(semantics="release"): False}),
        ("releases", {Effects(semantics="acq_rel"): True, Effects(semantics="acquire"): False}),
        (
            "relaxed",
            {
                Effects(mbarrier="wait", semantics="relaxed"): True,
                Effects(barrier="cluster", semantics="relaxed"): True,
                Effects(semantics="relaxed"): False,
            },
        ),
    ],
)
def test_what_follows_from_effects(named: str, holds: dict[Effects, bool]) -> None:
    assert {effects: getattr(effects, named) for effects in holds} == holds
