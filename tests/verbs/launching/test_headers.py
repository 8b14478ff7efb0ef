"""What a file says of its launch, what the user says, and which of both counts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.cli.parser import Parser
from ptxlab.device.emulator import EmulatorDevice
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS
from ptxlab.verbs.launching import launch
from ptxlab.verbs.launching.launch import Argument, bind, bind_launch, fill_in, read_launch
from ptxlab.verbs.launching.options import add_run, compilation
from ptxlab.verbs.launching.watching import whole_cta
from tests.together import in_one_test

KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 n) {directives} {{ ret; }}
"""
HEADER = """\
// What a header says.
//
// Run: ptxlab run FILE --kernel first --grid 4 --block 32 --shared 64 --cooperative --std c++17
//      -I here -D N=1 -D M=2 --arg n=5 --arg m=6 --set v=7
// Run: ptxlab run FILE --kernel second --grid 2 --block 64 --use_fast_math
"""


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="test")
    add_run(parser)
    return parser.parse_args(list(words))


def filled(folder: Path, *words: str) -> argparse.Namespace:
    path = folder / "k.cu"
    path.write_text(HEADER)
    args = parsed(str(path), *words)
    fill_in(args, path)
    return args


def test_a_header_says_what_the_user_leaves_out(tmp_path: Path) -> None:
    args = filled(tmp_path)
    assert (args.kernel, args.grid, args.block, args.shared) == ("first", (4,), (32,), 64)
    assert (args.cooperative, args.std, args.I) == (True, "c++17", ["here"])
    assert (args.D, args.arg, args.set) == (["N=1", "M=2"], ["n=5", "m=6"], ["v=7"])
    other = filled(tmp_path, "--kernel", "second")
    assert (other.grid, other.block, other.shared, other.arg) == ((2,), (64,), None, [])
    assert filled(tmp_path, "--kernel", "third").grid is None
    asked = (args, other, filled(tmp_path, "--use_fast_math"))
    told = ["--use_fast_math" in compilation(each, line_info=False) for each in asked]
    assert told == [False, True, True]


@pytest.mark.parametrize(
    ("name", "text", "arch"),
    [
        ("k.ptx", ".version 8.6\n.target sm_100a\n", "sm_100a"),
        ("k.ptx", ".version 8.8\n  .target sm_103a, debug\n", "sm_103a"),
        ("k.ptx", ".version 8.0\n.target sm_80\n", None),
        ("k.ptx", ".version 8.0\n.target sm_90a\n", None),
        ("k.ptx", ".version 8.8\n.target sm_100f\n", "sm_100a"),
        ("k.ptx", ".version 8.8\n.target sm_121f\n", "sm_121a"),
        ("k.ptx", ".version 9.4\n.target sm_107f\n", "sm_107a"),
        ("k.ptx", ".version 9.4\n.target sm_108f\n", None),
        ("k.cu", "// A title.\n// Target: sm_120a\n", "sm_120a"),
        ("k.cu", "// A title.\n// Target: sm_120f\n", "sm_120a"),
        ("k.cu", "// A title.\nvoid f(); // Target: sm_120a\n", None),
        ("k.cu", "// A title.\n// Target: sm_120g\n", None),
        ("k.ptx", ".version 9.0\n.target sm_120g\n", None),
    ],
)
def test_a_file_is_for_a_target(tmp_path: Path, name: str, text: str, arch: str | None) -> None:
    """It is launched there where the usual one does not run it, unless the user says where."""
    path = tmp_path / name
    path.write_text(text)
    args = parsed(str(path))
    read_launch(args)
    assert args.arch == arch
    args = parsed(str(path), "--arch", "sm_89")
    read_launch(args)
    assert args.arch == "sm_89"


def test_the_user_counts_more_than_the_header(tmp_path: Path) -> None:
    """Zero is a number too. Arguments and macros are replaced one by one, folders come first."""
    words = [
        "--shared",
        "0",
        "--block",
        "8",
        "--arg",
        "m=1",
        "--arg",
        "k=2",
        "-D",
        "M=3",
        "-I",
        "there",
        "--set",
        "w=1",
    ]
    args = filled(tmp_path, *words)
    assert (args.shared, args.block, args.grid) == (0, (8,), (4,))
    assert args.arg == ["n=5", "m=1", "k=2"]
    assert (args.D, args.set) == (["N=1", "M=3"], ["v=7", "w=1"])
    assert args.I == ["there", "here"]


