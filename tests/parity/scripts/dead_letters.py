"""Dead letter queues of share groups (KIP-1191): what letters say, which queues a group may have, and what becomes of
records that get no letter."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.share_group_state import ReadShareGroupStateRequest
from storage.batch.record_batch import Codec
from storage.batch.records import Record, iterate_records
from tests.parity.exchange import Exchange
from tests.parity.scripts.share_fetch import ACCEPT, GAP, GROUP, PATIENT_MS, REJECT, RELEASE, Member, configure, jobs
from tests.support.batches import produced, record
from tests.support.requests import fetch_request, produce_request

SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}

BROKER = 4
TOPIC = 2
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
FETCH_VERSION = 11
LETTERS_S = 20.0
"""How long letters may take."""


def run(exchange: Exchange) -> None:
    find = FindCoordinatorRequest(key="", key_type=2, coordinator_keys=["workers:AAAAAAAAAAAAAAAAAAAAAQ:0"])
    exchange.wait_until(find, 6, lambda answer: answer.coordinators[0].error_code == 0)
    names_of_queues(exchange)
    rejected(exchange)
    copied(exchange)
    delivered_too_often(exchange)
    partitions_of_the_queue(exchange)
    queues_that_a_group_may_not_have(exchange)
    created(exchange)


def names_of_queues(exchange: Exchange) -> None:
    """What the configs of a group may say of its queue."""
    names = ("dlq.jobs", "", "other.jobs", "__consumer_offsets", "dlq.not/a/topic", "dlq." + "x" * 250, "dlq.last")
    for name in names:
        alter(exchange, f"a queue named {name[:20]!r}", GROUP, "namer", {"errors.deadletterqueue.topic.name": name})
    alter(exchange, "copies", GROUP, "namer", {"errors.deadletterqueue.copy.record.enable": "maybe"})
    asked = described(GROUP, "namer", "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable")
    exchange.ask_until(
        "the queue of a group",
        asked,
        4,
        lambda answer: any(config.value == names[-1] for config in answer.results[0].configs),
        patience_s=LETTERS_S,
    )


def rejected(exchange: Exchange) -> None:
    """A group that rejects some of its records, one by one and several at once."""
    topic_id = with_queue(exchange, "rejected", "dlq.rejected", 10)
    anna = member(exchange, "rejected")
    anna.fetch("10 records", (topic_id, 0), max_wait_ms=PATIENT_MS)
    of = (topic_id, 0)
    anna.acknowledge("one of each kind", {of: [(0, 3, ACCEPT, REJECT, RELEASE, GAP)]})
    letters(exchange, "one of four", "dlq.rejected", 1)
    state(exchange, "one of four", "rejected")
    anna.acknowledge("three at once", {of: [(4, 6, REJECT)]})
    letters(exchange, "three more", "dlq.rejected", 4)
    anna.acknowledge("what was rejected", {of: [(4, 4, ACCEPT)]})
    anna.fetch("what was released", max_records=1)
    anna.acknowledge("a second delivery", {of: [(2, 2, REJECT)]})
    letters(exchange, "a second delivery", "dlq.rejected", 5)
    state(exchange, "a second delivery", "rejected")


def copied(exchange: Exchange) -> None:
    """A group that has key and value of its records in the letters."""
    topic_id = with_queue(exchange, "copied", "dlq.copied", errors_deadletterqueue_copy_record_enable="true")
    contents = [
        record(b"value", key=b"key", headers=[("trace", b"7"), ("empty", None)]),
        record(None, key=b"a tombstone"),
        record(b"no key", key=None),
        record(b"", key=b""),
    ]
    for codec in (Codec.NONE, Codec.GZIP):
        exchange.ask(None, produce_request("copied", produced(contents, codec=codec)), 9)
    anna = member(exchange, "copied")
    anna.fetch("two batches", (topic_id, 0), max_wait_ms=PATIENT_MS)
    anna.acknowledge("all are rejected", {(topic_id, 0): [(0, 7, REJECT)]})
    letters(exchange, "with their records", "dlq.copied", 8)


def delivered_too_often(exchange: Exchange) -> None:
    """Records that are released, or whose lock expires, after their last delivery."""
    topic_id = with_queue(
        exchange, "too-often", "dlq.too-often", 3, share_delivery_count_limit="2", share_record_lock_duration_ms="1000"
    )
    anna = member(exchange, "too-often")
    of = (topic_id, 0)
    anna.fetch("3 records", of, max_wait_ms=PATIENT_MS)
    anna.acknowledge("released once", {of: [(0, 2, RELEASE)]})
    anna.fetch("again")
    anna.acknowledge("released twice", {of: [(0, 0, RELEASE)]})
    letters(exchange, "released twice", "dlq.too-often", 1)
    letters(exchange, "and two whose lock has expired", "dlq.too-often", 3)
    anna.fetch("when all are given up")


def partitions_of_the_queue(exchange: Exchange) -> None:
    """Which partition of the queue has the letters of which partition."""
    topic_id = with_queue(exchange, "spread", "dlq.spread", partitions=3, queue_partitions=2)
    anna = member(exchange, "spread")
    for index in range(3):
        exchange.ask(None, produce_request("spread", produced(2), partition=index), 9)
    given: set[int] = set()
    while given != {0, 1, 2}:  # each partition is there when its state has been read
        answer = anna.fetch(None, *[(topic_id, index) for index in range(3)], max_wait_ms=PATIENT_MS)
        given |= {one.partition_index for topic in answer.responses for one in topic.partitions if one.acquired_records}
    for index in range(3):
        anna.acknowledge(f"rejecting in partition {index}", {(topic_id, index): [(0, 1, REJECT)]})
    letters(exchange, "of the partitions 0 and 2", "dlq.spread", 4)
    letters(exchange, "of partition 1", "dlq.spread", 2, partition=1)


def queues_that_a_group_may_not_have(exchange: Exchange) -> None:
    """Records are archived without a letter."""
    for name, queue, configs in (
        ("missing", "dlq.missing", None),
        ("refused", "dlq.refused", {}),
        ("prefix", "other.prefix", ENABLED),
    ):
        if configs is not None:
            exchange.create_topic(queue, **configs)
        topic_id = jobs(exchange, name, 2, group_id=name)
        configure(exchange, name, errors_deadletterqueue_topic_name=queue, share_auto_offset_reset="earliest")
        anna = member(exchange, name)
        anna.fetch("2 records", (topic_id, 0), max_wait_ms=PATIENT_MS)
        anna.acknowledge("rejected", {(topic_id, 0): [(0, 0, REJECT)]})
        archived(exchange, name)
        state(exchange, f"of a queue that is {name}", name)
        if configs is not None:
            letters(exchange, f"of a queue that is {name}", queue, 0)


def created(exchange: Exchange) -> None:
    """A queue that the broker creates."""
    alter(exchange, "queues are created", BROKER, "", {"errors.deadletterqueue.auto.create.topics.enable": "true"})
    topic_id = jobs(exchange, "makes", 1, group_id="makes")
    configure(exchange, "makes", errors_deadletterqueue_topic_name="dlq.made", share_auto_offset_reset="earliest")
    anna = member(exchange, "makes")
    anna.fetch("a record", (topic_id, 0), max_wait_ms=PATIENT_MS)
    anna.acknowledge("rejected", {(topic_id, 0): [(0, 0, REJECT)]})
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name="dlq.made")], allow_auto_topic_creation=False)
    exchange.wait_until(asked, 8, lambda answer: not answer.topics[0].error_code, patience_s=LETTERS_S)
    letters(exchange, "in a queue that was created", "dlq.made", 1)
    keys = "errors.deadletterqueue.group.enable", "message.timestamp.type", "cleanup.policy"
    exchange.ask("a queue that was created", described(TOPIC, "dlq.made", *keys), 4)
    exchange.ask("a queue that was created", asked, 8)


def member(exchange: Exchange, group_id: str) -> Member:
    return Member(exchange, group_id, group_id, "anna", 2)


def with_queue(
    exchange: Exchange,
    name: str,
    queue: str,
    *sizes: int,
    partitions: int = 1,
    queue_partitions: int = 1,
    **configs: str,
) -> bytes:
    """A topic with a group of the same name, whose records go to a queue."""
    exchange.create_topic(queue, partitions=queue_partitions, **ENABLED)
    topic_id = jobs(exchange, name, *sizes, group_id=name, partitions=partitions)
    configure(
        exchange,
        name,
        **{
            "share_auto_offset_reset": "earliest",
            "errors_deadletterqueue_topic_name": queue,
            **configs,
        },
    )
    return topic_id


def alter(exchange: Exchange, step: str, kind: int, name: str, configs: dict[str, str]) -> None:
    of_request = IncrementalAlterConfigsRequest.Resource
    changes = [of_request.Config(name=key, config_operation=0, value=value) for key, value in configs.items()]
    resource = of_request(resource_type=kind, resource_name=name, configs=changes)
    exchange.ask(step, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)


def described(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=[*keys])
    return DescribeConfigsRequest(resources=[resource])


def letters(exchange: Exchange, step: str, queue: str, count: int, *, partition: int = 0) -> None:
    """Wait for so many letters, and note them all, in the order of the records that they stand for."""
    request: FetchRequest = fetch_request(queue, partition=partition)
    exchange.wait_until(request, FETCH_VERSION, lambda answer: len(records_of(answer)) >= count, patience_s=LETTERS_S)
    found = records_of(exchange.ask(None, request, FETCH_VERSION))
    in_order = sorted((letter_of(one) for one in found), key=lambda letter: str(letter["headers"]))
    exchange.note(ApiKey.FETCH, f"letters: {step}", FETCH_VERSION, {"letters": in_order})


def records_of(answer: FetchResponse) -> Sequence[Record]:
    (partition,) = answer.responses[0].partitions
    data = bytes(partition.records or b"")
    found: list[Record] = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found += iterate_records(data[:size])
        data = data[size:]
    return found


def letter_of(letter: Record) -> dict[str, object]:
    return {"key": repr(letter.key), "value": repr(letter.value), "headers": [f"{n}={v!r}" for n, v in letter.headers]}


def archived(exchange: Exchange, name: str) -> None:
    """Wait until no record of a group is on its way to a queue."""
    exchange.wait_until(
        read(exchange, name),
        0,
        lambda answer: all(one.delivery_state != 3 for one in answer.results[0].partitions[0].state_batches),
        patience_s=LETTERS_S,
    )


def state(exchange: Exchange, step: str, name: str) -> None:
    """Note what is stored of a group's records, as soon as none is on its way to a queue."""
    archived(exchange, name)
    answer = exchange.ask(f"state: {step}", read(exchange, name), 0)
    assert answer.results[0].partitions[0].error_code == ErrorCode.NONE, answer


def read(exchange: Exchange, name: str) -> ReadShareGroupStateRequest:
    of_topic = ReadShareGroupStateRequest.Topic
    partition = of_topic.Partition(partition=0, leader_epoch=0)
    return ReadShareGroupStateRequest(
        group_id=name, topics=[of_topic(topic_id=exchange.topic_ids[name], partitions=[partition])]
    )
