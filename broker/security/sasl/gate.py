"""SaslGate: the states of a connection on a SASL listener, as Kafka has them (KIP-43, KIP-152, KIP-368).

    HELLO ── ApiVersions ── HANDSHAKE ── SaslHandshake v1 ── TOKENS ── SaslAuthenticate, the last ── OPEN
      └──────────────────────────────── SaslHandshake v0 ── RAW_TOKENS ── bare token, the last ────── OPEN

    OPEN ── the session's time is over ── EXPIRED        only SaslHandshake is served, all else closes
    OPEN, EXPIRED ── SaslHandshake ── TOKENS             the same client by the same mechanism, or it closes

A failure is answered late, by `connection.failed.authentication.delay.ms`, and the answer is the connection's last.
"""

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NoReturn

from broker.request.context import RequestContext
from broker.request.faults import IllegalSaslState
from broker.request.gate import GatedConnection
from broker.request.response import ResponseSlot
from broker.request.stats import AuthenticationStats
from broker.runtime.clock import Alarm
from broker.security.sasl.exchange import AuthenticationFailed, Exchange, InvalidCredentials, Proven
from broker.security.sasl.mechanisms import SaslListener
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

log = logging.getLogger(__name__)

LEAST_BETWEEN_MS: Final = 1_000
"""A client authenticates again once in so long, as in Kafka."""

_API_KEYS: Final = frozenset(ApiKey)
_PRINCIPAL: Final = "User:"
_KEY_BYTES: Final = 2
_LIFETIME_SINCE_VERSION: Final = 1
"""SaslAuthenticate since then tells the client how long its session lasts."""
_US_PER_MS: Final = 1000


class State(Enum):
    """What the client has to send next."""

    HELLO = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    OPEN = auto()
    EXPIRED = auto()
    FAILED = auto()


