"""ACLs where there is an authorizer: what may be created, how they are found and deleted, and what they decide."""

from __future__ import annotations

from typing import Any, Final

from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.metadata import MetadataRequest
from tests.parity.access import (
    ALL,
    ANY,
    CLUSTER,
    DENY,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    SETTINGS,
    TOPIC,
    TRANSACTIONAL_ID,
    USERS,
    acl,
    allow_everything_from_here,
    every_acl,
    log_in,
)
from tests.parity.connection import Connection
from tests.parity.exchange import Exchange

__all__ = ["RELEASE_VERSION", "SETTINGS", "USERS", "run"]

RELEASE_VERSION: Final = "4.0"
READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 4, 8, 10, 11
USER = 7
WITH_RANGES: Final = 32
"""The metadata.version from which on ACLs may be for ranges of hosts."""


def created(*acls: CreateAclsRequest.Creation) -> CreateAclsRequest:
    return CreateAclsRequest(creations=[*acls])


def filtered(**fields: Any) -> dict[str, Any]:
    usual = {
        **{"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY},
        **{"principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY},
    }
    return {**usual, **fields}


def described(**fields: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**filtered(**fields))


def deleted(*filters: dict[str, Any]) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**filtered(**fields)) for fields in filters])


def run(exchange: Exchange) -> None:
    admin = log_in(exchange, "admin")
    allow_everything_from_here(exchange, admin)
    for name in ("orders", "orders-2", "letters"):
        exchange.create_topic(name)
    creation(exchange, admin)
    finding(exchange, admin)
    decisions(exchange, admin)
    hosts(exchange, admin)
    settings = DescribeConfigsRequest.Resource(
        resource_type=4,
        resource_name="1",
        configuration_keys=["authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"],
    )
    exchange.ask("settings of the authorizer", DescribeConfigsRequest(resources=[settings]), 4, over=admin)
    deletion(exchange, admin)


def creation(exchange: Exchange, admin: Connection) -> None:
    exchange.ask_each("one, again and again", created(acl("orders", principal="User:alice")), over=admin)
    many = [acl(name, principal="User:carol") for name in ("orders", "letters", "orders")]
    exchange.ask("several, one twice", created(*many), 3, over=admin)
    exchange.ask("none", created(), 3, over=admin)
    for what, one in {
        "a topic of no name": acl(""),
        "a cluster of another name": acl("orders", resource_type=CLUSTER),
        "a cluster by its prefix": acl("kafka-cluster", resource_type=CLUSTER, pattern_type=PREFIXED, operation=READ),
        "a principal without a type": acl("orders", principal="alice"),
        "a principal of no name": acl("orders", principal="User:"),
        "a principal of another type": acl("orders", principal="Group:readers"),
        "no principal": acl("orders", principal=""),
        "no host": acl("orders", host=""),
        "a host by its name": acl("orders", host="nowhere.example"),
        "an operation that groups do not know": acl("readers", resource_type=GROUP, operation=5),
        "a user": acl("User:carol", resource_type=USER, operation=13),
        "a range of hosts, too early": acl("orders", host="10.0.0.0/8"),
        "a resource type of 99": acl("orders", resource_type=99),
        "a pattern type of 99": acl("orders", pattern_type=99),
        "an operation of 99": acl("orders", operation=99),
        "a permission type of 99": acl("orders", permission_type=99),
        "an operation of 15": acl("orders", operation=15),
    }.items():
        exchange.ask(what, created(one, acl("letters", principal="User:dave")), 3, over=admin)
    for what, one in {
        "any resource type": acl("orders", resource_type=ANY),
        "any pattern type": acl("orders", pattern_type=ANY),
        "a match": acl("orders", pattern_type=MATCH),
        "any operation": acl("orders", operation=ANY),
        "any permission type": acl("orders", permission_type=ANY),
    }.items():
        exchange.ask(what, created(one), 3, over=admin)
    settle(exchange, admin)


