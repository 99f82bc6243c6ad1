"""The APIs of delegation tokens through the codec, over connections that are not authenticated."""

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.support.broker import InProcessBroker


@serves(CreateDelegationTokenRequest, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
@every_version(CreateDelegationTokenRequest)
def test_no_token_is_made_and_the_answer_says_for_whom_it_would_have_been(
    broker: InProcessBroker, version: int
) -> None:
    renewer = CreateDelegationTokenRequest.Renewer(principal_type="User", principal_name="bob")
    answer = broker.ask(CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=1000), version)
    assert answer.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (answer.principal_type, answer.principal_name) == ("User", "ANONYMOUS")
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)
    assert (answer.token_id, answer.hmac) == ("", b"")


def test_the_owner_of_a_token_may_be_another_than_who_asks(broker: InProcessBroker) -> None:
    asked = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="alice", renewers=[], max_lifetime_ms=-1
    )
    answer = broker.ask(asked, 3)
    assert (answer.principal_type, answer.principal_name) == ("User", "alice")
    assert (answer.token_requester_principal_type, answer.token_requester_principal_name) == ("User", "ANONYMOUS")


@serves(RenewDelegationTokenRequest, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
@every_version(RenewDelegationTokenRequest)
def test_no_token_is_renewed(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(RenewDelegationTokenRequest(hmac=b"token", renew_period_ms=1000), version)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)


@serves(ExpireDelegationTokenRequest, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
@every_version(ExpireDelegationTokenRequest)
def test_no_token_is_let_expire(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(ExpireDelegationTokenRequest(hmac=b"token", expiry_time_period_ms=-1), version)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)


@serves(DescribeDelegationTokenRequest, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
@every_version(DescribeDelegationTokenRequest)
def test_no_token_is_described(broker: InProcessBroker, version: int) -> None:
    owner = DescribeDelegationTokenRequest.Owner(principal_type="User", principal_name="alice")
    for owners in (None, [], [owner]):
        answer = broker.ask(DescribeDelegationTokenRequest(owners=owners), version)
        assert (answer.error_code, answer.tokens) == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
