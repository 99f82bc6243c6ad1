"""The control listener: who may call, what is refused, and that a description says what there is."""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from broker.control.arguments import argument
from broker.control.calls import CHANGES, READS, Answer, Call, CannotDo, Nothing, NotInTime
from broker.control.control_server import MOST_BODY_BYTES, ControlServer
from dev.waiting import until
from ottla.testing import BrokerError
from ottla.testing.control import Control


@dataclasses.dataclass(frozen=True)
class Told:
    text: str = argument("what is said")


async def echo(told: Told) -> Answer:
    if told.text == "impossible":
        raise CannotDo("this is not possible")
    if told.text == "never":
        raise NotInTime("it has not come", {"there": "nothing"})
    if told.text == "bug":
        raise ZeroDivisionError("a bug")
    return {"told": told.text}


async def look(_: Nothing) -> Answer:
    return {"is": "there"}


async def wait(_: Nothing) -> Answer:
    await asyncio.get_running_loop().create_future()
    return {}


CALLS = [
    Call(CHANGES, "/echo", "Say it again.", Told, echo),
    Call(READS, "/look", "Look.", Nothing, look),
    Call(READS, "/wait", "Wait for ever.", Nothing, wait),
]


@pytest.fixture(scope="module")
def server() -> Iterator[ControlServer]:
    with serving() as server:
        yield server


@contextmanager
def serving() -> Iterator[ControlServer]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = ControlServer("127.0.0.1", 0, CALLS, loop=loop)
    server.start()
    try:
        yield server
    finally:
        server.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def ask(server: ControlServer, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*server.address)
    try:
        connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def post(server: ControlServer, body: str, **headers: str) -> tuple[int, Any]:
    return ask(server, "POST", "/echo", body, **{"Content_Type": "application/json", **headers})


def test_calls_are_answered(server: ControlServer) -> None:
    assert post(server, '{"text": "hello"}') == (200, {"told": "hello"})
    assert ask(server, "GET", "/look") == (200, {"is": "there"})


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        ('{"text": "impossible"}', 409, {"error": "this is not possible"}),
        ('{"text": "never"}', 408, {"error": "it has not come", "found": {"there": "nothing"}}),
        ('{"text": 1}', 400, {"error": "/echo: text is 1, expected a text"}),
        ("{}", 400, {"error": "/echo: the body lacks 'text': what is said"}),
    ],
)
def test_what_cannot_be_done_is_told_with_its_reason(
    server: ControlServer, body: str, status: int, answer: dict[str, Any]
) -> None:
    assert post(server, body) == (status, answer)


@pytest.mark.parametrize("body", ["{", "[" * 200_000, '{"text": "\\ud800"}', "1" * 5_000, "null"])
def test_a_body_that_is_no_object_in_json_is_refused(server: ControlServer, body: str) -> None:
    status, answer = post(server, body)
    assert status == 400
    assert answer["error"].startswith("/echo: ")


def test_arguments_behind_a_question_mark_are_refused(server: ControlServer) -> None:
    assert ask(server, "GET", "/look?at=me") == (
        400,
        {"error": "/look: the arguments are in the body, and not behind a '?'"},
    )


def test_what_http_forbids_is_refused_as_json(server: ControlServer) -> None:
    assert ask(server, "PUT", "/echo", "{}") == (501, {"error": "Unsupported method ('PUT')"})
    assert ask(server, "GET", "/" + "x" * 70_000)[0] == 414


def test_a_bug_is_told_and_others_are_served(server: ControlServer, caplog: pytest.LogCaptureFixture) -> None:
    assert post(server, '{"text": "bug"}') == (500, {"error": "ZeroDivisionError: a bug"})
    assert "/echo met a bug" in caplog.text
    assert post(server, '{"text": "hello"}')[0] == 200


def test_what_is_not_there_is_told(server: ControlServer) -> None:
    assert ask(server, "GET", "/nothing")[0] == 404
    assert ask(server, "GET", "/echo") == (405, {"error": "/echo is for POST"})


def test_a_page_in_a_browser_cannot_call(server: ControlServer) -> None:
    assert post(server, '{"text": "hello"}', Content_Type="text/plain")[0] == 415
    assert post(server, '{"text": "hello"}', Host="rebound.example:80")[0] == 403
    assert post(server, '{"text": "hello"}', Host="127.0.0.1.rebound.example")[0] == 403
    for host in ("localhost", "localhost:80", "[::1]:80"):
        assert post(server, '{"text": "hello"}', Host=host)[0] == 200


def test_a_body_has_a_size_and_a_limit(server: ControlServer) -> None:
    assert post(server, "", Content_Length=str(MOST_BODY_BYTES + 1))[0] == 413
    assert post(server, "", Content_Length="9" * 5_000)[0] == 413
    assert post(server, "", Content_Length="-1")[0] == 411
    assert post(server, "2\r\n{}\r\n0\r\n\r\n", Transfer_Encoding="chunked")[0] == 411


def test_a_client_that_sends_too_much_gets_its_answer(control: Control) -> None:
    with pytest.raises(BrokerError, match="are allowed"):
        control.call("/echo", text="x" * (MOST_BODY_BYTES + 1))
    assert control.call("/echo", text="here") == {"told": "here"}


def test_the_description_has_every_call(server: ControlServer) -> None:
    status, described = ask(server, "GET", "/openapi.json")
    assert (status, described["openapi"]) == (200, "3.1.0")
    assert set(described["paths"]) == {"/echo", "/look", "/wait"}
    body = described["paths"]["/echo"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["text"]["description"] == "what is said"


@pytest.fixture
def control(server: ControlServer) -> Iterator[Control]:
    host, port = server.address
    control = Control(f"http://{host}:{port}")
    yield control
    control.close()


def test_a_call_after_a_long_pause_gets_its_answer(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.control.control_server._Conversation.timeout", 0.05)
    assert control.read("/look") == {"is": "there"}
    [kept] = control._idle
    assert kept.sock.recv(1, socket.MSG_PEEK) == b"", "the listener has not closed it"
    assert control.call("/echo", text="here") == {"told": "here"}
    assert control._idle != [kept]


def test_calls_of_several_threads_have_connections_of_their_own(control: Control) -> None:
    together = threading.Barrier(4)

    def call(number: int) -> Any:
        together.wait(60)
        return control.call("/echo", text=str(number))["told"]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(call, range(4))) == ["0", "1", "2", "3"]
    assert 1 <= len(control._idle) <= 4
    assert control.call("/echo", text="later") == {"told": "later"}


def test_a_listener_that_closes_answers_what_waits_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with (
        serving() as server,
        ThreadPoolExecutor(2) as pool,
        closing(http.client.HTTPConnection(*server.address)) as idle,
    ):
        idle.request("GET", "/look")
        assert idle.getresponse().read()
        waiting = [pool.submit(ask, server, "GET", "/wait") for _ in range(2)]
        threads = 2 + len(waiting) + 3  # of the loop and the listener, of the clients, of the connections
        until(lambda: len(set(threading.enumerate()) - before) == threads, "a thread for each connection")
        server.close()
        assert [one.result(60) for one in waiting] == [(503, {"error": "the broker stops"})] * 2
        assert idle.sock.recv(1) == b""
    assert set(threading.enumerate()) <= before


def test_a_client_that_takes_no_answer_does_not_hold_up_the_end() -> None:
    with serving() as server, socket.create_connection(server.address) as lazy:
        lazy.settimeout(0.2)
        with suppress(TimeoutError):
            while True:  # until the listener takes no more, because nobody takes what it answers
                lazy.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        server.close()
