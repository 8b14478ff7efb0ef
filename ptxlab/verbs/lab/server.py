"""The server of the lab: a page, and one address that answers what it asks, on this machine for whoever has the token.

A page of another origin cannot ask: its requests lack the cookie, which is sent to this site alone, and say another
``Origin``; nor can one whose name was made to mean this machine after it was loaded (DNS rebinding), as its requests say
another ``Host``. What is asked is worked on in processes with limits (``worker``), which end when nobody listens any more.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ptxlab.cli.isolation import python
from ptxlab.errors import PtxlabError
from ptxlab.verbs.lab.answer import QUESTIONS
from ptxlab.verbs.lab.page import page, served

SECONDS = 600.0
"""How long an answer may take."""

LONGEST = 16 << 20
"""Bytes of a request."""

_LINE = 1 << 28
_NAMES = ("127.0.0.1", "localhost")
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; frame-src blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Worker:
    """A process that answers one request at a time; it is started when it is first asked, or told to."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.lock = asyncio.Lock()

    async def start(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *python("from ptxlab.verbs.lab.worker import main; main()"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE,
            )
        return self._process

    async def ask(self, request: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield what the process says until it has answered; who stops listening ends it."""
        async with self.lock:
            process = await self.start()
            assert process.stdin is not None
            assert process.stdout is not None
            answered = False
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                async with asyncio.timeout(SECONDS):
                    while not answered:
                        line = await process.stdout.readline()
                        if not line:
                            break
                        message: dict[str, Any] = json.loads(line)
                        answered = "answer" in message
                        yield message
            except TimeoutError:
                yield _ended(f"it was not at its end after {SECONDS:g} s")
            else:
                if not answered:
                    yield _ended(
                        "its process is gone: it wanted more memory than it may have, perhaps"
                    )
            finally:
                if not answered:
                    self.end()

    def end(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
        self._process = None


def _ended(why: str) -> dict[str, Any]:
    error = {"kind": "ended", "message": why, "hint": "try a smaller problem"}
    return {"answer": {"status": 4, "error": error, "said": ""}}


class Workers:
    """One process for questions about the text, so that these wait for nothing, and some for launches."""

    def __init__(self, launches: int) -> None:
        self.quick = Worker()
        self.slow = [Worker() for _ in range(launches)]

    def of(self, request: Mapping[str, Any]) -> Worker:
        """Return who is to answer: of those for launches one that is free, if there is one."""
        if request.get("want") in QUESTIONS and request.get("want") != "compare":
            return self.quick
        return next((worker for worker in self.slow if not worker.lock.locked()), self.slow[0])

    async def warm(self) -> None:
        await asyncio.gather(self.quick.start(), self.slow[0].start())

    def end(self) -> None:
        for worker in (self.quick, *self.slow):
            worker.end()


class Guard:
    """Lets pass what comes from the page of this server alone: see the module."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app = app
        self.token = token
        self.hosts = {f"{name}:{port}" for name in _NAMES}
        self.cookie = f"ptxlab-lab-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refused = self._refusal(Request(scope))
            if refused is not None:
                await PlainTextResponse(f"{refused}\n", HTTPStatus.FORBIDDEN)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, request: Request) -> str | None:
        if request.headers.get("host") not in self.hosts:
            return "the lab answers to its own address alone"
        origin = request.headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            return "the lab answers to its own page alone"
        given = request.cookies.get(self.cookie) or request.query_params.get("token") or ""
        if not secrets.compare_digest(given, self.token):
            return "open the address that ptxlab lab has printed: the token is in it"
        return None


def application(
    port: int, token: str, opens: Mapping[str, Any], folder: str | None = None, launches: int = 2
) -> Starlette:
    """Return the application for a port of this machine, whose page ``opens`` with a program.

    CUDA C finds its headers in ``folder``; ``launches`` are worked on at the same time.
    """
    workers = Workers(launches)
    shell = page(served(), opens)

    async def open_page(request: Request) -> HTMLResponse | RedirectResponse:
        if "token" in request.query_params:
            # So that the address that is sent to others has no token; what is behind # stays.
            reply = RedirectResponse("/", HTTPStatus.SEE_OTHER)
            reply.set_cookie(f"ptxlab-lab-{port}", token, httponly=True, samesite="strict")
            return reply
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
        return HTMLResponse(shell, headers=headers)

    async def ask(request: Request) -> StreamingResponse | PlainTextResponse:
        body = await request.body()
        if len(body) > LONGEST:
            return PlainTextResponse("too long", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            asked = json.loads(body)
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            return PlainTextResponse("not a request", HTTPStatus.BAD_REQUEST)
        if folder is not None and str(asked.get("name")).endswith(".cu"):
            asked["options"] = [*asked.get("options", ()), "-I", folder]

        async def said() -> AsyncIterator[str]:
            messages = workers.of(asked).ask(asked)
            try:
                async for message in messages:
                    yield json.dumps(message) + "\n"
            finally:
                await messages.aclose()  # type: ignore[attr-defined]

        return StreamingResponse(said(), media_type="application/x-ndjson")

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        await workers.warm()
        yield
        workers.end()

    return Starlette(
        routes=[Route("/", open_page), Route("/ask", ask, methods=["POST"])],
        middleware=[Middleware(Guard, port=port, token=token)],
        lifespan=living,
    )


def serve(
    port: int,
    opens: Mapping[str, Any],
    folder: str | None,
    launches: int,
    announce: Callable[[str], None],
) -> None:
    """Serve the lab on a port of this machine, or any that is free for 0, until it is interrupted.

    Its address is announced as soon as it listens. Raises PtxlabError for a port that cannot be had.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_NAMES[0], port))
        except OSError as error:
            raise PtxlabError(
                f"port {port} cannot be had: {error.strerror}", hint="leave out --port"
            ) from None
        listening.listen()  # so that a browser may come before the server does
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        announce(f"http://{_NAMES[0]}:{port}/?token={token}")
        print("ptxlab: the lab is at this address; Ctrl-C ends it", file=sys.stderr)
        app = application(port, token, opens, folder, launches)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False)).run(
            [listening]
        )
