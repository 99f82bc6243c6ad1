"""OffsetCommit, OffsetFetch and OffsetDelete through the codec. What is expected was seen on Apache Kafka 4.4.0."""

from typing import Any

import pytest

from broker.request.context import Operation, RequestContext, ResourceType
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records.group_metadata import OffsetCommitValue, decode_group_record
from storage.batch.records import iterate_records
from tests.support.broker import InProcessBroker
from tests.support.groups import (
    OFFSETS_TOPIC,
    Consumer,
    commit_request,
    create_offsets_topic,
    fetch_offsets_request,
)

UNKNOWN_ID = bytes(15) + b"\1"
NO_ID = bytes(16)

Told = tuple[str, int, int]
"""Topic, partition, error code."""


@pytest.fixture(autouse=True)
def topic_ids(broker: InProcessBroker) -> dict[str, bytes]:
    """The groups' topic, and two that can be read; their ids."""
    create_offsets_topic(broker)
    return {name: broker.create_topic(name, partitions=3) for name in ("orders", "returns")}


def told(answer: Any, topic_ids: dict[str, bytes], version: int) -> list[Told]:
    """What a commit or a deletion was answered, partition by partition."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return [
        (
            names.get(topic.topic_id, topic.topic_id.hex()) if version >= 10 else topic.name,
            one.partition_index,
            one.error_code,
        )
        for topic in answer.topics
        for one in topic.partitions
    ]


def commit(
    broker: InProcessBroker,
    version: int,
    offsets: dict[tuple[str, int], int],
    topic_ids: dict[str, bytes],
    **fields: Any,
) -> list[Told]:
    answer = broker.ask(commit_request(offsets, topic_ids=topic_ids, **fields), version)
    return told(answer, topic_ids, version)


def fetched(answer: Any, version: int) -> list[tuple[int, int, str, int]]:
    """Partition, offset, metadata and error code of all partitions of an answer about one group."""
    topics = answer.topics if version < 8 else answer.groups[0].topics
    return [
        (one.partition_index, one.committed_offset, one.metadata, one.error_code)
        for topic in topics
        for one in topic.partitions
    ]


def fetch(broker: InProcessBroker, version: int = 9, *topics: tuple[str, list[int]], **fields: Any) -> Any:
    return fetched(broker.ask(fetch_offsets_request(version, *topics, **fields), version), version)


def committed_values(broker: InProcessBroker) -> list[tuple[OffsetCommitValue | None, int | None]]:
    """Values and versions of all records of offsets, partition by partition."""
    found = []
    for partition in range(5):
        for _, batch in broker.log(OFFSETS_TOPIC, partition).batches():
            for record in iterate_records(batch):
                decoded = decode_group_record(record.key or b"", record.value)
                found.append((decoded.value, decoded.version))  # type: ignore[union-attr]
    return found


# OffsetCommit


@serves(OffsetCommitRequest)
@every_version(OffsetCommitRequest)
def test_who_is_in_no_group_commits_all_the_same(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    offsets = {("orders", 0): 5, ("returns", 2): 7}
    assert commit(broker, version, offsets, topic_ids, metadata="so far") == [
        ("orders", 0, E.NONE),
        ("returns", 2, E.NONE),
    ]
    assert fetch(broker) == [(0, 5, "so far", E.NONE), (2, 7, "so far", E.NONE)]


@serves(OffsetCommitRequest)
@every_version(OffsetCommitRequest)
def test_a_record_names_the_topics_id_whatever_the_request_went_by(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    commit(broker, version, {("orders", 0): 5}, topic_ids, metadata=None)
    ((value, written_as),) = committed_values(broker)
    assert isinstance(value, OffsetCommitValue)
    assert written_as == 4
    assert (value.offset, value.metadata, value.topic_id) == (5, "", topic_ids["orders"])
    assert (value.commit_timestamp, value.expire_timestamp) == (broker.clock.now_ms(), -1)


@serves(OffsetCommitRequest)
@every_version(OffsetCommitRequest, until=4)
@pytest.mark.parametrize(("retention_ms", "until_ms"), [(1000, 1000), (0, 0), (2**63 - 1, None)])
def test_old_clients_may_say_how_long_an_offset_is_kept(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes], retention_ms: int, until_ms: int | None
) -> None:
    assert commit(broker, version, {("orders", 0): 5}, topic_ids, retention_time_ms=retention_ms) == [
        ("orders", 0, E.NONE)
    ]
    ((value, written_as),) = committed_values(broker)
    assert isinstance(value, OffsetCommitValue)
    assert written_as == 1
    assert value.expire_timestamp == (2**63 - 1 if until_ms is None else broker.clock.now_ms() + until_ms)


@serves(OffsetCommitRequest, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(OffsetCommitRequest, until=9)
def test_partitions_that_do_not_exist_are_told_first_and_the_others_committed(
    broker: InProcessBroker, version: int
) -> None:
    topic = OffsetCommitRequest.Topic

    def partitions(*indexes: int) -> list[Any]:
        return [topic.Partition(partition_index=index, committed_offset=9) for index in indexes]

    request = OffsetCommitRequest(
        group_id="readers",
        topics=[
            topic(name="orders", partitions=partitions(0, 7, 1, -1)),
            topic(name="nope", partitions=partitions(0)),
            topic(name="orders", partitions=partitions(0)),
            topic(name="empty", partitions=[]),
            topic(name="returns", partitions=[]),
            topic(name="returns", partitions=partitions(2)),
            topic(name="returns", partitions=partitions(1)),
        ],
    )
    answer = broker.ask(request, version)
    assert [
        (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions]) for topic in answer.topics
    ] == [
        ("orders", [(7, 3), (-1, 3), (0, 0), (1, 0), (0, 0)]),
        ("nope", [(0, 3)]),
        ("empty", []),
        ("returns", [(2, 0)]),
        ("returns", [(1, 0)]),
    ]


@serves(OffsetCommitRequest, E.NONE, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[10])
def test_from_version_10_on_topics_go_by_their_ids(broker: InProcessBroker, topic_ids: dict[str, bytes]) -> None:
    offsets = {("orders", 0): 5, ("orders", 9): 5, ("nope", 1): 5, ("named only", 2): 5}
    ids = {**topic_ids, "nope": UNKNOWN_ID}
    assert commit(broker, 10, offsets, ids) == [
        ("orders", 9, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 0, E.NONE),
        ("nope", 1, E.UNKNOWN_TOPIC_ID),
        (NO_ID.hex(), 2, E.UNKNOWN_TOPIC_ID),
    ]


@serves(OffsetCommitRequest, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(OffsetCommitRequest, until=9)
def test_a_commit_of_nothing_that_exists_reaches_no_group(broker: InProcessBroker, version: int) -> None:
    assert commit(broker, version, {("nope", 0): 5}, {}, generation_id_or_member_epoch=7) == [
        ("nope", 0, E.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    assert broker.ask(OffsetCommitRequest(group_id="readers", topics=[]), version).topics == []


@every_version(OffsetCommitRequest)
@pytest.mark.parametrize("offset", [-1, -5, 2**63 - 1])
def test_any_offset_may_be_committed(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes], offset: int
) -> None:
    assert commit(broker, version, {("orders", 0): offset}, topic_ids) == [("orders", 0, E.NONE)]
    assert fetch(broker) == [(0, offset, "", E.NONE)]


@serves(OffsetCommitRequest, E.OFFSET_METADATA_TOO_LARGE)
@every_version(OffsetCommitRequest)
def test_the_text_beside_an_offset_has_a_limit_in_characters(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    offsets = {("orders", 0): 5}
    assert commit(broker, version, offsets, topic_ids, metadata="ü" * 4096) == [("orders", 0, E.NONE)]
    assert commit(broker, version, offsets, topic_ids, metadata="u" * 4097) == [
        ("orders", 0, E.OFFSET_METADATA_TOO_LARGE)
    ]


@pytest.mark.settings(offset_metadata_max_bytes=3)
def test_the_limit_is_a_setting(broker: InProcessBroker, topic_ids: dict[str, bytes]) -> None:
    assert commit(broker, 9, {("orders", 0): 5}, topic_ids, metadata="four") == [
        ("orders", 0, E.OFFSET_METADATA_TOO_LARGE)
    ]


def as_member(consumer: Consumer, **fields: Any) -> dict[str, Any]:
    joined = consumer.joined
    return {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id, **fields}


def stable_member(broker: InProcessBroker) -> Consumer:
    consumer = Consumer(broker)
    consumer.join()
    consumer.sync({consumer.joined.member_id: b"all"})
    return consumer


@serves(OffsetCommitRequest, E.NONE, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID)
@every_version(OffsetCommitRequest)
def test_a_member_commits_in_its_generation(broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]) -> None:
    consumer = stable_member(broker)
    for fields, error in (
        (as_member(consumer), E.NONE),
        (as_member(consumer, generation_id_or_member_epoch=7), E.ILLEGAL_GENERATION),
        (as_member(consumer, member_id="stranger"), E.UNKNOWN_MEMBER_ID),
        ({}, E.UNKNOWN_MEMBER_ID),
    ):
        assert commit(broker, version, {("orders", 0): 5}, topic_ids, **fields) == [("orders", 0, error)]


@serves(OffsetCommitRequest, E.REBALANCE_IN_PROGRESS)
@every_version(OffsetCommitRequest)
def test_nobody_commits_while_the_leader_assigns(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    consumer = Consumer(broker)
    consumer.join()
    assert commit(broker, version, {("orders", 0): 5}, topic_ids, **as_member(consumer)) == [
        ("orders", 0, E.REBALANCE_IN_PROGRESS)
    ]


@serves(OffsetCommitRequest, E.ILLEGAL_GENERATION)
@every_version(OffsetCommitRequest, until=8)
def test_up_to_version_8_a_generation_of_no_group_is_an_illegal_one(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    refused = commit(broker, version, {("orders", 0): 5}, topic_ids, generation_id_or_member_epoch=1)
    assert refused == [("orders", 0, E.ILLEGAL_GENERATION)]


@serves(OffsetCommitRequest, E.GROUP_ID_NOT_FOUND)
@every_version(OffsetCommitRequest, since=9)
def test_from_version_9_on_there_is_no_such_group(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    refused = commit(broker, version, {("orders", 0): 5}, topic_ids, generation_id_or_member_epoch=1)
    assert refused == [("orders", 0, E.GROUP_ID_NOT_FOUND)]


@serves(OffsetCommitRequest, E.FENCED_INSTANCE_ID)
@every_version(OffsetCommitRequest, since=7)
def test_a_static_member_commits_under_its_instance_id(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    consumer = Consumer(broker, group_instance_id="left-hand")
    consumer.join(5)
    consumer.sync({consumer.joined.member_id: b"all"})
    fields = as_member(consumer, group_instance_id="left-hand")
    assert commit(broker, version, {("orders", 0): 5}, topic_ids, **fields) == [("orders", 0, E.NONE)]
    fields["member_id"] = "another"
    assert commit(broker, version, {("orders", 0): 5}, topic_ids, **fields) == [("orders", 0, E.FENCED_INSTANCE_ID)]


def test_a_group_may_have_no_name_where_nobody_is_a_member(
    broker: InProcessBroker, topic_ids: dict[str, bytes]
) -> None:
    assert commit(broker, 9, {("orders", 0): 5}, topic_ids, group_id="") == [("orders", 0, E.NONE)]
    assert fetch(broker, group_id="") == [(0, 5, "", E.NONE)]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what the client may do: pairs of operation and resource type."""

    def allow(*allowed: tuple[Operation, ResourceType]) -> None:
        monkeypatch.setattr(RequestContext, "may", lambda _, operation, kind, name="": (operation, kind) in allowed)

    return allow


