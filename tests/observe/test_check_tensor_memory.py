"""tcgen05: what tensor cores have until somebody waits for it, by right programs and their faulty twins."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport, Finding
from tests.emulator.blackwell.cells import device, module
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_around import MAP
from tests.emulator.blackwell.test_around import text as kernel_text
from tests.emulator.blackwell.test_order import WAIT
from tests.emulator.blackwell.test_product import issued
from tests.emulator.blackwell.test_scaled_and_sparse import META_AT, put_metadata, sparse
from tests.together import thorough

PRODUCT = "tcgen05.mma.cta_group::1.kind::f16 [d], x0, x1, idesc, yes"
FROM_CELLS = "tcgen05.mma.cta_group::1.kind::f16 [d], [a], x1, idesc, yes"
STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [r9], {r9}"
GIVEN_BACK = "@first tcgen05.dealloc.cta_group::1.sync.aligned.b32 t, 512"
STORED = "    tcgen05.wait::st.sync.aligned;\n"
FENCE = "    fence.proxy.async;\n"
COPY = "tcgen05.cp.cta_group::1.128x256b [r10], x0"


def checked(text: str, problem: Problem, cells: Array | None = None) -> CheckReport:
    gpu = device("sm_100a", "late")
    words = np.zeros(8, np.uint64)
    words[:3] = problem.words()
    before = problem.cells() if cells is None else cells
    arrays = [gpu.upload(array) for array in (before, problem.shared(), words)]
    config = LaunchConfig.of(problem.group, 128, cluster=problem.group)
    return check(gpu.load(text).kernel("k"), config, arrays)


def program(body: str) -> str:
    return module(body, 32768, 1, "sm_100a")


def findings_of(report: CheckReport) -> list[tuple[str, str, str, str | None]]:
    """Return the rules of the findings, and the instructions of their lines."""

    def text(number: int) -> str:
        return report.source.line(number).strip().removesuffix(";")

    def told(finding: Finding) -> tuple[str, str, str, str | None]:
        other = None if finding.other_line is None else text(finding.other_line)
        return finding.severity, finding.rule, text(finding.line), other

    return [
        told(finding)
        for finding in report.findings
        if finding.severity != "info" and finding.rule != "fault"
    ]


@pytest.fixture
def problem() -> Problem:
    return Problem("f16", 128, 16, "f16", "f16")


def clean(text: str, problem: Problem) -> None:
    report = checked(text, problem)
    assert (report.verdict, findings_of(report), report.unchecked) == ("clean", [], ())


def test_what_a_product_writes_is_read_when_it_is_waited_for(problem: Problem) -> None:
    right = program(issued(problem))
    assert WAIT in right
    clean(right, problem)
    report = checked(right.replace(WAIT, "issued:\n"), problem)
    [(severity, rule, load, product), dealloc] = findings_of(report)
    assert (severity, rule, product) == ("error", "RAW", PRODUCT)
    assert dealloc == ("error", "WAW", GIVEN_BACK, PRODUCT)
    assert load.startswith("tcgen05.ld")
    [finding] = [finding for finding in report.findings if finding.rule == "RAW"]
    assert finding.count == 128 * 16 * 4
    assert "column 32 of lane 0 of Tensor Memory, which the product of line" in finding.message
    assert finding.hint.index("tcgen05.commit") < finding.hint.index("mbarrier.try_wait")


@pytest.mark.parametrize("scope", ["cta", "cluster"])
def test_a_relaxed_wait_for_a_product_needs_a_fence(problem: Problem, scope: str) -> None:
    """PTX ISA, "Non-pipelined instructions, same thread", example 2: of tensor cores, and no other, will do."""
    relaxed = WAIT.replace("try_wait.parity", f"try_wait.parity.relaxed.{scope}")
    for fence, rules in (
        ("tcgen05.fence::after_thread_sync", []),
        ("tcgen05.fence::before_thread_sync", ["RAW", "WAW"]),
        (f"fence.acq_rel.{scope}", []),
    ):
        right = program(issued(problem)).replace("tcgen05.fence::after_thread_sync;", "")
        text = right.replace(WAIT, f"{relaxed}    {fence};\n")
        assert [rule for _, rule, *_ in findings_of(checked(text, problem))] == rules


@pytest.mark.parametrize(
    ("fence", "rules"),
    [("fence.acq_rel.cta", []), ("tcgen05.fence::after_thread_sync", ["RAW"])],
)
def test_a_fence_of_tensor_cores_orders_no_other_memory(fence: str, rules: list[str]) -> None:
    """Threads see that another has arrived, which has stored a word before."""
    text = f""".version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
{{
    .shared .b64 bar; .shared .b32 word; .reg .b32 i, x; .reg .pred first, done;
    mov.u32 i, %tid.x; setp.eq.u32 first, i, 0;
    @first mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @first st.shared.u32 [word], 5;
    @first mbarrier.arrive.shared.b64 _, [bar];
W:  mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 done, [bar], 0;
    @!done bra W;
    {fence};
    ld.shared.u32 x, [word];
    ret;
}}
"""
    report = check(device("sm_100a", "late").load(text).kernel("k"), LaunchConfig.of(1, 64), [])
    assert [rule for severity, rule, *_ in findings_of(report) if severity == "error"] == rules


def test_memory_is_given_back_when_it_is_waited_for(problem: Problem) -> None:
    text = program(issued(problem))
    right = text[: text.index("get:")] + text[text.rindex("    barrier.cluster.arrive;") :]
    clean(right, problem)
    report = checked(right.replace(WAIT, "issued:\n"), problem)
    assert findings_of(report) == [("error", "WAW", GIVEN_BACK, PRODUCT)]
    [finding] = [finding for finding in report.findings if finding.rule == "WAW"]
    assert "gives back column 32 of lane 0 of Tensor Memory" in finding.message


def test_who_waits_for_a_commit_before_the_product_waits_for_nothing(problem: Problem) -> None:
    body, commit = issued(problem), "tcgen05.commit.cta_group::1"
    right = program(body)
    at = right.index(commit)
    late = right[at : right.index("\n", at)]
    moved = right.replace(late, "").replace(PRODUCT + ";", f"mov.u32 r0, bar; {late}\n{PRODUCT};")
    assert moved.count(commit) == 1
    assert ("error", "RAW", PRODUCT) in [
        (severity, rule, other) for severity, rule, _, other in findings_of(checked(moved, problem))
    ]


@pytest.mark.parametrize(
    ("column", "form", "rule"),
    [(32, PRODUCT, "WAW"), (48, PRODUCT, ""), (207, FROM_CELLS, "WAR"), (208, FROM_CELLS, "")],
)
def test_what_a_product_has_is_overwritten_when_it_is_waited_for(
    problem: Problem, column: int, form: str, rule: str
) -> None:
    """D is in columns 32 to 47, A from 200 on."""
    body = f".reg .b32 a; add.u32 a, t, 200;{issued(problem)}".replace(PRODUCT, form)
    early, late = (
        program(body).replace(WAIT, text)
        for text in (
            WAIT.replace(
                "issued:\n", f"issued:\n add.u32 r9, t, {column};\n    {STORE};\n    again:\n"
            ).replace("@!done bra issued", "@!done bra again"),
            WAIT + f"    add.u32 r9, t, {column};\n    {STORE};\n",
        )
    )
    waited = STORE + ";\n"
    clean(late.replace(waited, waited + STORED), problem)
    assert findings_of(checked(early.replace(waited, waited + STORED), problem)) == (
        [("error", rule, STORE, form)] if rule else []
    )


@pytest.mark.parametrize(
    ("column", "rule"), [(META_AT, "WAR"), (META_AT + 1, "WAR"), (META_AT + 2, "")]
)
def test_metadata_is_read_until_it_is_waited_for(column: int, rule: str) -> None:
    """Of a row of 64 bytes that is 64 bits: two columns."""
    problem = Problem("i8", 128, 16, "s8", "s8", "s32", more={"sparse": "yes"})
    stored, nibbles = sparse(problem)
    cells = problem.cells()
    put_metadata(problem, cells, nibbles, 0)
    problem.a = stored
    product = "tcgen05.mma.sp.cta_group::1.kind::i8 [d], x0, x1, [r10], idesc, yes"
    dense = "tcgen05.mma.cta_group::1.kind::i8 [d], x0, x1, idesc, yes"
    body = f"add.u32 r10, t, {META_AT};{issued(problem)}".replace(dense, product)
    store = f"issued:\n    add.u32 r9, t, {column};\n    {STORE};\n    again:\n"
    early = WAIT.replace("issued:\n", store).replace("@!done bra issued", "@!done bra again")
    twin = program(body).replace(WAIT, early).replace(STORE + ";\n", STORE + ";\n" + STORED)
    expected = [("error", rule, STORE, product)] if rule else []
    assert findings_of(checked(twin, problem, cells)) == expected


def test_a_copy_writes_until_it_is_waited_for(problem: Problem) -> None:
    right = program(f"add.u32 r10, t, 200;\n    {COPY};\n")
    clean(right, problem)
    [(severity, rule, _, copy), _] = findings_of(checked(right.replace(WAIT, "issued:\n"), problem))
    assert (severity, rule, copy) == ("error", "RAW", COPY)


@pytest.mark.parametrize("work", [PRODUCT, COPY])
def test_shared_memory_is_read_until_it_is_waited_for(problem: Problem, work: str) -> None:
    change = "    st.shared.b32 [s], r1;\n"
    body = issued(problem) if work == PRODUCT else f"add.u32 r10, t, 200;\n    {COPY};\n"
    clean(program(body).replace(WAIT, WAIT + change.replace("st.", "@leads st.")), problem)
    expected = [("error", "WAR", change.strip().removesuffix(";"), work)]
    assert findings_of(checked(program(body + change), problem)) == expected


@pytest.mark.parametrize(
    ("before", "copy", "behind"),
    [
        ("", "cp.async.ca.shared.global [s+{}], [ps], 16", "cp.async.wait_all;"),
        (
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16;",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s+{}], [ps], 16, [bar]",
            "",
        ),
    ],
)
def test_copies_to_what_a_product_reads_wait_for_it(
    problem: Problem, before: str, copy: str, behind: str
) -> None:
    """A is in the first 4096 bytes of shared memory."""
    for at, rule in ((4096, ""), (4080, "WAR")):
        line = copy.format(at)
        text = program(f"{issued(problem)}\n{before}\n    {line};\n{behind}\n")
        expected = [("error", rule, line, PRODUCT)] if rule else []
        assert findings_of(checked(text, problem)) == expected


@pytest.mark.parametrize("work", [PRODUCT, COPY])
def test_what_threads_wrote_needs_a_fence_of_the_proxies(problem: Problem, work: str) -> None:
    body = issued(problem) if work == PRODUCT else f"add.u32 r10, t, 200;\n    {COPY};\n"
    right = program(body)
    clean(right, problem)
    store = "st.shared.v4.b32 [r6], {r2, r3, r4, r5}"
    assert findings_of(checked(right.replace(FENCE, ""), problem)) == [
        ("error", "proxy", work, store)
    ]


@pytest.mark.parametrize("work", ["load", PRODUCT, FROM_CELLS])
def test_what_a_warp_stores_is_there_when_it_has_waited_for_it(problem: Problem, work: str) -> None:
    """All of Tensor Memory is stored before thread 0 begins; A and D are a part of it."""
    body = "" if work == "load" else f".reg .b32 a; add.u32 a, t, 200;{issued(problem)}"
    right = program(body.replace(PRODUCT, work))
    assert right.count(STORED) == 1
    clean(right, problem)
    report = findings_of(checked(right.replace(STORED, ""), problem))
    told = {(severity, rule) for severity, rule, *_ in report}
    expected = {"load": {"RAW"}, PRODUCT: {"WAW", "RAW"}, FROM_CELLS: {"WAW", "RAW"}}[work]
    assert told == {("error", rule) for rule in expected}
    for _, _rule, line, other in report:
        assert other is not None
        assert other.startswith("tcgen05.st.sync")
        assert line.startswith("tcgen05.ld") or line == work
    if work == FROM_CELLS:
        assert any(line == work and rule == "RAW" for _, rule, line, _ in report)


LOADED = "    tcgen05.wait::ld.sync.aligned;\n"
LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {r9}, [r9]"


@pytest.mark.parametrize("last", [32, 47, 48])
def test_what_a_warp_loads_is_overwritten_when_it_has_waited_for_it(
    problem: Problem, last: int
) -> None:
    """By a product, which writes columns 32 to 47, and by a store to column 47."""
    load = f"    add.u32 r9, t, {last};\n    {LOAD};\n"
    store = f"    add.u32 r9, t, 47;\n    {STORE};\n{STORED}"
    for right, by in (
        (program(issued(problem)).replace(STORED, STORED + load + LOADED), PRODUCT),
        (program("").replace(STORED, STORED + load + LOADED + store), STORE),
    ):
        clean(right, problem)
        meets = last in ((47,) if by == STORE else (32, 47))
        late = right.replace(load + LOADED, load)
        assert findings_of(checked(late, problem)) == (
            [("error", "WAR", by, LOAD)] if meets else []
        )


MEETING = """    barrier.cluster.arrive;
    barrier.cluster.wait;
    tcgen05.fence::after_thread_sync;
