"""ListOffsets: ends, beginnings and times."""

from typing import Any

from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from storage.batch.record_batch import Codec
from tests.parity.exchange import Exchange
from tests.support.batches import T, produced, record
from tests.support.requests import produce_request

Topic = ListOffsetsRequest.Topic
Partition = Topic.Partition


def request(*timestamps: int, topic: str = "orders", partition: int = 0, epoch: int = -1, **fields: Any) -> Any:
    partitions = [
        Partition(partition_index=partition, timestamp=time, current_leader_epoch=epoch) for time in timestamps
    ]
    return ListOffsetsRequest(**{"replica_id": -1, **fields}, topics=[Topic(name=topic, partitions=partitions)])


def limited(topic: str, limit: int) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.Resource
    config = resource.Config(name="max.decompressed.message.bytes", config_operation=0, value=str(limit))
    return IncrementalAlterConfigsRequest(resources=[resource(resource_type=2, resource_name=topic, configs=[config])])


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=2)
    exchange.create_topic("stamped", message_timestamp_type="LogAppendTime")
    exchange.create_topic("timeless")
    for times in ((0, 10), (50, 30), (40,)):
        batch = produced([record(timestamp=T + time) for time in times])
        exchange.ask(f"a batch with the times {times}", produce_request("orders", batch), 9)
    exchange.ask("records without a time", produce_request("timeless", produced([record(timestamp=-1)] * 2)), 9)

    for timestamp in range(-9, 1):
        exchange.ask_each(f"timestamp {timestamp}", request(timestamp))
        exchange.ask_each(f"timestamp {timestamp} of an empty partition", request(timestamp, partition=1))
    for after in (0, 1, 10, 11, 30, 31, 40, 41, 50, 51, 10_000_000):
        exchange.ask_each(f"the time {after} ms after the first", request(T + after))
    for extreme in (-0x8000_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF):
        exchange.ask_each(f"timestamp {extreme}", request(extreme))
    for timestamp in (-3, -1, 0, 1):
        exchange.ask_each(f"timestamp {timestamp} of records without a time", request(timestamp, topic="timeless"))

    exchange.ask_each("an unknown topic", request(-1, topic="nope"))
    exchange.ask_each("an unknown partition", request(-1, partition=2))
    exchange.ask_each("partition -1", request(-1, partition=-1))
    exchange.ask_each("partition 2**31 - 1", request(-1, partition=0x7FFF_FFFF))
    exchange.ask_each("a bad topic name", request(-1, topic="no spaces"))
    exchange.ask_each("an empty topic name", request(-1, topic=""))
    exchange.ask_each("the metadata topic", request(-1, topic="__cluster_metadata"))
    exchange.ask_each("the same partition twice", request(-1, -2))
    exchange.ask_each("the same partition three times", request(-1, -2, -3))
    exchange.ask_each("no topics", ListOffsetsRequest(replica_id=-1, topics=[]))
    exchange.ask_each("a topic without partitions", request())
    twice = [Topic(name="orders", partitions=[Partition(partition_index=index, timestamp=-1)]) for index in (0, 1)]
    exchange.ask_each("the same topic twice", ListOffsetsRequest(replica_id=-1, topics=twice))
    several = [
        Topic(name="orders", partitions=[Partition(partition_index=index, timestamp=-1) for index in (1, 7, 0)]),
        Topic(name="nope", partitions=[Partition(partition_index=0, timestamp=-1)]),
        Topic(name="stamped", partitions=[Partition(partition_index=0, timestamp=-2)]),
    ]
    exchange.ask_each("several topics, one unknown", ListOffsetsRequest(replica_id=-1, topics=several))
    for replica_id in (-2, -3, 0, 1, 5, 0x7FFF_FFFF):
        exchange.ask_each(f"replica {replica_id}", request(-1, replica_id=replica_id))
        exchange.ask_each(
            f"replica {replica_id}, an unknown partition", request(-1, partition=9, replica_id=replica_id)
        )
    for timestamp in (-1, -3, T):
        exchange.ask_each(
            f"committed records only, timestamp {timestamp}", request(timestamp, isolation_level=1), since=2
        )
    for level in (2, 7, -1):
        unknown = request(-1, isolation_level=level)
        exchange.ask_each(f"isolation level {level}", unknown, since=2)
    for epoch in (-2, 0, 1, 5, 0x7FFF_FFFF):
        exchange.ask_each(f"leader epoch {epoch}", request(-1, epoch=epoch), since=4)
        exchange.ask_each(f"leader epoch {epoch}, a bad timestamp", request(-9, epoch=epoch), since=4)
        exchange.ask_each(
            f"leader epoch {epoch}, a bad timestamp of an unknown partition",
            request(-9, epoch=epoch, partition=9),
            since=4,
        )
        exchange.ask_each(f"leader epoch {epoch}, an unknown partition", request(-1, epoch=epoch, partition=9), since=4)
    for timeout in (-1, 0, 1):
        exchange.ask_each(f"a timeout of {timeout}", request(-1, timeout_ms=timeout), since=10)
    too_large(exchange)


def too_large(exchange: Exchange) -> None:
    """Records larger than the topic allows by now, in a compressed batch that has to be opened for a time."""
    for codec in Codec:
        name = f"large-in-{codec.name.lower()}"
        exchange.create_topic(name)
        times = [
            record(timestamp=T),
            record(timestamp=T + 1),
            record(b"x" * 500, timestamp=T + 2),
            record(timestamp=T + 3),
        ]
        exchange.ask(f"a large record, in {name}", produce_request(name, produced(times, codec=codec)), 9)
        exchange.ask(
            f"a batch behind it, in {name}", produce_request(name, produced([record(timestamp=T + 9)], codec=codec)), 9
        )
        exchange.ask(f"the limit of {name}", limited(name, 100), 1)
        if codec is not Codec.NONE:
            exchange.wait_until(
                request(T + 2, topic=name), 11, lambda answer: answer.topics[0].partitions[0].error_code
            )
        for after in (0, 1, 2, 3, 4, 10):
            exchange.ask(f"the time {after} ms after the first, in {name}", request(T + after, topic=name), 11)
        for timestamp in (-3, -1, -2):
            exchange.ask(f"timestamp {timestamp}, in {name}", request(timestamp, topic=name), 11)
