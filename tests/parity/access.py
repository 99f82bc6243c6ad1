"""A broker with an authorizer, in the language of the scripts: who asks, and from which address."""

from __future__ import annotations

from typing import Any, Final

from dev.apache_kafka import SASL_ABOVE
from protocol.messages.acls import CreateAclsRequest, DescribeAclsRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.parity.connection import Connection
from tests.parity.exchange import Exchange

USERS: Final = {"broker": "secret", "admin": "secret", "alice": "wonder", "bob": "build"}
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker;User:admin",
    "delegation.token.secret.key": "a secret",
}
HERE: Final = "127.0.0.1"

ANY, ALL = 1, 2
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
MATCH, LITERAL, PREFIXED = 2, 3, 4
DENY, ALLOW = 2, 3
EVERYBODY: Final = "User:*"


def log_in(exchange: Exchange, user: str, *, from_address: str | None = None) -> Connection:
    """A connection of a user."""
    connection = exchange.connect(exchange.broker.port + SASL_ABOVE, from_address=from_address)
    exchange.ask(None, SaslHandshakeRequest(mechanism="PLAIN"), 1, over=connection)
    token = f"\0{user}\0{USERS[user]}".encode()
    answer = exchange.ask(None, SaslAuthenticateRequest(auth_bytes=token), 2, over=connection)
    assert not answer.error_code, answer
    return connection


def acl(
    name: str,
    *,
    resource_type: int = TOPIC,
    pattern_type: int = LITERAL,
    principal: str = EVERYBODY,
    host: str = "*",
    operation: int = ALL,
    permission_type: int = ALLOW,
) -> CreateAclsRequest.Creation:
    """An ACL to be created."""
    return CreateAclsRequest.Creation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission_type,
    )


def every_acl() -> DescribeAclsRequest:
    """Ask for all ACLs."""
    return DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


def await_acls(exchange: Exchange, admin: Connection, count: int) -> None:
    """Wait until the broker has so many ACLs."""

    def are_there(answer: Any) -> bool:
        return sum(len(resource.acls) for resource in answer.resources) == count

    exchange.wait_until(every_acl(), 3, are_there, over=admin)


def allow_everything_from_here(exchange: Exchange, admin: Connection) -> int:
    """Let the connections of `Exchange` itself do everything. Returns how many ACLs that takes."""
    creations = [
        acl("kafka-cluster" if kind == CLUSTER else "*", resource_type=kind, host=HERE)
        for kind in (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID)
    ]
    exchange.ask(None, CreateAclsRequest(creations=creations), 3, over=admin)
    await_acls(exchange, admin, len(creations))
    return len(creations)