"""


@pytest.mark.parametrize("work", [PRODUCT, FROM_CELLS])
def test_who_has_not_waited_hears_of_it_by_meeting_those_who_have(
    problem: Problem, work: str
) -> None:
    """What the first warp stores is in order with its thread 0; what the others do is not: 96 lanes."""
    body = f".reg .b32 a; add.u32 a, t, 200;{issued(problem)}"
    right = program(body.replace(PRODUCT, work))
    assert right.count(MEETING) == 1
    clean(right, problem)
    report = checked(right.replace(MEETING, ""), problem)
    store = "tcgen05.st.sync.aligned.32x32b.x32.b32"
    told = [finding for finding in report.findings if finding.severity == "error"]
    assert {finding.rule for finding in told} == {"WAW"} | (
        {"RAW"} if work == FROM_CELLS else set()
    )
    for finding in told:
        assert report.source.line(finding.line).strip() == f"{work};"
        assert report.source.line(finding.other_line or 0).strip().startswith(store)
        assert "and nothing orders that wait before this, by thread (0, 0, 0)" in finding.message
        assert finding.hint.startswith(
            "behind tcgen05.wait::st of that warp a barrier of both, or its"
        )
    [overwritten] = [finding for finding in told if finding.rule == "WAW"]
    assert overwritten.count == 96 * 16 * 4


@pytest.mark.parametrize("met", [True, False])
def test_nor_is_what_a_warp_has_loaded_overwritten_before(problem: Problem, met: bool) -> None:
    """Loads of D behind the meeting; then warps meet again, or do not."""
    load = f"    add.u32 r9, t, 32;\n    {LOAD};\n{LOADED}"
    text = program(issued(problem)).replace(MEETING, MEETING + load + MEETING * met)
    if met:
        clean(text, problem)
    else:
        assert findings_of(checked(text, problem)) == [("error", "WAR", PRODUCT, LOAD)]


def test_a_warp_waits_for_itself_alone(problem: Problem) -> None:
    """Lanes 0 to 31 are those of the first warp."""
    right = program(issued(problem))
    alone = "    @first tcgen05.wait::st.sync.aligned;\n"
    report = checked(right.replace(STORED, alone), problem)
    [finding] = [finding for finding in report.findings if finding.rule == "WAW"]
    assert finding.count == 96 * 16 * 4
    assert "column 32 of lane 32 of Tensor Memory" in finding.message


@pytest.mark.parametrize(
    "problem",
    [
        Problem("f16", 128, 32, "f16", "f16", group=2),
        Problem("f16", 32, 64, "f16", "f16", stationary=True),
        *thorough(
            [
                Problem("f16", 256, 32, "f16", "f16", group=2),
                Problem("f16", 64, 64, "f16", "f16", stationary=True),
                Problem("f16", 64, 16, "f16", "f16"),
            ]
        ),
    ],
    ids=lambda problem: f"{problem.m}x{problem.n}x{problem.group}",
)
def test_products_of_each_layout(problem: Problem) -> None:
    right = module(issued(problem), 32768, problem.group, "sm_100a")
    assert findings_of(checked(right, problem)) == []
    twin = right.replace(WAIT, "issued:\n")
    [(severity, rule, load, _), *_] = findings_of(checked(twin, problem))
    assert (severity, rule) == ("error", "RAW")
    assert load.startswith("tcgen05.ld")
    [finding] = [finding for finding in checked(twin, problem).findings if finding.rule == "RAW"]
    assert finding.count == problem.m * problem.n * 4


PAIR = """
.version 9.1
.target sm_100a
.address_size 64
.visible .entry k()
{
    .reg .b32 t;
    .shared .align 16 .b32 slot;
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], 32;
    tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
    bar.sync 0;
    ld.shared.b32 t, [slot];
    MET
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 t, 32;
    LAST
    ret;
}
"""
MET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


@pytest.mark.parametrize("met", [True, False])
def test_a_pair_gives_back_what_both_have_allocated(met: bool) -> None:
    """The other order ends a launch on a B300: NVIDIA/cutlass, issue 3435. PTX also wants a barrier before."""
    text = PAIR.replace("MET", MET if met else "").replace("LAST", "" if met else MET)
    kernel = device("sm_100a", "late").load(text).kernel("k")
    report = check(kernel, LaunchConfig.of(4, 32, cluster=2), [], ["async"])
    *errors, early = report.findings
    assert (early.severity, early.rule, early.count) == ("info", "pair", 4 * 32)
    if met:
        assert errors == []
        return
    [finding] = errors
    assert (finding.severity, finding.rule, finding.count) == ("error", "gives back", 4 * 32)
    assert "tcgen05.dealloc" in report.source.line(finding.line)
    assert "tcgen05.alloc" in report.source.line(finding.other_line or 0)
    assert "CTA (1, 0, 0)" in finding.message


@pytest.mark.parametrize("how", ["release", "relaxed", "none"])
def test_columns_are_given_back_when_the_others_have_come(problem: Problem, how: str) -> None:
    """A relaxed barrier hands no memory over, but whoever waits there does so behind what the others did."""
    text = program("")
    meet = "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n"
    at = text.rindex(meet)
    assert "dealloc" in text[at:]
    instead = "" if how == "none" else meet.replace("arrive", f"arrive.{how}")
    report = checked(text[:at] + instead + text[at + len(meet) :], problem)
    rules = {finding.rule for finding in report.findings if finding.severity == "error"}
    assert rules == ({"WAR"} if how == "none" else set())


TOGETHER = """
    mov.b64 d2, map;
    cvta.param.u64 d2, d2;
    mov.u32 r3, buffer;
    mov.u32 r4, bar;
    mov.u32 r5, 0;
    mapa.shared::cluster.u32 r6, r4, SIDE;
    setp.eq.u32 p1, r2, SIDE;
    and.pred p2, p1, p0;
    @p0 mbarrier.init.shared.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    @p2 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 2048;
    @p0 cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r3], [d2, {r5, r5}], [r6];
    @!p1 bra M;
