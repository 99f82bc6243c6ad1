"""The archive's requests to the broker: configs, groups, committed offsets, and the retention hold."""

from collections.abc import Collection, Iterable
from typing import Final

from pipeline.archive.manifest import CommittedOffset, Manifest
from pipeline.archive.run import Known
from pipeline.broker import Broker, Commit
from pipeline.errors import PipelineError
from storage.topic_partition import TopicPartition

HOLD: Final = "ottla.archive.group"
"""The topic config that makes retention wait for a group's committed offset."""


def known_of(broker: Broker, topics: Collection[str], own_group: str) -> Known:
    """Configs, groups and committed offsets of these topics, from the broker. Raises BrokerError.

    The group of the archive itself is left out: its committed offsets mean nothing to the users of restored topics.
    """
    seen = broker.topics()
    return Known(
        partition_counts={name: len(seen[name].partitions) for name in topics if name in seen},
        configs=broker.topic_configs([name for name in topics if name in seen]),
        groups=tuple(_committed(broker, set(topics), own_group)),
    )


def _committed(broker: Broker, topics: Collection[str], own_group: str) -> Iterable[CommittedOffset]:
    for group in broker.groups():
        if group == own_group:
            continue
        for place, commit in sorted(broker.commits(group).items()):
            if place.topic in topics:
                yield CommittedOffset(
                    group, place.topic, place.partition, commit.offset, commit.leader_epoch, commit.metadata
                )


def commit_archived(broker: Broker, manifest: Manifest, topic_ids: Collection[tuple[str, str | None]]) -> None:
    """Commit, for the archive's group, the archived offsets of topics that still have the same topic id. Raises
    BrokerError.

    The leader epoch of the last batch is committed too: after a power cut other records may have these offsets, and by
    the epoch the broker knows that those are not archived.
    """
    epochs: dict[TopicPartition, int] = {}
    for file in manifest.batches:
        place = TopicPartition(file.topic, file.partition)
        epochs[place] = max(epochs.get(place, -1), file.leader_epoch)
    archived = {
        (place := TopicPartition(name, number)): Commit(partition.until_offset, epochs.get(place, -1), "")
        for name, topic in manifest.topics.items()
        if (name, topic.topic_id) in topic_ids
        for number, partition in topic.partitions.items()
    }
    committed = broker.commits(manifest.group)
    broker.commit(manifest.group, {place: to for place, to in archived.items() if committed.get(place) != to})


def hold(broker: Broker, group: str, topics: Iterable[str]) -> None:
    """Set the config `ottla.archive.group` of these topics: their retention waits for the group. Raises PipelineError
    if a topic has another group."""
    configs = broker.topic_configs(topics)
    for topic, set_on_it in sorted(configs.items()):
        holder = set_on_it.get(HOLD)
        if holder and holder != group:
            raise PipelineError(f"topic {topic} is held by the group {holder}; it can be held by one only")
        if holder is None:
            broker.alter_topic_configs(topic, {HOLD: group})
