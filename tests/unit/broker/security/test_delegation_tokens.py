"""Delegation tokens, from their making to a login by them. What is asserted here Kafka 4.4.0 did, unless a test says
otherwise."""

from typing import Any

import pytest

from broker.security.delegation_tokens import TokenSecrets
from broker.security.sasl.scram import ScramHash
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.support.broker import InProcessBroker
from tests.support.sasl_client import ALICE, BOB, LISTENERS, SaslClient
from tests.support.scram_client import ScramClient

DAY_MS = 86_400_000
WITH_TOKENS = {**LISTENERS, "delegation.token.secret.key": "topsecret"}
ASKED: tuple[tuple[object, int], ...] = (
    (CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3),
    (RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), 2),
    (ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), 2),
    (DescribeDelegationTokenRequest(owners=None), 3),
)

pytestmark = pytest.mark.settings(**WITH_TOKENS)


@pytest.fixture
def alice(broker: InProcessBroker) -> SaslClient:
    client = SaslClient(broker)
    client.log_in(ALICE)
    return client


@pytest.fixture
def bob(broker: InProcessBroker) -> SaslClient:
    client = SaslClient(broker)
    client.log_in(BOB)
    return client


def renewer(name: str, type_: str = "User") -> CreateDelegationTokenRequest.Renewer:
    return CreateDelegationTokenRequest.Renewer(principal_type=type_, principal_name=name)


def create(
    client: SaslClient, *renewers: str, max_lifetime_ms: int = -1, version: int = 3
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        renewers=[renewer(name) for name in renewers], max_lifetime_ms=max_lifetime_ms
    )
    answer: CreateDelegationTokenResponse = client.ask(request, version)
    assert answer.error_code == E.NONE
    return answer


def renew(client: SaslClient, token: CreateDelegationTokenResponse, period_ms: int = -1, version: int = 2) -> Any:
    return client.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms), version)


def expire(client: SaslClient, token: CreateDelegationTokenResponse, period_ms: int = -1, version: int = 2) -> Any:
    return client.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms), version)


def described(client: SaslClient, *owners: str) -> list[Any]:
    """The tokens of these owners, or of all."""
    named = [DescribeDelegationTokenRequest.Owner(principal_type="User", principal_name=name) for name in owners]
    return list(client.ask(DescribeDelegationTokenRequest(owners=named or None), 3).tokens)


def log_in(
    broker: InProcessBroker, token: CreateDelegationTokenResponse, hash_: ScramHash, extensions: str = ",tokenauth=true"
) -> tuple[SaslClient, Any]:
    """A client that shows the token, and the last answer to it."""
    client = SaslClient(broker)
    client.handshake(hash_.value)
    password = TokenSecrets("topsecret").password_of(token.token_id).decode()
    scram = ScramClient(token.token_id, password, hash_, extensions=extensions)
    final = scram.final(client.token(scram.first()).auth_bytes)
    client.send_token(final)
    broker.clock.advance(100)
    return client, client.client.receive()


# Tokens


@serves(CreateDelegationTokenRequest)
@every_version(CreateDelegationTokenRequest)
def test_a_token_has_a_secret_and_times(broker: InProcessBroker, alice: SaslClient, version: int) -> None:
    token = create(alice, "bob", version=version)
    now_ms = broker.clock.now_ms()
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert bytes(token.hmac) == TokenSecrets("topsecret").secret_of(token.token_id)
    assert len(token.hmac) == 64
    assert token.issue_timestamp_ms == now_ms
    assert token.expiry_timestamp_ms == now_ms + DAY_MS
    assert token.max_timestamp_ms == now_ms + 7 * DAY_MS
    assert create(alice).token_id != token.token_id


