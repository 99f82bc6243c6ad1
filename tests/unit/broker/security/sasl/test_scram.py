"""SCRAM, message by message."""

import base64

import pytest

from broker.security.sasl.exchange import AuthenticationFailed, InvalidCredentials, Proven
from broker.security.sasl.scram import Credential, ScramExchange, ScramHash, TokenCredential
from tests.support.scram_client import ScramClient, credential_of

EVERY_HASH = list(ScramHash)


class Known:
    """The credentials of alice, of a user whose name needs escapes, and of one token."""

    def __init__(self, hash_: ScramHash = ScramHash.SHA_256, iterations: int = 4096) -> None:
        alices = credential_of("wonder", hash_, iterations=iterations)
        self.users = {"alice": alices, "a=b,c": alices, "jürgen": alices}
        self.tokens = {"token-1": TokenCredential(credential_of("hmac", hash_), "alice", 99_000)}
        self._hash = hash_

    def of_user(self, user: str) -> Credential | None:
        return self.users.get(user)

    def of_token(self, token_id: str) -> TokenCredential | None:
        return self.tokens.get(token_id)

    def of_nobody(self, name: str) -> Credential:
        return credential_of("nobody's", self._hash, salt=name.encode())


def exchange_of(known: Known | None = None, hash_: ScramHash = ScramHash.SHA_256, nonce: str = "xyz") -> ScramExchange:
    return ScramExchange(hash_, known or Known(hash_), lambda: nonce)


def test_the_example_of_rfc_7677() -> None:
    known = Known()
    known.users["user"] = Credential(
        salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="),
        stored_key=base64.b64decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="),
        server_key=base64.b64decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="),
        iterations=4096,
    )
    exchange = exchange_of(known, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = exchange.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.proven == Proven("user")


@pytest.mark.parametrize("hash_", EVERY_HASH)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "jürgen"])
def test_a_user_with_its_password_is_let_in_and_knows_the_broker(user: str, hash_: ScramHash) -> None:
    exchange, client = exchange_of(hash_=hash_), ScramClient(user, "wonder", hash_)
    server_first = exchange.respond(client.first())
    assert exchange.proven is None
    assert client.believes(exchange.respond(client.final(server_first)))
    assert exchange.proven == Proven(user)


def test_a_token_lets_in_its_owner_until_it_expires() -> None:
    exchange = exchange_of()
    client = ScramClient("token-1", "hmac", ScramHash.SHA_256, extensions=",tokenauth=true")
    exchange.respond(client.final(exchange.respond(client.first())))
    assert exchange.proven == Proven("alice", 99_000, is_by_token=True)


@pytest.mark.parametrize("extensions", ["", ",tokenauth=false", ",xtokenauth=true"])
def test_a_token_is_no_user(extensions: str) -> None:
    exchange, client = exchange_of(), ScramClient("token-1", "hmac", ScramHash.SHA_256, extensions=extensions)
    server_first = exchange.respond(client.first())
    with pytest.raises(InvalidCredentials, match="the proof is wrong"):
        exchange.respond(client.final(server_first))


@pytest.mark.parametrize("hash_", EVERY_HASH)
@pytest.mark.parametrize(("user", "password"), [("alice", "wunder"), ("mallory", "wonder"), ("mallory", "nobody's")])
def test_a_wrong_password_and_a_wrong_name_look_alike(user: str, password: str, hash_: ScramHash) -> None:
    exchange, client = exchange_of(hash_=hash_), ScramClient(user, password, hash_)
    server_first = exchange.respond(client.first())
    assert server_first.endswith(b",i=4096")
    with pytest.raises(InvalidCredentials, match="the proof is wrong"):
        exchange.respond(client.final(server_first))
    assert exchange.proven is None


def test_a_client_that_was_told_fewer_iterations_by_somebody_between_is_refused() -> None:
    exchange, client = exchange_of(), ScramClient("alice", "wonder", ScramHash.SHA_256)
    server_first = exchange.respond(client.first())
    with pytest.raises(InvalidCredentials, match="the proof is wrong"):
        exchange.respond(client.final(server_first.replace(b"i=4096", b"i=1"), iterations=1))


def test_a_credential_with_too_few_iterations_is_not_used() -> None:
    exchange = exchange_of(Known(iterations=4095))
    with pytest.raises(InvalidCredentials, match="4095 iterations"):
        exchange.respond(b"n,,n=alice,r=abc")


def test_a_nonce_may_stand_behind_the_clients_own_once_more() -> None:
    """As librdkafka before 2.6.1 sends it."""
    exchange, client = exchange_of(), ScramClient("alice", "wonder", ScramHash.SHA_256)
    server_first = exchange.respond(client.first())
    assert client.believes(exchange.respond(client.final(server_first, nonce="abcabcxyz")))


@pytest.mark.parametrize("nonce", ["abc", "xyz", "abcxy", "abcxyzz", "xyzabc"])
def test_another_nonce_is_refused(nonce: str) -> None:
    exchange, client = exchange_of(), ScramClient("alice", "wonder", ScramHash.SHA_256)
    server_first = exchange.respond(client.first())
    with pytest.raises(InvalidCredentials, match="another nonce"):
        exchange.respond(client.final(server_first, nonce=nonce))


def test_to_be_another_user_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id that is different from username"):
        exchange_of().respond(b"n,a=bob,n=alice,r=abc")
    assert exchange_of().respond(b"n,a=alice,n=alice,r=abc").startswith(b"r=abcxyz,")


@pytest.mark.parametrize(
    "message",
    [
        *(
            b"",
            b"n,,",
            b"alice",
            b"n,,n=alice",
            b"n,,r=abc,n=alice",
            b"n,,n=,r=abc",
            b"n,,n=alice,r=",
            b"n,,n=alice,r=a b",
        ),
        *(b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc", b"n,,n=al=2cice,r=abc", b"n,,n=al\0ice,r=abc"),
        *(b"n,,n=alice,r=abc,", b"n,,n=alice,r=abc,x", b"n,,n=alice,r=abc,1=x", b"n,,n=alice,r=abc,x=", b"\xff\xfe"),
        b"n,,n=alice,r=" + b"a" * 5000,
    ],
)
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        exchange_of().respond(message)


@pytest.mark.parametrize(
    "message",
    [
        *(
            b"",
            b"c=biws",
            b"c=biws,r=abcxyz",
            b"c=biws,r=abcxyz,p=",
            b"r=abcxyz,c=biws,p=AAAA",
            b"c=biws,r=abcxyz,p=AAA",
        ),
        *(b"c=biws,r=abcxyz,p=AAAA", b"c=eSws,r=abcxyz,p=AAAA", b"c=biws,r=abcxyz,p=AAAA,x=y", b"\xff"),
        b"c=biws,r=abcxyz,p=" + b"A" * 44,
    ],
)
def test_what_is_no_last_message_is_refused(message: bytes) -> None:
    exchange = exchange_of()
    exchange.respond(b"n,,n=alice,r=abc")
    with pytest.raises(InvalidCredentials):
        exchange.respond(message)
    assert exchange.proven is None


@pytest.mark.parametrize("hash_", EVERY_HASH)
def test_no_message_cut_short_lets_in(hash_: ScramHash) -> None:
    client = ScramClient("alice", "wonder", hash_)
    final = client.final(exchange_of(hash_=hash_).respond(client.first()))
    for size in range(len(final)):
        exchange = exchange_of(hash_=hash_)
        exchange.respond(client.first())
        with pytest.raises(InvalidCredentials):
            exchange.respond(final[:size])
        assert exchange.proven is None
