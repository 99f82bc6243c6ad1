"""Members that a group refuses: one too many, one without a common protocol, one whose session timeout is too long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from tests.support.clients import Client, connect
from tests.support.clients.aiokafka_member import UNKNOWN_TO_AIOKAFKA
from tests.support.clients.members import Membership, SeenMember, places, wait_for, wait_until_shared

INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_SESSION_TIMEOUT = 26
GROUP_MAX_SIZE_REACHED = 81

SETTINGS = {
    "group.max.size": "2",
    "group.min.session.timeout.ms": "8000",
    "group.max.session.timeout.ms": "60000",
}


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that does not take everybody."""
    with broker_for_tests(tmp_path_factory.mktemp("strict-broker"), settings=SETTINGS) as process:
        yield process


@pytest.fixture
def strict(client_name: str, strict_broker: BrokerProcess, topic: str) -> Client:
    client = connect(client_name, strict_broker.bootstrap)
    client.create_topic(topic, partitions=4)
    return client


@pytest.fixture
def join(strict: Client, group: str, topic: str) -> Iterator[Callable[..., SeenMember]]:
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            SeenMember(strict, Membership(**{"group": group, "topics": (topic,), **options}))
        )


def refused_with(code: int, member: SeenMember) -> bool:
    return member.seen.ended is not None and member.seen.ended.code == code


def test_a_group_takes_no_more_members_than_it_may_have(
    strict: Client, topic: str, group: str, join: Callable[..., SeenMember]
) -> None:
    members = [join(), join()]
    wait_until_shared(strict, group, places(topic, 4), members)

    third = join()

    code = UNKNOWN_TO_AIOKAFKA if strict.name == "aiokafka" else GROUP_MAX_SIZE_REACHED
    wait_for("the refusal of a third member", lambda: refused_with(code, third), members)
    members[0].close()
    another = join()
    wait_until_shared(strict, group, places(topic, 4), [members[1], another])


def test_a_member_that_knows_none_of_the_groups_ways_to_share_is_refused(
    strict: Client, topic: str, group: str, join: Callable[..., SeenMember]
) -> None:
    member = join(assignor="range")
    wait_until_shared(strict, group, places(topic, 4), [member])
    rebalances = member.seen.rebalances

    stranger = join(assignor="roundrobin")

    wait_for("the refusal", lambda: refused_with(INCONSISTENT_GROUP_PROTOCOL, stranger), [member])
    assert member.seen.rebalances == rebalances


@pytest.mark.parametrize("session_timeout_ms", [7_999, 60_001])
def test_a_session_is_as_long_as_the_broker_allows(join: Callable[..., SeenMember], session_timeout_ms: int) -> None:
    member = join(session_timeout_ms=session_timeout_ms)

    wait_for("the refusal", lambda: refused_with(INVALID_SESSION_TIMEOUT, member), [])
