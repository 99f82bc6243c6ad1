"""What brokers ask the share coordinator: states of share groups, good and bad requests, who is fenced."""

from typing import Any

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from protocol.messages.topics import DeleteTopicsRequest
from tests.parity.exchange import Exchange

SETTINGS = {"share.coordinator.snapshot.update.records.per.snapshot": "2"}

NO_TOPIC = bytes(15) + b"\1"
ACKNOWLEDGED, ARCHIVED = 2, 4


def asked(cls: type[Any], topic_id: bytes, *indexes: int, group_id: str = "workers", **fields: Any) -> Any:
    partitions = [cls.Topic.Partition(partition=index, **fields) for index in indexes or (0,)]
    return cls(group_id=group_id, topics=[cls.Topic(topic_id=topic_id, partitions=partitions)])


def initialize(topic_id: bytes, *indexes: int, state_epoch: int = 1, start_offset: int = 0, **fields: Any) -> Any:
    epochs = {"state_epoch": state_epoch, "start_offset": start_offset}
    return asked(InitializeShareGroupStateRequest, topic_id, *indexes, **epochs, **fields)


def read(topic_id: bytes, *indexes: int, leader_epoch: int = 0, **fields: Any) -> Any:
    return asked(ReadShareGroupStateRequest, topic_id, *indexes, leader_epoch=leader_epoch, **fields)


def summarize(topic_id: bytes, *indexes: int, leader_epoch: int = 0, **fields: Any) -> Any:
    return asked(ReadShareGroupStateSummaryRequest, topic_id, *indexes, leader_epoch=leader_epoch, **fields)


def delete(topic_id: bytes, *indexes: int, **fields: Any) -> Any:
    return asked(DeleteShareGroupStateRequest, topic_id, *indexes, **fields)


def write(topic_id: bytes, *batches: tuple[int, int, int, int], indexes: tuple[int, ...] = (0,), **fields: Any) -> Any:
    of_batch = WriteShareGroupStateRequest.Topic.Partition.StateBatch
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    usual = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": -1}
    found = [of_batch(**dict(zip(names, one, strict=True))) for one in batches]
    return asked(WriteShareGroupStateRequest, topic_id, *indexes, **{**usual, **fields}, state_batches=found)


def run(exchange: Exchange) -> None:
    before_the_topic_is_there(exchange)
    orders = exchange.create_topic("orders", partitions=4)
    about_nothing(exchange, orders)
    about_no_state(exchange, orders)
    states(exchange, orders)
    fences(exchange, orders)
    merging(exchange, orders)
    start_offsets(exchange, orders)
    many(exchange, orders)
    deletions(exchange, orders)
    deleted_topics(exchange)


def before_the_topic_is_there(exchange: Exchange) -> None:
    for request in (initialize(NO_TOPIC), read(NO_TOPIC), write(NO_TOPIC), delete(NO_TOPIC), summarize(NO_TOPIC)):
        exchange.ask_each("before the topic of the states is there", request)
    key = "workers:AAAAAAAAAAAAAAAAAAAAAQ:0"
    find = FindCoordinatorRequest(key="", key_type=2, coordinator_keys=[key])
    exchange.ask_until("the coordinator", find, 6, lambda answer: answer.coordinators[0].error_code == 0)
    exchange.wait_until(read(NO_TOPIC), 0, lambda answer: answer.results[0].partitions[0].error_code == 42)


def about_nothing(exchange: Exchange, orders: bytes) -> None:
    for request in (initialize(orders), read(orders), write(orders), delete(orders), summarize(orders)):
        cls, topics = type(request), request.topics
        exchange.ask_each("without a group", cls(group_id="", topics=topics))
        exchange.ask_each("without topics", cls(group_id="workers", topics=[]))
        nothing = cls.Topic(topic_id=orders, partitions=[])
        exchange.ask_each("a topic without partitions", cls(group_id="workers", topics=[*topics, nothing]))


