"""Where the keys come from: fetched again and again, in a thread."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.manual_clock import ManualClock
from config.oauthbearer import SignedTokens
from tests.support.tokens import Issuer, key_set

pytest.importorskip("jwt", reason="PyJWT is an extra")

from broker.security.sasl.jwks import LEAST_BETWEEN_MS, MOST_BYTES, JwksSource, fetch_bytes
from broker.security.sasl.signatures import NoKeySet

SETTINGS = SignedTokens(
    jwks_url="https://issuer.example/keys",
    refresh_ms=60_000,
    retry_backoff_ms=100,
    retry_backoff_max_ms=1_000,
    issuer=None,
    audiences=(),
    clock_skew_s=0,
    scope_claim="scope",
    subject_claim="sub",
)


class AtOnce:
    """Stands for a worker thread: runs each job when it comes."""

    def __init__(self) -> None:
        self.is_stopped = False

    def submit(self, job: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - as a worker thread does
            failed(error)
        else:
            done(result)

    async def stop(self) -> None:
        self.is_stopped = True


class Fetched:
    """A source whose fetches the test answers."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.clock = ManualClock()
        self.worker = AtOnce()
        self.answers = list(answers)
        self.at_ms: list[int] = []
        self.source = JwksSource(SETTINGS, clock=self.clock, worker=self.worker, fetch=self._fetch)  # type: ignore[arg-type]
        self._began_ms = self.clock.monotonic_ms()
        self.source.start()

    def _fetch(self, url: str) -> bytes:
        assert url == SETTINGS.jwks_url
        self.at_ms.append(self.clock.monotonic_ms() - self._began_ms)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def key_ids(self) -> list[str | None]:
        return [key.key_id for key in self.source.current()]


@pytest.fixture(scope="module")
def sets() -> list[bytes]:
    """Three sets of one key each."""
    issuer = Issuer()
    return [key_set(issuer.jwk(kid=f"key-{number}")) for number in (1, 2, 3)]


def test_keys_are_fetched_at_once_and_again_when_they_are_old(sets: list[bytes]) -> None:
    it = Fetched(*sets)
    assert it.key_ids == ["key-1"]
    it.clock.advance(59_999)
    assert it.key_ids == ["key-1"]
    it.clock.advance(1)
    assert it.key_ids == ["key-2"]


def test_a_failure_is_tried_again_ever_more_slowly_and_the_keys_stay(sets: list[bytes]) -> None:
    it = Fetched(sets[0], OSError("refused"), OSError("refused"), b"no set", OSError("refused"), sets[1])
    it.clock.advance(60_000)
    assert it.key_ids == ["key-1"]
    it.clock.advance(1_500)
    assert it.at_ms == [0, 60_000, 60_100, 60_300, 60_700, 61_500]
    assert it.key_ids == ["key-2"]
    it.clock.advance(60_000)
    assert it.at_ms[-1] == 121_500


def test_without_an_answer_there_are_no_keys_and_the_pauses_stay_bounded() -> None:
    it = Fetched(OSError("refused"))
    it.clock.advance(100_000)
    assert it.key_ids == []
    assert max(after - before for before, after in zip(it.at_ms, it.at_ms[1:], strict=False)) == 1_000


def test_newer_keys_are_looked_for_but_not_at_any_rate(sets: list[bytes]) -> None:
    it = Fetched(*sets)
    for _ in range(100):
        it.source.look_again()
    assert it.key_ids == ["key-1"]
    it.clock.advance(LEAST_BETWEEN_MS)
    for _ in range(100):
        it.source.look_again()
    assert it.key_ids == ["key-2"]
    assert it.clock.alarms == 1


def test_after_the_end_nothing_is_fetched(sets: list[bytes]) -> None:
    it = Fetched(*sets)
    asyncio.run(it.source.stop())
    it.clock.advance(1_000_000)
    it.source.look_again()
    assert it.key_ids == ["key-1"]
    assert it.worker.is_stopped


# URLs


class Answers(BaseHTTPRequestHandler):
    """What a web server says, by path."""

    def do_GET(self) -> None:
        if self.path == "/redirected":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
        elif self.path == "/missing":
            self.send_error(404)
        elif self.path == "/garbage":
            self.wfile.write(b"\0\1\2\3\r\n\r\n")
        else:
            body = bytes(MOST_BYTES + 1) if self.path == "/large" else b'{"keys": []}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_set_comes_from_the_web_or_a_file(web: str, tmp_path: Path) -> None:
    assert fetch_bytes(f"{web}/keys") == b'{"keys": []}'
    path = tmp_path / "key set.json"
    path.write_bytes(b"{}")
    assert fetch_bytes(path.as_uri()) == b"{}"


@pytest.mark.parametrize(("path", "why"), [("redirected", "302"), ("missing", "404"), ("garbage", "no web server")])
def test_what_the_web_does_not_give_is_an_error(web: str, path: str, why: str) -> None:
    with pytest.raises(OSError, match=why):
        fetch_bytes(f"{web}/{path}")


def test_no_more_is_read_than_a_set_can_have(web: str, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(MOST_BYTES + 1))
    for url in (f"{web}/large", large.as_uri()):
        with pytest.raises(NoKeySet):
            fetch_bytes(url)


@pytest.mark.parametrize(
    ("url", "why"), [("file:///nowhere/keys", "No such file"), ("http://127.0.0.1:1/keys", "refused")]
)
def test_where_nothing_is_there_is_an_error(url: str, why: str) -> None:
    with pytest.raises(OSError, match=why):
        fetch_bytes(url)
