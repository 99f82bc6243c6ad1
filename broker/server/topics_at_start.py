"""Topics of `ottla.topics.at.start`: missing topics are created before the first request is accepted."""

import logging
from collections.abc import Callable, Sequence

from broker.controller.client import ControllerClient
from broker.controller.topic_creation import BROKER_DEFAULT, NewTopic, TopicResult
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.topic_rules import fault_of_name
from broker.runtime.counted import counted
from config.topics_at_start import KEY, TopicAtStart
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)


def fault_of_names(wanted: Sequence[TopicAtStart]) -> str | None:
    """Why the topics can't be made whatever is in the data directory, as a sentence; None if they can."""
    faults = (fault_of_name(topic.name) for topic in wanted)
    return next((_sentence(fault) for fault in faults if fault is not None), None)


def create_topics_at_start(
    wanted: Sequence[TopicAtStart],
    *,
    controller: ControllerClient,
    image: MetadataImage,
    then: Callable[[str | None], None],
) -> None:
    """Create the topics that do not exist; existing topics stay as they are.

    All are checked before the first is created. ``then`` gets None once they are durable and published, or in one
    sentence why none was created. Raises StorageError: the metadata log can't be written.
    """
    missing = [_new_topic(topic) for topic in wanted if not _is_there(topic, image)]
    if not missing:
        then(None)
        return

    def checked(results: list[TopicResult]) -> None:
        refused = next((result for result in results if result.error is not ErrorCode.NONE), None)
        if refused is not None:
            then(_sentence(refused.message or refused.error.name))
            return
        controller.create_topics(missing, timeout_ms=1, validate_only=False, then=lambda _: then(None))

    controller.create_topics(missing, timeout_ms=1, validate_only=True, then=checked)


def _is_there(topic: TopicAtStart, image: MetadataImage) -> bool:
    found = image.topics.by_name.get(topic.name)
    if found is not None and topic.partitions not in (None, len(found.partitions)):
        log.warning(
            "topic %s keeps its %s, though %s says %d",
            *(topic.name, counted(len(found.partitions), "partition"), KEY, topic.partitions),
        )
    return found is not None


def _new_topic(topic: TopicAtStart) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=BROKER_DEFAULT if topic.partitions is None else topic.partitions,
        configs=tuple(topic.configs.items()),
    )


def _sentence(fault: str) -> str:
    return f"{KEY} can't be kept: {fault}"
