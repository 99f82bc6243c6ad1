"""What belongs to an authorizer, to authentication and to quotas, where none of it is set up."""

from typing import Any

from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.scram_credentials import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from tests.parity.exchange import Exchange

ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3
EXACT, DEFAULT, SPECIFIED = 0, 1, 2

Credential = AlterUserScramCredentialsRequest.Upsertion
Deletion = AlterUserScramCredentialsRequest.Deletion


def described(**codes: int) -> DescribeAclsRequest:
    usual = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
    return DescribeAclsRequest(**{**usual, **codes}, resource_name_filter=None, principal_filter=None, host_filter=None)


def created(*names: str, **codes: int) -> CreateAclsRequest:
    usual = {"resource_type": TOPIC, "resource_pattern_type": LITERAL, "operation": READ, "permission_type": ALLOW}
    return CreateAclsRequest(
        creations=[
            CreateAclsRequest.Creation(**{**usual, **codes}, resource_name=name, principal="User:alice", host="*")
            for name in names
        ]
    )


def deleted(*names: str | None, **codes: int) -> DeleteAclsRequest:
    usual = {"resource_type_filter": TOPIC, "pattern_type_filter": LITERAL, "operation": ANY, "permission_type": ANY}
    return DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.Filter(
                **{**usual, **codes}, resource_name_filter=name, principal_filter=None, host_filter=None
            )
            for name in names
        ]
    )


def quotas(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.Component(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ],
        strict=strict,
    )


def quota(entity: dict[str, str | None], **limits: float) -> AlterClientQuotasRequest.Entry:
    entry = AlterClientQuotasRequest.Entry
    return entry(
        entity=[entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[entry.Op(key=key, value=value, remove=False) for key, value in limits.items()],
    )


def altered(*changes: Deletion | Credential) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, Deletion)],
        upsertions=[change for change in changes if isinstance(change, Credential)],
    )


def credential(user: str, mechanism: int = 1, iterations: int = 4096) -> Credential:
    return Credential(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted password"
    )


def users(*names: str) -> DescribeUserScramCredentialsRequest:
    user = DescribeUserScramCredentialsRequest.User
    return DescribeUserScramCredentialsRequest(users=[user(name=name) for name in names] or None)


def run(exchange: Exchange) -> None:
    sasl(exchange)
    acls(exchange)
    delegation_tokens(exchange)
    client_quotas(exchange)
    scram_credentials(exchange)