@pytest.mark.parametrize(
    ("wanted_ms", "lives_ms"), [(1000, 1000), (0, 7 * DAY_MS), (-5, 7 * DAY_MS), (1 << 60, 7 * DAY_MS)]
)
def test_a_token_lives_no_longer_than_is_allowed(alice: SaslClient, wanted_ms: int, lives_ms: int) -> None:
    token = create(alice, max_lifetime_ms=wanted_ms)
    assert token.max_timestamp_ms - token.issue_timestamp_ms == lives_ms
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == min(lives_ms, DAY_MS)


def test_a_token_may_be_made_for_another_user(alice: SaslClient) -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="bob", renewers=[], max_lifetime_ms=-1
    )
    token = alice.ask(request, 3)
    assert (token.principal_name, token.token_requester_principal_name) == ("bob", "alice")


@serves(CreateDelegationTokenRequest, E.INVALID_PRINCIPAL_TYPE, versions=[3])
def test_only_users_renew(broker: InProcessBroker, alice: SaslClient) -> None:
    request = CreateDelegationTokenRequest(renewers=[renewer("staff", "Group")], max_lifetime_ms=-1)
    answer = alice.ask(request, 3)
    assert (answer.error_code, answer.token_id, answer.hmac) == (E.INVALID_PRINCIPAL_TYPE, "", b"")


@serves(RenewDelegationTokenRequest)
@every_version(RenewDelegationTokenRequest)
def test_owner_and_renewers_give_a_token_more_time(
    broker: InProcessBroker, alice: SaslClient, bob: SaslClient, version: int
) -> None:
    token = create(alice, "bob")
    for client in (alice, bob):
        broker.clock.advance(1000)
        assert renew(client, token, version=version).expiry_timestamp_ms == broker.clock.now_ms() + DAY_MS
    assert renew(alice, token, 5000).expiry_timestamp_ms == broker.clock.now_ms() + 5000
    assert renew(alice, create(alice, max_lifetime_ms=9000)).expiry_timestamp_ms == broker.clock.now_ms() + 9000


@serves(RenewDelegationTokenRequest, E.DELEGATION_TOKEN_OWNER_MISMATCH, versions=[2])
@serves(ExpireDelegationTokenRequest, E.DELEGATION_TOKEN_OWNER_MISMATCH, versions=[2])
def test_nobody_else_does(broker: InProcessBroker, alice: SaslClient, bob: SaslClient) -> None:
    token = create(alice)
    for answer in (renew(bob, token), expire(bob, token)):
        assert (answer.error_code, answer.expiry_timestamp_ms) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)


@serves(ExpireDelegationTokenRequest)
@every_version(ExpireDelegationTokenRequest)
def test_a_token_is_removed_or_given_another_end(broker: InProcessBroker, alice: SaslClient, version: int) -> None:
    token, other = create(alice), create(alice)
    now_ms = broker.clock.now_ms()
    assert expire(alice, other, 5000, version).expiry_timestamp_ms == now_ms + 5000
    assert expire(alice, other, 10 * DAY_MS).expiry_timestamp_ms == now_ms + 7 * DAY_MS
    assert expire(alice, token, -1, version).expiry_timestamp_ms == now_ms
    assert [one.token_id for one in described(alice)] == [other.token_id]
    assert expire(alice, token).error_code == E.DELEGATION_TOKEN_NOT_FOUND


@serves(RenewDelegationTokenRequest, E.DELEGATION_TOKEN_EXPIRED, E.DELEGATION_TOKEN_NOT_FOUND, versions=[2])
@serves(ExpireDelegationTokenRequest, E.DELEGATION_TOKEN_EXPIRED, E.DELEGATION_TOKEN_NOT_FOUND, versions=[2])
def test_a_token_that_has_expired_is_renewed_no_more_and_removed_in_time(
    broker: InProcessBroker, alice: SaslClient
) -> None:
    token = create(alice, max_lifetime_ms=1000)
    broker.clock.advance(1001)
    assert renew(alice, token).error_code == E.DELEGATION_TOKEN_EXPIRED
    assert expire(alice, token, 5000).error_code == E.DELEGATION_TOKEN_EXPIRED
    assert described(alice)
    broker.advance(3_600_000)
    broker.wait_until(lambda: not broker.server.metadata.image.delegation_tokens.by_key)
    assert described(alice) == []
    assert renew(alice, token).error_code == E.DELEGATION_TOKEN_NOT_FOUND
    assert expire(alice, token).error_code == E.DELEGATION_TOKEN_NOT_FOUND


