"""Deletion of topics: which topics a DeleteTopics request may remove, and Kafka's words for the others."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topics import TopicImage
from broker.request.faults import ThrottlingQuotaExceeded
from broker.request.quota import MutationQuota
from protocol.errors import ErrorCode
from protocol.schema import NO_UUID


class UnwantedTopic(NamedTuple):
    """A topic that a client asks to delete, by name or by id."""

    name: str | None
    topic_id: bytes = NO_UUID


class DeletionResult(NamedTuple):
    """The result for one topic."""

    name: str | None
    topic_id: bytes = NO_UUID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def plan_deletion(
    image: MetadataImage, unwanted: Sequence[UnwantedTopic], mutations: MutationQuota | None = None
) -> tuple[list[TopicImage], list[DeletionResult]]:
    """The topics to remove, and one result for each topic asked for.

    A topic that is named more than once, by name or id, is not deleted; it gets one result. ``mutations`` is charged
    for each topic that is; None where nothing limits the client.
    """
    results: list[DeletionResult] = []
    names: list[str] = []
    topic_ids: list[bytes] = []
    for topic in unwanted:
        if topic.name is None and topic.topic_id == NO_UUID:
            results.append(_invalid(topic, "Neither topic name nor id were specified."))
        elif topic.name is None:
            topic_ids.append(topic.topic_id)
        elif topic.topic_id == NO_UUID:
            names.append(topic.name)
        else:
            results.append(_invalid(topic, "You may not specify both topic name and topic id."))

    doomed: dict[str, tuple[TopicImage, DeletionResult]] = {}
    for name, count in Counter(names).items():
        by_name = UnwantedTopic(name=name)
        found = image.topics.by_name.get(name)
        if count > 1:
            results.append(_invalid(by_name, "Duplicate topic name."))
        elif found is None:
            text = "This server does not host this topic-partition."
            results.append(DeletionResult(name=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=text))
        else:
            doomed[name] = (found, DeletionResult(name=name, topic_id=found.topic_id))
    for topic_id, count in Counter(topic_ids).items():
        by_id = UnwantedTopic(name=None, topic_id=topic_id)
        found = image.topics.by_id.get(topic_id)
        if count > 1:
            results.append(_invalid(by_id, "Duplicate topic id."))
        elif found is None:
            text = "This server does not host this topic ID."
            results.append(DeletionResult(name=None, topic_id=topic_id, error=ErrorCode.UNKNOWN_TOPIC_ID, message=text))
        elif found.name in doomed:
            del doomed[found.name]
            named = UnwantedTopic(name=found.name, topic_id=topic_id)
            results.append(_invalid(named, "The provided topic name maps to an ID that was already supplied."))
        else:
            doomed[found.name] = (found, DeletionResult(name=found.name, topic_id=topic_id))
    if mutations is not None:
        for name, (unneeded, result) in list(doomed.items()):
            try:
                mutations.charge(len(unneeded.partitions))
            except ThrottlingQuotaExceeded as fault:
                results.append(result._replace(error=fault.code))
                del doomed[name]
    results += [result for _, result in doomed.values()]
    return [topic for topic, _ in doomed.values()], results


def _invalid(topic: UnwantedTopic, message: str) -> DeletionResult:
    return DeletionResult(name=topic.name, topic_id=topic.topic_id, error=ErrorCode.INVALID_REQUEST, message=message)