@serves(OffsetCommitRequest, E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED)
@every_version(OffsetCommitRequest)
def test_committing_needs_the_right_to_read_both_group_and_topic(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes], only: Any
) -> None:
    offsets = {("orders", 0): 5, ("orders", 9): 5}
    only()
    assert [code for _, _, code in commit(broker, version, offsets, topic_ids)] == [E.GROUP_AUTHORIZATION_FAILED] * 2
    only((Operation.READ, ResourceType.GROUP))
    assert [code for _, _, code in commit(broker, version, offsets, topic_ids)] == [E.TOPIC_AUTHORIZATION_FAILED] * 2


# OffsetFetch


@serves(OffsetFetchRequest)
@every_version(OffsetFetchRequest, until=9)
def test_what_is_not_committed_is_no_error(broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]) -> None:
    commit(broker, 9, {("orders", 0): 5}, topic_ids, metadata="m")
    asked = [("orders", [1, 0, 9, 0]), ("nope", [0])]
    answers = [(1, -1, "", 0), (0, 5, "m", 0), (9, -1, "", 0), (0, 5, "m", 0), (0, -1, "", 0)]
    assert fetch(broker, version, *asked) == answers
    assert fetch(broker, version, *asked, group_id="nobody's") == [(index, -1, "", 0) for index in (1, 0, 9, 0, 0)]