def finding(exchange: Exchange, admin: Connection) -> None:
    more = [
        *(acl(name, pattern_type=PREFIXED, principal="User:erin") for name in ("ord", "orders-", "o", "l", "*")),
        acl("*", principal="User:erin", operation=WRITE, permission_type=DENY),
        acl("*", principal="User:erin", resource_type=TRANSACTIONAL_ID),
    ]
    exchange.ask("prefixes and wildcards", created(*more), 3, over=admin)
    settle(exchange, admin)
    exchange.ask_each("all", every_acl(), over=admin)
    for what, fields in {
        "of a topic": {"resource_type_filter": TOPIC, "resource_name_filter": "orders"},
        "of a topic, literally": {"resource_name_filter": "orders", "pattern_type_filter": LITERAL},
        "that concern a topic": {"resource_name_filter": "orders", "pattern_type_filter": MATCH},
        "that concern a longer topic": {"resource_name_filter": "orders-2", "pattern_type_filter": MATCH},
        "of a prefix": {"resource_name_filter": "ord", "pattern_type_filter": PREFIXED},
        "of the wildcard": {"resource_name_filter": "*", "pattern_type_filter": LITERAL},
        "that concern the wildcard": {"resource_name_filter": "*", "pattern_type_filter": MATCH},
        "all that are prefixed": {"pattern_type_filter": PREFIXED},
        "all matches": {"pattern_type_filter": MATCH},
        "of a principal": {"principal_filter": "User:erin"},
        "of a host": {"host_filter": "127.0.0.1"},
        "of every host": {"host_filter": "*"},
        "of an operation": {"operation": WRITE},
        "of every operation": {"operation": ALL},
        "that deny": {"permission_type": DENY},
        "of no name": {"resource_name_filter": ""},
        "a resource type of 99": {"resource_type_filter": 99},
        "a pattern type of 99": {"pattern_type_filter": 99},
        "an operation of 99": {"operation": 99},
        "a permission type of 99": {"permission_type": 99},
    }.items():
        exchange.ask(what, described(**fields), 3, over=admin)


def decisions(exchange: Exchange, admin: Connection) -> None:
    """What a user may do to topics, as the authorized operations of Metadata say it."""

    def told(step: str, *acls: CreateAclsRequest.Creation) -> None:
        exchange.ask(None, created(*acls), 3, over=admin)
        settle(exchange, admin)
        alice = log_in(exchange, "alice")
        exchange.ask(step, operations("orders", "orders-2", "letters"), 12, over=alice)
        everything = deleted({"principal_filter": "User:alice"}, {"principal_filter": "User:*", "host_filter": "*"})
        exchange.ask(None, everything, 3, over=admin)
        settle(exchange, admin)

    me = {"principal": "User:alice"}
    told("nothing said")
    told("a topic allowed", acl("orders", **me))
    told("all topics allowed", acl("*", **me))
    told("a prefix allowed", acl("orders", pattern_type=PREFIXED, **me))
    told("a prefix with a star allowed", acl("*", pattern_type=PREFIXED, **me))
    told("one allowed to everybody", acl("orders"))
    told("one allowed to another", acl("orders", principal="User:Alice"))
    told("all allowed, one denied", acl("*", **me), acl("orders", permission_type=DENY, **me))
    told("one allowed, all denied", acl("orders", **me), acl("*", permission_type=DENY, **me))
    told(
        "all allowed, a prefix denied to everybody",
        acl("*", **me),
        acl("orders-", pattern_type=PREFIXED, permission_type=DENY),
    )
    told("all allowed, reading denied", acl("*", **me), acl("*", operation=READ, permission_type=DENY, **me))
    told("all allowed, seeing denied", acl("*", **me), acl("*", operation=DESCRIBE, permission_type=DENY, **me))
    for operation in (READ, WRITE, 5, 6, 7, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS):
        told(f"operation {operation} allowed", acl("orders", operation=operation, **me))
    told("a group of the same name allowed", acl("orders", resource_type=GROUP, **me))
    told("allowed from here", acl("orders", host="127.0.0.1", **me))
    told("allowed from elsewhere", acl("orders", host="127.0.0.2", **me))
    told("denied from elsewhere", acl("orders", **me), acl("orders", host="127.0.0.2", permission_type=DENY, **me))


