"""Records of groups that are damaged, nonsense, or of two kinds at once: the partition is loaded all the same, every
request is answered, and groups that are in order stay so."""

import dataclasses
import os

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.coordinators.group.consumer.requests import ConsumerHeartbeat
from broker.coordinators.group.requests import TopicPartitionName
from broker.coordinators.group.share.requests import NewOffsets, ShareHeartbeat
from broker.coordinators.group.streams.member import NOTHING
from broker.coordinators.group.streams.requests import StreamsHeartbeat
from protocol.primitives import Malformed
from protocol.records.group_metadata import (
    KEY_TYPES,
    VALUE_TYPES,
    ConsumerGroupRegularExpressionValue,
    GroupRecord,
    decode_group_record,
    encode_group_record,
)
from protocol.schema import describe
from tests.support.group_records import contents
from tests.unit.broker.coordinators.group.consumer_members import Consumer, settle
from tests.unit.broker.coordinators.group.harness import Coordinator, Reply, stable_group
from tests.unit.broker.coordinators.group.streams_members import WORD_COUNT
from tests.unit.protocol.declared import examples

EXAMPLES = int(os.environ.get("OTTLA_TEST_DAMAGED_RECORDS", "50"))
NEWER = [number for number in KEY_TYPES if number >= 3]
"""The types of records of consumer groups, share groups and streams groups."""
NAMES = ("subscribed_topic_names", "source_topics", "repartition_sink_topics")
GROUPS = ["damaged", "other"]
MEMBERS = ["anna", "bert", ""]
IN_ORDER = ["classic in order", "consumer in order", "share in order"]


def topics_of(groups):
    """The topics of every cluster of these tests: their ids are always the same."""
    groups.topics.put("orders", 4, topic_id=b"o" * 16)
    groups.topics.put("lines", 1, topic_id=b"l" * 16)


def share_heartbeat(groups, group_id, member_id, epoch, topics):
    reply = Reply()
    request = ShareHeartbeat(group_id, member_id, epoch, None, "client", "/127.0.0.1", topics)
    groups.writer.append(groups.shard.share_heartbeat(request, reply))
    return reply


def groups_in_order():
    """The log of a group of each kind with members."""
    groups = Coordinator()
    topics_of(groups)
    stable_group(groups, groups.member("anna", group_id=IN_ORDER[0]))
    consumer = Consumer(groups, "anna", group_id=IN_ORDER[1])
    consumer.joins()
    settle(consumer)
    for epoch in (0, 1, 2):
        share_heartbeat(groups, IN_ORDER[2], "anna", epoch, None if epoch else ["orders"])
    return groups.writer.log


LOG_IN_ORDER = groups_in_order()


@st.composite
def stored_records(draw):
    """Key and value of a record of a consumer group or a share group, which may be damaged."""
    number = draw(st.sampled_from(NEWER))
    key_type, value_type = KEY_TYPES[number], VALUE_TYPES[number]
    names = {field.name for field in dataclasses.fields(key_type)}
    given_names = {"group_id": draw(st.sampled_from(GROUPS))}
    if "member_id" in names:
        given_names["member_id"] = draw(st.sampled_from(MEMBERS))
    if "regular_expression" in names:
        given_names["regular_expression"] = draw(st.sampled_from(["o.*", "(", ""]))
    value = draw(st.none() | examples(value_type, describe(value_type).versions[1]))
    key, stored = encode_group_record(GroupRecord(key_type(**given_names), with_topics(draw, value), value and 0))
    how = draw(st.sampled_from(["whole", "whole", "whole", "cut", "changed", "of another type", "longer"]))
    if stored and how == "cut":
        stored = stored[: draw(st.integers(0, len(stored) - 1))]
    elif stored and how == "changed":
        place = draw(st.integers(0, len(stored) - 1))
        stored = stored[:place] + bytes([draw(st.integers(0, 255))]) + stored[place + 1 :]
    elif how == "of another type":
        key = draw(st.sampled_from(NEWER)).to_bytes(2, "big") + key[2:]
    elif how == "longer":
        key += b"\0"
    return key, stored


