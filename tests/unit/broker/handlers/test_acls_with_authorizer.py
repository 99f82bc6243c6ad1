"""DescribeAcls, CreateAcls and DeleteAcls through the codec, with an authorizer. Anonymous clients are super users."""

from typing import Any

import pytest

from broker.controller import acl_changes
from broker.handlers import acls as handler
from broker.request.permissions import Operation, ResourceType
from broker.security.acls.codes import PatternType
from broker.security.acls.index import Acl
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.support.acls import AUTHORIZER, acl, creation, deletion, denial, description
from tests.support.broker import InProcessBroker
from tests.support.sasl_client import LISTENERS, SaslClient

pytestmark = pytest.mark.settings(**AUTHORIZER, **LISTENERS, super_users="User:ANONYMOUS")


def names(broker: InProcessBroker, **fields: Any) -> list[str]:
    answer = broker.ask(description(**fields), 3)
    assert answer.error_code == E.NONE
    return [resource.resource_name for resource in answer.resources for _ in resource.acls]


@serves(CreateAclsRequest)
@every_version(CreateAclsRequest)
def test_acls_are_created_once(broker: InProcessBroker, version: int) -> None:
    wanted = creation(acl("orders"), acl("orders"), acl("orders", operation=Operation.READ))
    for _ in range(2):
        answer = broker.ask(wanted, version)
        assert [(result.error_code, result.error_message) for result in answer.results] == [(E.NONE, "")] * 3
    assert names(broker) == ["orders", "orders"]


@serves(CreateAclsRequest, E.INVALID_REQUEST)
@every_version(CreateAclsRequest)
def test_an_acl_that_cannot_be_is_refused_beside_others(broker: InProcessBroker, version: int) -> None:
    wanted = creation(
        acl("orders", principal="alice"), acl("x", resource_type=ResourceType.CLUSTER), acl(""), acl("letters")
    )
    answer = broker.ask(wanted, version)
    assert [result.error_code for result in answer.results] == [E.INVALID_REQUEST] * 3 + [E.NONE]
    assert names(broker) == ["letters"]


@serves(CreateAclsRequest, E.UNSUPPORTED_VERSION)
@every_version(CreateAclsRequest)
@pytest.mark.settings(**AUTHORIZER, **LISTENERS, super_users="User:ANONYMOUS", ottla_release_version="4.0")
def test_ranges_of_hosts_need_the_metadata_version_that_has_them(broker: InProcessBroker, version: int) -> None:
    answer = broker.ask(creation(acl(host="10.0.0.0/8")), version)
    assert [result.error_code for result in answer.results] == [E.UNSUPPORTED_VERSION]


@serves(DescribeAclsRequest)
@every_version(DescribeAclsRequest)
def test_acls_of_a_resource_pattern_are_described_together(broker: InProcessBroker, version: int) -> None:
    broker.ask(
        creation(acl("orders"), acl("ord", pattern_type=PatternType.PREFIXED), denial("orders", principal="User:bob")),
        3,
    )
    answer = broker.ask(description(), version)
    assert [
        (resource.resource_name, resource.pattern_type, [one.principal for one in resource.acls])
        for resource in answer.resources
    ] == [("orders", PatternType.LITERAL, ["User:alice", "User:bob"]), ("ord", PatternType.PREFIXED, ["User:alice"])]


def test_of_many_acls_those_that_are_asked_for_are_found_in_a_thread(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "MOST_AT_ONCE", 1)
    broker.ask(creation(acl("orders"), acl("letters")), 3)
    assert names(broker, resource_name_filter="letters") == ["letters"]


@serves(DeleteAclsRequest)
@every_version(DeleteAclsRequest)
def test_deleted_acls_are_named(broker: InProcessBroker, version: int) -> None:
    broker.ask(creation(acl("orders"), acl("letters"), acl("orders", principal="User:bob")), 3)
    answer = broker.ask(deletion(resource_name_filter="orders"), version)
    (result,) = answer.filter_results
    assert (result.error_code, result.error_message) == (E.NONE, None)
    assert [(one.resource_name, one.principal) for one in result.matching_acls] == [
        ("orders", "User:alice"),
        ("orders", "User:bob"),
    ]
    assert names(broker) == ["letters"]


@serves(DeleteAclsRequest, E.INVALID_REQUEST)
@every_version(DeleteAclsRequest)
def test_a_filter_with_codes_that_there_are_not_deletes_nothing(broker: InProcessBroker, version: int) -> None:
    broker.ask(creation(acl("orders")), 3)
    answer = broker.ask(deletion(operation=99), version)
    assert [result.error_code for result in answer.filter_results] == [E.INVALID_REQUEST]
    assert names(broker) == ["orders"]


def test_one_request_changes_so_many_acls_at_most(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "MOST_CHANGES", 2)
    answer = broker.ask(creation(*(acl(name) for name in "abc")), 3)
    assert {result.error_code for result in answer.results} == {E.INVALID_REQUEST}
    assert names(broker) == []
    for name in "abc":
        broker.ask(creation(acl(name)), 3)
    answer = broker.ask(deletion(), 3)
    assert [result.error_code for result in answer.filter_results] == [E.INVALID_REQUEST]
    assert names(broker) == ["a", "b", "c"]


@serves(CreateAclsRequest, E.CLUSTER_AUTHORIZATION_FAILED)
@serves(DeleteAclsRequest, E.CLUSTER_AUTHORIZATION_FAILED)
@serves(DescribeAclsRequest, E.CLUSTER_AUTHORIZATION_FAILED)
@every_version(CreateAclsRequest)
def test_acls_are_for_those_who_may_alter_the_cluster(broker: InProcessBroker, version: int) -> None:
    alice = SaslClient(broker)
    alice.log_in()
    assert alice.ask(creation(acl()), version).results[0].error_code == E.CLUSTER_AUTHORIZATION_FAILED
    assert alice.ask(deletion(), version).filter_results[0].error_code == E.CLUSTER_AUTHORIZATION_FAILED
    assert alice.ask(description(), version).error_code == E.CLUSTER_AUTHORIZATION_FAILED


def test_acls_outlive_a_restart_and_a_snapshot(broker: InProcessBroker) -> None:
    broker.ask(creation(acl("orders"), acl("letters")), 3)
    broker.ask(deletion(resource_name_filter="letters"), 3)
    before = acls_of(broker)
    broker.restart()
    assert acls_of(broker) == before
    assert names(broker) == ["orders"]


def acls_of(broker: InProcessBroker) -> list[Acl]:
    return [one for one in broker.server.metadata.image.records() if isinstance(one, Acl)]
