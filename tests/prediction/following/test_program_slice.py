"""What is left out of a run decides nothing: the steps and requests are those of a run of everything."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.device.loading import load_assembled
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine import kept_predicates
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import MemoryRange
from ptxlab.prediction.following.interpreter import Interpreter
from ptxlab.prediction.following.program_slice import ProgramSlice
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.warps import Asked
from tests.machine.test_operations import instruction

KERNEL = """\
extern "C" __global__ void scaled(const float *in, const int *rows, float *out, int n) {
    __shared__ int places[64];
    __shared__ float tile[64][9];
    int t = threadIdx.x;
    places[t] = rows[t] + t / 3;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < n; k += 8) {
        if (t < 48) for (int i = 0; i < 8; i++) tile[t][i] = in[places[t] * n + k + i];
        __syncthreads();
        for (int i = 0; i < 8 + t % 2; i++) sum += tile[t ^ i][i] * in[i + t * n];
        __syncthreads();
    }
    if (sum > 3) sum = 3;
    out[places[63 - t] + blockIdx.x] = sum;
}
"""

SPILLED = """\
extern "C" __global__ void __maxnreg__(24) scaled(const float *in, const int *rows, float *out, int n) {
    int places[20];
    float sums[20] = {};
    #pragma unroll
    for (int i = 0; i < 20; i++) places[i] = rows[(threadIdx.x + i) % 64];
    for (int k = 0; k < n; k += 8)
        #pragma unroll
        for (int i = 0; i < 20; i++) sums[i] += in[places[i] + k] * in[places[19 - i] + 7 * k];
    float sum = 0;
    for (int i = 0; i < 20; i++) sum = sum * 3 + sums[i];
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}
"""
"""Which keeps addresses and sums in local memory, for want of registers."""

STORED = """\
extern "C" __global__ void scaled(const float *in, const int *rows, float *out, int n) {
    int places[20];
    for (int i = 0; i < 20; i++) places[(i + threadIdx.x) % 20] = rows[threadIdx.x] + i;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += in[places[(k + threadIdx.x) % 20] + k];
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}
"""
"""Which has an array of its own, anywhere in which an index may lead."""


@pytest.fixture(scope="module", params=[KERNEL, SPILLED, STORED], ids=["plain", "spilled", "array"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("needed") / "scaled.cu"
    file.write_text(request.param)
    return file


@pytest.fixture(scope="module")
def kernel(program: Path) -> tuple[list[DecodedInstruction], Launch]:
    target = TARGETS["sm_86"]
    assembly = Assembly(*load_assembled(program, target))
    with closing(open_device("emulator", arch=target.name)) as device:
        loaded = device.load(program).kernel()
        rows = np.random.default_rng(1).permutation(64).astype(np.int32)
        arrays = (np.zeros(8192, np.float32), rows, np.zeros(256, np.float32))
        passed = [*map(device.upload, arrays), 64]
        regions = [
            MemoryRange(
                buffer.address, buffer.nbytes, buffer.numpy() if buffer.dtype.kind == "i" else None
            )
            for buffer in passed
            if isinstance(buffer, Buffer)
        ]
        config = LaunchConfig.of(3, 64)
        launch = Launch(target, config, bytes(loaded.packed(passed)), regions)
    return decode(assembly.cubin, assembly.functions, "scaled"), launch


Answers = dict[int, Request | Asked]


def plain(answers: Answers) -> dict[int, Any]:
    """Return what was asked of memory as numbers, which can be compared."""
    return {
        step: (answer.passes.tolist(), [answer.served(warp) for warp in range(len(answer.passes))])
        if isinstance(answer, Request)
        else answer
        for step, answer in answers.items()
    }


def test_what_is_left_out_changes_nothing(kernel: tuple[list[DecodedInstruction], Launch]) -> None:
    code, launch = kernel
    every = np.arange(100_000)
    all_answers: Answers = {}
    all_steps = Interpreter(code, launch, (0, 2), asked=every, tell=all_answers.__setitem__).run()
    for addresses in (True, False):
        answers: Answers = {}
        asked = every if addresses else None
        needed = ProgramSlice(code, addresses=range(len(code)) if addresses else ())
        steps = Interpreter(code, launch, (0, 2), needed, asked, answers.__setitem__).run()
        assert np.array_equal(steps.numbers, all_steps.numbers)
        assert list(map(str, steps.warps)) == list(map(str, all_steps.warps))
        if addresses:
            assert plain(answers) == plain(all_answers)


def test_few_steps_asked_about_are_answered_as_all(
    kernel: tuple[list[DecodedInstruction], Launch],
) -> None:
    code, launch = kernel
    whole: Answers = {}
    some: Answers = {}
    every = np.arange(100_000)
    Interpreter(code, launch, (0, 2), asked=every, tell=whole.__setitem__).run()
    asked = np.array(sorted(whole)[-7::2])
    Interpreter(
        code,
        launch,
        (0, 2),
        ProgramSlice(code, addresses=range(len(code))),
        asked,
        some.__setitem__,
    ).run()
    assert plain(some) == {step: plain(whole)[step] for step in asked.tolist()}


@pytest.mark.parametrize("program", [SPILLED], ids=["spilled"], indirect=True)
def test_what_was_spilled_and_decides_nothing_is_left_out(
    kernel: tuple[list[DecodedInstruction], Launch],
) -> None:
    """Where control flow alone is asked for, sums and addresses are not even stored."""
    code, _ = kernel
    stores = {i.number for i in code if i.sass.opcode == "STL"}
    needed = set(ProgramSlice(code, addresses=()).of(0, len(code), False))
    assert len(stores) > 10
    assert len(stores & needed) < len(stores) / 2


def test_less_is_run(kernel: tuple[list[DecodedInstruction], Launch]) -> None:
    code, _ = kernel
    loop = next(i for i in code if i.sass.opcode in ("FFMA", "FADD"))
    needed = ProgramSlice(code, addresses=range(len(code))).of(loop.number, loop.number + 1, True)
    assert loop.number not in needed


def kept(*texts: str, labels: dict[str, int] | None = None) -> set[int]:
    """Return which instructions must be run for what they ask of memory, by number."""
    code = [instruction(text, number, labels) for number, text in enumerate(texts)]
    return set(ProgramSlice(code, addresses=range(len(code))).of(0, len(code), True))


def test_what_an_address_is_made_of_is_run() -> None:
    """A pair, a third source of two words, all predicates: what is set last and read is kept, no other."""
    load = "LDG.E R0, [R8.64]"
    assert kept("MOV R7, R1", "MOV R6, R2", "MOV R5, R3", "IADD.64 R8, R6, R20", load, "EXIT") == {
        0,
        1,
        3,
    }
    wide = "IMAD.WIDE R8, R1, R2, R4"
    assert kept("MOV R5, R3", "MOV R4, R3", "MOV R6, R3", wide, load, "EXIT") == {0, 1, 3}
    high = "IMAD.HI R9, R1, R2, R4"
    assert kept("MOV R5, R3", "MOV R8, R3", high, load, "EXIT") == {0, 1, 2}
    bits = "P2R R8, PR, RZ, 0x7f"
    assert kept("ISETP.LT.AND P6, PT, R1, R2, PT", bits, load, "EXIT") == {0, 1}
    assert kept("MOV R8, R1", "@P0 MOV R8, R2", load, "EXIT") == {0, 1}
    assert kept("MOV R8, R1", "MOV R8, R2", load, "EXIT") == {1}
    assert kept("R2P PR, R1, 0x7f", "@P3 MOV R8, R2", load, "EXIT") == {0, 1}


def test_an_address_that_a_predicate_guards_is_run_where_that_holds() -> None:
    """What was in its registers before is another's; it is one again where the predicate is made anew, or its opposite holds."""
    before, under, load = "FADD R8, R1, R2", "@P0 MOV R8, R3", "@P0 LDG.E R0, [R8.64]"
    assert kept(before, under, load, "EXIT") == {1}
    assert kept(before, "@!P0 MOV R8, R3", load, "EXIT") == {0}
    assert kept(before, "@P1 MOV R8, R3", load, "EXIT") == {0, 1}
    made = "ISETP.LT.AND P0, PT, R4, R5, PT"
    assert kept(before, under, made, load, "EXIT") == {0, 1, 2}
    assert kept(before, "@P0 ISETP.LT.AND P0, PT, R4, R5, PT", load, "EXIT") == {0, 1}
    always = "LDG.E R0, [R8.64]"
    assert kept(before, under, "@!P0 MOV R8, R4", always, "EXIT") == {1, 2}
    assert kept(before, under, always, "EXIT") == {0, 1}
    texts = (before, under, "@P2 BRA `(x)", "@P0 MOV R8, R5", load, "EXIT")
    code = [instruction(text, number, {"x": 4}) for number, text in enumerate(texts)]
    assert ProgramSlice(code, addresses=range(6)).of(0, 2, True) == [1]


