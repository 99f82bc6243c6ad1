"""Clients that authenticate by SASL: handshakes, tokens good and bad, and requests where none of them is due.

Sessions of PLAIN last an hour, those of SCRAM-SHA-512 a second, those of SCRAM-SHA-256 for ever, and those of
OAUTHBEARER as long as the token.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, Final

from broker.security.sasl.scram import ScramHash
from dev.apache_kafka import SASL_ABOVE
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.scram_credentials import AlterUserScramCredentialsRequest
from protocol.schema import describe
from tests.parity.connection import Connection
from tests.parity.exchange import Exchange
from tests.parity.scripts.alter_configs import BROKER, DELETE, SET, change
from tests.support.scram_client import ScramClient
from tests.support.tokens import first_message, unsigned

USERS: Final = {"broker": "secret", "alice": "wonder", "bob": "build"}
_OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer."
SETTINGS: Final = {
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl.oauthbearer.sasl.jaas.config": (
        f'{_OAUTHBEARER}OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    ),
    "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": (
        f"{_OAUTHBEARER}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    ),
    "listener.name.sasl.plain.connections.max.reauth.ms": "3600000",
    "listener.name.sasl.scram-sha-512.connections.max.reauth.ms": "1000",
    "listener.name.sasl.sasl.server.max.receive.size": "2000",
    "connection.failed.authentication.delay.ms": "0",
}

SHA_256, SHA_512 = ScramHash
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
HANDSHAKE_KEY, API_VERSIONS_KEY = 17, 18
ALICE: Final = b"\0alice\0wonder"
BOB: Final = b"\0bob\0build"
TOPICS: Final = MetadataRequest(topics=[], allow_auto_topic_creation=False)
VERSIONS: Final = ApiVersionsRequest(client_software_name="parity", client_software_version="1")

OTHER_REQUESTS: Final[Sequence[tuple[str, Any, int]]] = (
    ("a request", TOPICS, 12),
    ("a hello", VERSIONS, 3),
)


def handshake(mechanism: str = PLAIN) -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism=mechanism)


def token(auth_bytes: bytes) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=auth_bytes)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4) + payload


def run(exchange: Exchange) -> None:
    make_users(exchange)
    before_a_handshake(exchange)
    handshakes(exchange)
    where_a_token_is_due(exchange)
    tokens_of_plain(exchange)
    bare_tokens(exchange)
    tokens_of_scram(exchange)
    tokens_of_oauthbearer(exchange)
    behind_the_last_token(exchange)
    again(exchange)
    settings_of_a_running_broker(exchange)
    exchange.hold_time()
    again_at_once(exchange)
    when_the_session_is_over(exchange)


def make_users(exchange: Exchange) -> None:
    for number, hash_ in ((1, SHA_256), (2, SHA_512)):
        credential = AlterUserScramCredentialsRequest.Upsertion(
            name="alice",
            mechanism=number,
            iterations=4096,
            salt=b"salt",
            salted_password=hashlib.pbkdf2_hmac(hash_.digest, b"wonder", b"salt", 4096),
        )
        altered = AlterUserScramCredentialsRequest(deletions=[], upsertions=[credential])
        exchange.ask(f"by {hash_.value}", altered, 0)
    exchange.create_topic("orders")  # a broker that knows it knows the users, too


def stranger(exchange: Exchange) -> Connection:
    """A connection that has not said anything."""
    return exchange.connect(exchange.broker.port + SASL_ABOVE)


def shaken(exchange: Exchange, mechanism: str = PLAIN, version: int = 1) -> Connection:
    """A connection whose next message is a token."""
    connection = stranger(exchange)
    exchange.ask(None, handshake(mechanism), version, over=connection)
    return connection


def logged_in(exchange: Exchange, auth_bytes: bytes = ALICE) -> Connection:
    connection = shaken(exchange)
    exchange.ask(None, token(auth_bytes), 2, over=connection)
    return connection


def then(exchange: Exchange, step: str, over: Connection) -> None:
    """Whether the connection is served now, or closed."""
    exchange.ask(f"{step}: then", TOPICS, 12, over=over)


def versions_of(request: Any) -> range:
    first, last = describe(type(request)).versions
    return range(first, last + 1)


def before_a_handshake(exchange: Exchange) -> None:
    for request in (token(ALICE), TOPICS):
        for version in versions_of(request):
            exchange.ask("before a handshake", request, version, over=stranger(exchange))
    for version in versions_of(VERSIONS):
        over = stranger(exchange)
        exchange.ask("a hello", VERSIONS, version, over=over)
        exchange.ask(f"a hello in version {version}, then a handshake", handshake(), 1, over=over)
        over = stranger(exchange)
        exchange.ask(None, VERSIONS, version, over=over)
        exchange.ask("a second hello", VERSIONS, version, over=over)
    over = stranger(exchange)
    exchange.ask(None, VERSIONS, 3, over=over)
    then(exchange, "a hello", over)
    over = stranger(exchange)
    exchange.ask(
        "a hello of no name", ApiVersionsRequest(client_software_name=" ", client_software_version=""), 3, over=over
    )
    exchange.ask("a hello of no name, then a handshake", handshake(), 1, over=over)
    over = stranger(exchange)
    unknown = b"\0\x12\0\x63\0\0\0\7\0\4test\0"
    exchange.send_bytes("a hello in version 99", framed(unknown), api=API_VERSIONS_KEY, over=over)
    exchange.ask("a hello in version 99, then a hello", VERSIONS, 0, over=over)
    exchange.ask("two hellos, then a handshake", handshake(), 1, over=over)
    for what, data in {
        "no bytes": framed(b""),
        "a byte": framed(b"\0"),
        "a size of -1": b"\xff\xff\xff\xff",
        "bytes that are no request": framed(b"\1\2\3\4\5\6\7\x08\x09"),
        "one byte too many": framed(b"\0\x12\0\0\0\0\0\7\xff\xff" + bytes(1991)),
        "the first token of Kerberos": framed(b"\x60\x82\1\0\6\x09"),
    }.items():
        exchange.send_bytes(what, data, api=API_VERSIONS_KEY, over=stranger(exchange))
    largest = framed(b"\0\x12\0\0\0\0\0\7\xff\xff" + bytes(1990))
    answer = (ApiVersionsResponse, 0)
    exchange.send_bytes("the largest size", largest, api=API_VERSIONS_KEY, answer=answer, over=stranger(exchange))


def handshakes(exchange: Exchange) -> None:
    for mechanism in (PLAIN, SHA_256.value, SHA_512.value, OAUTHBEARER, "GSSAPI", "plain", "BOGUS", ""):
        for version in (0, 1):
            exchange.ask(f"the mechanism {mechanism!r}", handshake(mechanism), version, over=stranger(exchange))
    over = stranger(exchange)
    exchange.ask(None, handshake("BOGUS"), 1, over=over)
    exchange.ask("a known mechanism behind an unknown", handshake(), 1, over=over)
    for version in (-1, 2):
        data = b"\0\x11" + version.to_bytes(2, signed=True) + b"\0\0\0\7\0\4test\0\5PLAIN"
        exchange.send_bytes(f"version {version}", framed(data), api=HANDSHAKE_KEY, over=stranger(exchange))
    for what, body in {"no mechanism": b"", "null": b"\xff\xff", "a byte behind it": b"\0\5PLAIN\0"}.items():
        data = b"\0\x11\0\1\0\0\0\7\0\4test" + body
        exchange.send_bytes(what, framed(data), api=HANDSHAKE_KEY, over=stranger(exchange))


def where_a_token_is_due(exchange: Exchange) -> None:
    for what, request, version in (*OTHER_REQUESTS, ("a handshake", handshake(), 1)):
        over = shaken(exchange)
        step = f"{what} where a token is due"
        exchange.ask(step, request, version, over=over)
        then(exchange, step, over)
        over = shaken(exchange, SHA_256.value)
        exchange.ask(None, token(ScramClient("alice", "wonder", SHA_256).first()), 2, over=over)
        exchange.ask(f"{what} between two tokens", request, version, over=over)
    over = shaken(exchange)
    exchange.send_bytes("no request where a token is due", framed(ALICE), api=API_VERSIONS_KEY, over=over)
    over = shaken(exchange)
    unknown = b"\0\x24\0\x63\0\0\0\7\0\4test\0"
    exchange.send_bytes("a token in version 99", framed(unknown), api=36, over=over)


def tokens_of_plain(exchange: Exchange) -> None:
    for version in versions_of(token(ALICE)):
        over = shaken(exchange)
        exchange.ask("the right password", token(ALICE), version, over=over)
        then(exchange, f"the right password, v{version}", over)
        over = shaken(exchange)
        exchange.ask("a wrong password", token(b"\0alice\0wunder"), version, over=over)
        then(exchange, f"a wrong password, v{version}", over)
    for what, auth_bytes in {
        "nothing": b"",
        "a name that nobody has": b"\0carol\0wonder",
        "no name": b"\0\0wonder",
        "no password": b"\0alice\0",
        "oneself to be": b"alice\0alice\0wonder",
        "another to be": b"bob\0alice\0wonder",
        "two parts": b"alice\0wonder",
        "four parts": b"\0alice\0wonder\0",
        "no UTF-8": b"\0alice\0\xff\xfe",
        "a name that is no UTF-8": b"\0\xff\xfe\0wonder",
        "another's password": b"\0alice\0build",
        "the name in capitals": b"\0ALICE\0wonder",
    }.items():
        over = shaken(exchange)
        exchange.ask(what, token(auth_bytes), 2, over=over)
        then(exchange, what, over)


def bare_tokens(exchange: Exchange) -> None:
    for what, data in {
        "a bare token": ALICE,
        "a bare token with a wrong password": b"\0alice\0wunder",
        "no bare token": b"",
        "a request instead of a bare token": exchange.frame(token(ALICE), 0)[4:],
    }.items():
        over = shaken(exchange, version=0)
        exchange.send_bytes(what, framed(data), api=36, over=over)
        then(exchange, what, over)


def tokens_of_scram(exchange: Exchange) -> None:
    for hash_ in ScramHash:
        name = hash_.value
        for version in versions_of(token(b"")):
            scram(exchange, f"{name}: the right password", ScramClient("alice", "wonder", hash_), version)
        scram(exchange, f"{name}: a wrong password", ScramClient("alice", "wunder", hash_))
        scram(exchange, f"{name}: a name that nobody has", ScramClient("carol", "wonder", hash_))
        scram(exchange, f"{name}: a token's name", ScramClient("alice", "wonder", hash_, extensions=",tokenauth=true"))
    for what, message in {
        "nothing": b"",
        "no head": b"n=alice,r=abc",
        "channel binding": b"p=tls-unique,,n=alice,r=abc",
        "binding that the server may lack": b"y,,n=alice,r=abc",
        "oneself to be": b"n,a=alice,n=alice,r=abc",
        "another to be": b"n,a=bob,n=alice,r=abc",
        "no nonce": b"n,,n=alice,r=",
        "no name": b"n,,n=,r=abc",
        "an extension": b"n,,n=alice,r=abc,x=y",
        "an extension that must be understood": b"n,,m=x,n=alice,r=abc",
        "a name with an escape that there is not": b"n,,n=al=30ice,r=abc",
        "no UTF-8": b"n,,n=\xff\xfe,r=abc",
    }.items():
        over = shaken(exchange, SHA_256.value)
        exchange.ask(f"a first message with {what}", token(message), 2, over=over)
    for what in ("nothing", "another nonce", "the nonce twice", "no proof", "half a proof", "another head"):
        client = ScramClient("alice", "wonder", SHA_256)
        over = shaken(exchange, SHA_256.value)
        first = exchange.ask(None, token(client.first()), 2, over=over)
        told = bytes(first.auth_bytes)
        whole = client.final(told)
        unproved, _, proof = whole.rpartition(b",p=")
        nonce = told.partition(b",")[0].removeprefix(b"r=")
        message = {
            "nothing": b"",
            "another nonce": client.final(told, nonce="abc"),
            "the nonce twice": client.final(told, nonce=f"abc{nonce.decode()}"),
            "no proof": unproved,
            "half a proof": unproved + b",p=" + proof[:20],
            "another head": whole.replace(b"c=biws", b"c=eSws"),
        }[what]
        exchange.ask(f"a last message with {what}", token(message), 2, over=over)


def scram(exchange: Exchange, step: str, client: ScramClient, version: int = 2) -> None:
    """Both messages of a client."""
    over = shaken(exchange, step.partition(":")[0])
    first = exchange.ask(f"{step}, first", token(client.first()), version, over=over)
    if first is not None and not first.error_code:
        exchange.ask(f"{step}, last", token(client.final(bytes(first.auth_bytes))), version, over=over)


def tokens_of_oauthbearer(exchange: Exchange) -> None:
    now_s = int(time.time())
    claims = {"sub": "alice", "iat": now_s, "exp": now_s + 3600}
    good = unsigned({"alg": "none"}, claims)
    for version in versions_of(token(b"")):
        over = shaken(exchange, OAUTHBEARER)
        exchange.ask("a token of OAUTHBEARER", token(first_message(good)), version, over=over)
    for what, message in {
        "that has expired": first_message(unsigned({"alg": "none"}, {**claims, "exp": now_s - 60})),
        "without an end": first_message(unsigned({"alg": "none"}, {"sub": "alice", "iat": now_s})),
        "without a name": first_message(unsigned({"alg": "none"}, {"iat": now_s, "exp": now_s + 3600})),
        "of RS256": first_message(unsigned({"alg": "RS256"}, claims)),
        "of two parts": first_message("a.b"),
        "for another": first_message(good, "bob"),
        "for oneself": first_message(good, "alice"),
        "of another scheme": first_message(good).replace(b"Bearer", b"Basic"),
        "that is not there": b"",
    }.items():
        over = shaken(exchange, OAUTHBEARER)
        answer = exchange.ask(f"a token of OAUTHBEARER {what}", token(message), 2, over=over)
        if answer is not None and not answer.error_code and not answer.session_lifetime_ms:
            exchange.ask(f"a token of OAUTHBEARER {what}, then its end", token(b"\1"), 2, over=over)
            then(exchange, f"a token of OAUTHBEARER {what}", over)


def behind_the_last_token(exchange: Exchange) -> None:
    over = logged_in(exchange)
    for version in versions_of(token(b"")):
        exchange.ask("a token behind the last", token(ALICE), version, over=over)
    exchange.ask("a hello behind the last token", VERSIONS, 3, over=over)
    over = shaken(exchange, SHA_256.value)
    client = ScramClient("alice", "wonder", SHA_256)
    first = exchange.ask(None, token(client.first()), 2, over=over)
    exchange.ask(None, token(client.final(bytes(first.auth_bytes))), 2, over=over)
    for version in (0, 1):
        exchange.ask("a handshake in a session without an end", handshake(SHA_256.value), version, over=over)
    then(exchange, "a handshake in a session without an end", over)


def again(exchange: Exchange) -> None:
    for what, auth_bytes in {
        "as the same": ALICE,
        "as another": BOB,
        "with a wrong password": b"\0alice\0wunder",
        "with nothing": b"",
    }.items():
        over = logged_in(exchange)
        exchange.ask(f"again {what}", handshake(), 1, over=over)
        exchange.ask(f"again {what}", token(auth_bytes), 2, over=over)
        then(exchange, f"again {what}", over)
    over = logged_in(exchange)
    exchange.ask("again by an unknown mechanism", handshake("BOGUS"), 1, over=over)
    then(exchange, "again by an unknown mechanism", over)
    over = logged_in(exchange)
    exchange.ask("again by another mechanism", handshake(SHA_256.value), 1, over=over)
    first = ScramClient("alice", "wonder", SHA_256).first()
    exchange.ask("again by another mechanism", token(first), 2, over=over)
    for what, request, version in (*OTHER_REQUESTS, ("a handshake", handshake(), 1)):
        over = logged_in(exchange)
        exchange.ask(None, handshake(), 1, over=over)
        step = f"{what} where a token is due, again"
        exchange.ask(step, request, version, over=over)
        then(exchange, step, over)
    over = logged_in(exchange)
    exchange.ask("again by bare tokens", handshake(), 0, over=over)
    exchange.send_bytes("again by bare tokens", framed(ALICE), api=36, over=over)
    then(exchange, "again by bare tokens", over)


def settings_of_a_running_broker(exchange: Exchange) -> None:
    """What of SASL may be changed, and whether it counts for the listener that there is."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="other";'
    for name, value in (
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.jaas.config", jaas),
        ("plain.sasl.jaas.config", jaas),
        ("connections.max.reauth.ms", "5000"),
        ("sasl.server.max.receive.size", "100"),
        ("listener.name.sasl.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.sasl.sasl.jaas.config", jaas),
        ("listener.name.sasl.plain.sasl.jaas.config", jaas),
        ("listener.name.sasl.connections.max.reauth.ms", "5000"),
        ("listener.name.sasl.plain.connections.max.reauth.ms", "5000"),
        ("listener.name.sasl.plain.connections.max.reauth.ms", "3600000"),
        ("listener.name.sasl.plain.connections.max.reauth.ms", "x"),
        ("listener.name.sasl.sasl.server.max.receive.size", "100"),
        ("listener.name.sasl.plain.sasl.server.callback.handler.class", "x"),
        ("listener.name.sasl.principal.builder.class", "x"),
        ("listener.name.nope.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.nope.plain.sasl.jaas.config", jaas),
    ):
        set_to = f"{name}={value.partition(' ')[0]}"
        for what, broker in (("all brokers", ""), ("a broker", "1")):
            request = change((BROKER, broker, [(name, SET, value)]))
            answer = exchange.ask(f"{set_to} of {what}", request, 1)
            if answer is not None and not answer.responses[0].error_code:
                exchange.create_topic(f"after-{len(exchange.answered)}")  # a broker that knows it knows the change
                over = shaken(exchange)
                exchange.ask(f"{set_to} of {what}: then", token(ALICE), 2, over=over)
                exchange.ask(None, change((BROKER, broker, [(name, DELETE, None)])), 1)


