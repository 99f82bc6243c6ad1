"""PLAIN, one token long. The words of a refusal are Kafka's."""

import hmac
from hmac import compare_digest

import pytest

from broker.security.sasl.exchange import AuthenticationFailed, Proven
from broker.security.sasl.plain import PlainExchange

USERS = {"alice": "wonder", "jürgen": "süß"}


def test_a_user_with_its_password_is_let_in() -> None:
    for token, user in (
        (b"\0alice\0wonder", "alice"),
        (b"alice\0alice\0wonder", "alice"),
        ("\0jürgen\0süß".encode(), "jürgen"),
    ):
        exchange = PlainExchange(USERS)
        assert exchange.respond(token) == b""
        assert exchange.proven == Proven(user)


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0wonder", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0wonder\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0wonder", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wonde", "Authentication failed: Invalid username or password"),
        (b"\0alice\0wonder\xff", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0wonder", "Authentication failed: Invalid username or password"),
        (b"\0user_alice\0wonder", "Authentication failed: Invalid username or password"),
        (
            b"root\0alice\0wonder",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_anything_else_is_refused(token: bytes, words: str) -> None:
    exchange = PlainExchange(USERS)
    with pytest.raises(AuthenticationFailed) as refused:
        exchange.respond(token)
    assert str(refused.value) == words
    assert exchange.proven is None


def test_what_is_compared_has_one_length_whatever_the_user_and_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a check tells nothing of the password, nor whether there is such a user."""
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare_digest(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for token in (b"\0alice\0w", b"\0alice\0wonde", b"\0alice\0" + b"w" * 1000, b"\0mallory\0wonder"):
        with pytest.raises(AuthenticationFailed):
            PlainExchange(USERS).respond(token)
    PlainExchange(USERS).respond(b"\0alice\0wonder")
    assert compared == [(32, 32)] * 5
