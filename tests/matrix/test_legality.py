"""The instruction tables against what assemblers accept: a measured list, and nvJitLink itself."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ptxlab.errors import ToolchainError
from ptxlab.fragments.probe_kernel import KERNEL, collection
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import forms
from ptxlab.matrix.form import Form
from ptxlab.toolchain.nvjitlink import link_ptx
from scripts import certify
from tests.together import in_one_test, thorough

FAMILIES = {
    "10x": ("sm_100f", "sm_110f"),
    "103": ("sm_103f", "sm_110f"),
    "10xa": ("sm_100a", "sm_103a", "sm_107a", "sm_110a"),
    "100a-110a": ("sm_100a", "sm_110a"),
    "10x-12x": ("sm_100f", "sm_110f", "sm_120f"),
    "90a-12x": ("sm_90a", "sm_100f", "sm_110f", "sm_120f"),
    "12x": ("sm_120f",),
    "12xa": ("sm_120a", "sm_121a"),
}
Requirement = tuple[tuple[str, ...], tuple[int, int]]


def expand(pattern: str) -> Iterator[str]:
    parts = re.split(r"\{([^}]*)\}", pattern)
    choices = [[*alternatives(part)] if i % 2 else [part] for i, part in enumerate(parts)]
    for choice in itertools.product(*choices):
        yield "".join(choice)


def alternatives(text: str) -> Iterator[str]:
    for part in text.split(","):
        run = re.fullmatch(r"(\d+)\.\.(\d+)/(\d+)", part)
        if run:
            first, last, step = map(int, run.groups())
            yield from map(str, range(first, last + 1, step))
        else:
            yield part


@cache
def measured() -> dict[str, Requirement]:
    requirements: dict[str, Requirement] = {}
    for line in (Path(__file__).parent / "forms.tsv").read_text().splitlines():
        if not line.startswith("#"):
            target, version, pattern = line.split("\t")
            major, minor = map(int, version.split("."))
            targets = FAMILIES.get(target, (target.rstrip("+"),))
            requirements |= dict.fromkeys(expand(pattern), (targets, (major, minor)))
    return requirements


def requirements() -> dict[str, Requirement]:
    return {entry.key: (entry.minimum_targets, entry.minimum_ptx) for entry in forms()}


def test_the_measured_list_is_whole() -> None:
    families: Counter[str] = Counter()
    for name in measured():
        family = re.match(
            r"(mma\.sp|mma|wmma\.\w+|wgmma\.mma_async(\.sp)?|tcgen05\.mma(\.ws)?(\.sp)?"
            r"|tcgen05\.ld\.red|tcgen05\.\w+|\w+)",
            name,
        )
        assert family is not None
        families[family[0] + (" scaled" if "block_scale" in name else "")] += 1
    assert families == {
        "mma": 152 + 16,
        "mma scaled": 55,
        "mma.sp": 142,
        "mma.sp scaled": 55,
        "wmma.mma": 96,
        "wmma.load": 88,
        "wmma.store": 26,
        "ldmatrix": 21,
        "stmatrix": 9,
        "movmatrix": 1,
        "wgmma.mma_async": 2 * (3 + 1 + 4 + 4) * 32 + 2 * (8 + 1) * 18,
        "wgmma.mma_async.sp": 2 * (3 + 1 + 4 + 4) * 32 + 2 * 8 * 18,
        "wgmma": 3,
        "tcgen05.mma": 16,
        "tcgen05.mma scaled": 40,
        "tcgen05.mma.sp": 16,
        "tcgen05.mma.sp scaled": 40,
        "tcgen05.mma.ws": 8,
        "tcgen05.mma.ws.sp": 8,
        "tcgen05.cp": 36,
        "tcgen05.shift": 2,
        "tcgen05.ld": 74,
        "tcgen05.st": 74,
        "tcgen05.ld.red": 168,
        "tcgen05.alloc": 2,
        "tcgen05.dealloc": 2,
        "tcgen05.relinquish_alloc_permit": 2,
        "tcgen05.commit": 6,
        "tcgen05.wait": 2,
        "tcgen05.fence": 2,
    }


def test_tables_and_measurement_agree_on_every_form() -> None:
    tables = requirements()
    assert len(tables) == len(forms())
    differ = {
        name: (needed, tables.get(name))
        for name, needed in measured().items()
        if tables.get(name) != needed
    }
    assert differ == {}


def test_only_variants_of_wmma_are_not_in_the_list() -> None:
    """Saturation of integers and rounding of f64, which that list leaves out."""
    more = set(requirements()) - set(measured())
    variant = re.compile(r"\.satfinite$|\.r[nzmp](?=\.f64)")
    assert len(more) == 2 * 3 * 4 + 2 + 4 * 4
    for name in more:
        assert variant.search(name)
        assert measured()[variant.sub("", name)] == requirements()[name]


# ---- nvJitLink: a quick part of what scripts/certify.py does ----


@pytest.mark.parametrize(
    "target",
    [
        "sm_75", "sm_90a", "sm_100a", "sm_120a",
        # What runs on these stands in the measured list, and is what runs on those but for a line or two.
        *thorough(("sm_80", "sm_89", "sm_90", "sm_103a", "sm_107", "sm_107a", "sm_110a", "sm_121a")),
    ],
)  # fmt: skip
def test_a_target_takes_its_forms_and_no_others(target: str) -> None:
    legal = [entry for entry in forms() if entry.runs_on(TARGETS[target])]
    version = max(certify.NEWEST, certify.since(target))
    assert list(certify.differences(forms(), target, version, legal)) == []


@pytest.mark.parametrize(("target", "version"), [("sm_90a", (8, 2)), ("sm_120a", (8, 7))])
def test_a_version_takes_its_forms_and_no_later_ones(target: str, version: tuple[int, int]) -> None:
    entries = [e for e in forms() if certify.least(e)[0] == target]
    legal = [e for e in entries if e.minimum_ptx <= version]
    assert 0 < len(legal) < len(entries)
    assert list(certify.differences(entries, target, version, legal)) == []


def by_least_target() -> dict[str, list[Form]]:
    by_target: dict[str, list[Form]] = {}
    for entry in forms():
        by_target.setdefault(certify.least(entry)[0], []).append(entry)
    return by_target


@in_one_test("target", by_least_target())
def test_forms_compile_for_their_least_target(target: str) -> None:
    """Each in a program: all warp-level ones, and some of the thousands of the warpgroup."""
    entries = by_least_target()[target]
    some = entries[:: 16 if target == "sm_90a" else 1]
    cubin = link_ptx(collection(some, target), arch=target)
    assert cubin.kernels.keys() == {f"{KERNEL}{i}" for i in range(len(some))}


def test_the_script_says_what_differs() -> None:
    """The faulty twins: a table that has too much, and one that has too little."""
    some = [e for e in forms() if e.family in ("movmatrix", "stmatrix")][:3]
    (refused,) = certify.differences(some, "sm_80", certify.NEWEST, some[:1])
    assert re.fullmatch(r"sm_80 refuses stmatrix\S+ in PTX 9.4", refused)
    taken = list(certify.differences(some, "sm_90", certify.NEWEST, some[1:]))
    assert taken == [f"sm_90 takes {some[0].key} in PTX 9.4"]
    with pytest.raises(ToolchainError, match=r"does not support \.target sm_120a"):
        certify.rejected(some, "sm_120a", (8, 0))


MODULE = """
.version 9.1
.target {target}
.address_size 64
.visible .entry k()
{{
.reg .b32 r<24>; .reg .f32 f<8>;
.shared .align 128 .b8 s[4096];
{line}
}}
"""


@pytest.mark.parametrize(
    "line",
    [
        "mma.sync.aligned.m8n84.row.col.f32.f16.f16.f32 {f0}, {r0}, {r1}, {f1};",
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{f0,f1,f2,f3}, {r0,r1}, {r2,r3}, {f0,f1,f2,f3}, r4, 0;",
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s4.s4.s32 "
        "{r0,r1,r2,r3,r4,r5,r6,r7}, {r8}, {r9}, {r0,r1,r2,r3,r4,r5,r6,r7};",
        "ldmatrix.sync.aligned.m8n8.x8.shared.b16 {r0,r1,r2,r3,r4,r5,r6,r7}, [s];",
        "movmatrix.sync.aligned.m8n8.trans.b8 r0, r1;",
    ],
)
def test_what_the_tables_leave_out_does_not_assemble(line: str) -> None:
    """Misprints of documents and slips of older assemblers: none is an instruction."""
    assert line.split()[0] not in requirements()
    with pytest.raises(ToolchainError):
        link_ptx(MODULE.format(target="sm_90a", line=line), arch="sm_90a")


@pytest.mark.parametrize("kind", ["kind::f8f6f4", "kind::mxf4nvf4.block_scale.scale_vec::4X"])
def test_kind_assembles_before_the_shape_too(kind: str) -> None:
    entry = next(e for e in forms() if e.family.startswith("mma") and f".{kind}." in e.name)
    early = entry.name.replace(f".{kind}", "").replace(".aligned", f".aligned.{kind}")
    text = collection([entry], "sm_120a")
    assert entry.name in text
    link_ptx(text.replace(entry.name, early), arch="sm_120a")
