"""The instruction tables against what assemblers accept: a measured list, and nvJitLink itself."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import ToolchainError
from ptxlab.isa import INSTRUCTIONS, TARGETS, find
from ptxlab.toolchain.nvjitlink import link_ptx

FAMILIES = {
    "10x-12x": ("sm_100f", "sm_110f", "sm_120f"),
    "12x": ("sm_120f",),
    "12xa": ("sm_120a", "sm_121a"),
}
Requirement = tuple[tuple[str, ...], tuple[int, int]]


def script(name: str) -> Any:
    """Import a file of the scripts folder."""
    path = Path(__file__).parents[2] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


certify = script("certify")


def expand(pattern: str) -> Iterator[str]:
    parts = re.findall(r"\{[^}]*\}|[^.{}]+", pattern)
    for choice in itertools.product(*(part.strip("{}").split(",") for part in parts)):
        yield ".".join(choice)


@cache
def measured() -> dict[str, Requirement]:
    found: dict[str, Requirement] = {}
    for line in (Path(__file__).parent / "forms.tsv").read_text().splitlines():
        if not line.startswith("#"):
            target, version, pattern = line.split("\t")
            major, minor = map(int, version.split("."))
            targets = FAMILIES.get(target, (target.rstrip("+"),))
            found |= dict.fromkeys(expand(pattern), (targets, (major, minor)))
    return found


def test_the_measured_list_is_whole() -> None:
    families: dict[str, int] = {}
    for name in measured():
        family = re.match(r"(mma\.sp|mma|wmma\.\w+|\w+)", name)
        assert family is not None
        key = family[0] + (" scaled" if "block_scale" in name else "")
        families[key] = families.get(key, 0) + 1
    assert families == {
        "mma": 152 + 16,
        "mma scaled": 55,
        "mma.sp": 142,
        "mma.sp scaled": 55,
        "wmma.mma": 96,
        "wmma.load": 88,
        "wmma.store": 26,
        "ldmatrix": 18,
        "stmatrix": 9,
        "movmatrix": 1,
    }


def test_tables_and_measurement_agree_on_every_form() -> None:
    differ = {
        name: (needed, certify.requirements().get(name))
        for name, needed in measured().items()
        if certify.requirements().get(name) != needed
    }
    assert differ == {}


def test_only_variants_of_wmma_are_not_in_the_list() -> None:
    """Saturation of integers and rounding of f64, which that list leaves out."""
    more = set(certify.requirements()) - set(measured())
    variant = re.compile(r"\.satfinite$|\.r[nzmp](?=\.f64)")
    assert len(more) == 2 * 3 * 4 + 2 + 4 * 4
    for name in more:
        assert variant.search(name)
        assert measured()[variant.sub("", name)] == certify.requirements()[name]


# ---- nvJitLink: a quick part of what scripts/certify.py does ----


def by_requirement() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for name, needed in certify.requirements().items():
        target, version = certify.least(needed)
        found.setdefault((target, "{}.{}".format(*version)), []).append(name)
    return found


@pytest.mark.parametrize(("target", "version"), sorted(by_requirement()))
def test_every_form_assembles_for_its_least_target_and_version(target: str, version: str) -> None:
    lines = [certify.statements()[name] for name in by_requirement()[target, version]]
    link_ptx(certify.module(lines, target, version), arch=target)


# Per least target, one that is just below it or beside it.
BELOW = {
    "sm_80": "sm_75",
    "sm_89": "sm_86",
    "sm_90": "sm_89",
    "sm_100a": "sm_100",
    "sm_120a": "sm_100a",
}


def refused() -> list[tuple[str, str]]:
    """Take every 9th form of each requirement."""
    return [
        (name, BELOW[target])
        for (target, _), names in by_requirement().items()
        if target in BELOW
        for name in names[::9]
    ]


@pytest.mark.parametrize(("name", "target"), refused())
def test_forms_do_not_assemble_for_a_target_below(name: str, target: str) -> None:
    line = certify.statements()[name]
    with pytest.raises(ToolchainError):
        link_ptx(certify.module([line], target, "9.1"), arch=target)
    if name in {i.name for i in INSTRUCTIONS}:
        assert not find(name).runs_on(TARGETS[target])


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
    assert line.split()[0] not in certify.requirements()
    with pytest.raises(ToolchainError):
        link_ptx(certify.module([line], "sm_90a", "9.1"), arch="sm_90a")


@pytest.mark.parametrize("kind", ["kind::f8f6f4", "kind::mxf4nvf4.block_scale.scale_vec::4X"])
def test_kind_assembles_before_the_shape_too(kind: str) -> None:
    name = next(n for n in certify.requirements() if f".{kind}." in n and ".sp" not in n)
    early = name.replace(f".{kind}", "").replace(".aligned", f".aligned.{kind}")
    line = certify.statements()[name].replace(name, early)
    link_ptx(certify.module([line], "sm_120a", "9.1"), arch="sm_120a")
