"""The launches of a client: memory borrowed for each, faults at the source, checks, launches made again."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import ptxlab
from ptxlab.clients.borrowed import Borrowed, borrowing
from ptxlab.clients.elsewhere import allocations
from ptxlab.clients.predicted import predicted
from ptxlab.clients.session import Session
from ptxlab.device.emulator import EmulatorKernel
from ptxlab.emulator import Elements
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe import faulted
from tests.verbs.launching.test_faults import PTX

# Each thread adds 1 to its element; the threads of a CTA then exchange them in shared memory, with a
# barrier or without.
TEXT = """.version 8.0
.target sm_80
.address_size 64
.file 1 "{path}"
.visible .entry turn(.param .u64 x)
{{
    .shared .b32 s[64];
    .reg .b32 v, t, a;
    .reg .b64 p;
    .loc 1 2 5
    ld.param.u64 p, [x];
    mov.u32 t, %tid.x;
    mad.wide.u32 p, t, 4, p;
    .loc 1 3 9
    ld.global.u32 v, [p];
    add.u32 v, v, 1;
    shl.b32 a, t, 2;
    .loc 1 4 5
    st.shared.u32 [a], v;
    {barrier}
    xor.b32 a, a, 252;
    .loc 1 5 5
    ld.shared.u32 v, [a];
    st.global.u32 [p], v;
    ret;
}}
"""
SOURCE = "# turned\nstart = x\n    value = load(start)\nput(value)\nstore(start)\n"
CONFIG = LaunchConfig.of(1, 64)


def program(folder: Path, barrier: str = "bar.sync 0;") -> str:
    path = folder / "kernel.py"
    path.write_text(SOURCE)
    return TEXT.format(path=path, barrier=barrier)


def borrowed(array: np.ndarray, name: str = "x") -> tuple[bytes, list[Borrowed]]:
    address = array.ctypes.data
    return struct.pack("<Q", address), [Borrowed(address, array.nbytes, name, array)]


def test_launches_write_in_place_and_are_counted(tmp_path: Path) -> None:
    session = Session("sm_80")
    text = program(tmp_path)
    kernel = session.load(text, "turn.ptx").kernel("turn")
    assert session.load(str(text), "again").kernel("turn") is kernel
    x = np.arange(64, dtype=np.uint32)
    for turn in (1, 2):
        session.launch(kernel, CONFIG, *borrowed(x))
        expected = np.arange(64) if turn == 2 else np.arange(64)[::-1]
        assert (x == expected + turn).all()
    used = session.usage["turn"]
    assert (used.launches, used.instructions) == (2, 2 * 64 * 12)
    assert used.seconds > 0
    with pytest.raises(LaunchError, match="outside every allocation"):
        session.launch(kernel, CONFIG, borrowed(x)[0])
    with pytest.raises(PtxlabError, match="there is no target 'sm_81'"):
        Session("sm_81")
    with pytest.raises(Unsupported, match="sm_90a"):
        session.load(text.replace("sm_80", "sm_90a"), "other.ptx")


def test_a_fault_names_the_line_of_the_source_and_the_memory(tmp_path: Path) -> None:
    session = Session("sm_80")
    kernel = session.load(program(tmp_path), "turn.ptx").kernel("turn")
    x = np.zeros(60, np.uint32)
    with pytest.raises(LaunchError, match=r"by thread \(60, 0, 0\)") as caught:
        session.launch(kernel, CONFIG, *borrowed(x, "argument x, 60 numbers"))
    error = caught.value
    assert error.kind == "bounds"
    assert str(error).splitlines()[:3] == [
        f"{tmp_path}/kernel.py:3:5: {error.message}",
        "        value = load(start)",
        "        ^",
    ]
    assert "0 bytes past the end of the nearest allocation, argument x, 60 numbers" in str(error)
    assert "it is ld.global.u32 v, [p]; on line 15 of turn.ptx" in str(error.hint)
    parameters, memory = borrowed(np.zeros(80, np.uint32))
    shifted = struct.pack("<Q", struct.unpack("<Q", parameters)[0] + 2)
    with pytest.raises(LaunchError, match=r"kernel\.py:3:5: .* is misaligned") as caught:
        session.launch(kernel, CONFIG, shifted, memory)
    assert "it lies in x" in str(caught.value.hint)


def test_what_is_wrong_names_the_element_and_the_line_first(tmp_path: Path) -> None:
    session = Session("sm_80", check=True)
    kernel = session.load(program(tmp_path), "turn.ptx").kernel("turn")
    x = np.zeros(64, np.uint32)
    parameters, [memory] = borrowed(x)
    rows = Elements("x", memory.address, 4, (8, 1))
    with pytest.raises(LaunchError, match=r"load of 4 bytes at x\[7, 4\] by thread \(60, 0, 0\)"):
        session.launch(kernel, CONFIG, parameters, [memory._replace(nbytes=240, elements=rows)])
    far = memory._replace(address=memory.address + 4 * 60, nbytes=16, elements=rows)
    with pytest.raises(LaunchError, match="load of 4 bytes at 0x"):  # who knows what was meant
        session.launch(kernel, CONFIG, parameters, [far])
    session.launch(kernel, LaunchConfig.of(2, 64), parameters, [memory._replace(elements=rows)])
    raced = session.reports[-1].as_text()
    line = f"{tmp_path}/kernel.py:5:1: "
    assert raced.startswith(f"error: race, 512 bytes\n{line}WAR: ")
    assert "overwrites x[0, 0], which thread" in raced
    assert (
        f"\n{tmp_path}/kernel.py:3:5: the other\n        value = load(start)\n        ^\n" in raced
    )


def test_what_other_lines_computed_of_an_address_is_told_with_the_thread_s_values(
    tmp_path: Path,
) -> None:
    apart = program(tmp_path).replace(".b64 p;", ".b64 p, q;").replace("[p], v", "[q], v")
    apart = apart.replace("mad.wide.u32 p, t, 4, p;\n    .loc 1 3 9", ".loc 1 3 9\n    ADDRESS")
    apart = apart.replace("ADDRESS", "mad.wide.u32 q, t, 4, p;").replace("v, [p]", "v, [q]")
    twice = apart.replace(".loc 1 5 5", ".loc 1 5 5\n    add.u32 t, t, 1;")
    for text, told in ((apart, [("t", 60, (f"{tmp_path}/kernel.py", 2))]), (twice, [])):
        session = Session("sm_80", check=True)
        kernel = session.load(text, "turn.ptx").kernel("turn")
        with pytest.raises(LaunchError, match=r"kernel\.py:3:5") as caught:
            session.launch(kernel, CONFIG, *borrowed(np.zeros(60, np.uint32)))
        [report] = session.reports
        [finding] = report.findings
        assert [*finding.computed] == told
        line = "\nwhere t is 60, which line 2 computed: start = x\nhint: "
        for words in (report.as_text(), str(caught.value)):
            assert (line in words) == bool(told)
    session = Session("sm_80", check=True)
    kernel = session.load(apart, "turn.ptx").kernel("turn")
    session.launch(kernel, LaunchConfig.of(2, 64), *borrowed(np.zeros(64, np.uint32)))
    assert session.reports[0].findings
    for raced in session.reports[0].findings:
        thread = int(raced.message.split("thread (")[1].split(",")[0])
        assert [(each.register, each.value) for each in raced.computed] == [("t", thread)]


# Each CTA says that it is here; then each thread stores behind the number that it finds, its own and its CTA's.
TAKEN = """.version 8.0
.target sm_80
.address_size 64
.file 1 "{path}"
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 values);
.global .b8 here[2] = {{46, 0}};
.visible .entry taken(.param .u64 x)
{{
    .reg .pred first;
    .reg .b32 t, c, n;
    .reg .b64 p, q, f;
    .loc 1 2 5
    ld.param.u64 p, [x];
    mov.u32 t, %tid.x;
    mov.u32 c, %ctaid.x;
    setp.ne.u32 first, t, 0;
    mov.u64 f, here;
    cvta.global.u64 f, f;
    {{
    .param .b64 a;
    .param .b64 b;
    .param .b32 r;
    st.param.b64 [a], f;
    st.param.b64 [b], 0;
    @first bra over;
    call (r), vprintf, (a, b);
    }}
over:
    bar.sync 0;
    ld.global.u32 n, [p];
    bar.sync 0;
    {store}
    add.u32 n, n, t;
    mad.lo.u32 n, c, 32, n;
    .loc 1 5 1
    mad.wide.u32 q, n, 4, p;
    st.global.u32 [q+4], t;
    ret;
}}
"""


def test_a_program_that_names_no_source_is_its_own() -> None:
    session = Session("sm_80")
    kernel = session.load(PTX, "k.ptx").kernel("k")
    with pytest.raises(LaunchError, match=r"^k\.ptx:11:5: global load") as caught:
        session.launch(kernel, LaunchConfig.of(1, 64), *borrowed(np.zeros(64, np.float32)))
    assert caught.value.notes == ("where q is 256, which line 9 computed: mul.wide.u32 q, i, 8;",)
    assert "on line" not in str(caught.value)


def test_a_fault_is_looked_at_in_its_cluster_again_which_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel.py").write_text(SOURCE)
    said: list[str] = []
    launches = []

    def notes(store: str) -> tuple[str, ...]:
        session = Session("sm_80", console=said.append)
        text = TAKEN.format(path=tmp_path / "kernel.py", store=store)
        kernel = session.load(text, "taken.ptx").kernel("taken")
        x = np.zeros(81, np.uint32)
        thread = r"by thread \(16, 0, 0\) of CTA \(2, 0, 0\)"
        with pytest.raises(LaunchError, match=thread) as caught:
            session.launch(kernel, LaunchConfig.of(4, 32), *borrowed(x))
        assert x[0] == bool(store), "memory is as the launch left it"
        assert session.last is not None
        launches.append(session.last)
        return caught.value.notes

    told = ("where n is 80, which line 2 computed: start = x",)
    assert notes("") == told
    assert said == ["."] * 4, "each CTA is heard once"
    [launched] = launches
    with pytest.raises(LaunchError) as again:
        launched.profile()
    assert again.value.notes == told
    assert told[0] in str(launched.trace().fault)
    assert told[0] in str(launched.step().timeline.fault)
    assert notes("@!first st.global.u32 [p], 1;") == (), "memory no longer leads there"
    monkeypatch.setattr(faulted, "LONGEST", -1.0)
    assert notes("") == (), "nobody waits for long"


def test_a_read_of_what_nobody_wrote_is_told_with_the_thread_s_values(tmp_path: Path) -> None:
    text = program(tmp_path).replace("st.shared.u32 [a], v;", "").replace("v, t, a;", "v, t, a, b;")
    text = text.replace("xor.b32 a, a, 252;", "xor.b32 b, a, 252;").replace("v, [a]", "v, [b]")
    session = Session("sm_80", check=True)
    kernel = session.load(text, "turn.ptx").kernel("turn")
    session.launch(kernel, CONFIG, *borrowed(np.zeros(64, np.uint32)))
    [finding] = session.reports[0].findings
    assert [*finding.computed] == [("b", 252, (f"{tmp_path}/kernel.py", 4))]


def test_checked_launches_report_each_thing_once(tmp_path: Path) -> None:
    session = Session("sm_80", check=True)
    right = session.load(program(tmp_path), "right.ptx").kernel("turn")
    wrong = session.load(program(tmp_path, ""), "wrong.ptx").kernel("turn")
    x = np.zeros(64, np.uint32)
    session.launch(right, CONFIG, *borrowed(x))
    assert session.reports == []
    for _ in range(2):
        session.launch(wrong, CONFIG, *borrowed(x))
    assert x.tolist() == [3] * 64
    (report,) = session.reports
    assert {(f.kind, f.source, f.other_source) for f in report.findings} == {
        ("race", (f"{tmp_path}/kernel.py", 5), (f"{tmp_path}/kernel.py", 4))
    }
    with pytest.raises(LaunchError, match=r"kernel\.py:3:5"):
        session.launch(right, CONFIG, *borrowed(x[:60]))
    assert [report.findings[0].kind for report in session.reports] == ["race", "bounds"]


def test_a_launch_is_made_again_without_a_trace(tmp_path: Path) -> None:
    session = Session("sm_80")
    kernel = session.load(program(tmp_path, ""), "turn.ptx").kernel("turn")
    x = np.arange(64, dtype=np.uint32)
    session.launch(kernel, CONFIG, *borrowed(x))
    after, launched = x.copy(), session.last
    assert launched is not None
    assert repr(launched) == "<launch of turn on sm_80: LaunchConfig.of(grid=1, block=64)>"
    assert [finding.kind for finding in launched.check().findings] == ["race"]
    profile = launched.profile()
    assert profile.totals.executed == 2 * 11
    assert [line.number for line in profile.sources[f"{tmp_path}/kernel.py"]] == [2, 3, 4, 5]
    assert launched.dump("add.u32", ["v"]).words[:, 0].tolist() == (after + 1).tolist()
    assert (x == after).all()
    assert session.usage["turn"].launches == 1
    session.launch(kernel, CONFIG, *borrowed(x))
    assert (x == np.arange(64) + 2).all()


# A sum of a tensor core and of how often it was called, added to where a word in memory points.
SUMS = """.version 8.0
.target sm_80
.address_size 64
.global .u32 calls = 5;
.const .f32 scale = 0f3F800000;
.visible .entry sums(.param .u64 where, .param .u64 x)
{
    .reg .b32 a, t, n;
    .reg .f32 c0, c1, c2, c3, f;
    .reg .b64 p, q;
    mov.u32 t, %tid.x;
    ld.param.u64 p, [x];
    mad.wide.u32 p, t, 4, p;
    ld.global.b32 a, [p];
    mov.f32 c0, 0f4B000000;
    mov.f32 c1, c0;
    mov.f32 c2, c0;
    mov.f32 c3, c0;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {c0, c1, c2, c3}, {a, a, a, a}, {a, a}, {c0, c1, c2, c3};
    atom.global.add.u32 n, [calls], 1;
    cvt.rn.f32.u32 f, n;
    ld.const.f32 c1, [scale];
    fma.rn.f32 c0, f, c1, c0;
    ld.param.u64 q, [where];
    ld.global.u64 q, [q];
    mad.wide.u32 q, t, 4, q;
    red.global.add.f32 [q], c0;
    ret;
}
"""


def test_a_launch_parts_from_that_of_another_gpu() -> None:
    session = Session("sm_80")
    kernel = session.load(SUMS, "sums.ptx").kernel("sums")
    x = np.full(64, 0.7, np.float16)
    out = np.zeros(32, np.float32)
    where = np.array([out.ctypes.data], np.uint64)
    arrays = (where, x, out)
    memory = [Borrowed(a.ctypes.data, a.nbytes, "array", a, str(a.dtype)) for a in arrays]
    parameters = struct.pack("<QQ", where.ctypes.data, x.ctypes.data)
    for _ in range(2):
        session.launch(kernel, LaunchConfig.of(1, 32), parameters, memory)
    after, launched = out.copy(), session.last
    assert launched is not None
    same = launched.diff("sm_86")
    assert same.same, same.first
    assert same.steps == 32 * 11  # instructions whose registers hold no address
    other = launched.diff("sm_90a")
    assert repr(other) == "<diff of sums on emulator:sm_80 and emulator:sm_90a: they differ>"
    assert other.first is not None
    assert other.first.instruction.opcode == "mma"
    assert other.first.judgement.verdict == "rounding"
    (stored,) = [output for output in other.outputs if output.differing]
    assert stored.name == f"array at {out.ctypes.data:#x}"
    assert (stored.total, stored.index) == (32, (0,))
    assert (out == after).all()
    session.launch(kernel, LaunchConfig.of(1, 32), parameters, memory)
    assert out[0] == stored.a != stored.b
    with pytest.raises(Unsupported, match="sm_80 does not run on sm_75"):
        launched.diff("sm_75")


def test_memory_is_compared_as_the_numbers_that_it_has() -> None:
    kernel = Session("sm_80").load(SUMS, "sums.ptx").kernel("sums")
    assert isinstance(kernel, EmulatorKernel)
    sizes = 64, 6, 64, 64, 20
    starts = [kernel.device.memory.allocate(nbytes) for nbytes in sizes]
    named = {2: "complex128", 3: "bfloat16", 4: "float64"}
    memory = [Borrowed(starts[i], sizes[i], "array", None, name) for i, name in named.items()]
    known = {each.begin: dtype.name for each, dtype in allocations(kernel, memory)}
    assert [known[start] for start in starts] == ["uint32", "uint8", "uint8", "bfloat16", "uint8"]


def test_steps_that_a_guard_holds_back_are_none() -> None:
    """The step of the other half is the first that differs; who changes its own guard makes a step."""
    session = Session("sm_80")
    product = "mma.sync.aligned.m16n8k16"
    text = (
        SUMS.replace(product, f"setp.ne.u32 never, t, t; @!never {product}")
        .replace("ret;", "@!never setp.eq.u32 never, t, t; ret;")
        .replace(".reg .f32 c0", ".reg .pred never; .reg .f32 c0")
    )
    kernel = session.load(text, "sums.ptx").kernel("sums")
    x, out = np.full(64, 0.7, np.float16), np.zeros(32, np.float32)
    where = np.array([out.ctypes.data], np.uint64)
    memory = [Borrowed(a.ctypes.data, a.nbytes, "array", a, str(a.dtype)) for a in (where, x, out)]
    parameters = struct.pack("<QQ", where.ctypes.data, x.ctypes.data)
    session.launch(kernel, LaunchConfig.of(1, 32), parameters, memory)
    assert session.last is not None
    assert session.last.diff("sm_86").steps == 32 * 13  # two more than without
    other = session.last.diff("sm_90a").first
    assert other is not None
    assert other.instruction.opcode == "mma"


def test_a_launch_has_a_limit(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise TimeoutError("not at its end after 0 s")

    session = Session("sm_80", progress=stop)
    kernel = session.load(program(tmp_path), "turn.ptx").kernel("turn")
    with pytest.raises(LaunchError, match="stopped, not at its end"):
        session.launch(kernel, CONFIG, *borrowed(np.zeros(64, np.uint32)))
    assert session.usage == {}


def test_memory_is_given_back_whatever_happens() -> None:
    memory = Session("sm_80").device.memory
    words = np.zeros(32, np.uint8)
    spans = [Borrowed(words.ctypes.data + at, 8, f"part {at}", words) for at in (0, 8, 24)]
    before = len(memory.allocations)
    for _ in range(2):
        with borrowing(memory, spans):
            assert len(memory.allocations) == before + 3
        assert len(memory.allocations) == before
    overlapping = [*spans, Borrowed(words.ctypes.data + 20, 8, "more", words)]
    with pytest.raises(PtxlabError), borrowing(memory, overlapping):
        pass
    assert len(memory.allocations) == before


# Stores beyond what a barrier orders: at one line where n is 0, at another where it is not.
RACES = """.version 8.0
.target sm_80
.address_size 64
.visible .entry races(.param .u32 given)
{
    .shared .b32 s[64];
    .reg .b32 n, a, t;
    .reg .pred p;
    ld.param.u32 n, [given];
    mov.u32 a, s;
    mov.u32 t, %tid.x;
    setp.eq.u32 p, n, 0;
    @p st.shared.u32 [a], t;
    @!p st.shared.u32 [a+4], t;
    ret;
}
"""


def test_races_of_one_kernel_at_several_lines_are_all_reported() -> None:
    session = Session("sm_80", check=True)
    kernel = session.load(RACES, "races.ptx")
    for n in (0, 1, 1, 0, 2):
        session.launch(kernel.kernel("races"), CONFIG, struct.pack("<I", n))
    assert [report.findings[0].line for report in session.reports] == [13, 14]


def test_launches_that_stop_at_several_lines_are_all_reported() -> None:
    session = Session("sm_80", check=True)
    text = RACES.replace("st.shared.u32 [a], t;", "trap;").replace(
        "st.shared.u32 [a+4], t;", "trap;"
    )
    kernel = session.load(text, "traps.ptx").kernel("races")
    for n in (0, 1, 1, 0):
        with pytest.raises(LaunchError, match="trap"):
            session.launch(kernel, CONFIG, struct.pack("<I", n))
    assert [
        line
        for report in session.reports
        for line in (13, 14)
        if f":{line}:" in report.unchecked[0]
    ] == [13, 14]
    assert len(session.reports) == 2


# Copies words from x to where they end, of which the address is given.
UNTIL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry until(.param .u64 from, .param .u64 to, .param .u64 target)
{
    .reg .b64 x, end, out;
    .reg .b32 v;
    .reg .pred p;
    ld.param.u64 x, [from];
    ld.param.u64 end, [to];
    ld.param.u64 out, [target];
again:
    ld.global.u32 v, [x];
    st.global.u32 [out], v;
    add.u64 x, x, 4;
    add.u64 out, out, 4;
    setp.lt.u64 p, x, end;
    @p bra again;
    ret;
}
"""