@serves(OffsetFetchRequest)
@every_version(OffsetFetchRequest, since=2, until=9)
def test_without_topics_everything_is_told(broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]) -> None:
    assert fetch(broker, version) == []
    commit(broker, 9, {("orders", 2): 5, ("returns", 0): 6, ("orders", 1): 7}, topic_ids)
    answer = broker.ask(fetch_offsets_request(version), version)
    topics = answer.topics if version < 8 else answer.groups[0].topics
    assert {
        topic.name: {one.partition_index: one.committed_offset for one in topic.partitions} for topic in topics
    } == {
        "orders": {2: 5, 1: 7},
        "returns": {0: 6},
    }
    assert len(topics) == 2


@serves(OffsetFetchRequest)
@every_version(OffsetFetchRequest, since=8)
def test_several_groups_are_answered_in_their_order(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    for group_id, offset in (("a", 1), ("b", 2)):
        commit(broker, 9, {("orders", 0): offset}, topic_ids, group_id=group_id)
    groups = [OffsetFetchRequest.Group(group_id=group_id, topics=None) for group_id in ("b", "a", "c", "b")]
    answer = broker.ask(OffsetFetchRequest(groups=groups), version)
    found = [
        (group.group_id, [one.committed_offset for topic in group.topics for one in topic.partitions])
        for group in answer.groups
    ]
    assert found == [("b", [2]), ("a", [1]), ("c", []), ("b", [2])]
    assert broker.ask(OffsetFetchRequest(groups=[]), version).groups == []


@serves(OffsetFetchRequest)
@every_version(OffsetFetchRequest, since=5, until=9)
def test_the_leader_epoch_comes_back_as_it_was_committed(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes]
) -> None:
    request = commit_request({("orders", 0): 5})
    request.topics[0].partitions[0].committed_leader_epoch = 3
    broker.ask(request, 9)
    answer = broker.ask(fetch_offsets_request(version), version)
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    assert topic.partitions[0].committed_leader_epoch == 3


