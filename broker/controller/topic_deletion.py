"""Deletion of topics: which topics a DeleteTopics request may remove, and the errors for the others."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topics import TopicImage
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
    image: MetadataImage, unwanted: Sequence[UnwantedTopic]
) -> tuple[list[TopicImage], list[DeletionResult]]:
    """The topics to remove, and one result for each topic asked for.

    A topic that is named more than once, by name or id, is not deleted; it gets one result.
    """
    results: list[DeletionResult] = []
    names: list[str] = []
    topic_ids: list[bytes] = []
    for topic in unwanted:
        if topic.name is None and topic.topic_id == NO_UUID:
            results.append(_invalid(topic, "A topic to delete has neither a name nor an id."))
        elif topic.name is None:
            topic_ids.append(topic.topic_id)
        elif topic.topic_id == NO_UUID:
            names.append(topic.name)
        else:
            results.append(_invalid(topic, f"Topic '{topic.name}' is given by name and by id; one of them is enough."))

    doomed: dict[str, tuple[TopicImage, DeletionResult]] = {}
    for name, count in Counter(names).items():
        by_name = UnwantedTopic(name=name)
        found = image.topics.by_name.get(name)
        if count > 1:
            results.append(_invalid(by_name, f"The request names topic '{name}' {count} times."))
        elif found is None:
            text = f"There is no topic '{name}' here."
            results.append(DeletionResult(name=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=text))
        else:
            doomed[name] = (found, DeletionResult(name=name, topic_id=found.topic_id))
    for topic_id, count in Counter(topic_ids).items():
        by_id = UnwantedTopic(name=None, topic_id=topic_id)
        found = image.topics.by_id.get(topic_id)
        if count > 1:
            results.append(_invalid(by_id, f"The request has the same topic id {count} times."))
        elif found is None:
            text = "No topic here has this id."
            results.append(DeletionResult(name=None, topic_id=topic_id, error=ErrorCode.UNKNOWN_TOPIC_ID, message=text))
        elif found.name in doomed:
            del doomed[found.name]
            named = UnwantedTopic(name=found.name, topic_id=topic_id)
            results.append(_invalid(named, f"The request has topic '{found.name}' by its name and by its id."))
        else:
            doomed[found.name] = (found, DeletionResult(name=found.name, topic_id=topic_id))
    results += [result for _, result in doomed.values()]
    return [topic for topic, _ in doomed.values()], results


def _invalid(topic: UnwantedTopic, message: str) -> DeletionResult:
    return DeletionResult(name=topic.name, topic_id=topic.topic_id, error=ErrorCode.INVALID_REQUEST, message=message)