def test_an_address_behind_an_array_is_the_same_on_another_gpu() -> None:
    session = Session("sm_80")
    x, out = np.arange(8, dtype=np.uint32), np.zeros(8, np.uint32)
    memory = [Borrowed(a.ctypes.data, a.nbytes, "array", a, "uint32") for a in (x, out)]
    begin, to = x.ctypes.data, out.ctypes.data
    parameters = struct.pack("<QQQ", begin, begin + x.nbytes, to)
    kernel = session.load(UNTIL, "until.ptx").kernel("until")
    session.launch(kernel, LaunchConfig.of(1, 1), parameters, memory)
    assert out.tolist() == x.tolist()
    assert session.last is not None
    difference = session.last.diff("sm_90a")
    assert difference.same
    assert difference.steps > 8


def test_predicting_a_launch_copies_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may have as much memory as a GPU; what writes nothing needs nobody to put back what it wrote."""
    session = Session("sm_80")
    kernel = session.load(program(tmp_path), "turn.ptx").kernel("turn")
    session.launch(kernel, CONFIG, *borrowed(np.zeros(64, np.uint32)))
    launched, keeping = session.last, "ptxlab.emulator.run.memory.GlobalMemory.kept"
    assert launched is not None
    with monkeypatch.context() as refusing:
        refusing.setattr(keeping, lambda _: pytest.fail("memory is copied"))
        assert launched.predict("rtx3090").cycles > 0
        with pytest.raises(pytest.fail.Exception):
            launched.profile()


def test_every_verb_looks_into_a_launch(tmp_path: Path) -> None:
    session = Session("sm_80")
    text = program(tmp_path)
    kernel = session.load(text, "turn.ptx").kernel("turn")
    spare = np.zeros(64 + 32, np.uint32)  # of which some are aligned as a buffer is
    x = spare[-spare.ctypes.data // 4 % 32 :][:64]
    session.launch(kernel, CONFIG, *borrowed(x))
    after, launched = x.copy(), session.last
    assert launched is not None
    source = f"{tmp_path}/kernel.py"

    timeline, recording = launched.trace(), launched.step(warps=[1], steps=9)
    assert {site.source for site in timeline.places} == {(source, line) for line in (2, 3, 4, 5)}
    assert (recording.warps, len(recording.timeline.executed)) == ((1,), 9)
    assert (x == after).all()

    predicted = launched.predict("rtx3090")
    assert predicted.cycles == ptxlab.predict(text, "rtx3090", 1, 64, [after]).cycles
    assert predicted.not_modelled[-1].endswith("for sm_86 itself: this was compiled for sm_80")
    assert predicted.lines[0].source == (source, 3)  # who waits for the load

    with pytest.raises(PtxlabError, match=r"no CTA \(1, 0, 0\)"):
        launched.trace((1, 0, 0))

    timeline.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    recording.save(tmp_path / "step.json")
    assert json.loads((tmp_path / "step.json").read_text())["schema"] == "ptxlab.step/1"
    assert "<iframe" in str(timeline._repr_html_())
    assert timeline._repr_svg_() is None
    for result, said in (
        (predicted, "turn on RTX 3090 (sm_86)"),
        (launched.sass(), "turn on sm_80"),
        (launched.diff("sm_86"), "turn of turn.ptx: the same to the bit"),
        (launched.check(), "clean: kernel turn of turn.ptx"),
        (launched.profile(), "turn<<<1, 64>>>"),
    ):
        assert said in result.as_text()
        assert str(result._repr_html_()).startswith(("<pre>", "<iframe"))


def test_a_launch_is_called_by_the_name_in_the_source() -> None:
    session = Session("sm_80")
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry _Z4idlev()\n{\n    ret;\n}\n"
    session.launch(session.load(text, "idle.ptx").kernel("_Z4idlev"), LaunchConfig.of(1, 32), b"")
    launched = session.last
    assert launched is not None
    assert repr(launched).startswith("<launch of idle on sm_80")
    assert repr(launched.check()) == "<check of idle: clean>"
    assert repr(launched.trace()).startswith("<timeline of idle on sm_80")
    assert repr(launched.step()).startswith("<recording of idle on sm_80")
    assert repr(launched.diff("sm_86")).startswith("<diff of idle on emulator:sm_80")
    assert repr(launched.sass()) == "<machine code of idle.ptx for sm_80>"


def test_what_a_program_prints_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    session = Session("sm_80")
    kernel = session.load(PRINTS, "prints.ptx").kernel("prints")
    session.launch(kernel, LaunchConfig.of(1, 1), b"")
    assert session.last is not None
    assert session.last.check().verdict == "clean"
    assert session.last.profile().totals.executed > 0
    session.launch(kernel, LaunchConfig.of(1, 1), b"")
    assert capfd.readouterr().out == "hi\nhi\n"


PRINTS = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 format[4] = {104, 105, 10, 0};
.visible .entry prints()
{
    .reg .b64 f;
    mov.u64 f, format;
    cvta.global.u64 f, f;
    {
        .param .b64 a; .param .b64 b; .param .b32 r;
        st.param.b64 [a], f;
        st.param.b64 [b], 0;
        call.uni (r), vprintf, (a, b);
    }
    ret;
}
"""