@serves(OffsetFetchRequest, E.NONE, E.UNKNOWN_TOPIC_ID, versions=[10])
def test_from_version_10_on_topics_are_asked_for_by_their_ids(
    broker: InProcessBroker, topic_ids: dict[str, bytes]
) -> None:
    commit(broker, 10, {("orders", 0): 5, ("returns", 1): 6}, topic_ids)
    topic = OffsetFetchRequest.Group.Topic
    asked = [
        topic(topic_id=UNKNOWN_ID, partition_indexes=[1, 0]),
        topic(topic_id=topic_ids["orders"], partition_indexes=[0, 2]),
        topic(name="orders", partition_indexes=[0]),
    ]
    (group,) = broker.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="readers", topics=asked)]), 10
    ).groups
    assert [
        (topic.topic_id, [(one.partition_index, one.committed_offset, one.error_code) for one in topic.partitions])
        for topic in group.topics
    ] == [
        (topic_ids["orders"], [(0, 5, E.NONE), (2, -1, E.NONE)]),
        (UNKNOWN_ID, [(1, -1, E.UNKNOWN_TOPIC_ID), (0, -1, E.UNKNOWN_TOPIC_ID)]),
        (NO_ID, [(0, -1, E.UNKNOWN_TOPIC_ID)]),
    ]
    everything = broker.ask(fetch_offsets_request(10), 10).groups[0].topics
    assert {topic.topic_id for topic in everything} == set(topic_ids.values())


@serves(OffsetFetchRequest, E.GROUP_AUTHORIZATION_FAILED)
@every_version(OffsetFetchRequest, until=9)
def test_who_may_not_see_a_group_is_told_nothing(broker: InProcessBroker, version: int, only: Any) -> None:
    only()
    answer = broker.ask(fetch_offsets_request(version, ("orders", [0, 1])), version)
    if version == 1:
        assert [code for _, _, _, code in fetched(answer, version)] == [E.GROUP_AUTHORIZATION_FAILED] * 2
    elif version < 8:
        assert (answer.error_code, answer.topics) == (E.GROUP_AUTHORIZATION_FAILED, [])
    else:
        assert (answer.groups[0].error_code, answer.groups[0].topics) == (E.GROUP_AUTHORIZATION_FAILED, [])


@serves(OffsetFetchRequest, E.TOPIC_AUTHORIZATION_FAILED)
@every_version(OffsetFetchRequest, until=9)
def test_topics_that_a_client_may_not_see_are_refused_by_name_and_else_left_out(
    broker: InProcessBroker, version: int, topic_ids: dict[str, bytes], only: Any
) -> None:
    commit(broker, 9, {("orders", 0): 5}, topic_ids)
    only((Operation.DESCRIBE, ResourceType.GROUP))
    assert fetch(broker, version, ("orders", [0])) == [(0, -1, "", E.TOPIC_AUTHORIZATION_FAILED)]
    if version >= 2:
        assert fetch(broker, version) == []


