"""Any command line ends with a status that means something: no traceback, no hang, no flood of text."""

from __future__ import annotations

import argparse
import importlib
import random
import warnings
from functools import cache
from pathlib import Path

import pytest

from ptxlab.cli.parser import Parser
from ptxlab.cli.verbs import VERBS
from ptxlab.main import main
from tests.time_limit import at_most

COMMANDS = 40
SECONDS = 20

SMALL = {
    "bench": ("--sizes", "16", "--algorithm", "naive", "--device", "emulator"),
    "explain": ("--arch", "sm_90a"),
    "gemm": ("--size", "16", "--algorithm", "naive"),
    "interleave": ("--sizes", "16", "--turns", "1"),
    "ops": ("--family", "movmatrix"),
}
"""What keeps a verb short; an option that comes later may still replace it."""

LONG = {
    "--all",
    "--html",
    "--format",
    "--explain",
    "--time",
    "--tiles",
    "--moves",
    "--record",
    "--std",
}
"""Options that are given seldom: many of them take seconds."""

SOUND = {
    "ACCESS,...": "ldmatrix st128 ld8.across ldmatrix.trans,stmatrix",
    "BM=64,...": "BM=64 BM=32,WM=16 BK=8",
    "D[ROW,COL]": "D[5,6] A[0,15] 3,9 B[15,7] E[1,1]",
    "OPERAND=WHAT": "A=a A=a[:,0:16] B=b[0:16] D=d C=c",
    "B,M,S": "3,3,3 2,1,2 128B 0,0,0",
    "FILE": "ptx/ldmatrix.ptx ptx/mma_m16n8k16_bf16_f32.ptx ptx/fragment_mappers.ptx",
    "FORM": "ldmatrix.x4 stmatrix.x2.trans ldmatrix",
    "FORMAT": "wgmma tcgen05 kind::f16 kind::mxf4",
    "I,J": "0,0 1,2 16,32",
    "KEY": "line instructions",
    "LAYOUT": "2x6 8x64 64x64 ((2,2),8):((1,16),2) m16n8k16 ldmatrix.x4 (4,8):(8,1) 0x4000004000010040 128x64",
    "LIST": "1,2 0x1p-12,0x1p3 ones(4,f16) 1/3 r0 a0,d0 d*",
    "NAME": "mma m16n8k16 ldmatrix.x4.trans wgmma.m64n16k16 tcgen05.mma naive tiled tensor_core a100 h100 d0 a2 c++17",
    "NAME=VALUE": "d=zeros(128,f32) a=ones(256,bf16) N=3 k=16 x=1.5 base=2",
    "NAME=WHAT": "d=a d=zeros(128,f32) d=a.astype(f32)@b.astype(f32)",
    "NEXT": "m16n8k32.e4m3 m16n8k16",
    "NUMBER": "1 0x1p-14 nan 1/3",
    "PLACE": "mma ldmatrix 40 ret bar.sync",
    "ROW,COL": "3,5 15,7 0,0",
    "RxC": "2x2 1x1 4x8",
    "TYPE": "bf16 f16 f32 tf32 s8 u8 e4m3 e2m1 f64 s8.u8 b1",
    "X.Y": "7.0 8.4 6.3",
    "X[,Y[,Z]]": "1 32 2,2 0 32,2,1",
    "k|mn": "k mn k.mn",
}
"""What options take, by what their help calls it; of others, and now and then of these, a word is drawn."""

WORDS = (
    *["0", "1", "2", "3", "7", "16", "32", "99", "-1", "130", "1e5", "99999999999999999999", "0x10", "1/0", "-0.0", "nan", "inf", "-inf", "1e400", "0x1p-99999", "0x1p99999"],
    *["1,2", "1,2,3", "0,0", "99,99,99", "-1,-1", ",", "1,,2", "=", "a=", "=1", "x=@none.npy", "d=a+b", "%s", "{}", "-", ".", "/", "(", "1:", ":", "()", "(2,3):(1", "0x0"],
    *["auto", "emulator", "cuda", "cuda:9", "cuda:x", "sm_80", "sm_", "sm_90a", "sm_9999", "text", "json", "99999x99999", "BM", "BM=0", "9.99", "8", "ones", "k"],
    *["none.ptx", "none.cu", "@none.npy", "@none.npz:a", "zeros(0,f32)", "zeros(99999999999,f32)", "randn(4,f32,seed=x)", "eye(3x3,f64)"],
    *["/dev/full", "/none/x", "/"], "", "\0", "é", "\ud800", "\n", "a b", "d=" + "(" * 5000, "(" * 5000, "-" * 300,
    "1 " * 3000, "9" * 5000, "x" * 300, "x" * 300 + ".ptx", "1," * 2000,
)  # fmt: skip


@cache
def options(verb: str) -> tuple[argparse.Action, ...]:
    parser = Parser(prog="ptxlab")
    importlib.import_module(f"ptxlab.verbs.{verb}.verb").configure(parser)
    return tuple(action for action in parser._actions if action.dest != "help")


def command(seed: int, verb: str) -> list[str]:
    """Return a command line of ``verb``: what it must have, and some of what it may."""
    draw = random.Random(f"{verb} {seed}")
    words = [verb]
    for action in options(verb):
        if action.option_strings:
            seldom = LONG.isdisjoint(action.option_strings)
            if draw.random() > (0.12 if seldom else 0.01):
                continue
            words.append(draw.choice(action.option_strings))
        elif draw.random() < 0.05:
            continue
        if action.nargs != 0:
            sound = [
                str(choice)
                for choice in action.choices or SOUND.get(str(action.metavar), "").split()
            ]
            words.append(draw.choice(sound if sound and draw.random() < 0.85 else WORDS))
    if draw.random() < 0.1:
        words.append(draw.choice(WORDS))
    return [verb, *SMALL.get(verb, ()), *words[1:]]


def status_of(arguments: list[str]) -> int:
    with warnings.catch_warnings(), at_most(SECONDS, KeyboardInterrupt):
        warnings.simplefilter("error")
        return main(arguments)


@pytest.mark.parametrize(
    "seeds",
    [
        range(COMMANDS // 2),
        pytest.param(range(COMMANDS // 2, COMMANDS), marks=pytest.mark.thorough),
    ],
    ids=["some", "more"],
)
@pytest.mark.parametrize(
    "verb", [name for name, _ in VERBS if name not in ("doctor", "lab", "mcp")]
)
def test_command_lines(
    verb: str,
    seeds: range,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in seeds:
        arguments = command(seed, verb)
        status = status_of(arguments)
        said = capsys.readouterr().err
        assert status in (0, 1, 2, 3, 4), (arguments, said)
        assert len(said) < 2000, arguments
