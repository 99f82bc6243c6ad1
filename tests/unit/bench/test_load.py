"""The load generator sends what it was given, counts the answers, and notices wrong ones."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from bench.load import LoadFailed, run_load, run_paced

FRAME = (96).to_bytes(4, "big") + bytes(96)


class Server:
    """Answers every frame with `answer`, or closes the connection where that is None; counts the frames."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.frames = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream:
            while size := stream.read(4):
                body = stream.read(int.from_bytes(size, "big"))
                with self._lock:
                    self.frames += 1
                if (answer := self._answer(size + body)) is None:
                    return
                stream.write(answer)
                stream.flush()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Server]:
    server = Server(lambda frame: frame)
    yield server
    server.close()


@pytest.mark.parametrize(("connections", "in_flight", "requests"), [(1, 1, 1), (1, 1, 50), (3, 4, 1000), (2, 8, 5)])
def test_it_asks_exactly_as_often_as_it_was_told(echo: Server, connections: int, in_flight: int, requests: int) -> None:
    sample = run_load(echo.bootstrap, [FRAME] * connections, in_flight=in_flight, requests=requests, most_seconds=600)

    assert sample.requests == requests
    assert sample.received_bytes == sample.sent_bytes == requests * len(FRAME)
    assert echo.frames == requests + connections  # the first answer of each connection is not counted


def test_frames_larger_than_any_buffer_go_through_whole(echo: Server) -> None:
    large = (3_000_000).to_bytes(4, "big") + bytes(3_000_000)

    sample = run_load(echo.bootstrap, [large] * 2, in_flight=2, requests=20)

    assert sample.requests == 20
    assert sample.received_bytes == 20 * len(large)


def test_the_first_answer_is_shown_whole(echo: Server) -> None:
    seen: list[bytes] = []

    run_load(echo.bootstrap, [FRAME], in_flight=1, requests=1, check=seen.append)

    assert seen == [FRAME]


def test_a_closed_connection_is_not_taken_for_an_answer() -> None:
    server = Server(lambda frame: None)

    with pytest.raises(LoadFailed, match="closed the connection"):
        run_load(server.bootstrap, [FRAME], in_flight=1, requests=1)
    server.close()


def test_a_connection_closed_under_load_is_noticed() -> None:
    answers = iter([FRAME] * 10)
    server = Server(lambda frame: next(answers, None))

    with pytest.raises(LoadFailed, match="closed"):
        run_load(server.bootstrap, [FRAME], in_flight=2, requests=100)
    server.close()


def test_paced_requests_each_have_a_latency(echo: Server) -> None:
    latencies = run_paced(echo.bootstrap, [FRAME], rate=2_000, requests=100)

    assert len(latencies) == 100
    assert all(0 < latency < 5 for latency in latencies)
