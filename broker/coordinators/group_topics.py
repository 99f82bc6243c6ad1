"""GroupTopics: the topics of the current metadata image, as the state machines of groups see them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.coordinators.group.modern.topics import GroupTopic
from broker.metadata.cache import MetadataCache
from broker.metadata.image.topics import TopicImage


class GroupTopics:
    """Implements `broker.coordinators.group.modern.topics.TopicsView`."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._known: dict[str, tuple[TopicImage, object, GroupTopic]] = {}
        """Topics that groups have asked for, each with the images that it is made of."""

    def of_name(self, name: str) -> GroupTopic | None:
        """The topic of this name."""
        topic = self._metadata.image.topics.by_name.get(name)
        if topic is None:
            self._known.pop(name, None)
            return None
        return self._seen(topic)

    def of_id(self, topic_id: bytes) -> GroupTopic | None:
        """The topic with this id."""
        topic = self._metadata.image.topics.by_id.get(topic_id)
        return None if topic is None else self._seen(topic)

    def names(self) -> Iterator[str]:
        """The names of all topics."""
        return iter(self._metadata.image.topics.by_name)

    @property
    def version(self) -> int:
        """The end of the metadata log."""
        return self._metadata.image.end_offset

    def _seen(self, topic: TopicImage) -> GroupTopic:
        brokers = self._metadata.image.cluster
        known = self._known.get(topic.name)
        if known is not None and known[0] is topic and known[1] is brokers:
            return known[2]
        racks = {broker_id: broker.rack for broker_id, broker in brokers.brokers.items() if broker.rack}
        seen = GroupTopic(
            topic.name,
            topic.topic_id,
            len(topic.partitions),
            [
                tuple(sorted({racks[replica] for replica in partition.replicas if replica in racks}))
                for partition in topic.partitions
            ]
            if racks
            else [],
        )
        if known is not None and known[2] == seen:
            # A new leader epoch, say: nothing that groups look at.
            seen = known[2]
        self._known[topic.name] = (topic, brokers, seen)
        return seen
