"""``ptxlab completion``: the script that completes verbs, options and their choices in a shell."""

from __future__ import annotations

import argparse

from ptxlab.cli.common import add_common, emit

SHELLS = ("bash", "zsh", "fish")

EXAMPLE = """\
example:
  ptxlab completion bash
  ptxlab completion fish

In ~/.bashrc: source <(ptxlab completion bash), and with zsh in ~/.zshrc. For fish the script belongs into
~/.config/fish/completions/ptxlab.fish. It completes verbs, options, the values of an option, the kernels of the file for --kernel, and files; it runs nothing of ptxlab, so make it
anew after an update."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="for which shell")
    add_common(parser)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.verbs.completion import scripts

    verbs = scripts.described()
    script = scripts.SCRIPTS[args.shell](verbs)
    emit(args, script, lambda: {"schema": scripts.SCHEMA, "shell": args.shell, "script": script})
    return 0
