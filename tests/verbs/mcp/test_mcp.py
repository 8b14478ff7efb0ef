"""``ptxlab mcp``: its tools by their own function, and through the package's own client."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import pytest

from ptxlab.cli.verbs import VERBS
from ptxlab.errors import PtxlabError
from ptxlab.main import main
from ptxlab.verbs.mcp import tools
from tests.clients.needs import need


def test_what_begins_as_output_does_is_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_said", lambda verb, arguments, source: " ".join(arguments))
    assert tools.answer("fragments", ["--op", "m16n8k16"]) == "--op m16n8k16"


def test_an_answer_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_said", lambda *told: "a" * tools.PAGE + "b" * 10)
    first, second = (tools.answer("ops", [], page=number) for number in (1, 2))
    assert first == "a" * tools.PAGE + "\n[page 1 of 2; page=2 has more]"
    assert second == "b" * 10 + "\n[page 2 of 2]"
    assert tools.answer("ops", [], page=99) == second
    assert tools.answer("ops", [], page=-1) == first


@pytest.mark.parametrize("option", ["-o", "-oevil", "--output", "--out=evil", "--o"])
def test_a_tool_writes_no_file(option: str) -> None:
    with pytest.raises(PtxlabError, match="writes no files"):
        tools.answer("explain", ["mma.m16n8k16.bf16", option, "evil"])


def test_each_tool_is_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert tools.TOOLS.keys() <= dict(VERBS).keys()
    assert main(["mcp", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*tools.TOOLS]


def test_its_own_client_can_call_it() -> None:
    need("mcp")
    asyncio.run(_calls())


async def _calls() -> None:
    client: Any = import_module("mcp").Client
    server = import_module("ptxlab.verbs.mcp.server").server()
    async with client(server) as session:
        listed = await session.list_tools()
        assert [tool.name for tool in listed.tools] == [*tools.TOOLS]
        assert all(len(str(tool)) < 1500 for tool in listed.tools)
        result = await session.call_tool("explain", {"arguments": ["mma.m16n8k16.bf16"]})
        (content,) = result.content
        assert "D = A * B + C, 16 x 8 x 16" in content.text
        assert content.text.rstrip().endswith("[exit status 0]")
