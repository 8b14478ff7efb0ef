"""A module is refused only for what the launched kernel reaches, and for all of that, before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ptxlab
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError, PtxSyntaxError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe import check, count
from ptxlab.observe.trace import trace

HEAD = """.version 8.0
.target sm_80
.address_size 64
.global .texref texture;
"""

KERNEL = """
.visible .entry {name}(.param .u64 p)
{{
    .reg .b64 q, f; .reg .b32 a;
    ld.param.u64 q, [p];
    {body}
    ret;
}}
"""

FUNCTION = """
.func (.reg .b32 r) {name}(.reg .b32 x)
{{
    .reg .b64 d; .reg .b32 a;
    {body}
    add.u32 r, x, 7;
    ret;
}}
"""

FAULTS = {
    "syntax": ("add.u32 a, a a;", PtxSyntaxError, "a a"),
    "opcode": ("frobnicate.u32 a, a;", PtxlabError, "frobnicate"),
    "target": ("barrier.cluster.arrive;", PtxlabError, "barrier.cluster"),
    "name": ("mov.u32 a, nothing;", PtxSyntaxError, "'nothing' is not declared"),
    "variable": (
        "mov.u64 d, texture;",
        Unsupported,
        "variable 'texture' of type .texref is not modelled",
    ),
}

DIRECT = "call (a), f, (1); st.global.u32 [q], a;"
TAKEN = "mov.u64 f, f0; st.global.u64 [q], f;"
TABLE = "\n.global .u64 table[2] = {0, f0};\n"
PROTOTYPE = "proto: .callprototype (.reg .b32 _) _ (.reg .b32 _);"
INDIRECT = f"{PROTOTYPE} ld.global.u64 f, [{{at}}]; call (a), f, (1), proto; st.global.u32 [q], a;"


@pytest.fixture
def device() -> Iterator[Device]:
    with ptxlab.open_device("emulator", arch="sm_80") as opened:
        yield opened


def kernel(name: str, body: str) -> str:
    return KERNEL.format(name=name, body=body)


def function(name: str, body: str = "") -> str:
    return FUNCTION.format(name=name, body=body)


def launched(device: Device, text: str, name: str) -> int:
    with device.zeros(2, "u32") as out:
        device.load(text).kernel(name).launch(1, 1, [out])
        return int(out.numpy()[0])


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_elsewhere_is_nobodys_concern(device: Device, fault: str) -> None:
    bad, kind, words = FAULTS[fault]
    text = (
        HEAD + function("f", bad) + kernel("good", "st.global.u32 [q], 5;") + kernel("bad", DIRECT)
    )
    assert launched(device, text, "good") == 5
    with pytest.raises(kind) as caught:
        device.load(text).kernel("bad")
    assert words in str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.line == 1 + text[: text.index(bad)].count("\n")


@pytest.mark.parametrize("look", [check, count, trace])
def test_who_looks_reads_only_what_is_reached(device: Device, look: Callable[..., object]) -> None:
    bad, kind, _ = FAULTS["syntax"]
    text = HEAD + function("f", bad) + kernel("good", "st.global.u32 [q], 5;") + kernel("bad", bad)
    with device.zeros(2, "u32") as out:
        look(device.load(text).kernel("good"), LaunchConfig.of(1, 1), [out])
        assert out.numpy()[0] == 5
    with pytest.raises(kind):
        device.load(text).kernel("bad")


def test_a_function_whose_address_another_kernel_left_is_checked() -> None:
    """Its mbarrier, which no other function has, its second warp may meet before it is made."""
    early = "mbarrier.arrive.shared.b64 _, [d];"
    body = f".reg .pred p; mov.u32 a, %tid.x; setp.eq.u32 p, a, 0; mov.u64 d, 1024; @p mbarrier.init.shared.b64 [d], 33; {early}"
    text = HEAD.replace("sm_80", "sm_90") + function("f0", body) + kernel("leave", TAKEN)
    text += kernel("use", INDIRECT.format(at="q"))
    with ptxlab.open_device("emulator", arch="sm_90") as device:
        module, out = device.load(text), device.zeros(2, "u32")
        module.kernel("leave").launch(1, 1, [out])
        report = check(module.kernel("use"), LaunchConfig.of(1, 64, 8), [out], ["async"])
    line = 1 + text[: text.index(early)].count("\n")
    assert [(finding.rule, finding.line) for finding in report.findings] == [("makes", line)]


def test_a_parameter_that_takes_no_argument_is_one_of_its_kernel(device: Device) -> None:
    odd = kernel("odd", "").replace(".param .u64 p", ".param .texref p")
    text = HEAD + odd + kernel("good", "st.global.u32 [q], 5;")
    assert launched(device, text, "good") == 5
    with pytest.raises(PtxlabError, match="texref"):
        device.load(text).kernel("odd")


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("st.global.u32 [q], 5;", False),
        ("call (a), g, (1);", True),
        ("mov.u64 f, f0;", True),
        (INDIRECT.format(at="table+8"), True),
        ("ld.global.u64 f, [table+8];", False),
        ("call (a), calls, (1);", True),
    ],
)
def test_what_a_kernel_reaches(device: Device, body: str, refused: bool) -> None:
    """By a call of a call, by an address, and by an address among a variable's values if it calls one."""
    by_address = f"{PROTOTYPE} mov.u64 d, 0; call (a), d, (1), proto;"
    text = HEAD + function("f0", "frobnicate;") + TABLE + function("g", "call (a), f0, (x);")
    text += function("calls", by_address) + kernel("k", body)
    if refused:
        with pytest.raises(PtxlabError, match="frobnicate"):
            device.load(text).kernel("k")
    else:
        device.load(text).kernel("k")