def bound(folder: Path, directives: str, *words: str) -> launch.PreparedLaunch:
    path = folder / "k.ptx"
    path.write_text(KERNEL.format(directives=directives))
    args = parsed(str(path), "--arg", "n=1", *words)
    args.seed = 0
    return bind_launch(read_launch(args), EmulatorDevice(TARGETS["sm_90a"]))


def test_a_kernel_that_needs_a_block_has_it(tmp_path: Path) -> None:
    assert bound(tmp_path, ".reqntid 16, 4").config.block == (16, 4, 1)
    assert bound(tmp_path, ".reqntid 16, 4", "--block", "64").config.block == (64, 1, 1)
    for directives in ("", ".maxntid 64"):
        with pytest.raises(PtxlabError, match="how many threads has a CTA of k"):
            bound(tmp_path, directives)


@dataclass
class _Named:
    """A parameter, or a kernel, by its name."""

    name: str
    parameters: tuple[Any, ...] = ()


@in_one_test(
    ("parameters", "given", "mapped", "expected"),
    [
        ("a b", "x y", "", "x y"),
        ("a b", "b a", "", "a b"),
        ("a b", "x y", "x", "x y"),  # as many as there are parameters: it is one of them
        ("a b", "x y z", "x", "y z"),
        ("a b", "x y z", "x y", "y z"),
        ("a b", "w x y z", "w y", "x z"),
        ("a b", "x a b", "x", "a b"),
        ("a b", "x b a", "a x", "a b"),
        ("a b", "b k_a", "", "k_a b"),  # as PTX has it
    ],
)
def test_arguments_in_order_or_by_name(
    parameters: str, given: str, mapped: str, expected: str
) -> None:
    kernel: Any = _Named("k", tuple(map(_Named, parameters.split())))
    values: dict[str, Any] = {name: number for number, name in enumerate(given.split())}
    bound = bind(kernel, values, mapped.split())
    assert list(bound.items()) == [(name, values[name]) for name in expected.split()]


def test_an_array_has_changed_if_its_bits_have() -> None:
    nan, zero = np.array([np.nan, 1], np.float32), np.zeros(2, np.float32)
    assert not Argument("a", "f32", nan.copy(), before=nan).changed
    assert Argument("a", "f32", -zero, before=zero).changed
    assert not Argument("n", "u32", 5).changed


@pytest.mark.parametrize("kind", ["cuda", "emulator"])
def test_a_launch_on_a_gpu_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The emulator has one of its own, which knows the line that it stands at."""
    limits: list[Any] = []

    @contextmanager
    def limited(*given: Any) -> Iterator[None]:
        limits.append(given)
        yield

    monkeypatch.setattr(launch, "limited", limited)
    prepared = bound(tmp_path, "", "--block", "32", "--timeout", "7")
    monkeypatch.setattr(EmulatorDevice, "kind", kind)
    prepared.run()
    assert limits == [("k", str(tmp_path / "k.ptx"), 7)] * (kind == "cuda")


def test_an_instance_of_a_template_is_asked_for(tmp_path: Path) -> None:
    for kernel, instance in (
        ("scale<bf16,64>", True),
        ("scale<bf16,64>(float*)", True),
        ("gemm<64>::run", True),
        ("scale", False),
    ):
        args = filled(tmp_path, "--kernel", kernel)
        options = compilation(args, line_info=False)
        assert (f"--instance={kernel}" in options) is instance
        assert "--generate-line-info" not in options


@pytest.mark.parametrize(
    ("given", "expected"), [((3,), (3, 0, 0)), ((1, 2), (1, 2, 0)), ((1, 2, 3), (1, 2, 3))]
)
def test_the_cta_that_is_followed(given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert whole_cta(argparse.Namespace(cta=given)) == expected
