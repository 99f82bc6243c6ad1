"""Restoring the committed offsets of consumer groups."""

from collections.abc import Iterable
from itertools import groupby

from pipeline.archive.manifest import CommittedOffset
from pipeline.broker import Broker, Commit
from storage.topic_partition import TopicPartition


def commit_offsets(broker: Broker, committed: Iterable[CommittedOffset]) -> None:
    """Commit these offsets with their metadata. Raises BrokerError; a group with members refuses."""
    for group, places in groupby(sorted(committed), key=lambda one: one.group):
        broker.commit(
            group,
            {
                TopicPartition(one.topic, one.partition): Commit(one.offset, one.leader_epoch, one.metadata)
                for one in places
            },
        )