def test_a_function_is_called_by_an_address_from_a_table(device: Device) -> None:
    text = HEAD + function("f0") + TABLE + kernel("k", INDIRECT.format(at="table+8"))
    assert launched(device, text, "k") == 8


@pytest.mark.parametrize("static", [False, True])
def test_a_function_is_called_by_an_address_that_another_kernel_left(
    device: Device, static: bool
) -> None:
    """It is prepared then; but its shared variables would have no place in this launch."""
    shared = ".shared .b32 kept[4]; mov.u32 a, kept;" if static else ""
    text = HEAD + function("f0", shared) + kernel("leave", TAKEN)
    text += kernel("use", INDIRECT.format(at="q"))
    module = device.load(text)
    with device.zeros(2, "u32") as out:
        module.kernel("leave").launch(1, 1, [out])
        address = out.numpy().copy()
        for _ in range(2):
            if static:
                with pytest.raises(Unsupported, match="shared variable 'kept'"):
                    module.kernel("use").launch(1, 1, [out])
            else:
                module.kernel("use").launch(1, 1, [out])
                assert out.numpy()[0] == 8
                device.write(out.address, address)
    assert address.any()


def test_the_kernels_of_a_module_share_its_variables(device: Device) -> None:
    text = HEAD + ".global .u32 counter = 3;\n"
    text += kernel("add", "atom.global.add.u32 a, [counter], 1;")
    text += kernel("read", "ld.global.u32 a, [counter]; st.global.u32 [q], a;")
    module = device.load(text)
    with device.zeros(2, "u32") as out:
        for _ in range(2):
            module.kernel("add").launch(1, 1, [out])
        module.kernel("read").launch(1, 1, [out])
        assert np.array_equal(out.numpy(), [5, 0])


def test_a_kernel_is_made_once_and_the_others_are_known(device: Device) -> None:
    module = device.load(HEAD + kernel("k", "") + kernel("bad", "frobnicate;"))
    assert list(module.kernels) == ["k", "bad"]
    assert "bad" in module.kernels
    assert "none" not in module.kernels
    assert module.kernel("k") is module.kernels["k"]
