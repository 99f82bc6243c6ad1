"""Subscriptions of consumers, as the coordinator decodes them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.group.subscription import subscribed_topics

NO_USER_DATA = struct.pack(">i", -1)


def subscription(*topics, version=0, behind=NO_USER_DATA):
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + behind


def test_a_group_wants_what_any_of_its_members_wants():
    assert subscribed_topics([subscription("orders"), subscription("orders", "refunds")]) == {"orders", "refunds"}
    assert subscribed_topics([subscription()]) == frozenset()
    assert subscribed_topics([]) == frozenset()


def test_a_subscription_as_the_java_client_sends_it_is_read():
    sent = bytes.fromhex("0001 00000001 0006 6f7264657273 ffffffff 00000000")

    assert subscribed_topics([sent]) == {"orders"}


@pytest.mark.parametrize("version", [1, 2, 3, 4, 99])
def test_what_newer_versions_add_is_left_alone(version):
    behind = struct.pack(">i", 3) + b"abc" + b"partitions owned, generation, rack"

    assert subscribed_topics([subscription("orders", version=version, behind=behind)]) == {"orders"}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0",
        struct.pack(">hi", 0, 1),
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 2**31 - 1),
        subscription(version=-1),
        struct.pack(">hih", 0, 1, 7) + b"orders",
        struct.pack(">hih", 0, 1, -1) + NO_USER_DATA,
        subscription("orders", behind=b""),
        subscription("orders", behind=struct.pack(">i", 5) + b"four"),
        subscription("orders", behind=struct.pack(">i", -2)),
    ],
)
def test_where_one_cannot_be_read_nobody_knows_what_the_group_wants(sent):
    assert subscribed_topics([sent]) is None
    assert subscribed_topics([subscription("orders"), sent]) is None


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))), st.binary())
def test_every_subscription_is_read_to_its_topics(topics, behind):
    sent = subscription(*topics, behind=struct.pack(">i", len(behind)) + behind)

    assert subscribed_topics([sent]) == set(topics)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_not(sent):
    assert subscribed_topics([sent]) is None or isinstance(subscribed_topics([sent]), frozenset)
