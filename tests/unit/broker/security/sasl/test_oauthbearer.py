"""OAUTHBEARER's messages, and tokens without a signature."""

from typing import Any

import pytest

from broker.security.sasl.exchange import AuthenticationFailed, InvalidCredentials, Proven
from broker.security.sasl.jwt import UnsecuredValidator
from broker.security.sasl.oauthbearer import InvalidToken, OAuthBearerExchange
from tests.support.tokens import CLAIMS, NOW_S, first_message, part, unsigned

NONE = {"alg": "none"}


def validator(**changed: Any) -> UnsecuredValidator:
    settings = {"subject_claim": "sub", "scope_claim": "scope", "required_scopes": (), "skew_ms": 0}
    return UnsecuredValidator(lambda: NOW_S * 1000, **{**settings, **changed})


def exchange() -> OAuthBearerExchange:
    return OAuthBearerExchange(validator())


def claims(**changed: Any) -> dict[str, Any]:
    """``CLAIMS`` with changes; None leaves a claim out."""
    return {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}


@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_a_token_lets_in_until_it_expires(authorization_id: str) -> None:
    one = exchange()
    assert one.respond(first_message(unsigned(NONE, CLAIMS), authorization_id)) == b""
    assert one.proven == Proven("alice", (NOW_S + 600) * 1000)


def test_further_keys_of_the_message_are_passed_over() -> None:
    token = unsigned(NONE, CLAIMS)
    one = exchange()
    one.respond(f"n,,\1traceId=1 2\1auth=bearer {token}\1other=x\1\1".encode())
    assert one.proven is not None


def test_a_refused_token_is_explained_and_fails_when_the_client_has_heard() -> None:
    one = exchange()
    assert one.respond(first_message(unsigned(NONE, claims(exp=NOW_S)))) == b'{"status":"invalid_token"}'
    assert one.proven is None
    with pytest.raises(AuthenticationFailed) as refused:
        one.respond(b"\1")
    assert str(refused.value) == '{"status":"invalid_token"}'


def test_no_second_token_is_tried() -> None:
    one = exchange()
    one.respond(first_message(unsigned(NONE, claims(exp=NOW_S))))
    with pytest.raises(InvalidCredentials):
        one.respond(first_message(unsigned(NONE, CLAIMS)))
    assert one.proven is None


def test_to_be_another_user_than_the_token_says_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match=r"authorization id \(bob\) that is different from the token's"):
        exchange().respond(first_message(unsigned(NONE, CLAIMS), "bob"))


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"\1", b"n,,\1\1", b"n,,auth=Bearer x\1\1", b"y,,\1auth=Bearer x\1\1", b"n,,\1auth=Bearer x\1"),
        *(b"n,,\1auth=Basic x\1\1", b"n,,\1auth=Bearer \1\1", b"n,,\1auth=Bearer x y\1\1", b"n,,\1other=x\1\1"),
        *(b"n,a=,\1auth=Bearer x\1\1", b"\xff\xff", b"n,,\1" + b"a=b\1" * 10_000),
    ],
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        exchange().respond(message)


@pytest.mark.parametrize(
    "token",
    [
        *("", "x", "..", "a.b", "a.b.c.d", "!.!.!"),
        unsigned({"alg": "None"}, CLAIMS),
        unsigned({}, CLAIMS),
        unsigned([], CLAIMS),
        unsigned(NONE, [CLAIMS]),
        unsigned(NONE, b"{"),
        unsigned(NONE, b"\xff"),
        unsigned(NONE, b'{"a":' * 50_000),
        unsigned(NONE, b"[" * 100_000),
        unsigned({"alg": "RS256"}, CLAIMS, b"signature"),
        unsigned(NONE, CLAIMS, b"signature"),
        f"{part(NONE)}.{part(dict(CLAIMS))}",
    ],
)
def test_what_is_no_token_without_a_signature_is_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        validator().validate(token)


@pytest.mark.parametrize(
    "changed",
    [
        *({"exp": None}, {"exp": NOW_S}, {"exp": 0}, {"exp": "soon"}, {"exp": True}, {"exp": -1}, {"exp": 1e300}),
        *({"exp": float("inf")}, {"exp": 10**400}, {"exp": []}, {"nbf": NOW_S + 1}, {"iat": NOW_S + 1}, {"iat": "x"}),
        *({"nbf": NOW_S - 5, "exp": NOW_S - 6}, {"sub": None}, {"sub": ""}, {"sub": "  "}, {"sub": 7}, {"sub": ["a"]}),
        *({"scope": 7}, {"scope": [7]}, {"scope": [""]}),
    ],
)
def test_claims_that_do_not_hold_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        validator().validate(unsigned(NONE, claims(**changed)))


def test_clocks_may_differ_by_as_much_as_is_allowed() -> None:
    lenient = validator(skew_ms=5000)
    assert lenient.validate(unsigned(NONE, claims(exp=NOW_S - 4, iat=NOW_S - 9))).user == "alice"
    assert lenient.validate(unsigned(NONE, claims(nbf=NOW_S + 5))).user == "alice"
    with pytest.raises(InvalidToken):
        lenient.validate(unsigned(NONE, claims(exp=NOW_S - 5, iat=NOW_S - 9)))


def test_other_claims_may_be_named_and_scopes_required() -> None:
    named = validator(subject_claim="email", scope_claim="scp", required_scopes=("read", "kafka"))
    token = unsigned(NONE, claims(email="a@example", scp=["kafka", "read", "more"]))
    assert named.validate(token).user == "a@example"
    with pytest.raises(InvalidToken) as refused:
        named.validate(unsigned(NONE, claims(email="a@example", scp="read")))
    assert (refused.value.status, refused.value.scope) == ("insufficient_scope", "read kafka")