def again_at_once(exchange: Exchange) -> None:
    over = logged_in(exchange)
    exchange.ask(None, handshake(), 1, over=over)
    exchange.ask(None, token(ALICE), 2, over=over)
    for mechanism in (PLAIN, "BOGUS"):
        exchange.ask(f"a third time by {mechanism}, at once", handshake(mechanism), 1, over=over)
    then(exchange, "a third time, at once", over)


def when_the_session_is_over(exchange: Exchange) -> None:
    for what, request, version in (("a request", TOPICS, 12), ("a hello", VERSIONS, 3), ("a token", token(b"x"), 2)):
        over = with_a_session_of_a_second(exchange)
        exchange.ask(f"{what} when the session is over", request, version, over=over)
    over = with_a_session_of_a_second(exchange)
    exchange.ask("when the session is over", handshake(SHA_512.value), 1, over=over)
    client = ScramClient("alice", "wonder", SHA_512)
    first = exchange.ask("when the session is over, first", token(client.first()), 2, over=over)
    exchange.ask("when the session is over, last", token(client.final(bytes(first.auth_bytes))), 2, over=over)
    then(exchange, "again when the session is over", over)


def with_a_session_of_a_second(exchange: Exchange) -> Connection:
    """A connection whose session has just ended."""
    client = ScramClient("alice", "wonder", SHA_512)
    over = shaken(exchange, SHA_512.value)
    first = exchange.ask(None, token(client.first()), 2, over=over)
    exchange.ask(None, token(client.final(bytes(first.auth_bytes))), 2, over=over)
    exchange.await_time(1100)
    return over
