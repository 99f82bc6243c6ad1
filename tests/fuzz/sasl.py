"""A client that has to authenticate, and any bytes from it: what `tests.fuzz.frames` promises holds, and nobody is let
in who knows no password.

    how u8: 0 in one piece, n < 64 in pieces of n bytes; +128 hung up at the end | what a peer sends
"""

import random
from collections.abc import Iterator

from broker.request.session import Peer, Session
from broker.runtime.worker_thread import WorkerThread
from broker.security.sasl.gate import SaslGate
from broker.security.sasl.mechanisms import SaslListener
from broker.security.sasl.scram import ScramHash
from config.oauthbearer import UnsecuredTokens
from config.sasl import MechanismSettings, SaslSettings
from protocol.headers import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.fuzz import frames
from tests.support.broker import InProcessBroker
from tests.support.scram_client import ScramClient
from tests.support.tokens import CLAIMS, first_message, unsigned

PACKAGES = ("broker", "protocol")
MOST_BYTES = 1500

_PASSWORD = random.Random(7).randbytes(30).hex()
"""Nothing that is sent has it in it, nor the scope that every token needs."""
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_TOKENS = UnsecuredTokens(subject_claim="sub", scope_claim="scope", required_scopes=(_PASSWORD,), clock_skew_ms=1 << 50)
_SETTINGS = SaslSettings(
    mechanisms={
        name: MechanismSettings(
            name, max_reauth_ms=1000, users={"alice": _PASSWORD}, tokens=_TOKENS if name == "OAUTHBEARER" else None
        )
        for name in _MECHANISMS
    },
    max_receive_bytes=1000,
    failure_delay_ms=0,
    timeout_ms=1000,
    token_secret_key=_PASSWORD,
)

_victim: frames.Victim | None = None


def _session(broker: InProcessBroker) -> Session:
    server = broker.server

    def no_thread(name: str) -> WorkerThread:
        raise AssertionError(f"nothing is fetched, but {name} was to be")

    listener = SaslListener(
        _SETTINGS, metadata=server.metadata, clock=broker.clock, random_bytes=bytes, make_worker=no_thread
    )
    peer = Peer(host="10.0.0.1", port=4711, listener="SASL")
    return Session(peer, is_authenticated=False, gate=SaslGate(listener))


def check(data: bytes) -> None:
    """Send ``data`` as its first byte says."""
    global _victim
    if not data:
        return
    if _victim is None:
        _victim = frames.Victim(_session)
    session = frames.attack(_victim, data)
    assert not session.is_authenticated, f"{session.principal} was let in"
    assert not session.is_plain


def seeds() -> Iterator[bytes]:
    """Logins that fail at their end, by every mechanism, with and without the heads of requests."""
    for mechanism in _MECHANISMS:
        for version in (0, 1):
            for tokens in _tokens_of(mechanism):
                how = (0, 7, frames.HANGS_UP)[len(tokens[0]) % 3]
                yield bytes([how]) + _login(mechanism, version, tokens)
    yield b"\0" + _login("GSSAPI", 1, [b"x"])
    yield b"\0" + _framed(encode_request(1, "fuzz", MetadataRequest(topics=None), 12)[4:])
    for size in (0, -1, 1001, 2**31 - 1, -(2**31)):
        yield b"\0" + size.to_bytes(4, signed=True) + b"rest"


def _tokens_of(mechanism: str) -> Iterator[list[bytes]]:
    if mechanism == "PLAIN":
        yield from ([b"\0alice\0wonder"], [b"root\0alice\0wonder"], [b"\0mallory\0x", b"\0alice\0x"], [b"alice"])
    elif mechanism == "OAUTHBEARER":
        token = first_message(unsigned({"alg": "none"}, dict(CLAIMS)))
        yield from ([token, b"\1"], [token, token], [first_message("a.b.c", "alice"), b"\1"])
    else:
        for extensions in ("", ",tokenauth=true", ",x=y"):
            client = ScramClient("alice", "wonder", ScramHash(mechanism), extensions=extensions)
            nonce = client.nonce + "a" * 32  # `bytes` is the source of chance
            server_first = f"r={nonce},s=c2FsdA==,i=4096".encode()
            yield [client.first(), client.final(server_first)]


def _login(mechanism: str, version: int, tokens: list[bytes]) -> bytes:
    versions = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
    requests = [
        encode_request(1, "fuzz", versions, 3)[4:],
        encode_request(2, "fuzz", SaslHandshakeRequest(mechanism=mechanism), version)[4:],
    ]
    if version:
        requests += [encode_request(3, "fuzz", SaslAuthenticateRequest(auth_bytes=token), 2)[4:] for token in tokens]
    else:
        requests += tokens
    return b"".join(map(_framed, requests))


def _framed(request: bytes) -> bytes:
    return len(request).to_bytes(4) + request