W:  mbarrier.try_wait.parity.shared.b64 p3, [bar], 0;
    @!p3 bra W;
M:  barrier.cluster.arrive;
    barrier.cluster.wait;
    ld.shared.u32 r8, [r3];
"""


@pytest.mark.parametrize("side", [0, 1])
def test_copies_of_a_pair_are_waited_for_at_the_mbarrier_of_one_of_them(side: int) -> None:
    gpu = device("sm_100a", "late")
    unused = gpu.zeros(1, "u32")
    tensor = gpu.tensor_map(gpu.zeros((8, 32), "u32"), box=(8, 32))

    def rules(body: str) -> list[tuple[str, int]]:
        kernel = gpu.load(kernel_text(body.replace("SIDE", str(side)), MAP)).kernel("k")
        report = check(kernel, LaunchConfig.of(2, 32, cluster=2), [unused, unused, tensor])
        return [(finding.rule, finding.count) for finding in report.findings]

    assert rules(TOGETHER) == []
    meet, load = "    barrier.cluster.wait;\n", "    ld.shared.u32 r8, [r3];\n"
    at = TOGETHER.rindex(meet)
    assert rules(TOGETHER[:at] + load + meet) == [("RAW", 4 * 32)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fence_that_is_left_out_is_information(when: str) -> None:
    """Between the stores of C by four warps, and the product that one thread of the first issues."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    text = program(issued(problem))
    fence = f"    tcgen05.fence::{when}_thread_sync;\n"
    assert checked(text, problem).findings == ()
    report = checked(text.replace(fence, "", 1), problem)
    assert report.verdict == "clean"
    told = {(finding.rule, finding.severity) for finding in report.findings}
    assert told == {("thread sync", "info")}
    assert f"no tcgen05.fence::{when}_thread_sync between" in report.findings[0].message
