"""tcgen05 is asynchronous: what is right has one result under every schedule, and a twin without its wait has not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import LaunchError, PtxlabError
from tests.emulator.blackwell.cells import Tile, after, device, module
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_product import issued

SCHEDULES = ["late", "early", "random:1", "random:5"]

COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [r0];"


def chain(problem: Problem, products: int) -> str:
    """Return ``products`` that are added to each other, after the scales of nothing: D is not read first."""
    first = issued(problem, "no")
    more = "\n".join(f"{{ {issued(problem)} }}" for _ in range(products - 1))
    return f"{{ {first} }}\n{more}"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_products_of_a_thread_are_in_order(schedule: str) -> None:
    problem = Problem("f16", 128, 16, "f16", "f16")
    before = problem.cells()
    expected = before.copy()
    problem.put(expected, 5 * (problem.a @ problem.b.T))
    actual = after(chain(problem, 5), before, problem.shared(), problem.words(), schedule=schedule)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_copy_product_and_shift_are_in_order(schedule: str) -> None:
    """A is copied to Tensor Memory, multiplied, and shifted then."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    a = problem.tiles()[0]
    body = f"""
    add.u32 r10, t, 200;
    tcgen05.cp.cta_group::1.128x256b [r10], x0;
    {{ {issued(problem).replace("x0", "[r10]")} }}
    tcgen05.shift.cta_group::1.down [r10];
"""
    before, shared = problem.cells(), problem.shared()
    expected = before.copy()
    problem.put(expected, problem.result())
    rows = problem.a.astype(np.float16).view(np.uint32)
    expected[0, :, 200:208] = rows
    expected[0, :31, 200:208] = rows[1:32]
    actual = after(body, before, shared, [a.descriptor, *problem.words()[1:]], schedule=schedule)
    np.testing.assert_array_equal(actual, expected)


def launched(text: str, problem: Problem, schedule: str) -> Array:
    """Run a module as ``after`` does."""
    gpu = device("sm_100a", schedule)
    given = np.zeros(8, np.uint64)
    given[:3] = problem.words()
    out = gpu.upload(problem.cells())
    arrays = [out, gpu.upload(problem.shared()), gpu.upload(given)]
    gpu.load(text).kernel("k").launch(grid=1, block=128, args=arrays)
    return out.numpy()


WAIT = """issued:
    mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0;
    @!done bra issued;
"""


def test_memory_is_not_given_back_under_a_product() -> None:
    """Memory is given back under work that is late, and the twin fails."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    text = module(issued(problem), 32768, 1, "sm_100a")
    assert WAIT in text
    text_without = text.replace(WAIT, "issued:\n")
    with pytest.raises(LaunchError, match="tensor cores are at work that nobody has waited for"):
        launched(text_without, problem, "late")
    launched(text_without, problem, "early")


def test_sources_changed_before_the_commit_arrives_are_read_as_they_are_then() -> None:
    """A GPU may read old or new; late work shows the mistake."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    change = "mov.u32 r9, 0x49004900; st.shared.b32 [s], r9;"
    after_schedule = {}
    for schedule in ("late", "early"):
        body = issued(problem, "no") + change
        after_schedule[schedule] = after(
            body, problem.cells() * 0, problem.shared(), problem.words(), schedule=schedule
        )
    differ = np.argwhere(after_schedule["late"] != after_schedule["early"])
    assert set(differ[:, 1]) == {0}


def test_a_commit_tells_its_mbarrier_of_all_that_is_issued_before() -> None:
    """Two commits, both waited for: the second mbarrier may be told first, but of all."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    for schedule in ("late", "random:1", "random:2", "random:3"):
        text = module(issued(problem), 32768, 1, "sm_100a")
        text = text.replace(".shared .align 8 .b64 bar;", ".shared .align 8 .b64 bar, other;")
        init = "@leads mbarrier.init.shared::cta.b64 [bar], 1;"
        text = text.replace(init, f"{init} @leads mbarrier.init.shared::cta.b64 [other], 1;")
        text = text.replace(COMMIT, f"mov.u32 r1, other; {COMMIT.replace('r0', 'r1')} {COMMIT}")
        text = text.replace(
            WAIT, WAIT.replace("[bar]", "[other]") + WAIT.replace("issued", "again")
        )
        again = Problem("f16", 128, 16, "f16", "f16")
        before = again.cells()
        expected = before.copy()
        again.put(expected, again.result())
        actual = launched(text, Problem("f16", 128, 16, "f16", "f16"), schedule)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("where", ["mov.u64 at, bar;", "mov.u64 at, bar; cvta.shared.u64 at, at;"])
def test_a_commit_takes_either_address_of_its_mbarrier(where: str) -> None:
    """UTCBAR has a register of 32 bits: with no space named, and in as many bits as there are."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    text = module(issued(problem), 32768, 1, "sm_100a")
    plain = COMMIT.replace(".shared::cluster", "").replace("r0", "at")
    again = Problem("f16", 128, 16, "f16", "f16")
    expected = again.cells()
    again.put(expected, again.result())
    actual = launched(text.replace(COMMIT, f"{where} {plain}"), problem, "late")
    np.testing.assert_array_equal(actual, expected)


