"""JwksSource: fetches a JWK set from a file or a URL, again and again, in a thread of its own."""

import http.client
import logging
import time
import urllib.request
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from broker.runtime.clock import Alarm, Clock
from broker.runtime.counted import counted
from broker.runtime.worker_thread import WorkerThread
from broker.security.sasl.signatures import KeySet, NoKeySet, read_key_set
from config.oauthbearer import SignedTokens

log = logging.getLogger(__name__)

MOST_BYTES: Final = 1 << 20
PATIENCE_S: Final = 5.0
"""How long one fetch may take."""

LEAST_BETWEEN_MS: Final = 10_000
"""Time between two fetches for tokens that no key has signed: clients choose the tokens."""

_PIECE_BYTES: Final = 1 << 16


class JwksSource:
    """The keys, as they were fetched the last time. Until the first fetch there are none, and no token is valid."""

    def __init__(
        self,
        settings: SignedTokens,
        *,
        clock: Clock,
        worker: WorkerThread,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        """``worker``: of this source alone, since a fetch blocks; ``fetch`` gets the bytes of a URL there."""
        self._settings = settings
        self._clock = clock
        self._worker = worker
        self._fetch = fetch or fetch_bytes
        self._keys: KeySet = ()
        self._alarm: Alarm | None = None
        self._is_fetching = False
        self._failures = 0
        self._fetched_ms: int | None = None
        """When the last fetch began (monotonic)."""
        self._is_stopped = False

    def current(self) -> KeySet:
        """The keys that there are at the moment."""
        return self._keys

    def start(self) -> None:
        """Fetch for the first time, and from now on."""
        self._begin()

    def look_again(self) -> None:
        """No key has signed a token: perhaps its key is new.

        Kafka fetches only for a name that no key has, and refuses a new key under a known name until the next refresh.
        """
        since_ms = self._fetched_ms
        if since_ms is None or self._clock.monotonic_ms() - since_ms >= LEAST_BETWEEN_MS:
            log.info("fetching %s, since none of its keys has signed a token", self._settings.jwks_url)
            self._begin()

    async def stop(self) -> None:
        """Fetch nothing more, and return when the fetch under way is over."""
        self._is_stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
        await self._worker.stop()

    def _begin(self) -> None:
        if self._is_fetching or self._is_stopped:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._is_fetching = True
        self._fetched_ms = self._clock.monotonic_ms()
        url, fetch = self._settings.jwks_url, self._fetch
        self._worker.submit(lambda: read_key_set(fetch(url)), self._fetched, self._failed)

    def _fetched(self, keys: KeySet) -> None:
        self._is_fetching = False
        self._failures = 0
        if len(keys) != len(self._keys):
            log.info("%s has %s for signatures of tokens", self._settings.jwks_url, counted(len(keys), "key"))
        self._keys = keys
        self._wait(self._settings.refresh_ms)

    def _failed(self, error: Exception) -> None:
        """The keys that there are stay valid."""
        self._is_fetching = False
        settings = self._settings
        pause_ms = min(settings.retry_backoff_ms << min(self._failures, 30), settings.retry_backoff_max_ms)
        self._failures += 1
        if not isinstance(error, OSError | NoKeySet):
            log.error("a fetch of %s met a bug", settings.jwks_url, exc_info=error)
        log.warning("%s could not be fetched, again in %d ms: %s", settings.jwks_url, pause_ms, error)
        self._wait(pause_ms)

    def _wait(self, after_ms: int) -> None:
        if not self._is_stopped:
            self._alarm = self._clock.call_at(self._clock.monotonic_ms() + after_ms, self._begin)


def fetch_bytes(url: str) -> bytes:
    """What stands at a URL, which may be a file's. Blocks for `PATIENCE_S` at most. Raises `OSError`, `NoKeySet`.

    Redirections are not followed, and no proxy is asked.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return _bounded(file.read(MOST_BYTES + 1))
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    deadline_s = time.monotonic() + PATIENCE_S
    received = b""
    try:
        with opener.open(url, timeout=PATIENCE_S) as answer:
            while piece := answer.read1(_PIECE_BYTES):
                received = _bounded(received + piece)
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"it takes longer than {PATIENCE_S:.0f} s")
    except http.client.HTTPException as error:
        raise OSError(f"what answers is no web server: {error!r}") from error
    return received


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise NoKeySet(f"it has more than {MOST_BYTES} bytes")
    return data