BEFORE, UNDER, LOAD = "FADD R8, R1, R2", "@P0 MOV R8, R3", "@P1 LDG.E R0, [R8.64]"
MADE = "ISETP.LT.AND P0, PT, R4, R5, PT"
CLEARED, PUT = (
    "LOP3.LUT R30, R30, 0xfffffffb, RZ, 0xc0, !PT",
    "@P0 LOP3.LUT R30, R30, 0x4, RZ, 0xfc, !PT",
)
OTHERS, LOAD_0 = "LOP3.LUT R30, R30, 0xfe, RZ, 0xc0, !PT", LOAD.replace("P1", "P0")
WORD, BIT = "ISETP.NE.AND P1, PT, R30, RZ, PT", "LOP3.LUT P1, RZ, R30, 0x4, RZ, 0xc0, !PT"


@pytest.mark.parametrize(
    ("texts", "needed"),
    [
        (("P2R R30, PR, RZ, 0x1", UNDER, MADE, WORD, LOAD), {1, 2, 4}),
        ((CLEARED, PUT, UNDER, MADE, BIT, LOAD), {1, 2, 3, 5}),
        ((CLEARED, UNDER, PUT, MADE, BIT, LOAD), {1, 2, 3, 5}),
        ((CLEARED, PUT, UNDER, OTHERS, MADE, BIT, LOAD), {1, 2, 3, 4, 6}),
        (("P2R R30, PR, RZ, 0x5", UNDER, MADE, "R2P PR, R30, 0x1", LOAD_0), {1, 2, 3, 4}),
        (("P2R.B1 R30, PR, R30, 0x7f", UNDER, MADE, "R2P PR, R30.B1, 0x1", LOAD_0), {1, 2, 3, 4}),
    ],
)
def test_a_predicate_that_is_kept_in_a_register_is_the_same(
    texts: tuple[str, ...], needed: set[int]
) -> None:
    assert kept(BEFORE, *texts, "EXIT") == needed


