"""The brokers of an image, by listener."""

from collections.abc import Sequence

from broker.metadata.brokers import Brokers, BrokersOnListener, ListedBroker, endpoint_of
from broker.metadata.cache import MetadataCache
from broker.request.node import NO_NODE, Endpoint
from protocol.records.cluster_metadata import BrokerRegistrationChangeRecord, FenceBrokerRecord, NoOpRecord
from tests.support.cluster import broker_record, directory_of
from tests.support.metadata import image_of, pretend, replayed

THREE = (
    broker_record(3, "INSIDE", fenced=True),
    broker_record(1, "INSIDE", "OUTSIDE", rack="r1"),
    broker_record(2, "INSIDE"),
)


class Chosen:
    """Chooses the last of several, and remembers what it could choose from."""

    def __init__(self) -> None:
        self.of: list[Sequence[int]] = []

    def __call__(self, ids: Sequence[int]) -> int:
        self.of.append(list(ids))
        return ids[-1]


def test_an_endpoint_is_that_of_the_listener_whether_the_broker_is_fenced_or_not() -> None:
    image = image_of(*THREE)
    assert endpoint_of(image, 1, "INSIDE") == Endpoint("broker-1.example", 9_101)
    assert endpoint_of(image, 1, "OUTSIDE") == Endpoint("broker-1.example", 9_201)
    assert endpoint_of(image, 3, "INSIDE") == Endpoint("broker-3.example", 9_103)
    assert endpoint_of(image, 2, "OUTSIDE") is None
    assert endpoint_of(image, 4, "INSIDE") is None


def test_a_listener_knows_its_brokers_and_their_directories() -> None:
    brokers = BrokersOnListener(image_of(*THREE).cluster, "INSIDE")
    assert [broker.broker_id for broker in brokers.alive] == [1, 2]
    assert [(broker.broker_id, broker.is_fenced) for broker in brokers.listed] == [(1, False), (2, False), (3, True)]
    assert brokers.find(3) == ListedBroker(3, "broker-3.example", 9_103, None, True)
    assert (brokers.find_alive(3), brokers.find(4)) == (None, None)
    assert brokers.find_alive(2) == brokers.find(2)
    assert brokers.directories == {1: {directory_of(1)}, 2: {directory_of(2)}}
    outside = BrokersOnListener(image_of(*THREE).cluster, "OUTSIDE")
    assert (outside.find(2), outside.registered_ids) == (None, {1, 2, 3})


def test_what_is_found_is_kept_until_a_registration_changes() -> None:
    metadata, chosen = MetadataCache(), Chosen()
    brokers = Brokers(metadata, chosen)
    assert (brokers.any_alive(), brokers.on("INSIDE").alive) == (NO_NODE, [])

    pretend(metadata, *THREE)
    found = brokers.on("INSIDE")
    assert [broker.broker_id for broker in found.alive] == [1, 2]
    pretend(metadata, NoOpRecord())
    assert brokers.on("INSIDE") is found

    pretend(metadata, FenceBrokerRecord(id=1, epoch=1))
    assert [broker.broker_id for broker in brokers.on("INSIDE").alive] == [2]
    assert brokers.on("OUTSIDE").alive == []
    assert brokers.any_alive() == 2
    assert chosen.of == [], "of one broker nothing is to be chosen"

    pretend(metadata, BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, fenced=-1))
    assert brokers.any_alive() == 3
    assert [sorted(ids) for ids in chosen.of] == [[2, 3]]


def test_any_broker_may_be_chosen_whatever_its_listeners() -> None:
    metadata, chosen = MetadataCache(), Chosen()
    metadata.image = replayed(image_of(*THREE), broker_record(2, "OUTSIDE"))
    assert Brokers(metadata, chosen).any_alive() in (1, 2)
    assert [sorted(ids) for ids in chosen.of] == [[1, 2]]
