"""Special registers: which a target and a version have, and the values that ptxas itself knows."""

from __future__ import annotations

import re
from functools import cache

import pytest

from ptxlab.device.opening import open_device
from ptxlab.emulator.prepare import special
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.isa.targets import TARGETS
from ptxlab.syntax import parse
from ptxlab.toolchain import disassemble, link_ptx
from tests.emulator.conftest import functions
from tests.together import in_one_test

HEAD = [
    ".version {version}",
    ".target {target}",
    ".address_size 64",
    ".visible .entry k(.param .u64 out) {",
    ".reg .pred p; .reg .b32 r; .reg .b64 d;",
]
NAMES = [name for name in special.TABLE if not re.search(r"[2-9]|1\d", name.replace("64", ""))]
OTHERS = ["%reserved_smem_offset_2", "%envreg32", "%pm8", "%tid", "%nothing"]
PLACES = (("sm_75", "6.3"), ("sm_75", "9.0"), ("sm_80", "7.5"), ("sm_80", "7.6"), ("sm_86", "8.0"),
          ("sm_90", "7.8"), ("sm_90", "8.0"), ("sm_90a", "8.1"), ("sm_100", "8.6"))  # fmt: skip


def moved(name: str) -> str:
    kind, register = {1: ("pred", "p"), 64: ("b64", "d")}.get(
        special.bits(name) or 32, ("b32", "r")
    )
    return f"mov.{kind} {register}, {name};"


def text(lines: list[str], target: str, version: str) -> str:
    head = [line.format(target=target, version=version) for line in HEAD[:2]] + HEAD[2:]
    return "\n".join([*head, *lines, "ret;", "}"])


def refused_by_ptxas(target: str, version: str) -> set[str]:
    names = [*NAMES, *OTHERS]
    try:
        link_ptx(text([moved(name) for name in names], target, version), arch=target)
    except ToolchainError as error:
        lines = re.findall(r"line (\d+); error", error.log)
        return {names[int(line) - len(HEAD) - 1] for line in lines}
    return set()


def refused(target: str, version: str) -> set[str]:
    names = set()
    for name in [*NAMES, *OTHERS]:
        try:
            prepare(parse(text([moved(name)], target, version)), TARGETS[target], "k")
        except PtxlabError:
            names.add(name)
    return names


@pytest.mark.parametrize(("target", "version"), PLACES)
def test_a_target_and_a_version_have_those_that_ptxas_has(target: str, version: str) -> None:
    """Those that have numbers are asked about up to the first two, as one rule makes them all."""
    assert len(NAMES) > 50
    wrong = refused_by_ptxas(target, version)
    assert refused(target, version) == wrong
    assert wrong >= set(OTHERS)
    assert ("%clusterid.x" in wrong) == (target in ("sm_75", "sm_80", "sm_86"))


MODULE = """\
.version 9.4
.target {target}
.address_size 64
"""
VALUE = """\
.visible .entry {entry}(.param .u64 out) {{
.reg .b32 r; .reg .b64 d;
.shared .align 16 .b8 first[48];
ld.param.u64 d, [out];
mov.u32 r, {name};
st.global.u32 [d], r;
ret;
}}
"""


def value(target: str, name: str) -> int:
    device = open_device("emulator", arch=target)
    with device.zeros(1, "u32") as out:
        text = MODULE.format(target=target) + VALUE.format(entry="k", name=name)
        device.load(text).kernel("k").launch(1, 32, [out], shared=256)
        return int(out.numpy()[0])


RESERVED = [
    ("begin", "sm_90", "0x0", 0),
    ("begin", "sm_80", "SR_SMEMSZ", 304),
    ("cap", "sm_90", "0x400", 1024),
    ("cap", "sm_100", "0x400", 1024),
    ("cap", "sm_80", "SR_SMEMSZ", 304 + 1024),
    ("end", "sm_90", "c[0x0][0x68]", 1024),
    ("0", "sm_80", "SR_SMEMSZ", 304),
    ("0", "sm_90", "0x0", 0),
    ("0", "sm_100", "0x40", 64),
    ("0", "sm_103", "0x40", 64),
    ("0", "sm_107", "0x40", 64),
    ("0", "sm_110", "0x40", 64),
    ("0", "sm_120", "0x40", 64),
    ("0", "sm_121", "0x40", 64),
    ("1", "sm_86", "c[0x0][0x124]", 304),
]


@cache
def machine_code(target: str) -> dict[str, str]:
    """Return the machine code of kernels that store a shared variable's address, and reserved ones."""
    names = {"first": "first"}
    names |= {f"k{n}": f"%reserved_smem_offset_{n}" for n, arch, *_ in RESERVED if arch == target}
    entries = (VALUE.format(entry=entry, name=name) for entry, name in names.items())
    text = MODULE.format(target=target) + "".join(entries)
    return functions(disassemble(link_ptx(text, arch=target)))


@in_one_test(
    "target",
    [
        "sm_75",
        "sm_80",
        "sm_89",
        "sm_90",
        "sm_100",
        "sm_103",
        "sm_107",
        "sm_110",
        "sm_120",
        "sm_121",
    ],
)
def test_a_cta_s_shared_memory_begins_where_machine_code_has_it(target: str) -> None:
    behind = "0x400" in machine_code(target)["first"]
    assert value(target, "first") == (0x400 if behind else 0)
    assert value(target, "first+16") == value(target, "first") + 16
    assert behind == (target not in ("sm_75", "sm_80", "sm_89"))


@in_one_test(("name", "target", "operand", "offset"), RESERVED)
def test_what_is_reserved_of_shared_memory(
    name: str, target: str, operand: str, offset: int
) -> None:
    """It lies before a CTA's own where that begins behind it, else behind its 304 bytes."""
    assert operand in re.split(r"[ ,;]+", machine_code(target)[f"k{name}"])
    assert value(target, f"%reserved_smem_offset_{name}") == offset


def test_what_is_reserved_counts_in_the_aggregate_alone() -> None:
    assert value("sm_90", "%total_smem_size") == 304
    assert value("sm_90", "%aggr_smem_size") == 304 + 1024
    assert value("sm_90", "%dynamic_smem_size") == 256


@pytest.mark.parametrize("address", ["first+-16", "0x3fc", "first+304"])
def test_nothing_else_is_the_program_s(address: str) -> None:
    body = VALUE.replace("st.global.u32 [d], r;", "ld.shared.u32 r, [r];")
    device = open_device("emulator", arch="sm_90")
    kernel = device.load(
        MODULE.format(target="sm_90") + body.format(entry="k", name=address)
    ).kernel("k")
    with pytest.raises(
        PtxlabError, match="is outside shared memory, which has 304 bytes from 0x400"
    ):
        kernel.launch(1, 32, [0], shared=256)