def hosts(exchange: Exchange, admin: Connection) -> None:
    level = UpdateFeaturesRequest.FeatureUpdate(
        feature="metadata.version", max_version_level=WITH_RANGES, upgrade_type=1
    )
    exchange.ask(None, UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[level]), 2, over=admin)
    for host in (
        *("10.0.0.0/8", "10.1.2.3/8", "0.0.0.0/0", "10.0.0.1/32", "2001:db8::/32", "::/0", "::1/128"),
        *("10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "/8", "10.0.0/8", "256.0.0.0/8", "2001:db8::/129", "x/8"),
        *("10.0.0.0/255.0.0.0", "10.0.0.0/8/8"),
    ):
        exchange.ask(f"hosts {host}", created(acl("letters", host=host, principal="User:frank")), 3, over=admin)
    ranges = ("127.9.0.0/24", "127.9.2.7/31", "127.9.4.4/32")
    for number, host in enumerate(ranges):
        exchange.ask(None, created(acl("orders", host=host, operation=3 + number)), 3, over=admin)
    exchange.ask(None, created(acl("orders", host="127.9.0.128/25", operation=4, permission_type=DENY)), 3, over=admin)
    exchange.ask(None, created(acl("orders", host="0.0.0.0/0", operation=DESCRIBE_CONFIGS)), 3, over=admin)
    settle(exchange, admin)
    for address in ("127.9.0.1", "127.9.0.255", "127.9.1.0", "127.9.2.5", "127.9.2.6", "127.9.4.4", "127.9.4.5"):
        client = exchange.connect(from_address=address)
        exchange.ask(f"from {address}", operations("orders"), 12, over=client)


def deletion(exchange: Exchange, admin: Connection) -> None:
    exchange.ask("none", deleted(), 3, over=admin)
    for what, filters in {
        "that there is not": [{"resource_name_filter": "nothing"}],
        "two filters for the same": [
            {"resource_name_filter": "l"},
            {"principal_filter": "User:erin", "resource_name_filter": "l"},
        ],
        "a resource type of 99": [{"resource_type_filter": 99}, {"resource_name_filter": "nothing"}],
        "a pattern type of 99": [{"pattern_type_filter": 99}],
        "an operation of 99": [{"operation": 99}],
        "a permission type of 99": [{"permission_type": 99}],
        "all of a principal": [{"principal_filter": "User:erin"}],
    }.items():
        exchange.ask(what, deleted(*filters), 3, over=admin)
    settle(exchange, admin)
    for version, name in ((1, "orders"), (2, "letters"), (3, "User:carol")):
        exchange.ask(
            "of a name", deleted({"resource_name_filter": name, "principal_filter": "User:carol"}), version, over=admin
        )
    settle(exchange, admin)
    exchange.ask("all that are left", every_acl(), 3, over=admin)


def operations(*topics: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.Topic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def settle(exchange: Exchange, admin: Connection) -> None:
    """Wait until everything that was answered before is in force: what comes after it is, then."""
    mark = acl("mark", principal="User:mark")
    exchange.ask(None, created(mark), 3, over=admin)
    wait_for_mark(exchange, admin, is_there=True)
    exchange.ask(None, deleted({"principal_filter": "User:mark"}), 3, over=admin)
    wait_for_mark(exchange, admin, is_there=False)


def wait_for_mark(exchange: Exchange, admin: Connection, *, is_there: bool) -> None:
    exchange.wait_until(
        described(principal_filter="User:mark"), 3, lambda answer: bool(answer.resources) is is_there, over=admin
    )
