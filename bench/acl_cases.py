"""Case: small requests to a broker with an authorizer and 1,000 ACLs, beside those to one without."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench import request_cpu
from bench.conversation import Conversation
from bench.processes import OwnBroker
from protocol.messages.acls import CreateAclsRequest, CreateAclsResponse

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The bench may make the first ACLs, and then what they allow.
    "allow.everyone.if.no.acl.found": "true",
}
ACLS = 1_000
TOPIC, CLUSTER = 2, 4
LITERAL, PREFIXED = 3, 4
ALL, READ = 2, 3
ALLOW = 3


def acls(directory: Path, scale: float) -> dict[str, float]:
    """CPU of a one-record request with an authorizer of 1,000 ACLs and without an authorizer, in interleaved pairs."""

    def take(name: str, data: Path) -> request_cpu.Sample:
        with contextlib.closing(OwnBroker(data, settings=AUTHORIZER if name == "with" else {})) as broker:
            if name == "with":
                _create_acls(broker)
            return request_cpu.sample(broker, data)

    return request_cpu.in_pairs(take, directory, scale)


def _create_acls(broker: OwnBroker) -> None:
    with Conversation(broker.bootstrap) as conversation:
        answer = conversation.ask(CreateAclsRequest(creations=list(_creations())), CreateAclsResponse)
    assert not any(result.error_code for result in answer.results), answer


def _creations() -> Iterator[CreateAclsRequest.Creation]:
    yield _acl("bench-", "User:ANONYMOUS", pattern_type=PREFIXED)
    yield _acl("kafka-cluster", "User:ANONYMOUS", resource_type=CLUSTER)
    for number in range(ACLS - 2):
        pattern_type = PREFIXED if number % 4 == 0 else LITERAL
        yield _acl(f"topic-{number:0{number % 7 + 1}}", f"User:user-{number % 100}", pattern_type, operation=READ)


def _acl(
    name: str, principal: str, pattern_type: int = LITERAL, *, resource_type: int = TOPIC, operation: int = ALL
) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern_type,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )
