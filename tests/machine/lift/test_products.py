"""Matrix instructions of a warp give the same bits as what ptxas makes of them, lifted: random registers."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.fragments.probe_kernel import Body, body, module
from ptxlab.isa.targets import target_named
from ptxlab.machine.image import read_image
from ptxlab.machine.lift import lift
from ptxlab.machine.lift.operations import products
from ptxlab.matrix.catalog import warp_level
from ptxlab.matrix.form import Form
from ptxlab.syntax import parse
from ptxlab.syntax.tree import PtxModule
from ptxlab.toolchain import link_ptx

METADATA = 0x4444EEEE
"""Pairs of places that are in order, of which sparse matrices need some."""


_NAMELESS = re.compile(r"ldmatrix\..*\.s8\.s4")
REFUSED = {
    "sm_75": re.compile(r"mma\..*\.m8n8k4\..*f16"),
    **dict.fromkeys(("sm_90a", "sm_100a", "sm_120a"), _NAMELESS),
}
"""Products of Volta, of which Turing makes four steps, and loads that nvdisasm 13.5 has no name for."""


def forms_of(arch: str) -> list[Form]:
    target, refused = target_named(arch), REFUSED.get(arch)
    forms = [f for f in warp_level() if f.runs_on(target) and not f.family.startswith("wmma")]
    forms = [f for f in forms if not (refused and refused.match(f.name))]
    random.Random(1).shuffle(forms)
    return forms


def different(forms: Sequence[Form], arch: str) -> list[str]:
    """Return the names of forms whose results differ."""
    kernels = [(form, body(form)) for form in forms]
    text = module(kernels, arch)
    for form in forms:
        text = chosen(text, form)
    tree, image = parse(text), read_image(link_ptx(text, arch=arch).image, arch)
    told = []
    for number, (form, kernel) in enumerate(kernels):
        name = f"probe{number}"
        lifted = lift(image, [name], "k.sass", tree)
        wanted, actual = (result(kernel, name, program, arch) for program in (tree, lifted))
        if wanted != actual:
            told.append(form.name)
    return told


def chosen(text: str, form: Form) -> str:
    """Return the text with lanes and bytes by chance that have the scales of a form, in place of the first ones."""
    draw = random.Random(form.name)
    for operand in form.signature:
        if operand.name.endswith("-ids"):
            ids = ", ".join(str(draw.choice(allowed)) for allowed in operand.allowed)
            text = re.sub(
                rf"({re.escape(form.name)} .*?)\{{0, 0\}}", rf"\1{{ {ids} }}", text, count=1
            )
    return text


def result(kernel: Body, name: str, program: PtxModule, arch: str) -> bytes:
    """Return what a kernel leaves of random words."""
    choose = np.random.default_rng(7)
    share = kernel.shared_bytes // kernel.threads // 8
    size = 1, kernel.threads, len(kernel.sources) + share
    record = choose.integers(0, 2**64 - 1, size, np.uint64, endpoint=True)
    for column, (register, kind) in enumerate(kernel.sources):
        if kind == "f64":
            record[0, :, column] = choose.standard_normal(kernel.threads).view(np.uint64)
        elif register.startswith("e"):
            record[0, :, column] = METADATA
        elif register == "p":
            record[0, :, column] = 16 * np.arange(kernel.threads)
    device = open_device("emulator", arch=arch)
    given = device.upload(record.reshape(-1))
    left = device.zeros((max(1, kernel.threads * (len(kernel.results) + share)),), "u64")
    device.load(program).kernel(name).launch(1, kernel.threads, [given, left])
    return left.numpy().tobytes()


@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
def test_both_engines_agree(arch: str) -> None:
    assert different(forms_of(arch)[:12], arch) == []


def test_scales_are_of_the_lanes_and_bytes_that_were_chosen() -> None:
    scaled = [form for form in forms_of("sm_120a") if "block_scale" in form.name]
    dense, sparse = (
        next(f for f in scaled if "kind::mxf8f6f4" in f.name and (".sp" in f.name) == sp)
        for sp in (False, True)
    )
    assert different([dense, sparse], "sm_120a") == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_both_engines_agree_on_every_form(arch: str) -> None:
    forms = forms_of(arch)
    for first in range(0, len(forms), 16):
        assert different(forms[first : first + 16], arch) == []


def test_another_product_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bf16 taken for f16 the bits are others."""
    [form] = [f for f in forms_of("sm_80") if f.name.endswith("m16n8k16.row.col.f32.bf16.bf16.f32")
              and f.family == "mma"]  # fmt: skip
    assert different([form], "sm_80") == []
    monkeypatch.setitem(products._TYPES, "BF16", "f16")
    assert different([form], "sm_80") == [form.name]
