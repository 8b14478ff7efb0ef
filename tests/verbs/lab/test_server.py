"""Who may ask the lab, and that work ends when nobody waits for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ptxlab.cli.verbs import find_verb
from ptxlab.installation import adding_extra
from ptxlab.main import main
from ptxlab.verbs.lab.page import options_of, page, served
from ptxlab.verbs.lab.verb import launch_of, opened
from tests.verbs.lab.conftest import TOKEN, Lab

MMA = "ptx/mma_m16n8k16_bf16_f32.ptx"
LOOP = """.version 8.0
.target sm_80
.address_size 64
.visible .entry forever() {
again:
    bra again;
}
"""


def asking(lab: Lab, **headers: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)
    given = {"Host": f"127.0.0.1:{lab.port}", "Cookie": f"ptxlab-lab-{lab.port}={TOKEN}", **headers}
    connection.putrequest("POST", "/ask", skip_host=True)
    body = json.dumps({"want": "about"}).encode()
    for name, value in {**given, "Content-Length": str(len(body))}.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    return connection


def status(lab: Lab, **headers: str) -> int:
    connection = asking(lab, **headers)
    with connection.getresponse() as reply:
        return reply.status


def test_the_page_of_the_lab_is_answered_and_none_else(lab: Lab) -> None:
    own = f"http://127.0.0.1:{lab.port}"
    assert status(lab) == 200
    assert status(lab, Origin=own) == 200
    assert status(lab, Host=f"localhost:{lab.port}", Origin=f"http://localhost:{lab.port}") == 200
    for foreign in ("http://evil.example", "null", f"https://127.0.0.1:{lab.port}", own + "0"):
        assert status(lab, Origin=foreign) == 403, foreign
    for name in ("evil.example", f"evil.example:{lab.port}", "127.0.0.1", ""):
        assert status(lab, Host=name) == 403, name
    for cookie in ("", f"ptxlab-lab-{lab.port}=another", f"ptxlab-lab-{lab.port + 1}={TOKEN}"):
        assert status(lab, Cookie=cookie) == 403, cookie


def test_the_token_is_taken_out_of_the_address(lab: Lab) -> None:
    def get(path: str, cookie: str = "") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        return connection.getresponse()

    assert get("/").status == 403
    assert get("/?token=another").status == 403
    reply = get(f"/?token={TOKEN}")
    assert (reply.status, reply.getheader("location")) == (303, "/")
    cookie = reply.getheader("set-cookie") or ""
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    page = get("/", cookie.partition(";")[0])
    assert page.status == 200
    assert "frame-ancestors 'none'" in (page.getheader("content-security-policy") or "")
    assert TOKEN.encode() not in page.read()


def lines(lab: Lab, request: dict[str, Any]) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=100)
    headers = {"Cookie": f"ptxlab-lab-{lab.port}={TOKEN}"}
    connection.request("POST", "/ask", json.dumps(request), headers)
    return connection, connection.getresponse()


def children() -> set[int]:
    """Return the processes that this one has started; asked again where a thread of its own ends meanwhile."""
    while True:
        tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def test_progress_is_told_and_work_ends_with_who_waits_for_it(lab: Lab) -> None:
    forever = {"want": "run", "name": "f.ptx", "text": LOOP, "options": ["--block", "32"]}
    connection, reply = lines(lab, forever)
    assert "progress" in json.loads(reply.readline())
    going_on = children()  # which ever of them works: others stay
    reply.close()
    connection.close()
    deadline = time.monotonic() + 20
    while going_on <= children():
        assert time.monotonic() < deadline, "the work goes on"
        time.sleep(0.02)
    _, reply = lines(lab, {"want": "run", "name": "f.ptx", "text": LOOP.replace("bra again", "ret"), "options": ["--block", "32"]})  # fmt: skip
    [*_, last] = map(json.loads, reply.read().splitlines())
    assert last["answer"]["status"] == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"want": '])
def test_what_is_no_request_is_refused(lab: Lab, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)
    connection.request("POST", "/ask", body, {"Cookie": f"ptxlab-lab-{lab.port}={TOKEN}"})
    assert connection.getresponse().status == 400


def test_files_that_the_lab_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opens, folder = opened(MMA)
    assert opens["name"] == "mma_m16n8k16_bf16_f32.ptx"
    assert folder is not None
    assert opened(None) == ({}, None)
    state = {"name": "x.ptx", "text": ".version 8.0\n", "tab": "trace"}
    (tmp_path / "saved.html").write_text(page(served(), state), encoding="utf-8")
    assert opened(str(tmp_path / "saved.html")) == (state, None)
    (tmp_path / "x.html").write_text("<p>another page</p>", encoding="utf-8")
    assert main(["lab", str(tmp_path / "x.html")]) == 2
    assert "was not saved by the lab" in capsys.readouterr().err
    assert main(["lab", str(tmp_path / "none.ptx")]) == 2


def test_a_launch_of_the_command_line_is_that_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page asks with its words in the order of launch.js: kernel, fields, arguments, and what has no field."""
    kept, rest = (
        ["--kernel", "k", "--grid", "2,2", "--block", "32"],
        ["--set", "v=3", "--schedule", "early"],
    )
    arguments = ["--arg", "n=64", "--arg", "x=zeros(4,f32)"]
    parser, _ = find_verb("lab")
    launch = launch_of(
        parser.parse_args([MMA, *rest, *arguments, *kept[2:], *kept[:2], "-D", "T=2"])
    )
    assert launch["args"] == {"n": "64", "x": "zeros(4,f32)"}
    assert (launch["grid"], launch["block"]) == ("2,2", "32")
    assert options_of(launch) == [*kept, *arguments, "-D", "T=2", *rest]
    assert launch_of(parser.parse_args([MMA])) == {"args": {}}
    assert options_of({"args": {}}) == []
    assert main(["lab", "--grid", "2", "-o", str(tmp_path / "x.html")]) == 2
    assert "options of a launch are of a FILE" in capsys.readouterr().err


def test_without_the_packages_the_lab_says_how_to_have_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ptxlab.verbs.lab.verb.NEEDED", ("no_such_package",))
    assert main(["lab"]) == 3
    said = capsys.readouterr().err
    assert "no_such_package is not installed" in said
    assert f"hint: {adding_extra('lab')}" in said
