"""LoginConnector: connections of a tool to a broker's listener, with TLS and SASL as the tool's settings have them."""

import asyncio
import secrets
import ssl
from typing import Final, TypeVar

from broker.peers.connector import CONNECT_TIMEOUT_MS, PeerTransport
from broker.peers.endpoint import PeerEndpoint
from broker.security.sasl.scram import ScramHash
from broker.security.sasl.scram_client import ScramClient
from config.client_login import PLAIN, ClientLogin, Sasl
from protocol.errors import ErrorCode, described
from protocol.headers import decode_response, encode_request
from protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from protocol.primitives import Malformed

Answer = TypeVar("Answer")

_CLIENT_ID: Final = "ottla"
_VERSION: Final = 1
"""Of both APIs: the first in which tokens are sent in requests."""
_LARGEST_ANSWER_BYTES: Final = 1 << 20


class LoginConnector:
    """A `Connector` whose connections begin with a login."""

    def __init__(self, login: ClientLogin) -> None:
        """Raises `Unusable` where a file of keys or certificates cannot be used."""
        self._sasl = login.sasl
        self._context: ssl.SSLContext | None = None
        if login.has_tls:
            from broker.security.tls.context import load_client  # most brokers are asked without TLS

            self._context = load_client(login.trust_store, login.key_store, checks_host=login.checks_host)

    async def connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> PeerTransport:
        """Part of `Connector`. Raises `OSError` where the broker is not reached, or refuses the login."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                return await self._connect(endpoint, receiver)
        except TimeoutError:
            raise TimeoutError(f"no connection within {CONNECT_TIMEOUT_MS} ms") from None
        except asyncio.IncompleteReadError:
            raise ConnectionError("it closed the connection during the login") from None

    async def _connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> PeerTransport:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: asyncio.StreamReaderProtocol(reader), endpoint.host, endpoint.port, ssl=self._context
        )
        try:
            if self._sasl is not None:
                await _authenticate(self._sasl, reader, transport)
        except BaseException:
            transport.abort()
            raise
        transport.set_protocol(receiver)
        receiver.connection_made(transport)
        return transport


async def _authenticate(sasl: Sasl, reader: asyncio.StreamReader, transport: asyncio.Transport) -> None:
    handshake = SaslHandshakeRequest(mechanism=sasl.mechanism)
    offered = await _ask(handshake, SaslHandshakeResponse, reader, transport)
    if offered.error_code != ErrorCode.NONE:
        names = ", ".join(offered.mechanisms) or "nothing"
        raise ConnectionError(f"it refuses the mechanism {sasl.mechanism}, and offers {names}")

    async def send(token: bytes) -> bytes:
        answer = await _ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, reader, transport)
        if answer.error_code != ErrorCode.NONE:
            reason = answer.error_message or described(answer.error_code)
            raise ConnectionError(f"it refuses the login of {sasl.user}: {reason}")
        return bytes(answer.auth_bytes)

    if sasl.mechanism == PLAIN:
        await send(f"\0{sasl.user}\0{sasl.password}".encode())
        return
    extensions = ",tokenauth=true" if sasl.is_token else ""
    client = ScramClient(
        sasl.user, sasl.password, ScramHash(sasl.mechanism), nonce=secrets.token_urlsafe(), extensions=extensions
    )
    server_first = await send(client.first())
    try:
        final = client.final(server_first)
    except ValueError as reason:
        raise ConnectionError(f"it does not follow {sasl.mechanism}: {reason}") from None
    if not client.believes(await send(final)):
        raise ConnectionError(f"it has not proved that it knows the password of {sasl.user}")


async def _ask(
    request: object, answer: type[Answer], reader: asyncio.StreamReader, transport: asyncio.Transport
) -> Answer:
    transport.write(encode_request(0, _CLIENT_ID, request, _VERSION))
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > _LARGEST_ANSWER_BYTES:
        raise ConnectionError(f"it sends {size} bytes during the login: is security.protocol right?")
    try:
        return decode_response(answer, _VERSION, await reader.readexactly(size))[1]
    except Malformed as problem:
        raise ConnectionError(f"it sends what is no answer during the login: {problem}") from None
