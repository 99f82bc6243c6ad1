"""DescribeAcls, CreateAcls and DeleteAcls through the codec, without an authorizer."""

from typing import Any

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.support.broker import InProcessBroker

ANY = 1
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3


def described(**codes: int) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        **{
            **{"resource_type_filter": ANY, "pattern_type_filter": LITERAL, "operation": ANY, "permission_type": ANY},
            **codes,
        },
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
    )


def created(*names: str, **codes: int) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            CreateAclsRequest.Creation(
                **{
                    **{"resource_type": TOPIC, "resource_pattern_type": LITERAL},
                    **{"operation": READ, "permission_type": ALLOW},
                    **codes,
                },
                resource_name=name,
                principal="User:alice",
                host="*",
            )
            for name in names
        ]
    )


def deleted(*names: str, **codes: int) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.Filter(
                **{
                    **{"resource_type_filter": TOPIC, "pattern_type_filter": LITERAL},
                    **{"operation": ANY, "permission_type": ANY},
                    **codes,
                },
                resource_name_filter=name,
                principal_filter=None,
                host_filter=None,
            )
            for name in names
        ]
    )


@serves(DescribeAclsRequest, E.SECURITY_DISABLED)
@every_version(DescribeAclsRequest)
def test_there_are_no_acls_to_be_described(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(described(), version)
    assert (answer.error_code, answer.resources) == (E.SECURITY_DISABLED, [])
    assert answer.error_message == "No Authorizer is configured on the broker"


@serves(CreateAclsRequest, E.SECURITY_DISABLED)
@every_version(CreateAclsRequest)
def test_no_acl_is_created(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(created("orders", "letters"), version)
    assert [(result.error_code, result.error_message) for result in answer.results] == [
        (E.SECURITY_DISABLED, "No Authorizer is configured.")
    ] * 2


@serves(DeleteAclsRequest, E.SECURITY_DISABLED)
@every_version(DeleteAclsRequest)
def test_no_acl_is_deleted(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(deleted("orders", "letters"), version)
    assert [(result.error_code, result.matching_acls) for result in answer.filter_results] == [
        (E.SECURITY_DISABLED, [])
    ] * 2


@pytest.mark.parametrize(
    "request_",
    [
        described(resource_type_filter=0),
        described(pattern_type_filter=0),
        described(operation=0),
        described(permission_type=0),
        created("orders", resource_type=0),
        created("orders", resource_pattern_type=0),
        created("orders", operation=0),
        created("orders", permission_type=0),
        deleted("orders", resource_type_filter=0),
        deleted("orders", pattern_type_filter=0),
        deleted("orders", operation=0),
        deleted("orders", permission_type=0),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_code_that_the_client_itself_does_not_know_closes_the_connection(
    broker: InProcessBroker, request_: Any
) -> None:
    client = broker.connect()
    client.send(request_, 2)
    assert client.is_closed()