@pytest.mark.parametrize(
    "texts",
    [
        ("P2R R30, PR, RZ, 0x2", UNDER, MADE, WORD),
        ("P2R R30, PR, RZ, 0x3", UNDER, MADE, WORD),
        ("P2R R30, PR, RZ, 0x1", MADE, UNDER, WORD),
        ("P2R R30, PR, RZ, 0x1", UNDER, MADE, "MOV R30, R6", WORD),
        (CLEARED, PUT, UNDER, MADE, "S2R R30, SR_TID.X", BIT),
        ("@P2 P2R R30, PR, RZ, 0x1", UNDER, MADE, WORD),
        (CLEARED, PUT, UNDER, MADE, WORD),
        (PUT, UNDER, MADE, BIT),
        (CLEARED.replace("b,", "d,"), PUT, UNDER, MADE, BIT),
        ("@P2 " + CLEARED, PUT, UNDER, MADE, BIT),
        (CLEARED, PUT.replace("P0", "!P0"), UNDER, MADE, BIT),
        (CLEARED, PUT, UNDER, CLEARED, MADE, BIT),
        (CLEARED, PUT, UNDER, MADE, BIT.replace("0x4", "0x8")),
        (CLEARED, PUT, UNDER, MADE, BIT.replace("0x4", "0xc")),
        (CLEARED, PUT, UNDER, MADE, BIT.replace("!PT", "P2")),
        (CLEARED, "@P2 BRA `(x)", PUT, UNDER, MADE, BIT),
    ],
)
def test_one_that_may_be_another_is_not(texts: tuple[str, ...]) -> None:
    assert 0 in kept(BEFORE, *texts, LOAD, "EXIT", labels={"x": 3})


