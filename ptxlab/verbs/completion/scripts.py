"""The scripts for shells, made of the verbs' own parsers."""

from __future__ import annotations

import argparse
import importlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from ptxlab.cli.parser import Parser
from ptxlab.cli.verbs import VERBS

SCHEMA = "ptxlab.completion/1"


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its spellings, its choices, whether a value follows, and its line of help."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    valued: bool
    help: str


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb with its line of help, its options, and the choices of what stands without one."""

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]


def described() -> list[Verb]:
    """Return every verb, as its parser has it."""
    return [_verb(name, summary) for name, summary in VERBS]


def _verb(name: str, summary: str) -> Verb:
    parser = Parser(prog=f"ptxlab {name}")
    importlib.import_module(f"ptxlab.verbs.{name}.verb").configure(parser)
    actions = [a for a in parser._actions if a.help != argparse.SUPPRESS]
    return Verb(
        name,
        summary,
        tuple(_option(action) for action in actions if action.option_strings),
        tuple(choice for a in actions if not a.option_strings for choice in a.choices or ()),
    )


def _option(action: argparse.Action) -> Option:
    text = " ".join((action.help or "").replace("%%", "%").split())
    choices = tuple(map(str, action.choices or _values().get(action.dest, ())))
    return Option(tuple(action.option_strings), choices, action.nargs != 0, text)


@cache
def _values() -> dict[str, tuple[str, ...]]:
    """Return what options may be given whose readers take other spellings, too."""
    from ptxlab.gemm.ladder import LADDER
    from ptxlab.isa.targets import TARGETS
    from ptxlab.matrix.catalog import families, opcodes
    from ptxlab.numbers.formats import FORMATS
    from ptxlab.observe.check_report import CHECKS
    from ptxlab.prediction.chip import names

    return {
        "arch": tuple(TARGETS),
        "gpu": names(),
        "algorithm": tuple(LADDER),
        "family": families(),
        "op": opcodes(),
        "device": ("auto", "cuda", "emulator"),
        "dtype": tuple(FORMATS),
        "checks": CHECKS,
    }


KERNEL = "--kernel"
_CUDA = r"s/.*__global__.*[[:space:]*]([A-Za-z][A-Za-z0-9_]*)[[:space:]]*\(.*/\1/p"
_KERNELS = (
    r"s/.*\.entry[[:space:]]+([A-Za-z_$%][A-Za-z0-9_$]*).*/\1/p; "
    f"/__global__/{{{_CUDA}; t; N; {_CUDA}}}"
)
"""What sed prints of a file: the names of kernels of PTX and of CUDA C that has them in the line of ``__global__`` or the next."""


def bash(verbs: Sequence[Verb]) -> str:
    """Return the script of bash: words are completed by ``compgen``, and files where nothing else is."""
    lines = [
        *_BASH_KERNELS,
        "_ptxlab() {",
        *_BASH_HEAD,
        f'            words="{_names(verbs)} --help --version" ;;',
    ]
    for verb in verbs:
        lines.append(f"        0{verb.name})")
        lines.append('            case "$previous" in')
        for option in verb.options:
            if KERNEL in option.names:
                lines.append(f'                {KERNEL}) words="$(_ptxlab_kernels)" ;;')
            elif option.choices:
                lines.append(
                    f'                {"|".join(option.names)}) words="{" ".join(option.choices)}" ;;'
                )
            elif option.valued:
                lines.append(f"                {'|'.join(option.names)}) return ;;")
        spelled = " ".join(name for option in verb.options for name in option.names)
        lines.append(f'                *) words="{" ".join((*verb.words, spelled))}" ;;')
        lines.append("            esac ;;")
    return "\n".join([*lines, *_BASH_TAIL]) + "\n"


def zsh(verbs: Sequence[Verb]) -> str:
    """Return the script of zsh, which takes that of bash."""
    return "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n" + bash(verbs)


def fish(verbs: Sequence[Verb]) -> str:
    """Return the script of fish: a line for each verb and each option."""
    first = "__fish_use_subcommand"
    lines = [*_FISH_KERNELS]
    lines += [f"complete -c ptxlab -n {first} -f -a {v.name} -d {_quoted(v.help)}" for v in verbs]
    for verb in verbs:
        here = f"complete -c ptxlab -n {_quoted(f'__fish_seen_subcommand_from {verb.name}')}"
        if verb.words:
            lines.append(f"{here} -f -a {_quoted(' '.join(verb.words))}")
        lines += [f"{here} {_fish(option)}" for option in verb.options]
    return "\n".join(lines) + "\n"


def _fish(option: Option) -> str:
    parts = [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
    if KERNEL in option.names:
        parts.append("-x -a '(__ptxlab_kernels)'")
    elif option.choices:
        parts.append(f"-x -a {_quoted(' '.join(option.choices))}")
    elif option.valued:
        parts.append("-r")
    return " ".join([*parts, f"-d {_quoted(option.help)}"])


def _names(verbs: Sequence[Verb]) -> str:
    return " ".join(verb.name for verb in verbs)


def _quoted(text: str) -> str:
    return shlex.quote(text)


_BASH_KERNELS = (
    "_ptxlab_kernels() {",
    '    for word in "${COMP_WORDS[@]:2}"; do',
    f'        case "$word" in *.ptx|*.cu|*.cuh) [[ -f "$word" ]] && sed -nE \'{_KERNELS}\' "$word" ;; esac',
    "    done",
    "}",
)
_FISH_KERNELS = (
    "function __ptxlab_kernels",
    "    for word in (commandline -opc)",
    "        if string match -qr '\\.(ptx|cuh?)$' -- $word; and test -f $word",
    f"            sed -nE '{_KERNELS}' $word",
    "        end",
    "    end",
    "end",
)
_BASH_HEAD = (
    '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words=""',
    '    case "$((COMP_CWORD == 1 ? 1 : 0))${COMP_WORDS[1]}" in',
    "        1*)",
)
_BASH_TAIL = (
    "    esac",
    '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
    "}",
    "complete -o default -F _ptxlab ptxlab",
)
SCRIPTS: dict[str, Callable[[Sequence[Verb]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