def with_topics(draw, value):
    """The value, in which topics are those that exist."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            known = getattr(value, field.name)
            if field.name == "topic_id":
                setattr(value, field.name, draw(st.sampled_from([b"o" * 16, b"l" * 16, b"?" * 16])))
            elif (field.name in NAMES and known and isinstance(known[0], str)) or (
                field.name == "topics" and isinstance(value, ConsumerGroupRegularExpressionValue)
            ):
                setattr(value, field.name, draw(st.lists(st.sampled_from(["orders", "lines", "?"]), max_size=3)))
            else:
                with_topics(draw, known)
    elif isinstance(value, list):
        for one in value:
            with_topics(draw, one)
    return value


def readable(records):
    """The records that the loading of a partition does not pass over."""
    for key, value in records:
        try:
            decode_group_record(key, value)
        except Malformed:
            continue
        yield key, value


def ask_everything(groups, group_id):
    """Send each request of clients and administrators."""
    shard, writer = groups.shard, groups.writer
    for ask in (
        shard.describe,
        shard.describe_consumer_group,
        shard.describe_share_group,
        shard.describe_streams_group,
        shard.glance,
    ):
        ask(group_id)
    assert (group_id in [one.group_id for one in shard.list()]) == (shard.glance(group_id) is not None)
    shard.initialized_partitions(group_id)
    shard.fetch(group_id, None, require_stable=True)
    for member in MEMBERS:
        for epoch in (0, 1, -1):
            reply = Reply()
            beat = ConsumerHeartbeat(group_id, member, epoch, topics=["orders"], owned={}, rebalance_timeout_ms=60_000)
            writer.append(shard.consumer_heartbeat(beat, reply))
            assert reply.answer
            assert share_heartbeat(groups, group_id, member, epoch, ["orders"]).answer
            streamed = Reply()
            topology = None if epoch else WORD_COUNT
            beat = StreamsHeartbeat(group_id, member, epoch, topology=topology, owned=NOTHING, process_id="here")
            writer.append(shard.streams_heartbeat(beat, streamed))
            assert streamed.answer
    regex = Reply()
    writer.append(shard.consumer_heartbeat(ConsumerHeartbeat(group_id, "carl", 0, regex="o.*", owned={}), regex))
    assert regex.answer
    groups.member("dora", group_id=group_id).asks_to_join()
    groups.commit(3, group_id=group_id)
    groups.leaves("anna", group_id=group_id)
    deleted = Reply(lambda _: None)
    writer.append(shard.delete_offsets(group_id, [TopicPartitionName("orders", 0)], lambda *answer: deleted(answer)))
    altered = Reply()
    writer.append(shard.alter_share_offsets(group_id, [NewOffsets(b"o" * 16, "orders", {0: 3})], altered))
    assert altered.answer
    gone = Reply()
    writer.append(shard.delete_share_offsets(group_id, ["orders"], lambda *answer: gone(answer)))
    assert gone.answer


def loaded(log):
    """A coordinator that has loaded these records."""
    groups = Coordinator()
    topics_of(groups)
    groups.writer.stands(*((*stored, -1) for stored in log))
    groups.restart()
    return groups


def of_groups(image, names):
    return {name: value for name, value in contents(image).items() if name[1] in names}


BERT = b"\x00\x05\x00\x07damaged\x00\x04bert"
BEGINS = b"\x00\x00\x00\x00\x01\x01\x01\x00\xff\xff\xff\xff\x00"


@settings(max_examples=EXAMPLES)
@example([(b"\x00\x03\x00\x07damaged", b"\x00\x00\x7f\xff\xff\xff\x00")], 0)  # the highest epoch
@example([(BERT, BEGINS + b"\x00")], 0)  # a member of the classic protocol without a protocol
@example([(BERT, BEGINS + b"\x01\x00\x0c\x01\x00\x00\x00\x00\x02\x01\x03\x80\x00\x00\x00")], 0)  # version -32768
@given(st.lists(stored_records(), min_size=1, max_size=12), st.integers(0, len(LOG_IN_ORDER)))
def test_whatever_the_records_say_a_partition_is_loaded_and_serves_its_groups(records, place):
    alone = loaded(LOG_IN_ORDER)
    groups = loaded([*LOG_IN_ORDER[:place], *readable(records), *LOG_IN_ORDER[place:]])
    assert of_groups(groups.shard.image, IN_ORDER) == of_groups(alone.shard.image, IN_ORDER)
    for group_id in GROUPS:
        ask_everything(groups, group_id)
    for one in (alone, groups):
        one.shard.topics_changed({"orders"}, are_new=True)
    for group_id in GROUPS:
        ask_everything(groups, group_id)
    assert of_groups(groups.shard.image, IN_ORDER) == of_groups(alone.shard.image, IN_ORDER)
    groups.pass_ms(400_000)
    for group_id in GROUPS:
        ask_everything(groups, group_id)
        groups.shard.expire_members(group_id, None)
        reply = Reply()
        groups.writer.append(groups.shard.delete(group_id, reply))
        assert reply.answer is not None
