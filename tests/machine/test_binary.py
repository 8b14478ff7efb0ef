"""Which machine code of a file a GPU runs: its own, the nearest that it can, or an error that says what there is."""

from __future__ import annotations

import pytest

from ptxlab.errors import PtxlabError, ToolchainError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.machine.binary import compiled, machine_code, usual_target
from ptxlab.toolchain import link_ptx
from tests.toolchain.binaries import CUBIN, PTX, ZSTD, container, executable, member

EMPTY = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n"
SEVERAL = container(
    member(CUBIN, 80, b"eighty"),
    member(CUBIN, 86, b"eighty-six"),
    member(CUBIN, 90, b"plain ninety"),
    member(CUBIN, 90, b"ninety a", suffix="a"),
    member(PTX, 120, b"text"),
)


@pytest.mark.parametrize(
    ("target", "content"),
    [
        ("sm_80", b"eighty"),
        ("sm_86", b"eighty-six"),
        ("sm_89", b"eighty-six"),
        ("sm_90a", b"ninety a"),
        ("sm_90", b"plain ninety"),
    ],
)
def test_the_nearest_that_runs(target: str, content: bytes) -> None:
    for image in (SEVERAL, executable(SEVERAL)):
        [cubin] = machine_code(image, TARGETS[target], "mine")
        assert cubin.image.rstrip(b"\0") == content


@pytest.mark.parametrize("target", ["sm_75", "sm_100a", "sm_120a"])
def test_what_does_not_run_is_none(target: str) -> None:
    with pytest.raises(PtxlabError, match=f"mine has no machine code for {target}") as caught:
        machine_code(SEVERAL, TARGETS[target], "mine")
    assert caught.value.hint == "what it has is for sm_80, sm_86, sm_90, sm_90a"


def test_what_is_compressed_says_how_to_open_it() -> None:
    packed = container(member(CUBIN, 80, b"\x28\xb5\x2f\xfd", packed=ZSTD))
    with pytest.raises(Unsupported, match="compressed") as caught:
        machine_code(packed, TARGETS["sm_80"], "mine")
    assert "--no-compress" in str(caught.value)


def test_what_is_damaged_is_named() -> None:
    with pytest.raises(ToolchainError, match=r"^mine: this fatbin is damaged"):
        machine_code(SEVERAL[:30], TARGETS["sm_80"], "mine")


def test_of_a_linked_program_it_is_what_has_kernels() -> None:
    """nvcc's linking adds machine code without any, before that of the program."""
    added = link_ptx(EMPTY.replace(".visible .entry empty() { ret; }", ""), arch="sm_80").image
    own = link_ptx(EMPTY, arch="sm_80").image
    linked = executable(container(member(CUBIN, 80, added)) + container(member(CUBIN, 80, own)))
    [cubin] = machine_code(linked, TARGETS["sm_86"], "mine")
    assert cubin.image.rstrip(b"\0") == own.rstrip(b"\0")
    twice = executable(2 * container(member(CUBIN, 80, own)))
    assert len(machine_code(twice, TARGETS["sm_80"], "mine")) == 2


def test_a_cubin_says_itself_what_it_is_for() -> None:
    image = link_ptx(EMPTY, arch="sm_80").image
    assert [each.arch for each in machine_code(image, TARGETS["sm_86"], "mine")] == ["sm_80"]
    assert usual_target(compiled(image)) == "sm_80"
    assert usual_target(compiled(container(member(PTX, 80, b"text")))) is None
    with pytest.raises(PtxlabError, match="no machine code for sm_90a"):
        machine_code(image, TARGETS["sm_90a"], "mine")