# OffsetDelete


def delete_request(*topics: tuple[str, list[int]], group_id: str = "readers") -> OffsetDeleteRequest:
    topic = OffsetDeleteRequest.Topic
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            topic(name=name, partitions=[topic.Partition(partition_index=index) for index in indexes])
            for name, indexes in topics
        ],
    )


def deleted(broker: InProcessBroker, *topics: tuple[str, list[int]], group_id: str = "readers") -> Any:
    """The error for all, and those of the partitions."""
    answer = broker.ask(delete_request(*topics, group_id=group_id), 0)
    return answer.error_code, told(answer, {}, 0)


@serves(OffsetDeleteRequest, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[0])
def test_offsets_are_deleted_one_by_one(broker: InProcessBroker, topic_ids: dict[str, bytes]) -> None:
    commit(broker, 9, {("orders", 0): 5, ("orders", 1): 6}, topic_ids)
    asked = [("nope", [0]), ("orders", [0, 9, 2]), ("returns", [])]
    assert deleted(broker, *asked) == (E.NONE, [("nope", 0, 3), ("orders", 9, 3), ("orders", 0, 0), ("orders", 2, 0)])
    assert fetch(broker) == [(1, 6, "", E.NONE)]
    assert deleted(broker) == (E.NONE, [])


@serves(OffsetDeleteRequest, E.GROUP_ID_NOT_FOUND, E.INVALID_GROUP_ID, versions=[0])
def test_offsets_of_no_group_cannot_be_deleted(broker: InProcessBroker) -> None:
    for asked in ([("orders", [0])], [("nope", [0])], []):
        assert deleted(broker, *asked, group_id="nobody's") == (E.GROUP_ID_NOT_FOUND, [])
    assert deleted(broker, ("orders", [0]), group_id="") == (E.INVALID_GROUP_ID, [])


@serves(OffsetDeleteRequest, E.GROUP_SUBSCRIBED_TO_TOPIC, versions=[0])
def test_offsets_of_what_a_group_reads_are_kept(broker: InProcessBroker, topic_ids: dict[str, bytes]) -> None:
    subscription = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\xff\xff\xff\xff"
    consumer = Consumer(broker, protocols=[("range", subscription)])
    consumer.join()
    consumer.sync({consumer.joined.member_id: b"all"})
    assert deleted(broker, ("orders", [0]), ("returns", [0])) == (
        E.NONE,
        [("orders", 0, E.GROUP_SUBSCRIBED_TO_TOPIC), ("returns", 0, E.NONE)],
    )


@serves(OffsetDeleteRequest, E.NON_EMPTY_GROUP, versions=[0])
def test_offsets_of_a_group_that_reads_nobody_knows_what_are_kept(broker: InProcessBroker) -> None:
    Consumer(broker, protocol_type="connect").join()
    assert deleted(broker, ("orders", [0])) == (E.NON_EMPTY_GROUP, [])


@serves(OffsetDeleteRequest, E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED, versions=[0])
def test_deleting_offsets_needs_rights_on_group_and_topic(
    broker: InProcessBroker, topic_ids: dict[str, bytes], only: Any
) -> None:
    commit(broker, 9, {("orders", 0): 5}, topic_ids)
    only()
    assert deleted(broker, ("orders", [0])) == (E.GROUP_AUTHORIZATION_FAILED, [])
    only((Operation.DELETE, ResourceType.GROUP))
    assert deleted(broker, ("orders", [0])) == (E.NONE, [("orders", 0, E.TOPIC_AUTHORIZATION_FAILED)])


# Deleted topics


def test_the_offsets_of_a_deleted_topic_are_deleted_with_it(
    broker: InProcessBroker, topic_ids: dict[str, bytes]
) -> None:
    commit(broker, 9, {("orders", 0): 5, ("returns", 0): 6}, topic_ids)
    commit(broker, 9, {("orders", 1): 7}, topic_ids, group_id="others")
    topics = [DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16))]
    broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    broker.settle()
    assert fetch(broker) == [(0, 6, "", E.NONE)]
    assert fetch(broker, group_id="others") == []
    assert commit(broker, 9, {("orders", 0): 5}, topic_ids) == [("orders", 0, E.UNKNOWN_TOPIC_OR_PARTITION)]
    broker.restart()
    broker.wait_until(lambda: fetch(broker) == [(0, 6, "", E.NONE)])
