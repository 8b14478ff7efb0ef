"""A lab that is served, and a browser that shows it: both once for all tests of a process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn

from ptxlab.verbs.lab.server import application
from tests.verbs.browser import Browser

TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True)
class Lab:
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        app = application(port, TOKEN, {}, launches=1)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield Lab(port)
        finally:
            server.should_exit = True
            thread.join(timeout=20)


@pytest.fixture(scope="package")
def browser(lab: Lab) -> Iterator[Browser]:
    with Browser(1400, 1000) as window:
        window.open(f"{lab.address}/?token={TOKEN}")
        window.until("VIEWS[state.tab].shown !== null", 50)
        yield window
