"""``ptxlab judge``: whether a kernel is right, safe, deterministic, and how fast it would be."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Mapping
from functools import partial
from keyword import iskeyword
from typing import Any

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import dimensions, listed, positive, seconds, words
from ptxlab.errors import PtxlabError, ToolchainError, Unsupported
from ptxlab.verbs.launching.options import ARGUMENTS, add_compilation, compilation
from ptxlab.verbs.launching.watching import on_emulator
from ptxlab.view.annotations import FORMATS, annotated

EXAMPLE = f"""\
example:
  ptxlab judge kernels/naive.cu --reference "d=a@b"
  ptxlab judge gemm.cu --reference ref.py --size m=1000 --size n=512:16 --size k=96 \\
      --grid "{{-(-n//16)}},{{-(-m//16)}}" --block 16,16 --arg "A=randn({{m}}x{{k}},f32)" \\
      --arg "B=randn({{k}}x{{n}},f32)" --arg "C=zeros({{m}}x{{n}},f32)" --arg "m={{m}}" --arg "n={{n}}" --arg "k={{k}}"
  ptxlab judge saxpy.cu --reference ref.py --gpu h100 --gpu rtx4090 --baseline saxpy_old.cu --json

ref.py has a function of NumPy or PyTorch, of the arguments by name, that returns the arrays the kernel writes:
  def reference(A, B):
      return {{"C": A @ B}}

A FILE in Python has a module of PyTorch, ModelNew, that launches kernels of Triton, Numba, CuTe DSL or any other client, or of CUDA C
by load_inline; --reference is then a file with Model, get_inputs and get_init_inputs, as KernelBench has it, whose integers are the sizes.

The kernel is compiled, launched with numbers that differ from launch to launch, of the sizes told and of others,
checked as by ptxlab check, and launched again with asynchronous work landing at other times. An element is wrong if it is
further from the reference than its types and the length of its sums allow, in whatever order it is computed. All
of that runs in a process with limits, without network, and with files of its own. Its time is predicted for each --gpu.
What is in braces is computed of the sizes (--size n=512:16 is a multiple of 16); without sizes no others are tried.
docs/judge.md says more, and which tricks are found.

Exit status 0 for a kernel that is all that, 1 for another.

{ARGUMENTS}"""

OPTIONS = """
FILE              a .cu or .ptx file, machine code, or a .py file with ModelNew
--reference FILE|NAME=WHAT
                  what is right: a file in Python with a function, an expression of NumPy, or a trusted kernel in
                  CUDA C, PTX or machine code
--reference-grid X[,Y[,Z]]  CTAs of the trusted kernel, where they are others
--reference-block X[,Y[,Z]]  threads of a CTA of the trusted kernel, where they are others
--reference-shared BYTES  its dynamic shared memory, where it is another
--size NAME=N[:M]
                  a size of the problem, and what it has to be a multiple of; again for more
--gpu NAME        a GPU whose time is predicted (default a100); more with commas or given again
--baseline FILE   a kernel launched in the same way, to be faster than
--kernel NAME     which kernel, if the file has several
--grid X[,Y[,Z]]  CTAs (default 1), in terms of sizes
--block X[,Y[,Z]]  threads of a CTA
--cluster X[,Y[,Z]]  CTAs of a cluster
--shared BYTES    dynamic shared memory (default 0)
--arg NAME=VALUE  a kernel argument
--limit SECONDS   time that the candidate has (default 120)
--memory BYTES    memory that it may have (default 4 GiB)
--instructions N  instructions that all threads of a launch may execute together
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(
        parser,
        OPTIONS,
        size=[size],
        gpu=listed(words),
        arg=[str],
        limit=seconds,
        memory=positive,
        instructions=positive,
    )
    add_compilation(parser)
    add_common(parser, FORMATS)
    parser.set_defaults(
        device="emulator", device_options=(), limit=120.0, set=[], cooperative=None, timeout=0.0
    )


def size(text: str) -> tuple[str, int | tuple[int, int]]:
    """Read ``n=512`` or ``n=512:16``."""
    match = re.fullmatch(r"(\w+)=(\d+)(?::(\d+))?", text)
    if match is None or not int(match[2]) or match[3] == "0":
        raise ValueError(f"{text!r} is not NAME=N or NAME=N:M, such as n=512:16")
    return match[1], (int(match[2]), int(match[3])) if match[3] else int(match[2])


