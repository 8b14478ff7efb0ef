"""The server of the Model Context Protocol: its tools are those of ``tools.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer

from ptxlab.errors import PtxlabError
from ptxlab.verbs.mcp.tools import TOOLS, answer

INSTRUCTIONS = (
    "ptxlab runs, checks and explains CUDA C and PTX without a GPU. A tool takes the arguments of the verb of its name as a list; "
    "a program may be given as source, and is then the file -. arguments=['--help'] has all there is to say of it."
)


def server() -> Any:
    """Return a server with a tool for each verb, which runs it in a process of its own."""
    made = MCPServer("ptxlab", instructions=INSTRUCTIONS)
    for verb, about in TOOLS.items():
        made.add_tool(_tool(verb), name=verb, description=about)
    return made


def _tool(verb: str) -> Callable[..., str]:
    def tool(arguments: list[str], source: str = "", page: int = 1) -> str:
        try:
            return answer(verb, arguments, source, page)
        except PtxlabError as error:
            return str(error)

    return tool