# As many turns as a variable says.
TURNS = """.version 8.0
.target sm_80
.address_size 64
.const .u32 count = 1;
.visible .entry turns()
{
    .reg .b32 n;
    .reg .pred p;
    ld.const.u32 n, [count];
again:
    bar.sync 0;
    sub.u32 n, n, 1;
    setp.ne.u32 p, n, 0;
    @p bra again;
    ret;
}
"""


def test_a_prediction_goes_where_variables_say() -> None:
    session = Session("sm_80")
    kernel = session.load(TURNS, "turns.ptx").kernel("turns")
    cycles = []
    for count in (1, 100):
        kernel.module.variable("count").upload(count)  # type: ignore[attr-defined]
        session.launch(kernel, CONFIG, b"")
        assert session.last is not None
        cycles.append([session.last.predict(gpu).cycles for gpu in ("rtx4090",)])
    assert all(many > few + 99 * 10 for few, many in zip(*cycles, strict=True))


def test_a_prediction_copies_no_memory() -> None:
    """A program may have allocated as much as a GPU has, of which a launch may read any."""
    session, nbytes = Session("sm_80"), 64 << 20
    kernel = session.load(TURNS, "turns.ptx").kernel("turns")
    assert isinstance(kernel, EmulatorKernel)
    session.device.memory.allocate(nbytes)
    predicted(kernel, CONFIG, b"", (), "rtx4080", None)  # compiles it
    tracemalloc.start()
    predicted(kernel, CONFIG, b"", (), "rtx4090", None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < nbytes / 2
