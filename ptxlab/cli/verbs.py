"""The verbs, each with its line of help, and how one is found.

A verb is a folder of ``ptxlab.verbs`` whose module ``verb`` has ``configure(parser)``, which adds its
arguments, and ``execute(args)``, which returns the exit status: 0 done and right, 1 a check or comparison
failed. All other statuses come from the error that was raised.
"""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Callable

from ptxlab.cli.parser import Parser

VERBS: tuple[tuple[str, str], ...] = (
    ("bench", "the ladder side by side: timed beside cuBLAS on a GPU, counted on the emulator"),
    ("check", "find races, missing waits, bad barriers, bounds, uninitialised reads, deadlocks"),
    (
        "completion",
        "write the script that completes verbs, options and choices in bash, zsh or fish",
    ),
    ("diff", "run the same launch on two devices or targets and show where they part"),
    (
        "doctor",
        "say what is installed, what works on this machine, and what to install for the rest",
    ),
    ("dump", "show the registers of any thread at any line, label or instruction"),
    ("exec", "run a program in Python, such as one in Triton, unchanged and without a GPU"),
    ("explain", "explain one matrix instruction: operands, targets, arithmetic, SASS"),
    ("fragments", "dump, verify, query and draw the fragment layouts of a matrix instruction"),
    ("gemm", "run, verify and time matrix multiplication algorithms"),
    (
        "interleave",
        "let GPU and CPU take turns on the same matrices: copied, mapped and managed memory",
    ),
    ("judge", "say whether a kernel is right, safe, deterministic, and how fast it would be"),
    ("lab", "open a page in the browser to type, run, step through and compare programs in"),
    ("layout", "print, tile, vectorize, swizzle a layout; its bank conflicts"),
    ("mcp", "serve verbs to agents over the Model Context Protocol"),
    ("numerics", "show what a dot product becomes on the tensor cores of each target, bit by bit"),
    ("ops", "list the matrix instructions, and which of them run on a target"),
    ("predict", "predict a kernel's time on a GPU that is not here, and what it waits for"),
    ("profile", "count bank conflicts, coalescing, divergence and arithmetic by line"),
    ("run", "launch a kernel of any .ptx or .cu file with arguments from the command line"),
    ("sass", "show PTX beside its SASS, registers, spills, occupancy, for any target"),
    (
        "step",
        "walk through a launch: registers, matrices and shared memory after every instruction, as a page",
    ),
    (
        "trace",
        "draw what warps, copies, tensor cores and barriers of a CTA do, in order, as a page",
    ),
)
"""Every verb and its line of help, so that ``ptxlab --help`` imports none of them."""


def find_verb(name: str) -> tuple[Parser, Callable[[Namespace], int]]:
    """Import one verb; return the parser of its arguments, and what executes it."""
    module = importlib.import_module(f"ptxlab.verbs.{name}.verb")
    parser = Parser(prog=f"ptxlab {name}")
    module.configure(parser)
    return parser, module.execute