_KEPT = (
    ("LOP3.LUT R{r}, R{r}, {n:#x}, RZ, 0xc0, !PT", "{g} LOP3.LUT R{r}, R{r}, {b:#x}, RZ, 0xfc, !PT", "LOP3.LUT P{p}, RZ, R{r}, {b:#x}, RZ, 0xc0, !PT"),
    ("P2R R{r}, PR, RZ, {b:#x}", "ISETP.NE.AND P{p}, PT, R{r}, RZ, PT"),
    ("P2R R{r}, PR, RZ, {m:#x}", "P2R.B1 R{r}, PR, R{r}, {m:#x}", "R2P PR, R{r}, {m:#x}", "R2P PR, R{r}.B1, {m:#x}"),
)  # fmt: skip
"""Ways to keep predicates in registers."""

_USED = (
    "ISETP.LT.AND P{p}, PT, R1, {i:#x}, PT", "{g} ISETP.GT.AND P{p}, PT, R1, {i:#x}, PT",
    "{g} IMAD R{a}, R1, {i:#x}, RZ", "{g} IMAD R{a}, R1, 0x4, RZ", "{g} LDS R20, [R{a}]",
)  # fmt: skip
"""And what is done under them."""


def _random(rng: np.random.Generator) -> list[str]:
    """Return a program that keeps predicates in registers, and loads from shared memory under them."""
    texts = []
    for _ in range(12):
        register, bit = rng.integers(30, 32), 1 << int(rng.integers(3))
        for way in _KEPT[rng.integers(len(_KEPT))]:
            for text in (way, *rng.choice(_USED, rng.integers(5))):
                guard = f"@{'!' * rng.integers(2)}P{rng.integers(3)}"
                texts.append(
                    text.format(
                        g=guard, p=rng.integers(3), r=register, b=bit, n=~bit & 0xFFFFFFFF,
                        m=rng.integers(1, 8), a=rng.integers(8, 10), i=rng.integers(1, 60),
                    )
                )  # fmt: skip
    return ["S2R R1, SR_TID.X", *texts, "EXIT"]


def test_what_random_programs_ask_is_the_same_without_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    launch = Launch(TARGETS["sm_86"], LaunchConfig.of(1, 64), bytes(1024), [])
    every, less = np.arange(1000), 0
    for _ in range(60):
        code = [instruction(text, number) for number, text in enumerate(_random(rng))]
        whole: Answers = {}
        some: Answers = {}
        Interpreter(code, launch, (0,), asked=every, tell=whole.__setitem__).run()
        needed = ProgramSlice(code, addresses=range(len(code)))
        Interpreter(code, launch, (0,), needed, every, some.__setitem__).run()
        assert plain(some) == plain(whole)
        with monkeypatch.context() as patch:
            patch.setattr(kept_predicates, "_restored", lambda _: {})
            generous = ProgramSlice(code, addresses=range(len(code)))
        run = (len(each.of(0, len(code), True)) for each in (needed, generous))
        less += next(run) < next(run)
    assert less > 8, "programs of which less is run"