def about_no_state(exchange: Exchange, orders: bytes) -> None:
    for where, topic_id, index in (
        ("another topic", NO_TOPIC, 0),
        ("the topic without id", bytes(16), 0),
        ("partition 4", orders, 4),
        ("partition -1", orders, -1),
        ("partition 0", orders, 0),
    ):
        exchange.ask_each(f"read the state of {where}", read(topic_id, index))
        exchange.ask_each(f"write the state of {where}", write(topic_id, indexes=(index,)))
        exchange.ask_each(f"summarize the state of {where}", summarize(topic_id, index))
        exchange.ask_each(f"delete the state of {where}", delete(topic_id, index))
        if index:
            exchange.ask_each(f"initialize the state of {where}", initialize(topic_id, index))
    exchange.ask_each("initialize the state of another topic", initialize(NO_TOPIC))
    nobody = {"group_id": "nobody"}
    for request in (
        read(orders, **nobody),
        write(orders, **nobody),
        summarize(orders, **nobody),
        delete(orders, **nobody),
    ):
        exchange.ask_each("of a group that has none", request)


def states(exchange: Exchange, orders: bytes) -> None:
    exchange.ask_each("with a negative epoch", initialize(orders, state_epoch=-1))
    exchange.ask_each("begin", initialize(orders, state_epoch=3, start_offset=5))
    exchange.ask_each("read what has begun", read(orders))
    exchange.ask_each("summarize what has begun", summarize(orders))
    exchange.ask_each("begin without an offset", initialize(orders, 1, start_offset=-1))
    exchange.ask_each("read what begins nowhere", read(orders, 1))
    exchange.ask_each("summarize what begins nowhere", summarize(orders, 1))
    exchange.ask_each("begin at a negative offset", initialize(orders, 3, start_offset=-7))
    exchange.ask_each("read what begins at a negative offset", read(orders, 3))
    exchange.ask_each("begin for another group", initialize(orders, start_offset=9, group_id="others"))
    exchange.ask_each("read for another group", read(orders, group_id="others"))


def fences(exchange: Exchange, orders: bytes) -> None:
    exchange.ask_each("begin with an older state epoch", initialize(orders, state_epoch=2))
    exchange.ask_each("begin with the same state epoch", initialize(orders, state_epoch=3, start_offset=6))
    exchange.ask_each("a leader", read(orders, leader_epoch=4))
    exchange.ask_each("the same leader", read(orders, leader_epoch=4))
    exchange.ask_each("an older leader", read(orders, leader_epoch=3))
    exchange.ask_each("a leader of a negative epoch", read(orders, leader_epoch=-1))
    exchange.ask_each("an older leader sums up", summarize(orders, leader_epoch=3))
    now = {"state_epoch": 3, "leader_epoch": 4, "start_offset": 6}
    exchange.ask_each("an older leader writes", write(orders, **{**now, "leader_epoch": 3}))
    exchange.ask_each("of an older state", write(orders, **{**now, "state_epoch": 2}))
    exchange.ask_each("a negative leader epoch", write(orders, **{**now, "leader_epoch": -1}))
    exchange.ask_each("a negative state epoch", write(orders, **{**now, "state_epoch": -1}))
    exchange.ask_each("a newer leader writes", write(orders, **{**now, "leader_epoch": 5}))
    exchange.ask_each("of a newer state", write(orders, **{**now, "state_epoch": 9}))
    exchange.ask_each("sum up after writes", summarize(orders))
    exchange.ask_each("begin anew after leaders", initialize(orders, state_epoch=4))
    exchange.ask_each("sum up what has begun anew", summarize(orders))
    exchange.ask_each("the older leader again", read(orders, leader_epoch=3))
    exchange.ask_each("the leader again", read(orders, leader_epoch=4))
    exchange.ask_each("sum up after the leader", summarize(orders))


