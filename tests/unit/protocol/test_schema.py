"""Declarations: what they refuse and what they give."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass, replace

import pytest

from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.schema import Array, Int32, String, describe, field, layout, message, struct


def test_a_message_says_what_it_is() -> None:
    info = describe(FetchRequest)

    assert (info.name, info.key, info.versions, info.flexible_since) == ("FetchRequest", 1, (4, 18), 12)
    assert info.is_request
    assert not describe(FetchResponse).is_request
    assert not info.is_flexible(11)
    assert info.is_flexible(12)
    with pytest.raises(TypeError, match=r"FetchRequest\.Topic is not declared as a message"):
        describe(FetchRequest.Topic)


def test_a_message_is_made_by_keyword_and_has_no_other_attributes() -> None:
    topic = FetchRequest.Topic(topic="orders", partitions=[])

    with pytest.raises(TypeError):
        FetchRequest.Topic("orders", [])  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="partitions"):
        FetchRequest.Topic(topic="orders")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        topic.partition = 1  # type: ignore[attr-defined]
    assert topic == FetchRequest.Topic(topic="orders", partitions=[])


def test_a_field_that_some_version_lacks_needs_a_default() -> None:
    @struct
    class Forgetful:
        later: Int32 = field(since=3)

    with pytest.raises(TypeError, match=r"Forgetful\.later is not in every version and has no default"):
        layout(Forgetful)


def test_a_type_without_a_form_on_the_wire_is_refused() -> None:
    @struct
    class Bare:
        number: int

    with pytest.raises(TypeError, match=r"Bare\.number is declared as <class 'int'>"):
        layout(Bare)


def test_a_version_of_null_needs_a_type_that_can_be_null() -> None:
    @struct
    class Unsure:
        name: String = field(nullable_since=2, default="")

    with pytest.raises(TypeError, match=r"Unsure\.name has nullable_since"):
        layout(Unsure)


def test_a_struct_may_stand_below_the_field_that_holds_it() -> None:
    @message(key=997, versions=(0, 0), flexible_since=None)
    class Tree:
        branches: Array[Branch]

        @struct
        class Branch:
            length: Int32

    (branches,) = layout(Tree)
    assert branches.name == "branches"
    assert "Tree.Branch" in repr(branches.wire_type)


def test_a_message_can_be_replaced_shown_and_compared_like_any_dataclass() -> None:
    partition = FetchResponse.Response.Partition(partition_index=3, high_watermark=9, records=None)

    assert replace(partition, error_code=1).partition_index == 3
    assert replace(partition, error_code=1) != partition
    assert replace(partition) == partition
    assert "partition_index=3" in repr(partition)
    assert partition != object()


def test_messages_do_not_share_their_lists() -> None:
    one, other = (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]) for _ in range(2))
    one.forgotten_topics_data.append(FetchRequest.ForgottenTopic(partitions=[0]))

    assert other.forgotten_topics_data == []


def test_a_frozen_struct_can_be_a_key() -> None:
    leader = FetchResponse.Response.Partition.CurrentLeader

    assert {leader(leader_id=1): "a"}[leader(leader_id=1)] == "a"
    assert (
        leader() == FetchResponse.Response.Partition(partition_index=0, high_watermark=0, records=None).current_leader
    )


def test_a_frozen_struct_cannot_be_changed() -> None:
    leader = FetchResponse.Response.Partition.CurrentLeader(leader_id=1)

    with pytest.raises(FrozenInstanceError, match=r"leader_id of .*CurrentLeader cannot be changed"):
        leader.leader_id = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del leader.leader_id  # type: ignore[misc]
    assert leader.leader_id == 1


def test_a_struct_passes_for_a_dataclass_before_and_behind_its_first_use() -> None:
    @struct
    class Order:
        customer: String
        items: Array[Int32] = field(default_factory=list)
        amount: Int32 = 3

    assert is_dataclass(Order)
    assert [one.name for one in fields(Order)] == ["customer", "items", "amount"]
    order = Order(customer="a")
    assert asdict(replace(order, items=[7])) == {"customer": "a", "items": [7], "amount": 3}
    assert [one.name for one in layout(Order)] == ["customer", "items", "amount"]
    assert order == Order(customer="a", items=[], amount=3)
