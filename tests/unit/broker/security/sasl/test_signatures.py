"""Tokens that a key of a JWK set has signed, and those that none has."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

import pytest

from broker.security.sasl.oauthbearer import InvalidToken
from config.oauthbearer import SignedTokens
from tests.support.tokens import CLAIMS, NOW_S, Issuer, key_set, part, unsigned

pytest.importorskip("jwt", reason="PyJWT is an extra")

from broker.security.sasl.signatures import MOST_TRIED, KeySet, NoKeySet, SignedValidator, read_key_set

SETTINGS = SignedTokens(
    jwks_url="file:///keys",
    refresh_ms=1000,
    retry_backoff_ms=10,
    retry_backoff_max_ms=100,
    issuer="https://issuer.example",
    audiences=("kafka",),
    clock_skew_s=30,
    scope_claim="scope",
    subject_claim="sub",
)
KINDS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


class Checked:
    """A validator, and how often it has asked for newer keys."""

    def __init__(self, keys: KeySet, **changed: Any) -> None:
        self.looked_again = 0
        self._validator = SignedValidator(
            SETTINGS._replace(**changed), now_ms=lambda: NOW_S * 1000, keys=lambda: keys, look_again=self._look_again
        )

    def _look_again(self) -> None:
        self.looked_again += 1

    def user(self, token: str) -> str:
        return self._validator.validate(token).user

    def refuses(self, token: str) -> bool:
        with pytest.raises(InvalidToken):
            self._validator.validate(token)
        return True


def checked(*issuers: Issuer, **changed: Any) -> Checked:
    return Checked(read_key_set(key_set(*(one.jwk() for one in issuers))), **changed)


def claims(**changed: Any) -> dict[str, Any]:
    return {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}


@pytest.mark.parametrize(("kind", "algorithms"), KINDS.items())
def test_a_key_of_the_set_lets_in(kind: str, algorithms: Sequence[str]) -> None:
    issuer = Issuer(kind)
    for algorithm in algorithms:
        assert checked(issuer).user(issuer.sign(algorithm=algorithm)) == "alice"


def test_another_key_of_the_same_name_lets_nobody_in(issuer: Issuer) -> None:
    assert checked(issuer).refuses(Issuer().sign())
    assert checked(issuer).refuses(Issuer("P-256").sign(algorithm="ES256"))


def test_a_token_without_the_name_of_its_key_is_tried_with_all_of_its_kind(issuer: Issuer) -> None:
    nameless = Issuer(key_id=None)
    assert checked(issuer, Issuer("P-256"), nameless).user(nameless.sign()) == "alice"
    many = key_set(*[issuer.jwk()] * MOST_TRIED, nameless.jwk())
    assert Checked(read_key_set(many)).refuses(nameless.sign())


@pytest.mark.parametrize("key_id", ["key-2", "key-1", None])
def test_newer_keys_are_asked_for_when_no_key_has_signed_a_token(issuer: Issuer, key_id: str | None) -> None:
    it = checked(issuer)
    assert it.user(issuer.sign()) == "alice"
    assert it.looked_again == 0
    assert it.refuses(Issuer(key_id=key_id).sign())
    assert it.looked_again == 1


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "HS256", "HS384", "HS512", "RS1", "", None, 7, ["RS256"]]
)
def test_an_algorithm_without_a_public_key_is_refused(issuer: Issuer, algorithm: Any) -> None:
    header = {"alg": algorithm, "kid": "key-1"}
    assert checked(issuer).refuses(unsigned(header, CLAIMS))
    assert checked(issuer).refuses(unsigned(header, CLAIMS, b"signature"))


def test_the_public_key_is_no_secret_to_sign_with(issuer: Issuer) -> None:
    """The old trick: HS256 with the text of the public key, which everybody has."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = issuer.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{part({'alg': 'HS256', 'kid': 'key-1'})}.{part(dict(CLAIMS))}"
    for secret in (public, public.strip(), json.dumps(issuer.jwk()).encode()):
        signature = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        assert checked(issuer).refuses(f"{signed}.{part(signature)}")


def test_a_key_signs_by_its_own_kind_of_algorithm(issuer: Issuer) -> None:
    curve = Issuer("P-256")
    token = curve.sign(algorithm="ES256")
    assert checked(issuer).refuses(token)
    head = part({"alg": "RS256", "kid": "key-1"})
    assert checked(curve).refuses(f"{head}.{'.'.join(token.split('.')[1:])}")
    only_384 = Checked(read_key_set(key_set(issuer.jwk(alg="RS384"))))
    assert only_384.refuses(issuer.sign())
    assert only_384.user(issuer.sign(algorithm="RS384")) == "alice"


@pytest.mark.parametrize(
    "changed",
    [
        *({"exp": None}, {"exp": NOW_S - 30}, {"iat": None}, {"nbf": NOW_S + 31}, {"iat": NOW_S + 31}),
        *({"iss": None}, {"iss": "https://other.example"}),
        *({"aud": None}, {"aud": "other"}, {"aud": []}, {"aud": ["other", 7]}, {"aud": {"kafka": 1}}),
        *({"sub": None}, {"sub": " "}, {"scope": 7}),
    ],
)
def test_claims_that_do_not_hold_are_refused(issuer: Issuer, changed: dict[str, Any]) -> None:
    assert checked(issuer).refuses(issuer.sign(claims(**changed)))


@pytest.mark.parametrize(
    "changed", [{"exp": NOW_S - 29}, {"nbf": NOW_S + 30}, {"aud": "kafka"}, {"aud": ["x", "kafka"]}, {"scope": None}]
)
def test_claims_that_just_hold_let_in(issuer: Issuer, changed: dict[str, Any]) -> None:
    assert checked(issuer).user(issuer.sign(claims(**{"iat": NOW_S - 99, **changed}))) == "alice"


def test_any_issuer_and_any_audience_will_do_where_none_is_expected(issuer: Issuer) -> None:
    assert checked(issuer, issuer=None, audiences=()).user(issuer.sign(claims(iss=None, aud=None))) == "alice"


def test_no_byte_of_a_token_can_be_changed_or_left_out(issuer: Issuer) -> None:
    token = issuer.sign()
    it = checked(issuer)
    for position in range(0, len(token) - 1, 7):  # the last character has bits that mean nothing
        other = "A" if token[position] != "A" else "B"
        assert it.refuses(token[:position] + other + token[position + 1 :])
        assert it.refuses(token[:position])


def test_an_extension_that_must_be_understood_is_refused(issuer: Issuer) -> None:
    head, body, signature = issuer.sign(b64=True).split(".")
    fields = json.loads(base64.urlsafe_b64decode(head + "=="))
    assert checked(issuer).refuses(f"{part({**fields, 'crit': ['exp']})}.{body}.{signature}")


# Sets


def test_keys_that_sign_nothing_are_left_out(issuer: Issuer) -> None:
    good = issuer.jwk(use="sig")
    others = [
        {**good, "use": "enc"},
        {**good, "kid": 7},
        {**good, "alg": "HS256"},
        {**good, "alg": "none"},
        {**good, "n": "!"},
        {**good, "e": 7},
        {"kty": "RSA"},
        {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256", "kid": "key-1"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
        Issuer("RSA-1024").jwk(),
        *({}, [], "key", None, 7),
    ]
    assert len(read_key_set(key_set(*others, good))) == 1


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"keys": 1}', b"[" * 100_000, b'{"keys": {}}'])
def test_what_is_no_set_is_refused(data: bytes) -> None:
    with pytest.raises(NoKeySet):
        read_key_set(data)