@serves(DescribeDelegationTokenRequest, versions=[3])
def test_tokens_are_described_by_owner(broker: InProcessBroker, alice: SaslClient, bob: SaslClient) -> None:
    alices, bobs = create(alice, "carol"), create(bob)
    assert {one.token_id for one in described(alice)} == {alices.token_id, bobs.token_id}
    (one,) = described(bob, "alice")
    assert (one.token_id, bytes(one.hmac)) == (alices.token_id, bytes(alices.hmac))
    assert [renewer.principal_name for renewer in one.renewers] == ["carol"]
    assert [one.token_id for one in described(bob, "carol")] == [alices.token_id]
    assert described(bob, "mallory") == []
    assert list(alice.ask(DescribeDelegationTokenRequest(owners=[]), 3).tokens) == []


def test_tokens_outlive_a_restart(broker: InProcessBroker, alice: SaslClient) -> None:
    token = create(alice)
    broker.restart()
    client, answer = log_in(broker, token, ScramHash.SHA_256)
    assert answer.error_code == E.NONE
    assert client.principal == "User:alice"


# Logins


@pytest.mark.parametrize("hash_", list(ScramHash))
def test_a_token_lets_in_its_owner_until_it_expires(
    broker: InProcessBroker, alice: SaslClient, hash_: ScramHash
) -> None:
    client, answer = log_in(broker, create(alice, max_lifetime_ms=60_000), hash_)
    assert (answer.error_code, answer.session_lifetime_ms) == (E.NONE, 60_000)
    assert client.principal == "User:alice"
    broker.clock.advance(60_000)
    client.client.send_bytes(bytes.fromhex("00000014 0003 0001 00000001 0004") + b"test" + bytes(6))
    assert client.client.is_closed()


def test_without_the_extension_a_token_is_no_user(broker: InProcessBroker, alice: SaslClient) -> None:
    _, answer = log_in(broker, create(alice), ScramHash.SHA_256, extensions="")
    assert answer.error_code == E.SASL_AUTHENTICATION_FAILED


def test_a_token_that_has_expired_or_was_removed_lets_nobody_in(broker: InProcessBroker, alice: SaslClient) -> None:
    """Kafka lets an expired token in until it is removed, for a session without time."""
    expired, removed = create(alice, max_lifetime_ms=1000), create(alice)
    expire(alice, removed)
    broker.clock.advance(1001)
    for token in (expired, removed):
        client, answer = log_in(broker, token, ScramHash.SHA_512)
        assert answer.error_code == E.SASL_AUTHENTICATION_FAILED
        assert not client.is_let_in


def test_a_client_that_has_shown_a_token_gets_no_other(broker: InProcessBroker, alice: SaslClient) -> None:
    client, _ = log_in(broker, create(alice), ScramHash.SHA_256)
    for request, version in ASKED:
        assert client.ask(request, version).error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.settings(**LISTENERS)
@serves(CreateDelegationTokenRequest, E.DELEGATION_TOKEN_AUTH_DISABLED, versions=[3])
@serves(RenewDelegationTokenRequest, E.DELEGATION_TOKEN_AUTH_DISABLED, versions=[2])
@serves(ExpireDelegationTokenRequest, E.DELEGATION_TOKEN_AUTH_DISABLED, versions=[2])
@serves(DescribeDelegationTokenRequest, E.DELEGATION_TOKEN_AUTH_DISABLED, versions=[3])
def test_without_a_key_there_are_no_tokens(broker: InProcessBroker) -> None:
    client = SaslClient(broker)
    client.log_in()
    for request, version in ASKED:
        assert client.ask(request, version).error_code == E.DELEGATION_TOKEN_AUTH_DISABLED
