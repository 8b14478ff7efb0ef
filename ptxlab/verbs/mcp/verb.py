"""``ptxlab mcp``: the verbs that agents ask for, over the Model Context Protocol."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.errors import DeviceUnavailable
from ptxlab.verbs.mcp.tools import TOOLS

EXAMPLE = """\
example:
  ptxlab mcp --list
  ptxlab mcp

Serves judge, check, predict, explain, fragments and sass to an agent, over stdin and stdout, as the Model Context
Protocol has it (https://modelcontextprotocol.io). A tool takes the arguments of its verb, the text of a program where
the file is called -, and which page of a long answer is wanted. Needs the package mcp: pip install 'ptxlab[mcp]'.

An agent is told of it in its own settings: {"mcpServers": {"ptxlab": {"command": "ptxlab", "args": ["mcp"]}}}"""

OPTIONS = """
--list  tell the tools, and exit
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(parser, OPTIONS)
    add_common(parser)
    parser.set_defaults(device="emulator", device_options=())


def execute(args: argparse.Namespace) -> int:
    if args.list:
        text = "\n".join(f"{name}  {about}" for name, about in TOOLS.items())
        emit(args, text, {"schema": "ptxlab.mcp/1", "tools": TOOLS})
        return 0
    if find_spec("mcp") is None:
        from ptxlab.installation import adding_extra

        raise DeviceUnavailable("the package mcp is not installed", hint=adding_extra("mcp"))
    from ptxlab.verbs.mcp.server import server

    server().run()
    return 0
