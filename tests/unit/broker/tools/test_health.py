"""`ottla health` against a broker that starts, serves and is gone: its output and its exit code."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.tools.health import main


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A metrics endpoint that says the same to whoever asks, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                assert connection.recv(4096).startswith(b"GET /readyz HTTP/1.1\r\n")
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def health(address: str) -> int:
    return main(["-o", f"ottla.prometheus.listener={address}"])


def test_a_broker_that_accepts_requests_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready\n") as address:
        assert health(address) == 0
    assert capsys.readouterr().out == "ready\n"


def test_a_broker_that_loads_logs_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = "loading logs: 12 of 340, 0 of 0 bytes checked"
    with answering(f"HTTP/1.1 503 Service Unavailable\r\n\r\n{text}\n".encode()) as address:
        assert health(address) == 1
    assert capsys.readouterr().out == f"{text}\n"


def test_something_else_on_the_port_is_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b"SSH-2.0-x\r\n") as address:
        assert health(address) == 1
    assert "no broker answers on 127.0.0.1:" in capsys.readouterr().out


def test_where_nobody_listens_nobody_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        # Every interface of this machine is asked on one of them.
        assert health(f":{port}") == 1
    assert capsys.readouterr().out.startswith(f"no broker answers on :{port}: ")


@pytest.mark.parametrize("address", ["", "127.0.0.1:0"])
def test_without_a_port_there_is_nobody_to_ask(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert health(address) == 1
    assert "ottla.prometheus.listener names no port" in capsys.readouterr().err


def test_settings_that_no_broker_could_have_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "num.partitons=3"]) == 1
    assert "did you mean num.partitions?" in capsys.readouterr().err
