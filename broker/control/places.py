"""What requests and answers are about, whatever an API calls it: topics and partitions, which are found, taken out and
put in; groups and transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from broker.handlers.find_coordinator import GROUP, TRANSACTION
from broker.metadata.image.topics import TopicsImage
from broker.metadata.topic_rules import CONSUMER_OFFSETS, TRANSACTION_STATE
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.transactions import TxnOffsetCommitRequest
from protocol.schema import NO_UUID


class Coordinated(NamedTuple):
    """A group or a transactional id."""

    topic: str
    """The internal topic that its coordinator keeps its state in."""
    key: str


TopicName = Callable[[Any], str]
"""The name of the topic that a part of a message is about; empty where it is about none."""

_TOPICS: Final = frozenset(
    {"topics", "topic_data", "v3_and_below_topics", "responses", "results_by_topic_v3_and_below"}
)
_PARTITIONS: Final = frozenset(
    {"partitions", "partition_data", "partition_indexes", "partition_responses", "results_by_partition"}
)
_COORDINATED_BY: Final = {
    **dict.fromkeys(("group_id", "group_ids", "groups", "groups_names"), CONSUMER_OFFSETS),
    **dict.fromkeys(("transactional_id", "transactional_ids"), TRANSACTION_STATE),
}
_INDEXES: Final = ("partition", "partition_index", "index")


def topic_name(topics: TopicsImage) -> TopicName:
    """Names topics; those that a message has by id are looked up."""

    def name_of(part: Any) -> str:
        name = getattr(part, "name", None) or getattr(part, "topic", None)
        topic_id = getattr(part, "topic_id", NO_UUID)
        if not name and topic_id != NO_UUID and (found := topics.by_id.get(topic_id)) is not None:
            name = found.name
        return name if isinstance(name, str) else ""

    return name_of


def places_of(message: object, name_of: TopicName) -> dict[str, list[int]]:
    """The topics in a message, each with the partitions that stand below it."""
    places: dict[str, list[int]] = {}
    for topics in _lists(message, _TOPICS):
        for topic in topics:
            if name := name_of(topic):
                indexes = places.setdefault(name, [])
                for partitions in _lists(topic, _PARTITIONS):
                    indexes.extend(map(_index_of, partitions))
    return places


def coordinated_in(request: object) -> list[Coordinated]:
    """The groups and transactional ids that a request names, beginning with the one whose coordinator it is for."""
    if isinstance(request, FindCoordinatorRequest):
        topic = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}.get(request.key_type)
        keys = [*request.coordinator_keys, request.key]
        return [] if topic is None else [Coordinated(topic, key) for key in keys if key]
    found = []
    for name in names_of(request):
        topic = _COORDINATED_BY.get(name.removeprefix("v3_and_below_"))
        if topic is not None:
            value = getattr(request, name)
            for one in value if isinstance(value, list) else [value]:
                key = one if isinstance(one, str) else getattr(one, "group_id", None)
                if key:
                    found.append(Coordinated(topic, key))
    # The request names its transactional id first, and goes to the coordinator of the group.
    return found[::-1] if isinstance(request, TxnOffsetCommitRequest) else found


def keep(message: object, name_of: TopicName, is_kept: Callable[[str, int | None], bool]) -> bool:
    """Take out of ``message`` every partition, and topic without partitions, that is not kept; whether any is left.
    A topic whose partitions are not named is asked about with None."""
    is_any_left = False
    for topics in _lists(message, _TOPICS):
        left = []
        for topic in topics:
            name = name_of(topic)
            lists = list(_lists(topic, _PARTITIONS))
            for partitions in lists:
                partitions[:] = [one for one in partitions if is_kept(name, _index_of(one))]
            if any(lists) if lists else is_kept(name, None):
                left.append(topic)
        topics[:] = left
        is_any_left |= bool(left)
    return is_any_left


def put_in(answer: object, others: object) -> None:
    """Put the partitions of ``others`` into ``answer``, an answer of the same API, in the place of its own."""
    for own_topics, other_topics in zip(_lists(answer, _TOPICS), _lists(others, _TOPICS), strict=True):
        for other in other_topics:
            own = next((one for one in own_topics if _key_of(one) == _key_of(other)), None)
            if own is None:
                own_topics.append(other)
                continue
            for own_partitions, partitions in zip(_lists(own, _PARTITIONS), _lists(other, _PARTITIONS), strict=True):
                replaced = set(map(_index_of, partitions))
                own_partitions[:] = [one for one in own_partitions if _index_of(one) not in replaced] + partitions


def names_of(message: object) -> Iterable[str]:
    """The names of a message's fields."""
    found: Iterable[str] = getattr(type(message), "__slots__", ()) or getattr(message, "__dict__", ())
    return found


def _lists(message: object, names: frozenset[str]) -> Iterator[list[Any]]:
    for name in names_of(message):
        value = getattr(message, name, None)
        if name in names and isinstance(value, list):
            yield value


def _index_of(partition: Any) -> int:
    if isinstance(partition, int):
        return partition
    return next((getattr(partition, name) for name in _INDEXES if hasattr(partition, name)), -1)


def _key_of(topic: Any) -> tuple[object, object]:
    return getattr(topic, "name", None) or getattr(topic, "topic", None), getattr(topic, "topic_id", NO_UUID)
