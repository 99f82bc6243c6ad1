"""Groups are there after a stop and after a SIGKILL: their offsets, and their members, who go on where they were."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from dev.broker_process import BrokerProcess
from tests.support.clients import Client, Committed, Place, Record, connect
from tests.support.clients.members import Membership, SeenMember, places, wait_for, wait_until_shared

STOP: dict[str, Callable[[BrokerProcess], object]] = {"SIGTERM": lambda b: b.stop(), "SIGKILL": lambda b: b.kill()}

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def refused_sockets() -> Iterator[None]:
    """kafka-python leaves sockets behind whose connection was refused: they are collected here, where nobody warns."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(params=list(STOP))
def end(request: pytest.FixtureRequest) -> Callable[[BrokerProcess], object]:
    return STOP[str(request.param)]


@pytest.fixture
def own_client(client_name: str, own_broker: BrokerProcess, topic: str) -> Client:
    """A client of a broker that may be killed, which has the test's topic with four partitions."""
    client = connect(client_name, own_broker.bootstrap)
    client.create_topic(topic, partitions=4)
    return client


@pytest.fixture
def join(own_client: Client, group: str, topic: str) -> Iterator[Callable[[], SeenMember]]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(
            SeenMember(own_client, Membership(group=group, topics=(topic,), commits="after each poll"))
        )


def numbered(first: int, count: int) -> list[Record]:
    """Records for four partitions in turns."""
    return [Record(value=b"%d" % number, partition=number % 4) for number in range(first, first + count)]


def test_offsets_are_there_after_the_broker_has_ended_again_and_again(
    own_client: Client, own_broker: BrokerProcess, topic: str, group: str, end: Callable[[BrokerProcess], object]
) -> None:
    everything = places(topic, 4)
    for life in range(3):
        offsets = {place: Committed(10 * life + place.partition, f"life {life}") for place in everything}
        own_client.commit(group, offsets)
        own_client.commit(f"{group}-{life}", {Place(topic, 0): Committed(life)})

        end(own_broker)
        own_broker.start()

        found = own_client.committed(group, everything)
        assert {place: (one.offset, one.metadata.rstrip("\0")) for place, one in found.items()} == offsets
        assert own_client.describe_group(group).state == "Empty"
        for earlier in range(life + 1):
            only = {Place(topic, 0): Committed(earlier)}
            assert own_client.committed(f"{group}-{earlier}", everything) == only


def test_members_go_on_without_a_rebalance(
    own_client: Client,
    own_broker: BrokerProcess,
    topic: str,
    group: str,
    end: Callable[[BrokerProcess], object],
    join: Callable[[], SeenMember],
) -> None:
    members = [join(), join()]
    wait_until_shared(own_client, group, places(topic, 4), members)
    rebalances = [member.seen.rebalances for member in members]
    own_client.produce(topic, numbered(0, 40))
    wait_for("committing", lambda: sum(sum(m.seen.committed.values()) for m in members) == 40, members)

    end(own_broker)
    own_broker.start()

    own_client.produce(topic, numbered(40, 40))
    wait_for("committing more", lambda: sum(sum(m.seen.committed.values()) for m in members) == 80, members)
    assert [member.seen.rebalances for member in members] == rebalances
    assert Counter(value for member in members for value in member.seen.values) == Counter(
        record.value for record in numbered(0, 80)
    )
    assert own_client.committed(group, places(topic, 4)) == {place: Committed(20) for place in places(topic, 4)}


def test_whoever_joins_after_a_restart_begins_at_what_was_committed(
    own_client: Client,
    own_broker: BrokerProcess,
    topic: str,
    group: str,
    end: Callable[[BrokerProcess], object],
    join: Callable[[], SeenMember],
) -> None:
    own_client.produce(topic, numbered(0, 40))
    first = join()
    wait_for("committing", lambda: sum(first.seen.committed.values()) == 40, [first])
    first.close()

    end(own_broker)
    own_broker.start()

    second = join()
    wait_until_shared(own_client, group, places(topic, 4), [second])
    own_client.produce(topic, numbered(40, 4))
    wait_for("reading", lambda: len(second.seen.values) >= 4, [second])
    assert Counter(second.seen.values) == Counter(record.value for record in numbered(40, 4))
