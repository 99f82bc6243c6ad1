"""Brokers and topics of a cluster in tests, as records of its metadata log."""

from collections.abc import Mapping, Sequence

from broker.metadata.image.records import Record
from protocol.records.cluster_metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord

PORTS: Mapping[str, int] = {"PLAINTEXT": 9_000, "INSIDE": 9_100, "OUTSIDE": 9_200}
"""The port of broker 0 on each listener; those of the others follow."""


def directory_of(broker_id: int) -> bytes:
    """The id of the one log directory of a broker."""
    return bytes([0xD0, *bytes(14), broker_id])


def broker_record(
    broker_id: int,
    *listeners: str,
    rack: str | None = None,
    fenced: bool = False,
    directories: Sequence[bytes] | None = None,
) -> RegisterBrokerRecord:
    """The registration of a broker ``broker-<id>.example``, by default with the listener PLAINTEXT only."""
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes([broker_id] * 16),
        broker_epoch=broker_id,
        end_points=[
            RegisterBrokerRecord.EndPoint(
                name=listener, host=f"broker-{broker_id}.example", port=PORTS[listener] + broker_id, security_protocol=0
            )
            for listener in listeners or ("PLAINTEXT",)
        ],
        features=[],
        rack=rack,
        fenced=fenced,
        log_dirs=[directory_of(broker_id)] if directories is None else list(directories),
    )


def topic_records(name: str, *partitions: PartitionRecord) -> list[Record]:
    """The records of a topic whose id follows from its name."""
    topic_id = id_of(name)
    for index, partition in enumerate(partitions):
        partition.topic_id, partition.partition_id = topic_id, index
    return [TopicRecord(name=name, topic_id=topic_id), *partitions]


def id_of(name: str) -> bytes:
    """The id of a topic made of `topic_records`."""
    return name.encode().ljust(16, b".")[:16]


def partition_record(
    *replicas: int,
    leader: int | None = None,
    isr: Sequence[int] | None = None,
    epoch: int = 0,
    directories: Mapping[int, bytes] | None = None,
    eligible: Sequence[int] | None = None,
    last_known: Sequence[int] | None = None,
) -> PartitionRecord:
    """A partition of a topic; the first replica leads it, and all are in sync, where nothing else is said."""
    return PartitionRecord(
        partition_id=0,
        topic_id=bytes(16),
        replicas=list(replicas),
        isr=list(replicas if isr is None else isr),
        removing_replicas=[],
        adding_replicas=[],
        leader=replicas[0] if leader is None else leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
        directories=[(directories or {}).get(broker_id, directory_of(broker_id)) for broker_id in replicas],
        eligible_leader_replicas=None if eligible is None else list(eligible),
        last_known_elr=None if last_known is None else list(last_known),
    )