def sasl(exchange: Exchange) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512", "BOGUS", ""):
        exchange.ask_each(f"the mechanism {mechanism!r}", SaslHandshakeRequest(mechanism=mechanism))
    exchange.ask_each("name and password", SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
    exchange.ask_each("nothing", SaslAuthenticateRequest(auth_bytes=b""))


def acls(exchange: Exchange) -> None:
    exchange.ask_each("all", described())
    exchange.ask_each("codes that there are not", described(resource_type_filter=77, operation=99))
    exchange.ask_each("one", created("orders"))
    exchange.ask_each("several", created("orders", "", "letters"))
    exchange.ask_each("none", created())
    exchange.ask_each("of any resource", created("orders", resource_type=ANY))
    exchange.ask_each("one", deleted("orders"))
    exchange.ask_each("several", deleted("orders", None))
    exchange.ask_each("none", deleted())
    for code in ("resource_type", "pattern_type", "operation", "permission_type"):
        suffix = "_filter" if code.endswith("e_type") or code == "pattern_type" else ""
        exchange.ask_each(f"{code} 0", described(**{code + suffix: 0}))
        exchange.ask_each(f"{code} 0", deleted("orders", **{code + suffix: 0}))
        exchange.ask_each(f"{code} 0", created("orders", **{code.replace("pattern", "resource_pattern"): 0}))


def delegation_tokens(exchange: Exchange) -> None:
    def create(**fields: Any) -> CreateDelegationTokenRequest:
        return CreateDelegationTokenRequest(**{"renewers": [], "max_lifetime_ms": 60_000, **fields})

    renewer = CreateDelegationTokenRequest.Renewer(principal_type="User", principal_name="bob")
    exchange.ask_each("a token", create())
    exchange.ask_each("a token with a renewer", create(renewers=[renewer], max_lifetime_ms=-1))
    owner = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    exchange.ask_each("a token for another", create(**owner), since=3)
    exchange.ask_each("a token", RenewDelegationTokenRequest(hmac=b"hmac", renew_period_ms=1000))
    exchange.ask_each("a token", ExpireDelegationTokenRequest(hmac=b"hmac", expiry_time_period_ms=-1))
    exchange.ask_each("all", DescribeDelegationTokenRequest(owners=None))
    exchange.ask_each("of nobody", DescribeDelegationTokenRequest(owners=[]))
    alice = DescribeDelegationTokenRequest.Owner(principal_type="User", principal_name="alice")
    exchange.ask_each("of one owner", DescribeDelegationTokenRequest(owners=[alice]))


def client_quotas(exchange: Exchange) -> None:
    exchange.ask_each("all", quotas())
    exchange.ask_each("all, strictly", quotas(strict=True))
    for kind in ("user", "client-id", "ip"):
        exchange.ask_each(f"a {kind}", quotas((kind, EXACT, "alice")))
        exchange.ask_each(f"the default {kind}", quotas((kind, DEFAULT, None)))
        exchange.ask_each(f"any {kind}", quotas((kind, SPECIFIED, None)))
    for what, components in {
        "a type that there is not": [("team", EXACT, "a")],
        "an empty type": [("", EXACT, "a")],
        "a type twice": [("user", EXACT, "a"), ("user", EXACT, "b")],
        "an address and a user": [("ip", EXACT, "10.0.0.1"), ("user", EXACT, "a")],
        "a match that there is not": [("user", 7, "a")],
        "a name of null": [("user", EXACT, None)],
        "a name for the default": [("user", DEFAULT, "a")],
        "a name for any": [("user", SPECIFIED, "a")],
    }.items():
        exchange.ask_each(what, quotas(*components))
    for what, entries in {
        "nothing": [],
        "no change": [quota({"user": "alice"})],
        "a quota of a user": [quota({"user": "alice"}, producer_byte_rate=1000.0)],
        "no entity": [quota({}, producer_byte_rate=1000.0)],
        "a type that there is not": [quota({"team": "a"}, producer_byte_rate=1000.0)],
        "a quota that there is not": [quota({"user": "alice"}, bogus=1.0)],
        "a user's quota of an address": [quota({"ip": "10.0.0.1"}, producer_byte_rate=1.0)],
    }.items():
        exchange.ask_each(what, AlterClientQuotasRequest(entries=entries, validate_only=True))


def scram_credentials(exchange: Exchange) -> None:
    exchange.ask_each("all of none", users())
    exchange.ask_each("users that are not there", users("alice", ""))
    exchange.ask_each("nothing", altered())
    changes_by_step = {
        "two users": [credential("alice"), credential("bob", 2, 16_384)],
        "another mechanism": [credential("alice", 2)],
        "a credential again": [credential("alice", 1, 8192)],
        "both of one user deleted": [Deletion(name="alice", mechanism=1), Deletion(name="alice", mechanism=2)],
        "one deleted and one set": [Deletion(name="alice", mechanism=1), credential("alice", 2)],
        "a user twice": [credential("carol"), credential("carol", 2)],
        "a user that is not there deleted, and set": [Deletion(name="dave", mechanism=1), credential("dave")],
        "no mechanism": [credential("alice", 0), Deletion(name="bob", mechanism=9)],
        "no name": [credential("")],
        "few iterations": [credential("erin", 1, 4095)],
        "many iterations": [credential("erin", 1, 16_385)],
        "good and bad": [Deletion(name="nobody", mechanism=1), credential("frank"), credential("grace", 1, 1)],
        "one deleted": [Deletion(name="alice", mechanism=1)],
    }
    for number, (what, changes) in enumerate(changes_by_step.items()):
        exchange.ask_each(what, altered(*changes))
        exchange.create_topic(f"after-{number}")  # a broker that knows it knows what was altered before
        exchange.ask_each(f"after {what}", users())
    exchange.ask_each("several, one twice", users("alice", "bob", "nobody", "bob"))