def execute(args: argparse.Namespace) -> int:
    from ptxlab.judge.evaluate import evaluate
    from ptxlab.judge.limits import Limits
    from ptxlab.verbs.judge import text as view

    on_emulator(
        args, "ptxlab judges on the emulator", "leave out --device; ptxlab run launches it on a GPU"
    )
    if not args.reference:
        raise PtxlabError(
            "what is right?", hint='--reference "d=a@b" says it, or a FILE with a function'
        )
    modules = args.file.endswith(".py")
    launch = {} if modules else _launch(args)
    judgement = evaluate(
        args.file,
        args.reference if modules else _reference(args.reference),
        sizes=dict(args.size),
        kernel=args.kernel,
        options=compilation(args, line_info=False),
        baseline=args.baseline,
        trusted_launch=_trusted(args),
        gpus=args.gpu or ["a100"],
        arch=args.arch,
        limits=Limits(
            seconds=args.limit,
            memory=args.memory or Limits().memory,
            instructions=args.instructions,
        ),
        seed=args.seed,
        **launch,
    )
    made = view.remarks(judgement)
    forms = {form: partial(annotated, form, args.file, made) for form in FORMATS}
    emit(args, lambda: view.text(judgement), lambda: view.as_json(judgement), **forms)
    if not judgement.stages.get("compiled"):
        return ToolchainError.exit_status  # as what other verbs reject
    return int(not judgement.passed)


def _reference(text: str) -> Any:
    """Return the file that is told, or a function for an expression: ``C=A@B``."""
    from ptxlab.judge.task import is_kernel
    from ptxlab.verbs.launching.expression import evaluate
    from ptxlab.verbs.launching.values import split

    if text.endswith(".py") or is_kernel(text):
        return text
    name, expression = split(text)
    named = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", expression))

    def reference(**arguments: Any) -> dict[str, Any]:
        known = {word: value for word, value in arguments.items() if value is not None}
        return {name: evaluate(expression, known)}

    kind = inspect.Parameter
    parameters = [kind(w, kind.KEYWORD_ONLY, default=None) for w in named if not iskeyword(w)]
    if len(parameters) < len(named):  # an argument such as in: no parameter can be called that
        parameters.append(kind("arguments", kind.VAR_KEYWORD))
    reference.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return reference


def _launch(args: argparse.Namespace) -> dict[str, Any]:
    """Return the launch as ``evaluate`` takes it, completed from the file's header, as functions of the sizes."""
    from ptxlab.device.loading import find_file
    from ptxlab.verbs.launching.launch import fill_in

    given = {name: getattr(args, name) for name in ("grid", "block", "cluster", "shared")}
    fill_in(args, find_file(args.file))
    if args.block is None:
        run = f"// Run: ptxlab run {args.file} --grid 2 --block 128 --arg n=64"
        raise PtxlabError(
            "how many threads has a CTA?",
            hint=f"give --block, and --arg NAME=VALUE for each argument, or say both in the file's header: {run}",
        )
    sized = {
        name: _sized(name, text) if text else getattr(args, name) for name, text in given.items()
    }
    return {
        **sized,
        "grid": sized["grid"] or 1,
        "shared": sized["shared"] or 0,
        "arguments": lambda **sizes: _arguments(args.arg, sizes),
    }


def _trusted(args: argparse.Namespace) -> dict[str, Any]:
    """Return what of the trusted kernel's launch is told to differ."""
    texts = {name: getattr(args, f"reference_{name}") for name in ("grid", "block", "shared")}
    return {name: _sized(f"reference-{name}", text) for name, text in texts.items() if text}


def _sized(name: str, text: str) -> Any:
    """Return a function of sizes for text with braces: sizes, or bytes of shared memory."""

    def computed(**sizes: int) -> Any:
        try:
            numbers = dimensions(_filled(text, sizes))
        except ValueError as error:
            raise PtxlabError(f"--{name}: {error}") from None
        return numbers[0] if name.endswith("shared") else numbers

    return computed


def _filled(text: str, sizes: Mapping[str, int]) -> str:
    from ptxlab.verbs.launching.expression import evaluate

    return re.sub(r"\{([^{}]*)\}", lambda match: str(int(evaluate(match[1], sizes))), text)


def _arguments(texts: list[str], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return arguments by name: normal numbers are drawn anew, other arrays are what they are."""
    from ptxlab.judge.arguments import MAKERS, Array
    from ptxlab.verbs.launching.arrays import ArrayValue
    from ptxlab.verbs.launching.values import MapValue, StructValue, read, split

    values: dict[str, Any] = {}
    for text in texts:
        name, told = split(_filled(text, sizes))
        value = read(name, told, (0,))
        if isinstance(value, MapValue | StructValue):
            what = "tensor map" if isinstance(value, MapValue) else "struct"
            raise Unsupported(
                f"argument {name} is a {what}, and ptxlab judge passes arrays and numbers"
            )
        if not isinstance(value, ArrayValue):
            values[name] = value
        elif told.startswith(tuple(MAKERS)):
            values[name] = Array(value.shape, value.dtype, told.partition("(")[0].strip())
        else:
            values[name] = value.array
    return values