# ---- what is wrong --------------------------------------------------------------------------


def fails(what: str, body: str, problem: Problem, words: Sequence[int] | None = None) -> None:
    with pytest.raises(PtxlabError, match=what) as caught:
        after(body, problem.cells(), problem.shared(), words or problem.words())
    assert caught.value.location is not None
    assert "tcgen05." in caught.value.location.text
    error = caught.value
    if isinstance(error, LaunchError) and error.kind == "launch" and "descriptor" in error.message:
        assert error.hint is not None
        assert error.hint.startswith("ptxlab layout 128x")


def test_what_a_product_must_not_be() -> None:
    problem = Problem("f16", 128, 16, "f16", "f16")
    a, b, idesc = problem.words()
    body = issued(problem)
    fails("version, cannot be 0", body, problem, [a & ~(1 << 46), b, idesc])
    fails("saturate, cannot be 1", body, problem, [a, b, idesc | 8])
    fails("A of bf16 does not go with B of f16", body, problem, [a, b, idesc ^ 1 << 7])
    fails("sparse is yes", body, problem, [a, b, idesc | 4])
    fails("m 256 and n 16 are none of", body, problem, [a, b, idesc & ~(31 << 24) | 16 << 24])
    fails("m 128 and n 264|n is at most 256", body, problem, [a, b, idesc & ~(63 << 17) | 33 << 17])
    fails("d type, cannot be 3", body, problem, [a, b, idesc | 3 << 4])
    fails(
        r"B reaches from byte .* to 0x3f600, of which a CTA has",
        body,
        problem,
        [a, b | 0x3F00, idesc],
    )
    fails("base offset 1", body, problem, [a | 1 << 49, b, idesc])
    fails("D begins at lane 16", body.replace("t, 32", "t, 0x100020"), problem)
    fails("D begins at lane 32", body.replace("t, 32", "t, 0x200020"), problem)
    fails("D takes columns 500 to 515", body.replace("t, 32", "t, 500"), problem)
    narrow, (*_, wide) = (
        body.replace("t, 32", "t, 496"),
        Problem("f16", 128, 32, "f16", "f16").words(),
    )
    wider = narrow + narrow.partition(";")[2].replace("x2", "x3")
    fails("D takes columns 496 to 527", wider, problem, [a, b, idesc, wide])
    fails(
        "A takes columns 508 to 515", "add.u32 r10, t, 508;" + body.replace("x0", "[r10]"), problem
    )
    apart = "add.u32 r10, t, 0x100080;" + body.replace("x0", "[r10]")
    fails("A and D begin in different halves", apart, Problem("f16", 64, 16, "f16", "f16"))
    shift = body.replace("kind::f16", "kind::f16.ashift").replace("x0", "[r10]")
    small = Problem("f16", 64, 16, "f16", "f16")
    fails(".ashift with m of 64", "mov.u32 r10, t;" + shift, small)


def test_who_copies_to_a_lane_between() -> None:
    tile = Tile(0, 2048, 128)
    problem = Problem("f16", 128, 16, "f16", "f16")
    for line, what in (
        ("tcgen05.cp.cta_group::1.128x128b [r9], x0;", "begins at lane 1"),
        ("tcgen05.shift.cta_group::1.down [r9];", "begins at lane 1"),
    ):
        fails(what, f"add.u32 r9, t, 0x10000; {line}", problem, [tile.descriptor])


def test_every_thread_that_executes_one_issues_one() -> None:
    """All 32 lanes of a warp: D is added to 32 times."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    text = module(issued(problem), 32768, 1, "sm_100a")
    text = text.replace("    @!leads bra issued;\n", "    @!first bra issued;\n")
    init = "mbarrier.init.shared::cta.b64 [bar], 1;"
    text = text.replace(init, init.replace("1;", "32;"))
    again = Problem("f16", 128, 16, "f16", "f16")
    expected = again.cells()
    again.put(expected, 32 * (again.a @ again.b.T) + again.c)
    np.testing.assert_array_equal(launched(text, problem, "late"), expected)