def test_what_was_stored_and_is_loaded_as_an_index_is_run() -> None:
    index = ("LDS R6, [R4]", "IMAD.WIDE R8, R6, 0x4, R10", "LDG.E R0, [R8.64]", "EXIT")
    assert {0, 1, 2} <= kept("ST.E [R2], R5", *index)  # which may be shared memory
    assert {0, 1, 2} <= kept("STS [R2], R5", *index)
    assert {0, 1, 2} <= kept("LDGSTS.E [R2], [R12.64]", *index)
    assert 0 not in kept("STL [R2], R5", *index)
    assert 0 not in kept("STG.E [R2.64], R5", *index)
    from_global = ("LDG.E R6, [R4.64]", *index[1:])
    assert 0 in kept("ATOMG.E.ADD R20, [R2.64], R5", *from_global)
    assert 0 in kept("ST.E [R2], R5", *from_global)


def segment(first: int, end: int, *texts: str, labels: dict[str, int]) -> list[int]:
    """Return which instructions in a row must be run, of those of a kernel."""
    code = [instruction(text, number, labels) for number, text in enumerate(texts)]
    return ProgramSlice(code, addresses=range(len(code))).of(first, end, True)


@pytest.mark.parametrize(
    ("flow", "run"),
    [
        ("EXIT", False),
        ("@P0 EXIT", True),
        ("BRA `(beyond)", False),
        ("BRA `(load)", True),
        ("@P0 BRA `(beyond)", True),
        ("BRA.U UP0, `(beyond)", True),
        ("BRA.DIV UR4, `(beyond)", True),
    ],
)
def test_who_ends_or_goes_elsewhere_for_certain_does_not_come_by_what_stands_behind(
    flow: str, run: bool
) -> None:
    texts = ("MOV R8, R1", flow, "LDG.E R0, [R8.64]", "EXIT", "MOV R3, R4", "EXIT")
    assert bool(segment(0, 1, *texts, labels={"load": 2, "beyond": 4})) == run


def test_what_a_warp_stored_before_it_ended_is_run_for_others() -> None:
    """Their code stands before its own: nothing leads from one to the other."""
    loads = ("LDS R6, [R4]", "IMAD.WIDE R8, R6, 0x4, R10", "LDG.E R0, [R8.64]")
    for others, run in ((loads, [5]), (("NOP",) * 3, [])):
        texts = ("@P0 BRA `(x)", *others, "EXIT", "STS [R2], R5", "EXIT")
        assert segment(5, 6, *texts, labels={"x": 5}) == run


@pytest.mark.parametrize(
    ("copy", "before"),
    [
        ("UTMALDG.3D [UR8], [UR4], desc[UR6]", 2),
        ("UTMASTG.3D [UR8], [UR4]", 1),
    ],
)
def test_where_a_copy_is_in_a_tensor_is_run_if_it_is_asked(copy: str, before: int) -> None:
    """Its barrier, and how large it is, which the map says, decide who waits how long."""
    first = [f"UMOV UR{8 + n}, UR{20 + n}" for n in range(before + 3)]
    code = [
        instruction(text, number)
        for number, text in enumerate((*first, "UMOV UR4, UR16", "UMOV UR5, UR17", copy, "EXIT"))
    ]
    every = range(len(code))
    asked, others = (
        ProgramSlice(code, addresses=each).of(0, len(code), True) for each in (every, ())
    )
    everywhere = {*range(before + 5)}
    assert {*asked} >= everywhere
    assert {*others} & everywhere == everywhere - {*range(before, before + 3)}


def test_what_a_function_leaves_is_run_for_who_called_it() -> None:
    texts = (
        "CALL.REL.NOINC `(f)",
        "LDG.E R0, [R8.64]",
        "EXIT",
        "MOV R8, R6",
        "RET.REL.NODEC R20 `(k)",
    )
    code = [instruction(text, number, {"f": 3}) for number, text in enumerate(texts)]
    assert ProgramSlice(code, addresses=range(len(code))).of(3, 4, True) == [3]
    assert ProgramSlice(code, addresses=()).of(3, 4, False) == []