def merging(exchange: Exchange, orders: bytes) -> None:
    exchange.ask("begin to merge", initialize(orders, 2), 0)
    for step, batches in (
        ("one batch", [(0, 9, 0, 1)]),
        ("a later delivery within it", [(3, 5, 0, 2)]),
        ("an acknowledgement", [(3, 4, ACKNOWLEDGED, 2)]),
        ("a gap, and neighbours", [(20, 24, ACKNOWLEDGED, 1), (25, 29, ACKNOWLEDGED, 1), (15, 16, ARCHIVED, 3)]),
        ("what overlaps", [(8, 22, 0, 1), (21, 26, ARCHIVED, 2)]),
        ("an earlier delivery, which changes nothing", [(3, 5, ARCHIVED, 1)]),
        ("nothing", []),
        ("the same again", [(8, 22, 0, 1)]),
    ):
        exchange.ask_each(f"write {step}", write(orders, *batches, indexes=(2,)), since=1)
        exchange.ask_each(f"read {step}", read(orders, 2))


def start_offsets(exchange: Exchange, orders: bytes) -> None:
    for step, offset, count in (
        ("moves on, within a batch", 4, 3),
        ("goes back", 2, 9),
        ("stays, and less is counted", 4, 1),
        ("stays, and more is counted", 4, 7),
        ("moves over all", 100, 0),
        ("is not known", -1, 5),
    ):
        moved = write(orders, (110, 111, 0, 1), indexes=(2,), start_offset=offset, delivery_complete_count=count)
        exchange.ask_each(f"the start offset {step}", moved, since=1)
        exchange.ask_each(f"read: the start offset {step}", read(orders, 2))
        exchange.ask_each(f"summary: the start offset {step}", summarize(orders, 2))


def many(exchange: Exchange, orders: bytes) -> None:
    lines = exchange.create_topic("lines", partitions=2)
    known = initialize(lines, group_id="first")
    exchange.wait_until(known, 0, lambda answer: answer.results[0].partitions[0].error_code == 0)
    cls = InitializeShareGroupStateRequest
    topics = [
        cls.Topic(
            topic_id=topic_id,
            partitions=[cls.Topic.Partition(partition=one, state_epoch=7, start_offset=one) for one in indexes],
        )
        for topic_id, indexes in ((orders, (0, 1, 4)), (lines, (0, 1, 0)))
    ]
    exchange.ask_each("many at once", cls(group_id="many", topics=topics))
    exchange.ask_each("read many", read(lines, 0, 1, 2, group_id="many"))
    exchange.ask_each("sum up many", summarize(lines, 0, 1, 2, group_id="many"))
    exchange.ask_each("write many", write(lines, indexes=(0, 1, 2), state_epoch=7, group_id="many"))
    exchange.ask_each("delete many", delete(lines, 0, 1, 2, group_id="many"))


def deletions(exchange: Exchange, orders: bytes) -> None:
    exchange.ask_each("delete", delete(orders, 1))
    exchange.ask_each("delete again", delete(orders, 1))
    exchange.ask_each("read what is deleted", read(orders, 1))
    exchange.ask_each("sum up what is deleted", summarize(orders, 1))
    exchange.ask_each("begin again with a lower epoch", initialize(orders, 1, state_epoch=0))


def deleted_topics(exchange: Exchange) -> None:
    gone = exchange.create_topic("gone")
    begin = initialize(gone)
    exchange.ask_until(
        "begin in a topic that goes", begin, 0, lambda answer: not answer.results[0].partitions[0].error_code
    )
    topics = [DeleteTopicsRequest.Topic(name="gone", topic_id=bytes(16))]
    exchange.ask(None, DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6)
    exchange.wait_until(summarize(gone), 0, lambda answer: answer.results[0].partitions[0].error_code == 3)
    exchange.wait_until(read(gone), 0, lambda answer: answer.results[0].partitions[0].error_code == 42)
    exchange.ask_each("in a topic that is gone", write(gone))
    exchange.ask_each("delete in a topic that is gone", delete(gone))