class SaslGate:
    """The `Gate` of one connection."""

    def __init__(self, listener: SaslListener) -> None:
        self.most_bytes = listener.settings.max_receive_bytes
        self.state = State.HELLO
        self._listener = listener
        self._clock = listener.clock
        self._connection: GatedConnection | None = None
        self._stats = AuthenticationStats()
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._user: str | None = None
        """The user that the client has proved to be; None until then."""
        self._alarm: Alarm | None = None
        """The end of the time to authenticate, or of the session."""
        self._has_lifetime = False
        self._again_since_ms: int | None = None
        """When the client began to authenticate again the last time (monotonic)."""

    # Gate

    def begin(self, connection: GatedConnection) -> None:
        """See `Gate`. The client has `ottla.authentication.timeout.ms` from now on."""
        self._connection = connection
        self._stats = connection.authentication_stats
        self._alarm = self._call_in(self._listener.settings.timeout_ms, self._too_late)

    def close(self) -> None:
        """See `Gate`."""
        self._cancel()
        self._connection = None
        self._exchange = None

    def take(self, slot: ResponseSlot) -> bool:
        """See `Gate`."""
        state = self.state
        if state is State.RAW_TOKENS:
            self._take_raw(slot)
            return True
        key = int.from_bytes(slot.frame[:_KEY_BYTES]) if len(slot.frame) >= _KEY_BYTES else None
        version = int.from_bytes(slot.frame[_KEY_BYTES : 2 * _KEY_BYTES], signed=True)
        if slot.size > self.most_bytes:
            slot.close_connection(f"its request of {slot.size} bytes is too large before authentication")
        elif state is State.FAILED:
            slot.close_connection("its authentication has failed")
        elif state is State.EXPIRED and key != ApiKey.SASL_HANDSHAKE:
            self._stats.sessions_expired += 1
            slot.close_connection("its session is over, and it has not authenticated again")
        elif state is State.TOKENS and not _is_served(key, version):
            slot.close_connection(f"API {key} in version {version} is not served during authentication")
        elif state is State.HELLO and key == ApiKey.API_VERSIONS:
            if _is_served(key, version):
                self.state = State.HANDSHAKE
            return False
        elif state in (State.HELLO, State.HANDSHAKE) and not (
            key == ApiKey.SASL_HANDSHAKE and _is_served(key, version)
        ):
            self._stats.failures += 1
            slot.close_connection(f"API {key} in version {version} is not served before authentication")
        else:
            return False
        return True

    def admit(self, api_key: int, context: RequestContext) -> None:
        """See `Gate`: between handshake and last token there are tokens only."""
        if self.state is State.TOKENS and api_key != ApiKey.SASL_AUTHENTICATE:
            self._count_failure()
            self.state = State.FAILED
            context.slot.close_behind(f"it has sent API {api_key} where a token was due")
            raise IllegalSaslState(
                f"Unexpected Kafka request of type {ApiKey(api_key).name} during SASL authentication."
            )

    def handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        """See `Gate`."""
        if self._user is not None:
            self._begin_again()
        mechanisms = list(self._listener.settings.mechanisms)
        exchange = self._listener.exchange(request.mechanism)
        if exchange is None:
            self._count_failure()
            self.state = State.FAILED
            context.slot.close_behind(f"the listener {context.peer.listener} has no such SASL mechanism")
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
        if self._user is not None and request.mechanism != self._mechanism:
            exchange = _Changed(self._mechanism, request.mechanism)
        else:
            self._mechanism = request.mechanism
        self._exchange = exchange
        self.state = State.TOKENS if context.api_version else State.RAW_TOKENS
        return SaslHandshakeResponse(mechanisms=mechanisms)

    def authenticate(
        self, request: SaslAuthenticateRequest, context: RequestContext
    ) -> SaslAuthenticateResponse | None:
        """See `Gate`."""
        if self._exchange is None:
            # The words are Kafka's.
            raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
        self._has_lifetime |= context.api_version >= _LIFETIME_SINCE_VERSION
        try:
            answer = self._respond(self._exchange, bytes(request.auth_bytes))
        except _Closes as reason:
            context.close_connection(str(reason))
            return None
        except AuthenticationFailed as failure:
            message = str(failure)
            context.slot.close_behind(f"{self._mechanism}: {message}")
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message, auth_bytes=b""
            )
            self._call_in(self._listener.settings.failure_delay_ms, lambda: context.respond(response))
            return None
        lifetime_ms = 0 if self._exchange.proven is None else self._open(context.slot, self._exchange.proven)
        return SaslAuthenticateResponse(error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms)

    # Tokens

    def _take_raw(self, slot: ResponseSlot) -> None:
        """A token without the head of a request, as clients send them behind SaslHandshake v0."""
        exchange = self._exchange
        assert exchange is not None, "a handshake comes before a token"
        try:
            answer = self._respond(exchange, bytes(slot.frame))
        except (AuthenticationFailed, _Closes) as failure:
            reason = f"{self._mechanism}: {failure}"
            self._call_in(self._listener.settings.failure_delay_ms, lambda: slot.close_connection(reason))
            return
        if exchange.proven is not None:
            self._open(slot, exchange.proven)
        slot.fill([len(answer).to_bytes(4) + answer])

    def _respond(self, exchange: Exchange, token: bytes) -> bytes:
        """The answer to a token. Raises `AuthenticationFailed`, with what the client may know, and `_Closes`."""
        try:
            answer = exchange.respond(token)
            if exchange.proven is not None and self._user not in (None, exchange.proven.user):
                raise AuthenticationFailed(
                    "Cannot change principals during re-authentication from "
                    f"User.{self._user}: User.{exchange.proven.user}"
                )
        except InvalidCredentials as reason:
            log.debug("Credentials by %s: %s", self._mechanism, reason)
            self._fail(
                f"Authentication failed during {'' if self._user is None else 're-'}authentication "
                f"due to invalid credentials with SASL mechanism {self._mechanism}"
            )
        except AuthenticationFailed as failure:
            self._fail(str(failure))
        except _Closes:
            self._count_failure()
            self.state = State.FAILED
            raise
        return answer

    def _fail(self, message: str) -> NoReturn:
        self._count_failure()
        self.state = State.FAILED
        self._exchange = None
        raise AuthenticationFailed(message)

    def _open(self, slot: ResponseSlot, proven: Proven) -> int:
        """The client is who it says: let its requests through. Returns how long the session lasts, 0 for ever."""
        stats = self._stats
        if self._user is None:
            stats.successes += 1
            if not self._has_lifetime:
                stats.successes_without_lifetime += 1
        else:
            assert self._again_since_ms is not None, "it has begun to authenticate again"
            stats.successes_again += 1
            stats.us_again += (self._clock.monotonic_ms() - self._again_since_ms) * _US_PER_MS
        self._exchange = None
        self._user = proven.user
        self._cancel()
        self.state = State.OPEN
        slot.session.authenticate(_PRINCIPAL + proven.user, is_by_token=proven.is_by_token)
        if self._connection is not None:
            self._connection.authenticated()
        lifetimes_ms = []
        if proven.expires_at_ms is not None:
            lifetimes_ms.append(max(proven.expires_at_ms - self._clock.now_ms(), 0))
        if max_reauth_ms := self._listener.max_reauth_ms(self._mechanism):
            lifetimes_ms.append(max_reauth_ms)
        if not lifetimes_ms:
            return 0
        if self._connection is not None:
            self._alarm = self._call_in(min(lifetimes_ms), self._expire)
        return min(lifetimes_ms)

    # Authenticating again

    def _begin_again(self) -> None:
        """Raises `IllegalSaslState`: the session has no end, or the client has authenticated a moment ago."""
        now_ms = self._clock.monotonic_ms()
        if self._alarm is None and self.state is not State.EXPIRED:
            raise IllegalSaslState("the session of this connection does not end: nothing is to be authenticated again")
        if self._again_since_ms is not None and now_ms - self._again_since_ms < LEAST_BETWEEN_MS:
            raise IllegalSaslState(f"a connection authenticates again once in {LEAST_BETWEEN_MS} ms at most")
        self._again_since_ms = now_ms
        if self._connection is not None:
            self._connection.session.ask_the_gate()

    def _expire(self) -> None:
        """The session is over. The connection stays until its next request, which closes it if it is no handshake."""
        self._alarm = None
        if self.state is State.OPEN:
            self.state = State.EXPIRED
            if self._connection is not None:
                self._connection.session.ask_the_gate()

    def _too_late(self) -> None:
        self._alarm = None
        connection = self._connection
        if connection is not None:
            log.info(
                "Closing %s: it has not authenticated in %d ms (ottla.authentication.timeout.ms)",
                connection.session.peer,
                self._listener.settings.timeout_ms,
            )
            self._stats.failures += 1
            connection.close()

    # Counting, and time

    def _count_failure(self) -> None:
        if self._user is None:
            self._stats.failures += 1
        else:
            self._stats.failures_again += 1

    def _call_in(self, after_ms: int, callback: Callable[[], None]) -> Alarm:
        return self._clock.call_at(self._clock.monotonic_ms() + after_ms, callback)

    def _cancel(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class _Closes(Exception):
    """A token that is answered by closing, at once and without a word."""


class _Changed:
    """The exchange of a client that authenticates again by another mechanism: Kafka closes with its first token."""

    def __init__(self, before: str, now: str) -> None:
        self._reason = f"it authenticated by {before}, and now again by {now}"
        self.proven: Proven | None = None

    def respond(self, token: bytes) -> bytes:
        """Raises `_Closes`."""
        raise _Closes(self._reason)


def _is_served(key: int | None, version: int) -> bool:
    """Whether there is such an API in this version."""
    if key not in _API_KEYS:
        return False
    first, last = ApiKey(key).versions
    return first <= version <= last
