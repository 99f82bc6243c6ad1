"""AssignReplicasToDirs and failed log directories: where a broker's replicas are, and whether they can be used."""

from protocol.errors import ErrorCode as E
from tests.unit.broker.controller.cluster import OWN, Broker, Cluster, directory

UNASSIGNED = (1).to_bytes(16, "big")


class Situation:
    """Broker 2 has two log directories, and leads orders-0; the controller's own broker follows."""

    def __init__(self):
        self.cluster = Cluster()
        self.second = self.cluster.broker(2, directories=2)
        self.topic_id = self.cluster.topic("orders", [2, OWN]).topic_id

    def directories(self):
        return self.cluster.partition().directories


def test_a_broker_says_in_which_directory_its_replica_is():
    situation = Situation()
    assert situation.directories() == (UNASSIGNED, directory(OWN))

    assert situation.second.assign(directory(2, 1), (situation.topic_id, 0)) == [E.NONE]

    assert situation.directories() == (directory(2, 1), directory(OWN))
    assert situation.cluster.leader_and_isr() == (2, 0, [2, OWN])


def test_an_assignment_that_is_there_already_writes_nothing():
    situation = Situation()
    situation.second.assign(directory(2, 1), (situation.topic_id, 0))
    end_offset = situation.cluster.log.end_offset

    assert situation.second.assign(directory(2, 1), (situation.topic_id, 0)) == [E.NONE]
    assert situation.cluster.log.end_offset == end_offset


def test_what_is_not_there_or_not_the_brokers_gets_an_error():
    situation = Situation()
    cluster, second = situation.cluster, situation.second
    own = cluster.topic("own", [OWN]).topic_id

    assert second.assign(directory(2), (bytes(15) + b"x", 0), (situation.topic_id, 7), (own, 0)) == [
        E.UNKNOWN_TOPIC_ID,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_LEADER_OR_FOLLOWER,
    ]


def test_a_directory_that_the_broker_has_not_registered_has_failed():
    situation = Situation()

    assert situation.second.assign(directory(2, 9), (situation.topic_id, 0)) == [E.NONE]

    assert situation.directories() == (directory(2, 9), directory(OWN))
    assert situation.cluster.leader_and_isr() == (OWN, 1, [OWN])


def test_a_broker_of_another_epoch_assigns_nothing():
    situation = Situation()
    situation.second.epoch -= 1

    assert situation.second.assign(directory(2, 1), (situation.topic_id, 0)) == []
    assert situation.directories() == (UNASSIGNED, directory(OWN))


def test_replicas_in_a_failed_directory_neither_lead_nor_are_in_sync():
    situation = Situation()
    cluster, second = situation.cluster, situation.second
    other = cluster.topic("other", [2, OWN]).topic_id
    second.assign(directory(2, 1), (situation.topic_id, 0))
    second.assign(directory(2, 0), (other, 0))

    second.heartbeat(offline=[directory(2, 1)])

    assert cluster.leader_and_isr() == (OWN, 1, [OWN])
    assert cluster.leader_and_isr("other") == (2, 0, [2, OWN])
    assert second.registered.log_dirs == [directory(2, 0)]


def test_a_failed_directory_is_reported_with_every_heartbeat_and_counts_once():
    situation = Situation()
    situation.second.heartbeat(offline=[directory(2, 1)])
    end_offset = situation.cluster.log.end_offset

    situation.second.heartbeat(offline=[directory(2, 1)])

    assert situation.cluster.log.end_offset == end_offset


def test_a_cordoned_directory_takes_no_new_replicas():
    cluster = Cluster(metadata_version=30)
    second = cluster.broker(2)
    second.heartbeat(cordoned=[])
    assert second.registered.cordoned_log_dirs == []

    second.heartbeat(cordoned=[directory(2)])

    assert second.registered.cordoned_log_dirs == [directory(2)]
    (placed,) = cluster.controller._placement().place(1, 1)
    assert placed == [OWN]


def test_before_4_3_no_directory_is_cordoned():
    cluster = Cluster()
    second = cluster.broker(2)

    second.heartbeat(cordoned=[directory(2)])

    assert second.registered.cordoned_log_dirs is None


def test_a_broker_that_registers_no_directories_has_them_all_online():
    cluster = Cluster(metadata_version=14)
    second = Broker(cluster, 2)
    assert second.register(log_dirs=[]) is E.NONE
    second.heartbeat()
    cluster.topic("orders", [2, OWN])

    assert cluster.leader_and_isr() == (2, 0, [2, OWN])
